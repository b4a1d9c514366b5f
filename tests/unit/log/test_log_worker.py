"""The iterations of a log's thread: the rules of Kafka Connect's ``KafkaBasedLog``, and those of this package."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from tests.unit.client.fake_witnesses import FakeAbsenceCheck
from tests.unit.log.fake_cluster import (
    END_OFFSET_REQUESTS,
    TOPIC,
    FakeCluster,
    WorkerHarness,
    read_five,
    tp,
)

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
from pyspark_kafka_direct.planning.data_loss import TopicReport

if TYPE_CHECKING:
    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.log.pending_reads import LogFuture


def test_existing_records_are_read_first(cluster: FakeCluster) -> None:
    cluster.write(3, partition=0)
    cluster.write(2, partition=1)
    harness = WorkerHarness(cluster)
    initial_read = harness.read_to_end()
    harness.run_until_done(initial_read)
    assert initial_read.exception() is None
    assert harness.delivered == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert cluster.requests == ["topics", "config", "start", *END_OFFSET_REQUESTS]


def test_a_log_without_new_records_is_never_polled() -> None:
    cluster = FakeCluster(2, start=7)
    harness = WorkerHarness(cluster)
    initial_read = harness.read_to_end()
    harness.worker._send_due_requests()
    harness.worker._complete_reached_reads()
    assert initial_read.done()
    assert harness.worker.positions == {tp(0): 7, tp(1): 7}
    assert harness.consumer.polls == []


def test_a_read_at_the_end_completes_before_the_next_poll(cluster: FakeCluster, harness: WorkerHarness) -> None:
    future = harness.read_to_end()
    done: list[bool] = []
    harness.consumer.before_poll = lambda: done.append(future.done())
    harness.run_times()
    assert done == [True]


def test_polls_are_long_unless_a_read_is_pending(cluster: FakeCluster, harness: WorkerHarness) -> None:
    harness.run_times()
    harness.add_read_past({tp(0): 1})
    harness.run_times()
    assert harness.consumer.polls[-2:] == [30, 2]


def test_empty_polls_do_no_harm(cluster: FakeCluster) -> None:
    cluster.write(3)
    harness = WorkerHarness(cluster)
    initial_read = harness.read_to_end()
    harness.worker._send_due_requests()
    harness.consumer.max_records = 0
    harness.run_times(5)
    assert not initial_read.done()
    harness.consumer.max_records = 1
    harness.run_until_done(initial_read)
    assert harness.delivered == [(0, 0), (0, 1), (0, 2)]


def test_a_read_requested_during_another_waits_for_the_next_end(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(2)
    harness.consumer.max_records = 1
    first = harness.read_to_end()
    harness.run_times()  # activates the read, fetches end offset 2, reads one record
    cluster.write(1)
    second = harness.read_to_end()
    harness.run_until_done(first)
    assert harness.delivered == [(0, 0), (0, 1)]
    assert not second.done()
    harness.run_until_done(second)
    assert harness.delivered == [(0, 0), (0, 1), (0, 2)]
    assert cluster.requests == END_OFFSET_REQUESTS * 2


def test_reads_requested_together_complete_in_order(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(2)
    completed: list[int] = []
    futures = [harness.read_to_end() for _ in range(3)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: completed.append(number))  # type: ignore[misc]
    harness.run_until_done(*futures)
    assert completed == [0, 1, 2]
    assert cluster.requests == END_OFFSET_REQUESTS


def test_a_read_is_activated_after_earlier_sends_completed(cluster: FakeCluster, harness: WorkerHarness) -> None:
    after_sends, independent = harness.read_to_end(sent_count=2), harness.read_to_end(sent_count=0)
    harness.run_times(2)
    assert independent.done()
    assert not after_sends.done()
    cluster.write(2)
    harness.completed_count = 2
    harness.run_until_done(after_sends)
    assert harness.delivered == [(0, 0), (0, 1)]


def test_no_read_waits_for_ends_that_were_fetched_before_it_was_activated(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    """While sends are in flight, end offsets are fetched only to detect a truncation."""
    cluster.write(5)
    cluster.stable[tp(0)] = 2
    future = harness.read_to_end(sent_count=1)
    harness.run_times(10)
    assert cluster.requests.count("end") >= 2
    assert harness.pending_reads.ends is None
    harness.completed_count = 1
    harness.run_times()
    assert harness.pending_reads.ends == {tp(0): 5, tp(1): 0}
    cluster.stable.clear()
    harness.run_until_done(future)


def test_a_read_to_the_end_waits_for_an_open_transaction(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(5)
    cluster.stable[tp(0)] = 2
    future = harness.read_to_end()
    harness.run_times(20)
    assert not future.done()
    cluster.stable[tp(0)] = 5
    harness.run_until_done(future)


def test_transient_errors_are_retried_and_later_reads_join(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.failures = [BrokerTimeoutError("slow"), BrokerUnreachableError("away"), TimeoutError()]
    first = harness.read_to_end()
    harness.run_times()
    second = harness.read_to_end()
    cluster.write(1)
    harness.run_until_done(first, second)
    assert (first.exception(), second.exception()) == (None, None)
    assert cluster.requests == [*["end"] * 3, *END_OFFSET_REQUESTS]
    assert harness.errors == []


def test_request_timeouts_grow_with_failures(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.failures = [BrokerTimeoutError("slow")] * 6
    cluster.timeouts.clear()
    harness.run_until_done(harness.read_to_end())
    harness.run_until_done(harness.read_to_end())
    assert cluster.timeouts == [5, 10, 20, 40, 60, 60, 60, 5]


def test_reading_continues_while_end_offsets_cannot_be_fetched(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.failures = [BrokerTimeoutError("slow")] * 3
    cluster.write(2)
    future = harness.read_to_end()
    harness.run_times()
    assert harness.delivered == [(0, 0), (0, 1)]
    assert not future.done()
    harness.run_until_done(future)


def test_other_errors_fail_active_reads_and_the_worker_continues(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """The first read succeeds, the second fails, and a third that is requested in its callback succeeds."""
    first = harness.read_to_end()
    harness.run_until_done(first)
    third = []
    error = AuthorizationError("no")
    cluster.failures = [error]
    second = harness.read_to_end()
    second.add_done_callback(lambda _: third.append(harness.read_to_end()))
    harness.run_until_done(second)
    assert second.exception() is error
    harness.run_until_done(third[0])
    assert third[0].exception() is None
    assert harness.errors == [error]


def test_a_read_error_is_reported_and_retried(cluster: FakeCluster, harness: WorkerHarness) -> None:
    error = CorruptRecordError("bad")
    cluster.write(1)
    harness.consumer.failures = [error, error]
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is error
    again = harness.read_to_end()
    harness.run_until_done(again)
    harness.run_until_done(harness.read_to_end())
    assert harness.errors == [error, error]
    assert harness.delivered == [(0, 0)]


def test_read_errors_are_retried_with_pauses(cluster: FakeCluster, harness: WorkerHarness) -> None:
    harness.consumer.failures = [AuthorizationError("no")] * 1000
    started = cluster.system.now
    harness.run_times(40)
    polls = 1000 - len(harness.consumer.failures)
    assert polls <= 20
    assert cluster.system.now - started > polls / 2


def test_transient_read_errors_fail_no_pending_read(cluster: FakeCluster, harness: WorkerHarness) -> None:
    harness.consumer.failures = [BrokerUnreachableError("away")] * 3
    cluster.write(1)
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is None
    assert harness.errors == []


def test_an_error_of_on_record_fails_active_reads_and_the_next_records_follow(cluster: FakeCluster) -> None:
    seen: list[int] = []

    def apply(record: LogRecord) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            raise ZeroDivisionError

    harness = WorkerHarness(cluster, on_record=apply)
    cluster.write(4)
    future, queued = harness.read_to_end(), harness.read_to_end(sent_count=1)
    harness.run_until_done(future)
    assert isinstance(future.exception(), ZeroDivisionError)
    assert not queued.done()  # was not active yet
    assert seen == [0, 1, 2, 3]
    again = harness.read_to_end()
    harness.run_until_done(again)
    assert again.exception() is None
    assert seen == [0, 1, 2, 3]


def test_a_missing_topic_fails_pending_reads_until_it_is_back(cluster: FakeCluster, harness: WorkerHarness) -> None:
    read_five(cluster, harness)
    before, cluster.topic_id = cluster.topic_id, None
    harness.consumer.failures = [TopicNotFoundError("missing")]
    future = harness.read_to_end()
    harness.run_times()
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert isinstance(future.exception(), TopicNotFoundError)
    late = harness.read_to_end()
    harness.run_until_done(late)
    assert isinstance(late.exception(), TopicNotFoundError)
    assert len(harness.errors) == 1
    cluster.topic_id = before  # the same topic is visible again
    cluster.write(1)
    harness.run_times(20)
    assert harness.delivered == [(0, 5)]
    assert harness.resets == []


def test_a_missing_topic_is_confirmed_again_after_it_was_back(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """Between two restarts of the brokers, nobody requested a read."""
    read_five(cluster, harness)
    topic_id = cluster.topic_id

    def restart_brokers() -> None:
        cluster.topic_id = None
        harness.consumer.failures = [TopicNotFoundError("missing")]
        harness.run_times(2)

    restart_brokers()
    cluster.topic_id = topic_id
    harness.run_times(20)
    cluster.system.now += 3600
    future = harness.read_to_end()
    restart_brokers()
    cluster.topic_id = topic_id
    harness.run_until_done(future)
    assert future.exception() is None


def test_a_few_unknown_topic_responses_are_retried(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.failures = [TopicNotFoundError("not yet")] * 4
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is None


def test_a_new_topic_may_stay_unknown_for_30_seconds(cluster: FakeCluster) -> None:
    topic_id, cluster.topic_id = cluster.topic_id, None
    started = cluster.system.now
    harness = WorkerHarness(cluster)
    initial_read = harness.read_to_end()
    while cluster.system.now < started + 25:
        harness.run_times()
    assert not initial_read.done()
    cluster.topic_id = topic_id
    harness.run_until_done(initial_read)
    assert initial_read.exception() is None


def test_a_permission_that_is_missing_for_a_while_does_not_end_the_thread(
    cluster: FakeCluster, harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of an unknown topic raised the error out of the thread, so that no later read was possible."""
    read_five(cluster, harness)
    topic_id, cluster.topic_id = cluster.topic_id, None
    rejected = AuthorizationError("DESCRIBE is missing", topic=TOPIC)

    def reject(*_: object) -> NoReturn:
        raise rejected

    with monkeypatch.context() as patch:
        patch.setattr(FakeAbsenceCheck, "step", reject)
        harness.consumer.failures = [TopicNotFoundError("missing")]
        future = harness.read_to_end()
        harness.run_until_done(future)
    assert future.exception() is rejected
    assert set(harness.errors) == {rejected}
    cluster.topic_id = topic_id
    cluster.write(1)
    later = harness.read_to_end()
    harness.run_until_done(later)
    assert later.exception() is None


