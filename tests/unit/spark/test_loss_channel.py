"""The reports of tasks about what they skip: over real sockets, repeated, forged and lost."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import random
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.system import SYSTEM, RealSystem
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark import loss_channel
from pyspark_kafka_direct.spark.loss_channel import LossChannel, LossReceiver, LossReporter, find_loss_channel
from pyspark_kafka_direct.spark.loss_counts import LossCounter, LossTotal, MalformedTotal, ReportedTotals, load_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOSS = LossTotal("t", 3, "aged_out", 1, 40)
DELETED = LossTotal("t", 3, "deleted", 1, 0)
MALFORMED = MalformedTotal("t", 3, "DROPMALFORMED", 5)
FOREVER = (3600, 3600, 3600)  # seconds of each attempt


def totals(*losses: LossTotal) -> ReportedTotals:
    return ReportedTotals(losses)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[LossReceiver]:
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    yield receiver
    receiver.close()


@pytest.fixture
def wait_for_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function; after its call, tasks wait for the driver as long as a loaded machine takes."""

    def raise_limits() -> None:
        monkeypatch.setattr(loss_channel, "_MAX_TASK_DELAY", 120)
        monkeypatch.setattr(loss_channel, "_ATTEMPT_SECONDS", (120,))

    return raise_limits


def test_the_reports_of_tasks_are_summed(
    receiver: LossReceiver, tmp_path: Path, wait_for_acknowledgements: Callable[[], None]
) -> None:
    wait_for_acknowledgements()
    assert receiver.channel.report(totals(LOSS, DELETED), SYSTEM)
    assert receiver.channel.report(totals(LOSS), SYSTEM)
    assert receiver.channel.report(ReportedTotals((), (MALFORMED,)), SYSTEM)
    assert receiver.channel.report(ReportedTotals((), (MALFORMED,)), SYSTEM)
    assert load_totals(tmp_path) == ReportedTotals(
        (LossTotal("t", 3, "aged_out", 2, 80), DELETED), (MalformedTotal("t", 3, "DROPMALFORMED", 10),)
    )


def test_a_repeated_report_is_acknowledged_again_and_counted_once(receiver: LossReceiver, tmp_path: Path) -> None:
    channel = receiver.channel
    report = json.dumps(["nonce", [[["t", 3, "aged_out", 1, 40]], []]]).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(120)
        for _ in range(3):
            sender.sendto(channel.digest(report) + report, (channel.host, channel.port))
            assert sender.recv(100) == channel.digest(channel.digest(report))
    assert load_totals(tmp_path) == totals(LOSS)


def test_the_oldest_reports_are_forgotten(
    receiver: LossReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_channel, "_REMEMBERED_REPORTS", 2)
    channel = receiver.channel
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(120)
        for offsets in (1, 10, 100, 100, 10, 1):  # only the first one was forgotten
            report = json.dumps(["nonce", [[["t", 3, "aged_out", 1, offsets]], []]]).encode()
            sender.sendto(channel.digest(report) + report, (channel.host, channel.port))
            assert sender.recv(100) == channel.digest(channel.digest(report))
    assert load_totals(tmp_path) == totals(LossTotal("t", 3, "aged_out", 4, 112))


@pytest.mark.parametrize("key", ["another key", ""])
def test_a_report_without_the_key_is_neither_counted_nor_acknowledged(
    receiver: LossReceiver, tmp_path: Path, key: str, wait_for_acknowledgements: Callable[[], None]
) -> None:
    channel = receiver.channel
    assert not LossChannel(channel.host, channel.port, key).report(totals(DELETED), SYSTEM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in (b"", b"x", b"[]" * 20_000):
            sender.sendto(datagram, (channel.host, channel.port))
    wait_for_acknowledgements()
    assert channel.report(totals(LOSS), SYSTEM), "the receiver is still there"
    assert load_totals(tmp_path) == totals(LOSS)


def test_only_the_driver_can_acknowledge() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))

        def acknowledge() -> None:
            datagram, sender = other.recvfrom(65_535)
            other.sendto(hmac.digest(b"another key", datagram[:32], "sha256"), sender)

        SYSTEM.start_thread(acknowledge, "acknowledge")
        assert not LossChannel("127.0.0.1", other.getsockname()[1], "key").report(totals(LOSS), SYSTEM)


