"""Logs on a broker that restarts, freezes or denies access; callbacks that raise or never return."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.log.log_helpers import (
    LIST_OFFSETS,
    TIMEOUT,
    Recorder,
    params,
    started_log,
    threads_of,
    tp,
    wait_for_no_thread,
    wait_result,
)
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.waiting import suspend, wait_until
from tests.logins import jaas_text
from tests.proxy import Fault, Network

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    IllegalLogStateError,
    KafkaDirectError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.log import LogRecord


@pytest.fixture(scope="module")
def bench(stoppable_kafka: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(stoppable_kafka)


@pytest.fixture
def topic(bench: Workbench) -> str:
    return bench.make_topic()


# Longer than the limit of a test: a stop must not wait for requests.
LONG_TIMEOUTS = {"request_timeout_ms": 600_000, "default_api_timeout_ms": 700_000, "delivery_timeout_ms": 700_000}


@contextmanager
def frozen(kafka: EmbeddedKafka) -> Iterator[None]:
    """Suspend the broker: connections stay open, and it does not respond."""
    pid = kafka.pids[1]
    suspend(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_a_read_survives_a_broker_restart(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    """A transaction stays open during the restart, so the read to the end is pending. Another log stops meanwhile."""
    seen = Recorder()
    producer = new_transactional_producer(bench, topic)
    properties = params(bench.bootstrap_servers, isolation_level="read_committed")
    stopped_topic = bench.make_topic()
    stopped = KafkaBasedLog(stopped_topic, params(bench.bootstrap_servers, **LONG_TIMEOUTS))
    stopped.start()
    with KafkaBasedLog(topic, properties, on_record=seen) as log:
        write_open_transaction(producer, topic, [b"a", b"b"])
        end = log.read_to_end()
        with pytest.raises(TimeoutError):
            end.result(1)
        stoppable_kafka.kill_broker(1)
        stopped.send(b"k", b"v")
        with at_most(120):
            stopped.stop(2)
        wait_for_no_thread(stopped_topic)
        with pytest.raises(TimeoutError):
            end.result(3)
        stoppable_kafka.start_broker(1)
        with pytest.raises(TimeoutError):
            end.result(1)
        producer.commit_transaction(600)
        wait_result(end)
        assert seen.values() == [b"a", b"b"]
        sent = wait_result(log.send_with_receipt(b"k", b"after"))
        log.wait_for(sent, TIMEOUT)
        assert seen.values()[-1] == b"after"


def test_stopping_with_a_frozen_broker(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers, **LONG_TIMEOUTS))
    log.start()
    with frozen(stoppable_kafka):
        sent = log.send_with_receipt(b"k", b"v")
        end = log.read_to_end()
        time.sleep(0.5)
        with at_most(120):
            log.stop(2)
        assert isinstance(end.exception(TIMEOUT), IllegalLogStateError)
        assert isinstance(sent.exception(TIMEOUT), KafkaDirectError)
    wait_for_no_thread(topic)


def test_stopping_while_end_offsets_are_fetched(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    """The request blocks the thread for some seconds: the stop does not wait for it, and the thread ends by itself."""
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), read_only=True)
    log.start()
    with frozen(stoppable_kafka):
        end = log.read_to_end()
        time.sleep(0.5)
        log.stop(0.5)
        assert isinstance(end.exception(TIMEOUT), IllegalLogStateError)
        wait_for_no_thread(topic)


def test_stopping_while_a_callback_hangs(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    release, inside = threading.Event(), threading.Event()

    def hang(_: LogRecord) -> None:
        inside.set()
        release.wait(TIMEOUT)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=hang)
    log.start()
    bench.write(topic, [b"x"])
    assert inside.wait(TIMEOUT)
    ends = [log.read_to_end() for _ in range(2)]
    with at_most(120):
        log.stop(1)
    assert "did not stop within the timeout" in caplog.text
    for end in ends:
        assert isinstance(end.exception(0), IllegalLogStateError)
    assert len(threads_of(topic)) == 1
    release.set()
    wait_for_no_thread(topic)


def test_a_stop_completes_reads_behind_a_hanging_callback(bench: Workbench, topic: str) -> None:
    release = threading.Event()
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    first = log.read_to_end(lambda _: (release.wait(TIMEOUT), None)[1])
    second = log.read_to_end()
    wait_result(first)
    third = log.read_to_end()
    with at_most(120):
        log.stop(1)
    assert second.done()
    assert isinstance(third.exception(0), IllegalLogStateError)
    release.set()
    wait_for_no_thread(topic)


def test_a_callback_may_stop_its_log(bench: Workbench, topic: str) -> None:
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=lambda _: log.stop(5))
    log.start()
    bench.write(topic, [b"x", b"y"])
    wait_for_no_thread(topic)
    with pytest.raises(IllegalLogStateError, match="stopped"):
        log.read_to_end()


def test_a_callback_of_send_may_stop_its_log(bench: Workbench, topic: str) -> None:
    """Records sent before are still delivered."""
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    stopped = threading.Event()
    log.send(b"k", b"1", lambda *_: (log.stop(5), stopped.set())[1])  # type: ignore[func-returns-value]
    later = log.send_with_receipt(b"k", b"2")
    assert stopped.wait(TIMEOUT)
    assert wait_result(later).offset == 1
    wait_for_no_thread(topic)


def test_a_callback_of_send_cannot_wait_for_the_log(bench: Workbench, topic: str) -> None:
    """Later records are completed by the same thread, and the read waits for them."""
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        raised: list[BaseException] = []

        def wait(*_: object) -> None:
            for future in (log.read_to_end(), log.send_with_receipt(b"k", b"3")):
                try:
                    future.result(5)
                except BaseException as error:
                    raised.append(error)

        log.send(b"k", b"1", wait)
        wait_result(log.send_with_receipt(b"k", b"2"))
        wait_until(lambda: len(raised) == 2, "the errors")
        assert [type(error) for error in raised] == [IllegalLogStateError, RuntimeError]
        wait_result(log.read_to_end())


def test_a_callback_in_the_thread_of_the_sender_cannot_wait_for_the_log(bench: Workbench, topic: str) -> None:
    """A record that is too large fails at once, and completes when the callback returns."""
    unresponsive = threading.Event()

    def fault(api_key: int) -> Fault:
        return Fault.NO_RESPONSE if api_key == LIST_OFFSETS and unresponsive.is_set() else Fault.PASS

    with Network(fault) as network, started_log(network, bench.bootstrap_servers, topic) as log:
        raised: list[BaseException | None] = []

        def wait(*_: object) -> None:
            unresponsive.set()  # otherwise the read could be complete before the wait for it
            try:
                log.read_to_end().result(5)
            except BaseException as error:
                raised.append(error)
            unresponsive.clear()

        log.send(b"k", b"x" * (2 << 20), wait)
        assert [type(error) for error in raised] == [IllegalLogStateError]
        wait_result(log.read_to_end())


def test_stopping_while_all_callbacks_hang(bench: Workbench, topic: str) -> None:
    release = threading.Event()

    def hang(*_: object) -> None:
        release.wait(TIMEOUT)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=hang)
    log.start()
    sent_futures = []
    for number in range(3):
        log.send(b"k", b"%d" % number, hang)
        sent_futures.append(log.send_with_receipt(b"k", b"x"))
        log.read_to_end(hang)
    with at_most(120):
        log.stop(1)
    release.set()
    for sent in sent_futures:
        sent.exception(TIMEOUT)
    wait_for_no_thread(topic)


def test_an_error_of_on_record(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Pending reads get the error. The record is not delivered again, and the next ones follow."""
    seen = Recorder()

    def apply(record: LogRecord) -> None:
        seen(record)
        if record.value == b"bad":
            raise ZeroDivisionError("bad record")

    bench.write(topic, [b"a", b"bad", b"c"])
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=apply)
    with pytest.raises(ZeroDivisionError):
        log.start()
    assert seen.values() == [b"a", b"bad", b"c"]
    assert "on_record raised an error" in caplog.text
    wait_for_no_thread(topic)

    bench.delete_records(topic, 3)
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=apply) as log:
        seen.records.clear()
        producer = new_transactional_producer(bench, topic)
        write_open_transaction(producer, topic, [b"x"])  # read at once, as uncommitted records are read here
        wait_until(lambda: seen.values() == [b"x"])
        bench.write(topic, [b"bad", b"d"])
        wait_until(lambda: seen.values() == [b"x", b"bad", b"d"])
        wait_result(log.read_to_end())  # no read was pending when it was raised
        producer.abort_transaction(600)


