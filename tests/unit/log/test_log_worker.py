"""The rules of Kafka Connect's ``KafkaBasedLog``, and those of this package, on a simulated cluster."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, outcome, tp

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    IllegalLogStateError,
    OptionError,
    TopicNotFoundError,
    TopicRecreatedError,
    UnsupportedBrokerError,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.options.settings import IsolationLevel


def test_existing_records_are_read_first(cluster: LogCluster) -> None:
    cluster.append(tp(0), 3)
    cluster.append(tp(1), 2)
    with cluster.log_of() as log:
        assert sorted(cluster.delivered) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        assert log.positions == {tp(0): 3, tp(1): 2}
        assert (cluster.starts_requested(), cluster.ends_requested()) == (1, 1)


def test_no_read_waits_for_a_fetch_if_there_is_nothing_to_read(cluster: LogCluster) -> None:
    cluster.append(tp(0), 7)
    cluster.delete_records(tp(0), 7)
    start = cluster.now
    with cluster.log_of() as log:
        assert log.positions == {tp(0): 7, tp(1): 0}
        log.read_to_end().result(60)
        assert cluster.now - start < 0.2


def test_the_ends_are_requested_again_only_while_a_read_makes_no_progress(cluster: LogCluster) -> None:
    """The log may have been truncated."""
    with cluster.log_of(cluster.clients("read_committed")) as log:
        cluster.sleep(1)
        cluster.requests.clear()
        cluster.sleep(100)
        assert {request.api for request in cluster.requests} == {"Fetch"}
        cluster.append(tp(0), 1, producer_id=7)  # an open transaction
        read = log.read_to_end()
        cluster.sleep(9)
        assert cluster.ends_requested() == 5
        cluster.end_transaction(tp(0), 7, commit=True)
        read.result(1)


def test_late_records_are_read(cluster: LogCluster) -> None:
    """By the start, and by a later read, which both get empty responses first."""
    cluster.append(tp(0), 1)
    cluster.append(tp(1), 1)
    cluster.withhold(0, 3)
    with cluster.log_of() as log:
        assert sorted(cluster.delivered) == [(0, 0), (1, 0)]
        cluster.delivered.clear()
        cluster.sleep(60)
        cluster.withhold(0, 3)
        cluster.append(tp(0), 3)
        read = log.read_to_end()
        with pytest.raises(TimeoutError):
            read.result(2.5)
        read.result(1)
        assert cluster.offsets() == [1, 2, 3]


def test_a_read_requested_during_another_waits_for_the_next_end(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.withhold(0, 1)
        cluster.append(tp(0), 2)
        requested = cluster.ends_requested()
        first = log.read_to_end()
        cluster.sleep(0.5)
        assert cluster.ends_requested() == requested + 1
        cluster.append(tp(0), 1)
        second = log.read_to_end()
        first.result(60)
        assert not second.done()
        second.result(60)
        assert cluster.offsets() == [0, 1, 2]
        assert cluster.ends_requested() == requested + 2


def test_reads_requested_together_complete_in_order(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        completed: list[int] = []
        futures: list[Future[None]] = []

        def request_more(_: object) -> None:  # in the log's thread, which fetches no end meanwhile
            futures.extend(log.read_to_end(partial(note, number)) for number in range(3))

        def note(number: int, _: object) -> None:
            completed.append(number)

        requested = cluster.ends_requested()
        cluster.append(tp(0), 2)
        log.read_to_end(request_more).result(60)
        futures[-1].result(60)
        assert completed == [0, 1, 2]
        assert cluster.ends_requested() == requested + 2


def test_a_read_waits_for_the_records_that_were_sent_before(cluster: LogCluster) -> None:
    """While these are in flight, end offsets are fetched only to detect a truncation."""
    with cluster.log_of(cluster.clients("read_committed")) as log:
        before = log.read_to_end()
        start = cluster.now
        cluster.fault("Produce", "delay_response", seconds=5)
        log.send(b"k", b"v")
        after = log.read_to_end()
        before.result(1)
        requested = cluster.ends_requested()
        cluster.append(tp(0), 1, producer_id=7)
        cluster.append(tp(1), 1, producer_id=7)
        after_others = log.read_to_end()
        cluster.sleep(4.5)
        assert cluster.ends_requested() == requested + 2
        for number in range(2):
            cluster.end_transaction(tp(number), 7, commit=True)
        cluster.sleep(0.1)
        assert not after.done()
        after.result(1)
        after_others.result(0)
        assert 5 < cluster.now - start < 5.1


def test_a_read_to_the_end_waits_for_an_open_transaction(cluster: LogCluster) -> None:
    with cluster.log_of(cluster.clients("read_committed")) as log, cluster.log_of() as uncommitted:
        cluster.append(tp(0), 5, producer_id=7)
        uncommitted.read_to_end().result(1)
        read = log.read_to_end()
        cluster.sleep(20)
        assert not read.done()
        cluster.end_transaction(tp(0), 7, commit=True)
        read.result(1)
        assert cluster.offsets() == [*range(5)] * 2


@pytest.mark.parametrize("api", ["ListOffsets", "Metadata", "Fetch"])
def test_transient_errors_are_retried_and_later_reads_join(cluster: LogCluster, api: str) -> None:
    with cluster.log_of() as log:
        cluster.fault(api, "lose_response", repeats=3)
        cluster.break_connections()
        cluster.append(tp(0), 1)
        first = log.read_to_end()
        cluster.sleep(0.01)
        second = log.read_to_end()
        assert (outcome(first), outcome(second)) == (None, None)
        assert cluster.offsets() == [0]
        assert cluster.errors == []


@pytest.mark.parametrize(("delay", "seconds"), [(2, 2), (4, 12), (9, 33)])
def test_request_timeouts_grow_with_failures(cluster: LogCluster, delay: float, seconds: float) -> None:
    """The first one is five seconds, also after a success."""
    with cluster.log_of() as log:
        cluster.every("ListOffsets", "delay_response", seconds=delay)
        for _ in range(2):
            start = cluster.now
            log.read_to_end().result(60)
            assert seconds <= cluster.now - start < seconds + 2


def test_reading_continues_while_end_offsets_cannot_be_fetched(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.every("ListOffsets", "lose_request")
        read = log.read_to_end()
        cluster.append(tp(0), 2)
        cluster.sleep(10)
        assert cluster.offsets() == [0, 1]
        assert not read.done()
        cluster.every("ListOffsets", None)
        read.result(5)


def test_other_errors_fail_active_reads_and_the_log_continues(cluster: LogCluster) -> None:
    """A read that is requested in the callback of one that failed can succeed."""
    later: list[Future[None]] = []

    def read_again(error: BaseException | None) -> None:
        cluster.heal()
        later.append(log.read_to_end())

    with cluster.log_of() as log:
        cluster.deny_topic(60)
        failed = log.read_to_end(read_again)
        assert isinstance(outcome(failed), AuthorizationError)
        cluster.append(tp(0), 1)
        assert outcome(later[0]) is None
        assert failed.exception() in cluster.errors
        assert cluster.offsets() == [0]


def test_a_read_error_is_reported_and_retried_with_pauses(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.append(tp(0), 1)
        batch = cluster.log(tp(0)).batches[0]
        good, batch.data = batch.data, batch.data[:-1] + b"\xff"
        read = log.read_to_end()
        assert isinstance(outcome(read), CorruptRecordError)
        cluster.sleep(30)
        assert 15 < len(cluster.errors) < 45
        assert {type(each) for each in cluster.errors} == {CorruptRecordError}
        batch.data = good
        cluster.sleep(3)
        log.read_to_end().result(60)
        assert cluster.offsets() == [0]


def test_an_error_of_on_record_fails_active_reads_and_the_next_records_follow(cluster: LogCluster) -> None:
    seen: list[int] = []

    def apply(record: LogRecord) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            raise ZeroDivisionError

    with cluster.log_of(on_record=apply) as log:
        cluster.withhold(0, 1)
        cluster.append(tp(0), 4)
        read = log.read_to_end()
        cluster.sleep(0.5)
        cluster.fault("Produce", "delay_response", seconds=3)
        log.send(b"k", b"v")
        queued = log.read_to_end()
        assert isinstance(outcome(read), ZeroDivisionError)
        assert outcome(queued) is None, "it was not active yet"
        own = cluster.log(tp(0)).end - 4
        assert seen == [*range(4 + own), *range(not own)]


def test_a_missing_topic_fails_reads_until_it_is_back(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.append(tp(0), 5)
        log.read_to_end().result(60)
        cluster.hide_topic(30)
        start = cluster.now
        assert isinstance(outcome(log.read_to_end()), TopicNotFoundError)
        assert 5 <= cluster.now - start < 10
        assert isinstance(outcome(log.read_to_end()), TopicNotFoundError)
        assert len(cluster.errors) == 1
        cluster.append(tp(0), 1)
        cluster.sleep(30)
        assert cluster.offsets() == [0, 1, 2, 3, 4, 5]
        assert cluster.resets == []
        log.read_to_end().result(1)


def test_each_time_that_a_topic_is_missing_is_reported(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        for number in (1, 2):
            cluster.hide_topic(20)
            cluster.sleep(15)
            assert isinstance(outcome(log.read_to_end()), TopicNotFoundError)
            assert len(cluster.errors) == number
            cluster.heal()
            cluster.sleep(2)
            assert outcome(log.read_to_end()) is None


def test_a_missing_topic_is_confirmed_again_after_it_was_back(cluster: LogCluster) -> None:
    """Between two restarts of the brokers, nobody requested a read."""
    with cluster.log_of() as log:
        for _ in range(2):
            cluster.hide_topic(2)
            read = log.read_to_end()
            assert outcome(read) is None
            cluster.sleep(20)
        assert cluster.errors == []


@pytest.mark.parametrize("seconds", [25, None])
def test_a_new_topic_may_stay_unknown_for_30_seconds(cluster: LogCluster, seconds: float | None) -> None:
    cluster.event("delete_topic", topic=TOPIC)
    start = cluster.now
    log = cluster.log_of()
    if seconds is None:
        with pytest.raises(TopicNotFoundError, match="Create it"):
            log.start()
        assert 30 <= cluster.now - start < 36
    else:
        cluster.after(seconds, lambda: cluster.event("create_topic", topic=TOPIC, partitions=1))
        with log:
            assert seconds < cluster.now - start < seconds + 2


def test_a_permission_that_is_missing_for_a_while_does_not_end_the_thread(cluster: LogCluster) -> None:
    """The check of an unknown topic raised the error out of the thread, so that no later read was possible."""
    with cluster.log_of() as log:
        cluster.hide_topic(30)
        cluster.after(1, lambda: cluster.deny_topic(20))
        assert isinstance(outcome(log.read_to_end()), AuthorizationError)
        cluster.heal()
        cluster.append(tp(0), 1)
        log.read_to_end().result(20)


def test_an_unsupported_end_offset_request_is_not_retried(cluster: LogCluster) -> None:
    """There is no fallback, which would return other offsets."""
    with cluster.log_of() as log:
        before = cluster.ends_requested()
        cluster.fault("ListOffsets", "error", code=35)
        assert isinstance(outcome(log.read_to_end()), UnsupportedBrokerError)
        assert cluster.ends_requested() == before + 1


def test_only_selected_partitions_are_read(cluster: LogCluster) -> None:
    cluster.append(tp(0), 1)
    cluster.append(tp(1), 1)
    with pytest.raises(OptionError, match="none of the topic's 2"):
        cluster.log_of(partitions=lambda number: number > 5).start()
    with cluster.log_of(partitions=lambda number: number == 1) as log:
        assert cluster.delivered == [(1, 0)]
        assert log.positions == {tp(1): 1}


@pytest.mark.parametrize("has_late_read", [False, True])
def test_a_stop_completes_reads_although_a_callback_hangs(cluster: LogCluster, has_late_read: bool) -> None:
    """Those that were about to complete have no error."""
    log = cluster.log_of()
    log.start()
    completed: list[tuple[str, Any]] = []

    def hang(error: BaseException | None) -> None:
        completed.append(("first", error))
        if has_late_read:
            log.read_to_end(lambda error: completed.append(("late", type(error))))
        cluster.sleep(100)

    log.read_to_end(hang)
    log.read_to_end(lambda error: completed.append(("second", error)))
    cluster.sleep(1)
    start = cluster.now
    log.stop(2)
    assert cluster.now - start < 4
    expected = [("first", None), ("second", None), ("late", IllegalLogStateError)]
    assert completed == expected[: 2 + has_late_read]


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_start_timeout_names_the_offsets(cluster: LogCluster, isolation_level: Any) -> None:
    cluster.append(tp(1), 1)
    cluster.append(tp(1), 2, producer_id=7)
    cluster.withhold(1, 10)
    with pytest.raises(BrokerTimeoutError, match=r"not read within 4 s \(start_timeout\)") as caught:
        cluster.log_of(cluster.clients(isolation_level), start_timeout=4).start()
    message = "the next offset to read is 0, the end offset 3, the last stable offset 1. "
    waits = "The log waits for an open transaction there to end. "
    assert message + waits * (isolation_level == "read_committed") + "Last error:" in str(caught.value)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 1, 0)
    cluster.end_transaction(tp(1), 7, commit=True)


def test_a_callback_that_exits_does_not_end_the_log(cluster: LogCluster, caplog: pytest.LogCaptureFixture) -> None:
    with cluster.log_of() as log:
        log.read_to_end(lambda _: sys.exit())
        log.read_to_end().result(60)
        assert "a callback of a future of the log raised an error" in caplog.text


def test_several_brokers_are_asked_before_a_log_starts_after_zero(cluster: LogCluster) -> None:
    """A leader that was deposed may have deleted records that the current leader still has."""
    cluster.append(tp(0), 10)
    cluster.delete_records(tp(0), 4)
    cluster.depose(1)
    cluster.partition(tp(0)).replicas[1].advance_start(8)
    with cluster.log_of():
        assert cluster.offsets() == [*range(4, 10)]


@pytest.mark.parametrize("deposed", [0, 1])
def test_ends_of_a_deposed_leader_complete_no_read(cluster: LogCluster, deposed: int) -> None:
    """It lacks the records that the current leader acknowledged."""
    cluster.elect(tp(1 - deposed), 2)
    with cluster.log_of() as log:
        cluster.append(tp(deposed), 2)
        log.read_to_end().result(60)
        cluster.depose(1)
        cluster.append(tp(deposed), 1)
        read = log.read_to_end()
        cluster.sleep(20)
        assert not read.done()
        cluster.heal()
        read.result(5)
        assert cluster.offsets(deposed) == [0, 1, 2]


def test_a_read_waits_for_the_report_of_each_replica(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.event("pause_broker", broker=1, seconds=60)
        read = log.read_to_end()
        with pytest.raises(BrokerTimeoutError, match=r"Last error: .*broker") as caught:
            log.wait_for({0: 0}, timeout=20)
        assert caught.value.broker == "broker-2:9092"
        assert not read.done()
        assert outcome(read) is None


def test_a_wrong_address_is_reported_at_once_and_ends_the_start_after_30_seconds(cluster: LogCluster) -> None:
    for broker in range(2):
        cluster.event("stop_broker", broker=broker, seconds=1000)
    log, start = cluster.log_of(), cluster.now
    reported: list[Any] = []

    def look() -> None:
        cluster.sleep(7)
        reported.extend(cluster.errors)

    cluster.process.spawn("look", look)
    with pytest.raises(BrokerUnreachableError):
        log.start()
    assert 30 <= cluster.now - start < 36
    assert reported == cluster.errors
    assert [type(error) for error in cluster.errors] == [BrokerUnreachableError]


def test_a_cluster_that_was_reached_may_be_away_for_longer(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        for broker in range(2):
            cluster.event("stop_broker", broker=broker, seconds=100)
        read = log.read_to_end()
        cluster.sleep(99)
        assert not read.done()
        assert outcome(read) is None
        assert cluster.errors == []


def test_a_log_is_current_as_of_the_request_for_its_ends(cluster: LogCluster) -> None:
    """Each record that was acknowledged before has been delivered."""
    with cluster.log_of() as log:
        first_read_at = log.current_as_of
        assert first_read_at is not None
        cluster.withhold(0, 5)
        cluster.append(tp(0), 3)
        requested_at = cluster.process.wall_time()
        assert first_read_at < requested_at
        read = log.read_to_end()
        cluster.sleep(4)
        assert log.current_as_of == first_read_at
        read.result(60)
        assert requested_at <= log.current_as_of < requested_at + 0.1
        cluster.event("recreate_topic", topic=TOPIC, partitions=2)
        assert isinstance(outcome(log.read_to_end()), TopicRecreatedError)
        assert log.current_as_of is None


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_read_that_an_open_transaction_blocks_is_explained_once(
    cluster: LogCluster, caplog: pytest.LogCaptureFixture, isolation_level: IsolationLevel
) -> None:
    with cluster.log_of(cluster.clients(isolation_level)) as log:
        cluster.append(tp(0), 1, producer_id=7)
        cluster.append(tp(0), 5)
        cluster.append(tp(1), 3, producer_id=8)
        read = log.read_to_end()
        cluster.sleep(60)
        is_blocked = isolation_level == "read_committed"
        assert read.done() is not is_blocked
        messages = [message for message in caplog.messages if "is blocked since" in message]
        assert len(messages) == is_blocked
        for number, count in enumerate((6, 3)):
            expected = f"by producer id {7 + number} (epoch 0): {count} offsets from 0 on cannot be read yet"
            assert all(text in message for text in (f"{tp(number)} is blocked", expected) for message in messages)
            cluster.end_transaction(tp(number), 7 + number, commit=True)
        read.result(20)


def test_a_read_that_waits_for_a_short_transaction_is_not_explained(
    cluster: LogCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.log_of(cluster.clients("read_committed")) as log:
        cluster.append(tp(0), 1, producer_id=7)
        read = log.read_to_end()
        cluster.after(8, lambda: cluster.end_transaction(tp(0), 7, commit=True))
        read.result(20)
    assert "is blocked since" not in caplog.text


def test_a_wait_after_an_idle_time_is_not_explained_by_a_transaction_that_has_just_begun(
    cluster: LogCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it request the ends of the log at once, as a wait without progress does."""
    with cluster.log_of(cluster.clients("read_committed")) as log:
        cluster.sleep(60)
        before = cluster.ends_requested()
        cluster.append(tp(0), 1, producer_id=7)
        cluster.after(1, lambda: cluster.end_transaction(tp(0), 7, commit=True))
        log.wait_for({0: 0}, 20)
        assert cluster.ends_requested() == before
    assert "is blocked since" not in caplog.text


def test_a_log_is_not_more_current_because_a_response_is_slow(cluster: LogCluster) -> None:
    with cluster.log_of() as log:
        cluster.fault("ListOffsets", "delay_response", seconds=3)
        requested_at = cluster.process.wall_time()
        log.read_to_end().result(60)
        assert cluster.process.wall_time() >= requested_at + 3
        assert log.current_as_of is not None
        assert requested_at <= log.current_as_of < requested_at + 1