def test_a_topic_that_never_appears_is_an_error(cluster: FakeCluster) -> None:
    cluster.topic_id = None
    started = cluster.system.now
    harness = WorkerHarness(cluster)
    initial_read = harness.read_to_end()
    harness.run_until_done(initial_read)
    with pytest.raises(TopicNotFoundError, match="Create it"):
        initial_read.result()
    assert 30 <= cluster.system.now - started < 35


def test_an_unsupported_end_offset_request_is_not_retried(cluster: FakeCluster) -> None:
    """There is no fallback, which would return other offsets."""
    harness = WorkerHarness(cluster)
    error = UnsupportedBrokerError("too old")
    initial_read = harness.read_to_end()
    harness.run_times()
    harness.run_until_done(initial_read)
    cluster.requests.clear()
    cluster.failures = [error]
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is error
    assert cluster.requests == ["end"]


def test_a_filter_that_selects_no_partition_is_an_error(cluster: FakeCluster) -> None:
    harness = WorkerHarness(cluster, partition_filter=lambda number: number > 5)
    initial_read = harness.read_to_end()
    harness.run_until_done(initial_read)
    with pytest.raises(OptionError, match="none of the topic's 2"):
        initial_read.result()


def test_only_selected_partitions_are_read(cluster: FakeCluster) -> None:
    cluster.write(1, partition=0)
    cluster.write(1, partition=1)
    harness = WorkerHarness(cluster, partition_filter=lambda number: number == 1)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(1, 0)]
    assert harness.worker.positions == {tp(1): 1}