def test_a_driver_that_is_gone_delays_no_task(
    receiver: LossReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_channel, "_ATTEMPT_SECONDS", FOREVER)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with caplog.at_level(logging.INFO):
        assert not LossChannel("127.0.0.1", port, "key").report(totals(LOSS), SYSTEM)
        assert not LossChannel("no-such-host.invalid", port, "key").report(totals(LOSS), SYSTEM)
        assert not LossChannel("a" * 70 + ".invalid", port, "key").report(totals(LOSS), SYSTEM)  # no legal host name
    assert "cannot report skipped offsets to no-such-host.invalid" in caplog.text


def test_a_driver_that_does_not_respond_delays_no_task(
    receiver: LossReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_channel, "_ATTEMPT_SECONDS", FOREVER)
    reporter = LossReporter(SYSTEM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        channel = LossChannel("127.0.0.1", silent.getsockname()[1], "key")
        other = (LossTotal("u", 0, "deleted", 1, 0), MalformedTotal("v", 1, "PERMISSIVE", 2))
        reporter.report(channel, ReportedTotals((LOSS, other[0]), (other[1],)))
        assert reporter._has_thread, "the task does not wait for the attempts"
        reporter.report(receiver.channel, totals(LOSS))
        datagrams = receive_reports(silent, reporter)
        assert (len(datagrams), lost_offsets(datagrams)) == (3, 40)
        assert "t-3, u-0, v-1: the driver did not confirm what was skipped" in caplog.text
        assert load_totals(tmp_path) == totals(LOSS)
        monkeypatch.setattr(loss_channel, "_MAX_TASK_DELAY", 3600)  # a driver that has not responded is not waited for
        for _ in range(10):
            reporter.report(channel, totals(LOSS))
        datagrams = receive_reports(silent, reporter)
        assert len(datagrams) <= 3 * 2, "waiting reports are sent as one"
        assert lost_offsets(datagrams) == 10 * 40
        assert len(caplog.records) > 1
        assert reporter._unresponsive == {channel}
        reporter.report(channel, totals(LOSS))
        receive_reports(silent, reporter, channel)
        assert reporter._unresponsive == set(), "the next tasks wait for a driver that responds again"


def test_a_task_ends_after_its_report_if_the_driver_responds(
    receiver: LossReceiver, tmp_path: Path, wait_for_acknowledgements: Callable[[], None]
) -> None:
    wait_for_acknowledgements()
    reporter = LossReporter(SYSTEM)
    for number in range(1, 6):
        reporter.report(receiver.channel, totals(LOSS))
        assert load_totals(tmp_path) == totals(LossTotal("t", 3, "aged_out", number, 40 * number))


class FailingSystem(RealSystem):
    """The machine; the first threads cannot be started."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sockets: list[socket.socket] = []

    def start_thread(self, *thread: Any) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("can't start new thread")
        super().start_thread(*thread)

    def bind_udp(self, *address: Any) -> Any:
        self.sockets.append(super().bind_udp(*address))
        return self.sockets[-1]


@pytest.mark.parametrize("failures", [1, 3])
def test_what_could_not_be_reported_without_a_thread_is_reported_later(
    receiver: LossReceiver, tmp_path: Path, wait_for_acknowledgements: Callable[[], None], failures: int
) -> None:
    wait_for_acknowledgements()
    reporter = LossReporter(FailingSystem(failures))
    for _ in range(failures):
        reporter.report(receiver.channel, totals(LOSS))
    assert load_totals(tmp_path) == totals()
    reporter.report(receiver.channel, totals(LOSS))
    count = failures + 1
    assert load_totals(tmp_path) == totals(LossTotal("t", 3, "aged_out", count, 40 * count))


def test_a_receiver_that_cannot_be_announced_closes_its_port(tmp_path: Path) -> None:
    system = FailingSystem()
    with pytest.raises(FileNotFoundError):
        LossReceiver(tmp_path / "missing", "127.0.0.1", "127.0.0.1", system)
    assert [each.fileno() for each in system.sockets] == [-1]


@pytest.mark.parametrize("seed", range(6))
def test_the_totals_are_those_of_all_counters_that_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """Planners may count before ``enable(spark)``, and an executor's disk may have been full."""
    source = random.Random(seed)
    folder: list[Path] = []
    counters = [LossCounter(SYSTEM, lambda: folder[0] if folder else None) for _ in range(3)]
    sums: Counter[tuple[object, ...]] = Counter()
    for number in range(40):
        if number == 10:
            folder.append(tmp_path)
        counter = counters[number % 3]
        tp, skipped = TopicPartition(source.choice("tu"), source.randrange(2)), source.randrange(1, 9)
        if source.random() < 0.5:
            cause = source.choice([DataLossCause.AGED_OUT, DataLossCause.TRUNCATED])
            counter.add(cause, {tp: skipped})
            sums.update({(*tp, cause.name.lower(), "losses"): 1, (*tp, cause.name.lower(), "offsets"): skipped})
        else:
            counter.add_malformed("PERMISSIVE", {tp: skipped}, {tp: 2})
            sums.update({(*tp, "records"): skipped, (*tp, "schema errors"): 2})
    (tmp_path / f"{source.choice('0z')}.losses").write_text("{")
    found: dict[tuple[object, ...], int] = {}
    losses, malformed = load_totals(tmp_path)
    for loss in losses:
        found[loss.topic, loss.partition, loss.cause, "losses"] = loss.losses
        found[loss.topic, loss.partition, loss.cause, "offsets"] = loss.offsets
    for each in malformed:
        found[each.topic, each.partition, "records"] = each.records
        found[each.topic, each.partition, "schema errors"] = each.schema_errors
    assert found == sums
    assert len(caplog.messages) == 1


def receive_reports(driver: socket.socket, reporter: LossReporter, channel: LossChannel | None = None) -> list[bytes]:
    """Receive datagrams until all reports are sent, and acknowledge them if the channel is given."""
    driver.settimeout(0.01)
    deadline = SYSTEM.monotonic() + 120
    datagrams = []
    while reporter._has_thread:
        assert SYSTEM.monotonic() < deadline
        with contextlib.suppress(TimeoutError):
            datagram, sender = driver.recvfrom(65_535)
            driver.sendto(b"?" if channel is None else channel.digest(datagram[:32]), sender)
            datagrams.append(datagram)
    return datagrams


def lost_offsets(datagrams: list[bytes]) -> int:
    """Return the sum of the offsets of a partition, in which repeated datagrams count once."""
    reports = [ReportedTotals.from_json(json.loads(datagram[32:])[1]) for datagram in set(datagrams)]
    return sum(loss.offsets for report in reports for loss in report.losses if loss.topic == LOSS.topic)


def test_planners_find_the_port_in_the_shared_folder(
    receiver: LossReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_channel, "find_shared_folder", lambda: tmp_path)
    assert find_loss_channel() == receiver.channel
    assert receiver.channel.key not in repr(receiver.channel)
    (tmp_path / "loss-channel").write_text("{}")
    assert find_loss_channel() is None
    monkeypatch.setattr(loss_channel, "find_shared_folder", lambda: None)
    assert find_loss_channel() is None


def test_a_closed_receiver_closes_its_port(tmp_path: Path) -> None:
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    receiver.close()
    deadline = SYSTEM.monotonic() + 120
    while receiver.channel.report(totals(LOSS), SYSTEM):  # until the thread has ended
        assert SYSTEM.monotonic() < deadline


def test_a_confirmed_report_is_not_logged(
    receiver: LossReceiver, caplog: pytest.LogCaptureFixture, wait_for_acknowledgements: Callable[[], None]
) -> None:
    wait_for_acknowledgements()
    with caplog.at_level(logging.INFO):
        LossReporter(SYSTEM).report(receiver.channel, totals(LOSS))
    assert caplog.text == ""


def test_a_closed_receiver_ends_its_thread(tmp_path: Path) -> None:
    """It waits for datagrams, so it has to be woken."""
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    before = {thread for thread in threading.enumerate() if thread.name == "pyspark-kafka-direct-losses"}
    receiver.close()
    receiver.close()
    for _ in range(2400):
        if before - {*threading.enumerate()}:
            return
        time.sleep(0.05)
    raise AssertionError("the thread has not ended")
