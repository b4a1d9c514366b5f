"""Logs in trouble on a broker of their own: it restarts, freezes, refuses; functions raise or never return."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.log.logs import PATIENCE, Recorder, done, params, threads_of, tp, wait_for_no_thread
from tests.integration.transactions import transaction, transactional
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    LogStateError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.log import LogRecord


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that may be stopped and frozen; who logs in needs permissions."""
    with EmbeddedKafka(security=["SASL_PLAINTEXT"], authorizer=True, reuse_running=False) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def bench(own_kafka: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(own_kafka)


@pytest.fixture
def topic(bench: Workbench) -> str:
    """A broker that was frozen or away is fenced for a moment, and keeps no new topics then."""
    made: list[str] = []

    def is_made() -> bool:
        with suppress(KafkaException):
            made.append(bench.make_topic())
        return bool(made)

    wait_until(is_made, "a topic", PATIENCE)
    return made[0]


@contextmanager
def frozen(kafka: EmbeddedKafka) -> Iterator[None]:
    """The broker keeps its connections, and says nothing."""
    pid = kafka.pids[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_a_broker_restarts_while_somebody_waits(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    """A transaction is open before and after, so reading to the end lasts that long."""
    seen = Recorder()
    producer = transactional(bench, topic)
    given = params(bench.bootstrap_servers, isolation_level="read_committed")
    with KafkaBasedLog(topic, given, on_record=seen) as log:
        transaction(producer, topic, [b"a", b"b"])
        end = log.read_to_end()
        with pytest.raises(TimeoutError):
            end.result(1)
        own_kafka.kill_broker(1)
        with pytest.raises(TimeoutError):
            end.result(3)
        own_kafka.start_broker(1)
        with pytest.raises(TimeoutError):
            end.result(1)
        producer.commit_transaction(60)
        done(end)
        assert seen.values() == [b"a", b"b"]
        receipt = done(log.send_with_receipt(b"k", b"after"))
        log.wait_for(receipt, PATIENCE)
        assert seen.values()[-1] == b"after"


def test_a_request_made_while_the_broker_is_away_is_kept(
    own_kafka: EmbeddedKafka, bench: Workbench, topic: str
) -> None:
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        own_kafka.kill_broker(1)
        try:
            receipt = log.send_with_receipt(b"k", b"v")
            end = log.read_to_end()
            with pytest.raises(TimeoutError):
                end.result(2)
        finally:
            own_kafka.start_broker(1)
        assert done(receipt).offset == 0
        done(end)
        assert seen.values() == [b"v"]


def test_stopping_with_a_frozen_broker(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    with frozen(own_kafka):
        receipt = log.send_with_receipt(b"k", b"v")
        end = log.read_to_end()
        time.sleep(0.5)
        with at_most(10):
            log.stop(2)
        assert isinstance(end.exception(10), LogStateError)
        assert isinstance(receipt.exception(PATIENCE), KafkaDirectError)
    wait_for_no_thread(topic)


def test_stopping_at_once_while_the_ends_are_looked_up(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    """The look-up holds the thread for some seconds: it is left behind, and ends by itself."""
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), read_only=True)
    log.start()
    with frozen(own_kafka):
        end = log.read_to_end()
        time.sleep(0.5)
        with at_most(3.5):  # the look-up takes five
            log.stop(0.5)
        assert isinstance(end.exception(3), LogStateError)
        wait_for_no_thread(topic)


def test_stopping_while_the_broker_is_away(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    own_kafka.kill_broker(1)
    try:
        log.send(b"k", b"v")
        with at_most(10):
            log.stop(2)
        wait_for_no_thread(topic)
    finally:
        own_kafka.start_broker(1)


def test_stopping_while_a_callback_hangs(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    go_on, inside = threading.Event(), threading.Event()

    def hang(_: LogRecord) -> None:
        inside.set()
        go_on.wait(PATIENCE)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=hang)
    log.start()
    bench.write(topic, [b"x"])
    assert inside.wait(PATIENCE)
    ends = [log.read_to_end() for _ in range(2)]
    with at_most(10):
        log.stop(1)
    assert "left behind" in caplog.text
    for end in ends:
        assert isinstance(end.exception(0), LogStateError)
    assert len(threads_of(topic)) == 1
    go_on.set()
    wait_for_no_thread(topic)


def test_those_behind_one_whose_callback_hangs_are_told_at_the_stop(bench: Workbench, topic: str) -> None:
    go_on = threading.Event()
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    first = log.read_to_end(lambda _: (go_on.wait(PATIENCE), None)[1])
    second = log.read_to_end()
    done(first)
    third = log.read_to_end()
    with at_most(10):
        log.stop(1)
    assert second.done()
    assert isinstance(third.exception(0), LogStateError)
    go_on.set()
    wait_for_no_thread(topic)


def test_a_callback_may_stop_its_log(bench: Workbench, topic: str) -> None:
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=lambda _: log.stop(5))
    log.start()
    bench.write(topic, [b"x", b"y"])
    wait_for_no_thread(topic)
    with pytest.raises(LogStateError, match="stopped"):
        log.read_to_end()


def test_a_callback_of_a_record_may_stop_its_log(bench: Workbench, topic: str) -> None:
    """What was sent before is delivered all the same."""
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers))
    log.start()
    stopped = threading.Event()
    log.send(b"k", b"1", lambda *_: (log.stop(5), stopped.set())[1])  # type: ignore[func-returns-value]
    later = log.send_with_receipt(b"k", b"2")
    assert stopped.wait(PATIENCE)
    assert done(later).offset == 1
    wait_for_no_thread(topic)


def test_a_callback_of_a_record_does_not_wait_for_the_log(bench: Workbench, topic: str) -> None:
    """Those that were sent behind it are settled by the same thread, and the log waits for them."""
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        raised: list[BaseException] = []

        def wait(*_: object) -> None:
            for future in (log.read_to_end(), log.send_with_receipt(b"k", b"3")):
                try:
                    future.result(5)
                except BaseException as error:
                    raised.append(error)

        log.send(b"k", b"1", wait)
        done(log.send_with_receipt(b"k", b"2"))
        wait_until(lambda: len(raised) == 2, "the errors")
        assert [type(error) for error in raised] == [LogStateError, RuntimeError]
        done(log.read_to_end())


def test_a_callback_in_the_sender_s_own_thread_does_not_wait_for_the_log_either(bench: Workbench, topic: str) -> None:
    """A record that is too large fails at once, and is not settled before the callback returns."""
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        raised: list[BaseException | None] = []

        def wait(*_: object) -> None:
            try:
                log.read_to_end().result(5)
            except BaseException as error:
                raised.append(error)

        log.send(b"k", b"x" * (2 << 20), wait)
        assert [type(error) for error in raised] == [LogStateError]
        done(log.read_to_end())


def test_stopping_while_all_callbacks_hang(bench: Workbench, topic: str) -> None:
    go_on = threading.Event()

    def hang(*_: object) -> None:
        go_on.wait(PATIENCE)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=hang)
    log.start()
    receipts = []
    for number in range(3):
        log.send(b"k", b"%d" % number, hang)
        receipts.append(log.send_with_receipt(b"k", b"x"))
        log.read_to_end(hang)
    with at_most(10):
        log.stop(1)
    go_on.set()
    for receipt in receipts:
        receipt.exception(PATIENCE)
    wait_for_no_thread(topic)