def start_timeout_error(cause: str, topic: str, properties: dict[str, object], **options: Any) -> BrokerTimeoutError:
    """Return the error of the first start that had enough time to find the cause."""
    for start_timeout in (1, 4, 16, 64):  # busy machines need longer for the first requests
        with pytest.raises(BrokerTimeoutError) as caught:
            KafkaBasedLog(topic, properties, start_timeout=start_timeout, **options).start()
        assert f"not read within {start_timeout} s (start_timeout)" in str(caught.value)
        if cause in str(caught.value):
            break
    assert cause in str(caught.value)
    return caught.value


def test_a_start_timeout_names_the_open_transaction(bench: Workbench, topic: str) -> None:
    bench.write(topic, [b"a"])
    producer = new_transactional_producer(bench, topic)
    write_open_transaction(producer, topic, [b"b", b"c"])
    properties = params(bench.bootstrap_servers, isolation_level="read_committed")
    seen = Recorder()
    error = start_timeout_error("The log waits for an open transaction", topic, properties, on_record=seen)
    assert "the next offset to read is 1, the end offset 3, the last stable offset 1" in str(error)
    assert (error.topic, error.partition) == (topic, 0)
    assert set(seen.values()) == {b"a"}
    wait_for_no_thread(topic)
    producer.abort_transaction(600)


