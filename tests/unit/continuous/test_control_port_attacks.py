"""Strangers at the control port of a run, and a third party on the connection between the driver and a task."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Self

import pytest
from tests.simulation.peer_sockets import PeerListener
from tests.unit.continuous.run_cluster import (
    A0,
    A1,
    B0,
    LONG_EPOCHS,
    SETTINGS,
    CoordinatorRun,
    Peer,
    RunCluster,
    Stranger,
)
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.control_messages import (
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    encode_message,
)
from pyspark_kafka_direct.continuous.control_socket import MAX_LINE_BYTES, ControlSocket, TaskChannel
from pyspark_kafka_direct.errors import QueryRunError

HERE, THERE = "10.0.0.1", "10.0.0.2"
MANY = 300  # more than may wait for their handshake
MOST = 4  # connections that may wait in the tests of a small port
WRONG_CODE = "sent an invalid message (its authentication code is wrong"


class Strangers:
    """Connections that send nothing."""

    def __init__(self, driver: CoordinatorRun, count: int, host: str = HERE) -> None:
        process = driver.cluster.other_process(host)
        self.connections = [Stranger(driver, process) for _ in range(count)]
        driver.cluster.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.connections:
            each.close()


class Interceptor:
    """Relays lines between a task and the driver, and can send others."""

    def __init__(self, driver: CoordinatorRun) -> None:
        self._driver = driver
        self._process = driver.cluster.environment.process("interceptor")
        self._listener = self._process.listen("interceptor", 0)
        self.lines: dict[str, list[bytes]] = {"task": [], "driver": []}  # by the receiver
        self._sockets: dict[str, ControlSocket] = {}
        self._process.spawn("relay", self._relay)

    def connect(self, task: int) -> TaskChannel:
        address = replace(self._driver.address, host="interceptor", port=self._listener.port)
        return TaskChannel.connect(address, task, 0, self._driver.cluster.deadline())

    def send(self, receiver: str, line: bytes) -> None:
        self._sockets[receiver].send(line)

    def _relay(self) -> None:
        self._process.wait_ready([self._listener.fileno()], [], 1e6)
        self._sockets["task"] = ControlSocket(self._listener.accept()[0])
        self._sockets["driver"] = ControlSocket(self._driver.connect_from(self._process))
        while not any(each.closed_by_peer for each in self._sockets.values()):
            self._process.wait_ready([each.fileno() for each in self._sockets.values()], [], 1e6)
            for sender, receiver in (("task", "driver"), ("driver", "task")):
                for line in self._sockets[sender].receive():
                    self.lines[receiver].append(line + b"\n")
                    self._sockets[receiver].send(line + b"\n")
        for each in self._sockets.values():
            each.close()


class TestStrangersAtThePort:
    @pytest.mark.parametrize("host", [HERE, THERE])
    def test_many_connections_do_not_evict_a_task_in_its_handshake(self, cluster: RunCluster, host: str) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Stranger(driver) as first:
            first.read()  # the challenge
            with Strangers(driver, MANY, host) as strangers:
                assert not strangers.connections[-1].is_open
                first.send(b"?\n")
                assert "Expecting value" in first.read().reason, "the driver has read the message"

    def test_many_connections_do_not_exclude_the_tasks_of_other_hosts(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Strangers(driver, MANY, THERE) as strangers:
            assert not strangers.connections[-1].is_open
            assert len(driver.start_tasks()) == 2

    def test_a_task_waits_until_fewer_connections_are_waiting(
        self, cluster: RunCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._MAX_EXTRA_CONNECTIONS", 0)
        driver = cluster.driver(settings=LONG_EPOCHS)
        channels: list[TaskChannel] = []
        with Strangers(driver, 3) as strangers:
            assert [each.is_open for each in strangers.connections] == [True, True, False]
            cluster.process.spawn("task", lambda: channels.append(driver.connect(0)))
            cluster.sleep(1)
            assert channels == [], "no place is free"
        cluster.sleep(1)
        assert len(channels) == 1

    def test_bytes_now_and_then_do_not_extend_the_deadline(self, cluster: RunCluster) -> None:
        driver, start = cluster.driver(settings=LONG_EPOCHS), cluster.now
        with Stranger(driver) as slow:
            slow.read()
            for _ in range(2):
                cluster.sleep(4)
                slow.send(b"{")
            assert slow.read() == HandshakeRejected("it sent no handshake within 10 s")
            assert cluster.now - start == pytest.approx(10, abs=0.1)

    def test_the_port_is_closed_when_all_tasks_have_connected(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Strangers(driver, 2) as strangers:
            channels = driver.start_tasks()
            assert [each.is_open for each in strangers.connections] == [False, False]
            with pytest.raises(ConnectionRefusedError):
                Stranger(driver)
        driver.coordinator.stop()
        assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2

    def test_accepting_resumes_when_descriptors_are_free_again(
        self, cluster: RunCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempts: list[float] = []

        def fail(_: PeerListener) -> None:
            attempts.append(cluster.now)
            raise OSError(24, "Too many open files")

        driver = cluster.driver(settings=LONG_EPOCHS)
        with monkeypatch.context() as exhausted, Stranger(driver):
            exhausted.setattr(PeerListener, "accept", fail)
            cluster.sleep(1)
        assert 1 < len(attempts) < 8, "the driver pauses between its attempts"
        assert len(driver.start_tasks()) == 2
        assert [each for each in caplog.messages if "could not be accepted: [Errno 24]" in each]


class TestSmallPort:
    """Which connection is closed if too many from several addresses and networks are waiting for their handshake."""

    @pytest.fixture
    def driver(self, cluster: RunCluster, monkeypatch: pytest.MonkeyPatch) -> CoordinatorRun:
        monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._MAX_EXTRA_CONNECTIONS", MOST - 2)
        return cluster.driver(settings=LONG_EPOCHS)

    @pytest.mark.parametrize(
        ("addresses", "closed"),
        [
            ([*(f"2001:db8:0:1:{number:x}::1" for number in range(MOST)), "2001:db8:0:2::1"], 3),
            *(
                ([*[f"{prefix}9"] * (MOST - 1), f"{prefix}1", f"{prefix}2"], 2)
                for prefix in ("2001:db8:0:1::", "10.0.0.", "::ffff:10.0.0.")
            ),
            *(
                ([f"{prefix}7", f"{prefix}8", "2001:db8::1", "2001:db8::2", f"{prefix}1"], 3)
                for prefix in ("10.0.0.", "::ffff:10.0.0.")
            ),
            ([*(f"2001:db8:0:{number}::1" for number in range(MOST)), "fe80::1%eth0"], 4),
        ],
        ids=["network", "address-6", "address-4", "address-mapped", "each-4", "each-mapped", "same-number"],
    )
    def test_the_newest_connection_of_the_busiest_network_and_address_is_closed(
        self, cluster: RunCluster, driver: CoordinatorRun, addresses: list[str], closed: int
    ) -> None:
        """The addresses of an IPv6 network count together, and each IPv4 address is a network."""
        connections = [Stranger(driver, cluster.other_process(address)) for address in addresses]
        cluster.sleep(0.1)
        assert [each.is_open for each in connections] == [number != closed for number in range(len(addresses))]


class TestLog:
    @pytest.mark.parametrize(
        "line",
        [b'{"type":"EpochRequest","epoch":1,"stop":true,"a\\nERROR b\\u001b[31m":1}\n', b'{"type":"\\n\\u001b"}\n'],
        ids=["field", "type"],
    )
    def test_line_breaks_and_control_characters_are_escaped(
        self, cluster: RunCluster, caplog: pytest.LogCaptureFixture, line: bytes
    ) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Stranger(driver) as stranger:
            stranger.read()
            stranger.send(line)
            reason = stranger.read().reason
        messages = [*caplog.messages, reason, str(driver.failure())]
        assert [each for each in messages if not each.isprintable()] == []
        assert r"\x1b" in reason

    def test_a_task_escapes_what_an_unknown_program_sends(self, cluster: RunCluster) -> None:
        messages = [HandshakeChallenge("n"), HandshakeRejected("x\nERROR \x1b[31m")]
        with pytest.raises(QueryRunError) as raised:
            Peer(cluster, [partial(lambda message, _: encode_message(message), each) for each in messages]).connect(120)
        assert str(raised.value).isprintable()
        assert r"x\nERROR \x1b[31m" in str(raised.value)

    def test_many_rejections_log_one_warning(self, cluster: RunCluster, caplog: pytest.LogCaptureFixture) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        for _ in range(20):
            with Stranger(driver) as stranger:
                stranger.read()
                stranger.send(b"GET / HTTP/1.1\r\n")
                stranger.read()
        assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1


class TestThirdPartyOnTheConnection:
    def test_it_cannot_forge_a_report(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        interceptor = Interceptor(driver)
        with interceptor.connect(0) as channel:
            other = driver.connect(1)
            for task in (channel, other):
                task.report_ready()
            for task in (channel, other):
                task.wait_for_start()
                cluster.next_epoch_request(task)
            cluster.report(other, 3, {A1: 6})
            interceptor.send("driver", encode_message(EpochReport(3, {A0: 1_000, B0: 1_000}, 0, 0, 0)))
            assert WRONG_CODE in str(driver.failure())
        assert driver.epochs == []

    @pytest.mark.parametrize("length", [10, 10_000_000])
    def test_garbage_ends_the_run(self, cluster: RunCluster, length: int) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        interceptor = Interceptor(driver)
        with interceptor.connect(0):
            interceptor.send("driver", b"{" * length + b"\n")
            assert WRONG_CODE in str(driver.failure())

    def test_a_line_without_end_ends_the_run(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        interceptor = Interceptor(driver)
        with interceptor.connect(0):
            for _ in range(20):
                interceptor.send("driver", b"{" * 1_000_000)
            assert f"sent an invalid message (a line of more than {MAX_LINE_BYTES} bytes)" in str(driver.failure())

    def test_it_cannot_stop_a_task(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        interceptor = Interceptor(driver)
        with interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            interceptor.send("task", encode_message(EpochRequest(3, stop=True)))
            with pytest.raises(QueryRunError, match="sent an invalid message"):
                cluster.next_epoch_request(channel)

    def test_it_cannot_replay_a_request(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=replace(SETTINGS, epoch_interval=0.5))
        interceptor = Interceptor(driver)
        with interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            assert cluster.next_epoch_request(channel).epoch == 3
            interceptor.send("task", interceptor.lines["task"][-1])
            with pytest.raises(QueryRunError, match="sent an invalid message"):
                cluster.next_epoch_request(channel)

    def test_it_cannot_replay_a_report(self, cluster: RunCluster) -> None:
        """The id of an epoch without progress is requested twice, and the second response moves back."""
        driver = cluster.driver()
        interceptor = Interceptor(driver)
        with interceptor.connect(0) as channel:
            other = driver.connect(1)
            for task in (channel, other):
                task.report_ready()
            for task in (channel, other):
                task.wait_for_start()
                assert cluster.next_epoch_request(task).epoch == 3
            cluster.report(channel, 3, {A0: 5, B0: 7})
            cluster.report(other, 3, {A1: 6})
            for task in (channel, other):
                assert cluster.next_epoch_request(task).epoch == 3
            cluster.report(other, 3, {A1: 6})
            interceptor.send("driver", interceptor.lines["driver"][-1])
            assert WRONG_CODE in str(driver.failure())
        assert len(driver.epochs) == 1

    def test_it_cannot_reflect_a_message(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        interceptor = Interceptor(driver)
        with interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            interceptor.send("driver", interceptor.lines["task"][-1])
            assert WRONG_CODE in str(driver.failure())

    def test_it_cannot_replay_a_connection_in_the_next_run(self, cluster: RunCluster) -> None:
        """With the same secret: the driver's nonce alone makes the difference."""
        first = cluster.driver(settings=LONG_EPOCHS)
        interceptor = Interceptor(first)
        with interceptor.connect(0) as channel:
            channel.report_failure(ValueError("on purpose"), cluster.deadline())
            assert "on purpose" in str(first.failure())
            recorded = list(interceptor.lines["driver"])
        second = cluster.driver(settings=LONG_EPOCHS)
        with Stranger(second) as stranger:
            stranger.read()
            stranger.send(recorded[0])
            assert stranger.read() == HandshakeRejected("it does not have the secret of the run")
        assert len(second.start_tasks()) == 2