def test_a_record_whose_function_raises(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those who are reading to the end get the error; the record is not handed out again, the next ones follow."""
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
        producer = transactional(bench, topic)
        transaction(producer, topic, [b"x"])  # read at once, as uncommitted records are read here
        wait_until(lambda: seen.values() == [b"x"])
        bench.write(topic, [b"bad", b"d"])
        wait_until(lambda: seen.values() == [b"x", b"bad", b"d"])
        done(log.read_to_end())  # nobody was reading to the end when it was raised
        producer.abort_transaction(30)


def test_a_start_that_takes_too_long_says_why(bench: Workbench, topic: str) -> None:
    bench.write(topic, [b"a"])
    producer = transactional(bench, topic)
    transaction(producer, topic, [b"b", b"c"])
    given = params(bench.bootstrap_servers, isolation_level="read_committed")
    seen = Recorder()
    log = KafkaBasedLog(topic, given, on_record=seen, start_timeout=2)
    with at_most(20), pytest.raises(BrokerTimeoutError) as caught:
        log.start()
    text = str(caught.value)
    assert "not read within 2 s (start_timeout)" in text
    assert "the next offset to read is 1, the end 3, the last stable offset 1" in text
    assert "A transaction is open there" in text
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert seen.values() == [b"a"]
    wait_for_no_thread(topic)
    producer.abort_transaction(30)


def test_a_start_without_an_answer_says_so(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    with frozen(own_kafka):
        log = KafkaBasedLog(topic, params(bench.bootstrap_servers), start_timeout=3)
        with at_most(20), pytest.raises((BrokerTimeoutError, BrokerUnreachableError)) as caught:
            log.start()
        assert "start_timeout" in str(caught.value)
    wait_for_no_thread(topic)


def test_a_transaction_is_waited_for_if_committed_records_are_read(bench: Workbench, topic: str) -> None:
    committed, all_of_them = Recorder(), Recorder()
    producer = transactional(bench, topic)
    servers = bench.bootstrap_servers
    with (
        KafkaBasedLog(topic, params(servers, isolation_level="read_committed"), on_record=committed) as careful,
        KafkaBasedLog(topic, params(servers), on_record=all_of_them) as hasty,
    ):
        for end, values in ((producer.abort_transaction, [b"a1", b"a2"]), (producer.commit_transaction, [b"c"])):
            transaction(producer, topic, values)
            hasty_end, careful_end = hasty.read_to_end(), careful.read_to_end()
            done(hasty_end)
            with pytest.raises(TimeoutError):
                careful_end.result(1)
            end(30)
            done(careful_end)
        done(hasty.read_to_end())
    assert committed.values() == [b"c"]
    assert all_of_them.values() == [b"a1", b"a2", b"c"]


def test_what_is_deleted_before_it_was_read_is_passed_over(
    bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, inside = threading.Event(), threading.Event()
    seen = Recorder()

    def slowly(record: LogRecord) -> None:
        seen(record)
        inside.set()
        go_on.wait(PATIENCE)

    given = params(bench.bootstrap_servers, max_partition_fetch_bytes=1)
    errors: list[Any] = []
    with KafkaBasedLog(topic, given, on_record=slowly, on_error=errors.append) as log:
        for number in range(30):
            bench.write(topic, [b"%d" % number])
        assert inside.wait(PATIENCE)
        bench.delete_records(topic, 25)
        go_on.set()
        done(log.read_to_end())
    assert seen.offsets()[-5:] == [25, 26, 27, 28, 29]
    assert len(seen.records) < 30
    assert "went (by retention" in caplog.text
    assert errors == []


def test_a_topic_that_is_deleted_and_created_anew(bench: Workbench, topic: str) -> None:
    seen = Recorder()
    resets: list[Any] = []
    errors: list[Any] = []
    bench.write(topic, [b"old"] * 5)
    given = params(bench.bootstrap_servers)
    with KafkaBasedLog(topic, given, on_record=seen, on_reset=resets.append, on_error=errors.append) as log:
        waits: list[BaseException] = []

        def wait() -> None:
            try:
                log.wait_for({0: 99}, PATIENCE)
            except BaseException as error:
                waits.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        bench.recreate_topic(topic)
        bench.write(topic, [b"new"] * 2)
        thread.join(PATIENCE)
        wait_until(lambda: len(seen.records) == 7, "the new records")
        done(log.read_to_end())
        assert seen.values() == [b"old"] * 5 + [b"new"] * 2
        assert log.positions == {tp(topic): 2}
        assert isinstance(waits[0], (TopicRecreatedError, TopicNotFoundError))
        assert [type(error) for error in resets] == [TopicRecreatedError]


def test_a_topic_that_is_gone_fails_those_who_ask(bench: Workbench, topic: str) -> None:
    errors: list[Any] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_error=errors.append, read_only=True) as log:
        bench.delete_topic(topic)
        with pytest.raises(TopicNotFoundError):
            done(log.read_to_end())
        assert [type(error) for error in errors] == [TopicNotFoundError]


# Permissions.


@contextmanager
def denied(bench: Workbench, topic: str, operation: AclOperation) -> Iterator[None]:
    """Alice may not do something with a topic for a while."""
    rule = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation)
    acl = AclBinding(*rule, AclPermissionType.DENY)
    bench.admin.create_acls([acl])[acl].result(30)
    settle_acls(bench, rule, [acl])
    try:
        yield
    finally:
        some = AclBindingFilter(*rule, AclPermissionType.DENY)
        bench.admin.delete_acls([some])[some].result(30)
        settle_acls(bench, rule, [])


def settle_acls(bench: Workbench, rule: Any, expected: list[AclBinding]) -> None:
    some = AclBindingFilter(*rule, AclPermissionType.DENY)
    wait_until(lambda: bench.admin.describe_acls(some).result(30) == expected, "the ACL")


@pytest.fixture
def alice(own_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> dict[str, object]:
    """Parameters of a user who may read and write the topic."""
    for operation in (AclOperation.READ, AclOperation.WRITE):
        allowed = ("User:alice", "*", operation, AclPermissionType.ALLOW)
        acl = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *allowed)
        bench.admin.create_acls([acl])[acl].result(30)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return params(
        own_kafka.listener("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{module} required username="alice" password="alice-secret";',
    )


def test_a_failed_look_up_is_theirs_who_asked_and_nobody_elses(
    bench: Workbench, topic: str, alice: dict[str, object]
) -> None:
    """1st succeeds, 2nd fails with the error, and a 3rd that is asked for in the failing callback succeeds."""
    seen = Recorder()
    with KafkaBasedLog(topic, alice, on_record=seen) as log:
        done(log.read_to_end())
        third: list[Any] = []
        told: list[BaseException | None] = []

        def ask_again(error: BaseException | None) -> None:
            told.append(error)
            denial.__exit__(None, None, None)
            third.append(log.read_to_end())

        denial = denied(bench, topic, AclOperation.DESCRIBE)
        denial.__enter__()
        second = log.read_to_end(ask_again)
        error = second.exception(PATIENCE)
        assert isinstance(error, AuthorizationError)
        assert error.topic == topic
        wait_until(lambda: len(third) == 1, "the third")
        done(third[0])
        assert told == [error]
        done(log.send_with_receipt(b"k", b"v"))
        done(log.read_to_end())
        assert seen.values() == [b"v"]


def test_errors_of_reading_are_told_and_reading_goes_on(bench: Workbench, topic: str, alice: dict[str, object]) -> None:
    seen = Recorder()
    errors: list[KafkaDirectError] = []
    with KafkaBasedLog(topic, alice, on_record=seen, on_error=errors.append) as log:
        with denied(bench, topic, AclOperation.READ):
            bench.write(topic, [b"hidden"])
            wait_until(lambda: bool(errors), "an error")
            assert isinstance(errors[0], AuthorizationError)
        bench.write(topic, [b"shown"])
        wait_until(lambda: seen.values() == [b"hidden", b"shown"], "the records")
        done(log.read_to_end())


def test_a_record_that_may_not_be_written(bench: Workbench, topic: str, alice: dict[str, object]) -> None:
    told: list[Any] = []
    with KafkaBasedLog(topic, alice) as log:
        with denied(bench, topic, AclOperation.WRITE):
            log.send(b"k", b"v", lambda *how: told.append(how))
            wait_until(lambda: bool(told), "the callback")
        assert isinstance(told[0][1], AuthorizationError)
        assert done(log.send_with_receipt(b"k", b"v")).offset == 0
        done(log.read_to_end())
    assert len(told) == 1