def test_a_start_timeout_with_an_unresponsive_broker(
    stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str
) -> None:
    with frozen(stoppable_kafka):
        log = KafkaBasedLog(topic, params(bench.bootstrap_servers, **LONG_TIMEOUTS), start_timeout=3)
        with at_most(120), pytest.raises((BrokerTimeoutError, BrokerUnreachableError)) as caught:
            log.start()
        assert "start_timeout" in str(caught.value)
    wait_for_no_thread(topic)


def test_a_start_timeout_names_a_missing_topic_once(bench: Workbench) -> None:
    error = start_timeout_error("Last error: ", "missing-topic", params(bench.bootstrap_servers))
    assert str(error).count("[topic missing-topic]") == 1


def test_only_read_committed_logs_wait_for_open_transactions(bench: Workbench, topic: str) -> None:
    committed, all_of_them = Recorder(), Recorder()
    producer = new_transactional_producer(bench, topic)
    servers = bench.bootstrap_servers
    with (
        KafkaBasedLog(topic, params(servers, isolation_level="read_committed"), on_record=committed) as careful,
        KafkaBasedLog(topic, params(servers), on_record=all_of_them) as hasty,
    ):
        for end, values in ((producer.abort_transaction, [b"a1", b"a2"]), (producer.commit_transaction, [b"c"])):
            write_open_transaction(producer, topic, values)
            hasty_end, careful_end = hasty.read_to_end(), careful.read_to_end()
            wait_result(hasty_end)
            with pytest.raises(TimeoutError):
                careful_end.result(1)
            end(300)
            wait_result(careful_end)
        wait_result(hasty.read_to_end())
    assert committed.values() == [b"c"]
    assert all_of_them.values() == [b"a1", b"a2", b"c"]


def test_records_that_are_deleted_before_they_were_read_are_skipped(
    bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    release, inside = threading.Event(), threading.Event()
    seen = Recorder()

    def block(record: LogRecord) -> None:
        seen(record)
        inside.set()
        release.wait(TIMEOUT)

    properties = params(bench.bootstrap_servers, max_partition_fetch_bytes=1)
    errors: list[Any] = []
    with KafkaBasedLog(topic, properties, on_record=block, on_error=errors.append) as log:
        for number in range(30):
            bench.write(topic, [b"%d" % number])
        assert inside.wait(TIMEOUT)
        bench.delete_records(topic, 25)
        release.set()
        wait_result(log.read_to_end())
    assert seen.offsets()[-5:] == [25, 26, 27, 28, 29]
    assert len(seen.records) < 30
    assert "were deleted by retention" in caplog.text
    assert "Reading continues at offset 25 instead of" in caplog.text
    assert errors == []


def test_a_recreated_topic_is_read_from_its_beginning(bench: Workbench, topic: str) -> None:
    seen = Recorder()
    resets: list[Any] = []
    errors: list[Any] = []
    bench.write(topic, [b"old"] * 5)
    properties = params(bench.bootstrap_servers)
    with KafkaBasedLog(topic, properties, on_record=seen, on_reset=resets.append, on_error=errors.append) as log:
        waits: list[BaseException] = []

        def wait() -> None:
            try:
                log.wait_for({0: 99}, TIMEOUT)
            except BaseException as error:
                waits.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        bench.recreate_topic(topic)
        bench.write(topic, [b"new"] * 2)
        thread.join(TIMEOUT)
        wait_until(lambda: len(seen.records) == 7, "the new records")
        wait_result(log.read_to_end())
        assert seen.values() == [b"old"] * 5 + [b"new"] * 2
        assert log.positions == {tp(topic): 2}
        assert isinstance(waits[0], (TopicRecreatedError, TopicNotFoundError))
        assert [type(error) for error in resets] == [TopicRecreatedError]


def test_a_deleted_topic_fails_pending_reads(bench: Workbench, topic: str) -> None:
    errors: list[Any] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_error=errors.append, read_only=True) as log:
        bench.delete_topic(topic)
        with pytest.raises(TopicNotFoundError):
            wait_result(log.read_to_end())
        assert [type(error) for error in errors] == [TopicNotFoundError]