def test_fail_all_completes_each_read_once(cluster: FakeCluster, harness: WorkerHarness) -> None:
    completed: list[LogFuture] = []
    stopped = IllegalLogStateError("stopped")
    futures = [harness.read_to_end() for _ in range(3)]
    late = []

    def stop(_: object) -> None:  # while a callback hangs
        late.append(harness.read_to_end())
        harness.pending_reads.fail_all(stopped)

    futures[0].add_done_callback(stop)
    for future in futures:
        future.add_done_callback(completed.append)  # type: ignore[arg-type]
    harness.run_until_done(futures[0])
    assert completed[:2] == futures[1:]
    assert completed[2:] == futures[:1]
    assert [future.exception(0) for future in futures] == [None] * 3
    assert late[0].exception(0) is stopped
    assert not harness.pending_reads.has_unfinished


def test_a_callback_that_exits_does_not_end_the_worker(
    cluster: FakeCluster, harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = harness.read_to_end(), harness.read_to_end()
    first.add_done_callback(lambda _: sys.exit())
    harness.run_until_done(second)
    assert second.exception(0) is None
    assert "a callback of a future of the log raised an error" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_read_to_the_end_never_completes_early(seed: int) -> None:
    """When a read completes, all records that existed at its request were delivered, also after errors in between."""
    rng = random.Random(seed)
    cluster = FakeCluster(3)
    harness = WorkerHarness(cluster)
    harness.run_until_done(harness.read_to_end())
    harness.consumer.max_records = rng.randint(1, 3)
    requested: list[tuple[Any, dict[Any, int]]] = []
    completed = 0
    for _ in range(600):
        match rng.randrange(8):
            case 0 | 1 | 2:
                cluster.write(rng.randint(1, 5), partition=rng.randrange(3))
            case 3:
                partition = tp(rng.randrange(3))
                cluster.stable[partition] = harness.worker.positions[partition]  # a transaction is open
            case 4:
                cluster.stable.clear()
            case 5 if rng.random() < 0.3:
                error_type = rng.choice([BrokerTimeoutError, BrokerUnreachableError, AuthorizationError])
                rng.choice([cluster.failures, harness.consumer.failures]).append(error_type("failed"))
            case _:
                requested.append((harness.read_to_end(), dict(cluster.ends)))
        if rng.random() < 0.7:
            harness.run_times()
        for future, ends in requested:
            if future.done() and future.exception() is None:
                completed += 1
                assert all(harness.worker.positions[each] >= end for each, end in ends.items())
                delivered = set(harness.delivered)
                assert all((each.partition, offset) in delivered for each, end in ends.items() for offset in range(end))
        requested = [(future, ends) for future, ends in requested if not future.done()]
    assert completed > 5


def test_several_brokers_are_asked_before_a_log_starts_after_zero() -> None:
    """A leader that was deposed may have deleted records that the current leader still has."""
    cluster = FakeCluster(start=8)
    cluster.ends[tp(0)] = 10
    cluster.on_floors = lambda: cluster.starts.update({tp(0): 4})
    harness = WorkerHarness(cluster)
    harness.run_times()
    assert harness.delivered[0] == (0, 4)


def test_ends_of_a_deposed_leader_complete_no_read(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """It was paused while another leader was elected, and it does not know the records that this one acknowledged."""
    cluster.write(2)
    harness.run_times()
    later = TopicReport(2, cluster.topic_id, {0: 4, 1: 3})
    cluster.reports = [[later]]

    def find_new_leader() -> None:
        if cluster.requests[-1] == "topics":
            cluster.epochs[tp(0)] = 4
            cluster.write(1)

    cluster.on_request = find_new_leader
    future = harness.read_to_end()
    cluster.requests.clear()
    harness.run_until_done(future)
    assert future.exception() is None
    assert harness.delivered == [(0, 0), (0, 1), (0, 2)]
    assert cluster.requests == [*END_OFFSET_REQUESTS, "topics", *END_OFFSET_REQUESTS]


def test_a_read_waits_for_the_report_of_each_replica(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.unresolved = BrokerTimeoutError("The broker of a replica does not respond.")
    future = harness.read_to_end()
    harness.run_times(5)
    assert not future.done()
    assert harness.worker.last_error is cluster.unresolved
    cluster.unresolved = None
    harness.run_until_done(future)
    assert future.exception() is None


def test_a_wrong_address_is_reported_at_once_and_ends_the_start_after_30_seconds(cluster: FakeCluster) -> None:
    error = BrokerUnreachableError("No broker could be reached. wrong:9092: Cannot connect.")
    cluster.was_reached = False
    cluster.failures = [error] * 1000
    harness = WorkerHarness(cluster)
    started = cluster.system.now
    initial_read = harness.read_to_end()
    harness.run_times()
    assert harness.errors == [error]
    harness.run_until_done(initial_read)
    assert initial_read.exception(0) is error
    assert 30 <= cluster.system.now - started < 35
    assert harness.errors == [error]


def test_a_cluster_that_was_reached_may_be_away_for_longer(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.failures = [BrokerUnreachableError("away")] * 100
    future = harness.read_to_end()
    started = cluster.system.now
    while cluster.system.now < started + 60:
        harness.run_times()
    assert not future.done()
    assert harness.errors == []


def test_a_log_is_current_as_of_the_request_for_its_ends(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """Each record that was acknowledged before has been delivered."""
    first_read_at = harness.worker.current_as_of
    assert first_read_at is not None
    assert first_read_at < cluster.system.now
    cluster.write(3)
    read = harness.read_to_end()
    harness.consumer.max_records = 1
    requested_at = cluster.system.now
    cluster.on_request = lambda: setattr(cluster.system, "now", cluster.system.now + 1)
    harness.run_times(2)
    assert not read.done()
    assert harness.worker.current_as_of == first_read_at
    harness.run_until_done(read)
    assert harness.worker.current_as_of == requested_at
    cluster.recreate(2)
    failed = harness.read_to_end()
    harness.run_until_done(failed)
    assert isinstance(failed.exception(0), TopicRecreatedError)
    assert harness.worker.current_as_of is None