# Permissions.


@contextmanager
def deny(bench: Workbench, topic: str, operation: AclOperation) -> Iterator[None]:
    """Deny Alice an operation on a topic."""
    rule = acl_of_alice(topic, operation, AclPermissionType.DENY)
    create_acl(bench, rule)
    try:
        yield
    finally:
        acl_filter = AclBindingFilter(*rule)
        bench.admin.delete_acls([acl_filter])[acl_filter].result(600)
        wait_for_acls(bench, rule, [])


def acl_of_alice(topic: str, operation: AclOperation, permission: AclPermissionType) -> tuple[Any, ...]:
    """Return the arguments of an ``AclBinding``."""
    return ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation, permission


def create_acl(bench: Workbench, rule: tuple[Any, ...]) -> None:
    """Create an ACL, and wait for the broker, which applies it later than the controller."""
    acl = AclBinding(*rule)
    bench.admin.create_acls([acl])[acl].result(600)
    wait_for_acls(bench, rule, [acl])


def wait_for_acls(bench: Workbench, rule: tuple[Any, ...], expected: list[AclBinding]) -> None:
    wait_until(lambda: bench.admin.describe_acls(AclBindingFilter(*rule)).result(600) == expected, "the ACL")


@pytest.fixture
def alice(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> dict[str, object]:
    """Properties of a user who may read and write the topic."""
    for operation in (AclOperation.READ, AclOperation.WRITE):
        create_acl(bench, acl_of_alice(topic, operation, AclPermissionType.ALLOW))
    return params(
        stoppable_kafka.listener("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=jaas_text("PLAIN"),
    )


def test_a_failed_request_fails_only_the_active_read(bench: Workbench, topic: str, alice: dict[str, object]) -> None:
    """The first read succeeds, the second fails, and a third that is requested in its callback succeeds."""
    seen = Recorder()
    with KafkaBasedLog(topic, alice, on_record=seen) as log:
        wait_result(log.read_to_end())
        third: list[Any] = []
        results: list[BaseException | None] = []

        def read_again(error: BaseException | None) -> None:
            results.append(error)
            denied.__exit__(None, None, None)
            third.append(log.read_to_end())

        denied = deny(bench, topic, AclOperation.DESCRIBE)
        denied.__enter__()
        second = log.read_to_end(read_again)
        error = second.exception(TIMEOUT)
        assert isinstance(error, AuthorizationError)
        assert error.topic == topic
        wait_until(lambda: len(third) == 1, "the third")
        wait_result(third[0])
        assert results == [error]
        wait_result(log.send_with_receipt(b"k", b"v"))
        wait_result(log.read_to_end())
        assert seen.values() == [b"v"]


def test_read_errors_are_reported_and_reading_continues(bench: Workbench, topic: str, alice: dict[str, object]) -> None:
    seen = Recorder()
    errors: list[KafkaDirectError] = []
    with KafkaBasedLog(topic, alice, on_record=seen, on_error=errors.append) as log:
        with deny(bench, topic, AclOperation.READ):
            bench.write(topic, [b"hidden"])
            wait_until(lambda: bool(errors), "an error")
            assert isinstance(errors[0], AuthorizationError)
        bench.write(topic, [b"shown"])
        wait_until(lambda: seen.values() == [b"hidden", b"shown"], "the records")
        wait_result(log.read_to_end())


def test_a_send_without_permission_fails(bench: Workbench, topic: str, alice: dict[str, object]) -> None:
    results: list[Any] = []
    with KafkaBasedLog(topic, alice) as log:
        with deny(bench, topic, AclOperation.WRITE):
            log.send(b"k", b"v", lambda *result: results.append(result))
            wait_until(lambda: bool(results), "the callback")
        assert isinstance(results[0][1], AuthorizationError)
        assert wait_result(log.send_with_receipt(b"k", b"v")).offset == 0
        wait_result(log.read_to_end())
    assert len(results) == 1
