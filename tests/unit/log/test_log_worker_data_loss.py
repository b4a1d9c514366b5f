"""The log worker when records expire, the log is truncated, or the topic is recreated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tests.unit.log.fake_cluster import (
    FakeCluster,
    WorkerHarness,
    read_five,
    tp,
)

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    DataLossError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    import pytest


def test_expired_records_are_skipped(
    cluster: FakeCluster, harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(10)
    cluster.starts[tp(0)] = 6
    harness.consumer.failures = [DataLossError("deleted", topic=tp(0).topic, partition=0, offset=0)]
    future = harness.read_to_end()
    with caplog.at_level(logging.WARNING):
        harness.run_until_done(future)
    assert future.exception() is None
    assert harness.delivered == [(0, each) for each in range(6, 10)]
    assert "deleted Reading continues at offset 6 instead of 0." in caplog.text
    assert harness.losses == [(DataLossCause.AGED_OUT, {tp(0): 6})]


def test_a_deposed_leader_does_not_decide_where_reading_continues(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(10)
    cluster.starts[tp(0)] = 9
    cluster.on_floors = lambda: cluster.starts.update({tp(0): 6})
    harness.consumer.failures = [DataLossError("deleted", topic=tp(0).topic, partition=0, offset=0)]
    harness.run_until_done(harness.read_to_end())
    assert harness.losses == [(DataLossCause.AGED_OUT, {tp(0): 6})]


def test_the_log_start_is_fetched_until_a_broker_responds(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(10)
    cluster.starts[tp(0)] = 10
    harness.consumer.failures = [DataLossError("deleted", topic=tp(0).topic, partition=0, offset=0)]
    harness.run_times()
    cluster.failures = [BrokerUnreachableError("away")] * 3
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is None
    assert harness.delivered == []
    assert len(harness.consumer.polls) < 6


def truncated(to: int) -> TruncatedError:
    error = TruncatedError("truncated", topic=tp(0).topic, partition=0, offset=5)
    error.truncated_to = to
    return error


def test_reading_resumes_at_the_truncation_offset(cluster: FakeCluster, harness: WorkerHarness) -> None:
    read_five(cluster, harness)
    error = truncated(to=3)
    harness.consumer.failures = [error]
    cluster.ends[tp(0)] = 4
    read_past = harness.add_read_past({tp(0): 9})
    harness.run_until_done(read_past)
    assert read_past.exception() is error
    assert harness.resets == [error]
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, 3)]


def test_no_read_completes_while_the_end_is_below_the_position(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """The log was truncated and the consumer has not detected it yet, so records that were read may be lost."""
    read_five(cluster, harness)
    cluster.ends[tp(0)] = 3
    first = harness.read_to_end()
    harness.run_times()
    assert isinstance(first.exception(0), TruncatedError)
    second = harness.read_to_end()
    harness.run_times(20)
    assert not second.done()
    harness.consumer.failures = [truncated(to=2)]
    harness.run_until_done(second)
    assert isinstance(second.exception(), TruncatedError)
    third = harness.read_to_end()
    harness.run_until_done(third)
    assert third.exception() is None
    assert harness.delivered == [(0, 2)]


def test_after_a_truncation_the_log_is_read_again_if_on_reset_returns_true(cluster: FakeCluster) -> None:
    harness = WorkerHarness(cluster, on_reset=lambda _: True)
    read_five(cluster, harness)
    cluster.write(2, partition=1)
    harness.run_until_done(harness.read_to_end())
    harness.delivered.clear()
    old_consumer = harness.consumer
    old_consumer.failures = [truncated(to=3)]
    cluster.ends[tp(0)] = 4
    harness.run_times()
    harness.run_until_done(harness.read_to_end())
    assert old_consumer.closed
    assert harness.delivered == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_a_position_beyond_the_end_is_a_truncation_at_an_unknown_offset(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    read_five(cluster, harness)
    harness.consumer.failures = [DataLossError("beyond", topic=tp(0).topic, partition=0, offset=5)]
    cluster.ends[tp(0)] = 2
    read_past = harness.add_read_past({tp(0): 9})
    harness.run_until_done(read_past)
    assert isinstance(read_past.exception(), TruncatedError)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, 0), (0, 1)]  # the truncation offset is unknown, so the log is read again


def test_a_lower_end_fails_pending_reads_even_if_the_consumer_detects_nothing(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    """The consumer was at 5 of 9 when the log was truncated to 7: offsets 7 and 8 would never arrive."""
    read_five(cluster, harness)
    cluster.write(4)
    cluster.stable[tp(0)] = 5
    active, read_past = harness.read_to_end(), harness.add_read_past({tp(0): 9})
    harness.run_times()
    cluster.ends[tp(0)] = 7
    del cluster.stable[tp(0)]
    harness.run_until_done(active, read_past)
    assert isinstance(active.exception(), TruncatedError)
    assert isinstance(read_past.exception(), TruncatedError)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, 5), (0, 6)]


def test_a_recreated_topic_is_read_from_its_beginning(cluster: FakeCluster, harness: WorkerHarness) -> None:
    read_five(cluster, harness)
    harness.consumer.failures = [TopicRecreatedError("another", topic=tp(0).topic)]
    cluster.recreate(partitions=3)
    cluster.write(1, partition=2)
    read_past = harness.add_read_past({tp(0): 9})
    harness.run_until_done(read_past)
    assert isinstance(read_past.exception(), TopicRecreatedError)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(2, 0)]
    assert harness.worker.positions == {tp(0): 0, tp(1): 0, tp(2): 1}
    assert len(harness.resets) == 1


def test_a_recreated_topic_is_detected_when_end_offsets_are_fetched(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    read_five(cluster, harness)
    cluster.recreate(partitions=2)
    cluster.write(1)
    harness.consumer.max_records = 0
    future = harness.read_to_end()
    harness.run_times(60)
    assert isinstance(future.exception(0), TopicRecreatedError)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, 0)]
    assert len(harness.resets) == 1


def test_end_offsets_of_a_recreated_topic_complete_no_read(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """The consumer has not detected it yet, and the new log is as long as the old_consumer one."""
    read_five(cluster, harness)
    harness.run_until_done(harness.read_to_end())
    cluster.recreate(partitions=2)
    cluster.write(5)
    future = harness.read_to_end()
    harness.run_times(60)
    assert isinstance(future.exception(0), TopicRecreatedError)
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, each) for each in range(5)]


def test_an_end_below_the_position_completes_no_read(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """No end offsets were fetched since, and the consumer has not detected the truncation yet."""
    cluster.write(5)
    harness.run_times(2)
    assert harness.worker.positions[tp(0)] == 5
    cluster.ends[tp(0)] = 4  # truncated to 2, then 2 other records
    future = harness.read_to_end()
    harness.run_times(20)
    assert not future.done()
    harness.consumer.failures = [truncated(to=2)]
    harness.run_until_done(future)
    assert isinstance(future.exception(0), TruncatedError)


def test_a_truncation_offset_beyond_the_position_counts_as_unknown(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    """The new leader lacks the epoch of the records that were read, and its log is longer in an older epoch."""
    read_five(cluster, harness)
    cluster.write(15)
    harness.consumer.failures = [truncated(to=20)]
    harness.run_until_done(harness.add_read_past({tp(0): 9}))
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, each) for each in range(20)]  # from the beginning


def test_a_truncation_offset_at_the_log_start_counts_as_unknown(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """The new leader no longer has the epochs of the records before its log start, so those may have been replaced."""
    read_five(cluster, harness)
    cluster.write(5)
    cluster.starts[tp(0)] = 2
    harness.consumer.failures = [truncated(to=2)]
    harness.run_until_done(harness.add_read_past({tp(0): 20}))
    assert [getattr(error, "truncated_to", 0) for error in harness.resets] == [None]
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, each) for each in range(2, 10)]


def test_a_record_written_below_the_position_reveals_a_recreated_topic(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    """A read read_past its offset does not complete, although the position is higher."""
    read_five(cluster, harness)
    cluster.recreate(partitions=2)
    cluster.write(1)
    harness.worker.on_written(tp(0), 0, 5, harness.worker.log_generation)
    assert harness.worker.truncation_suspected
    read_past = harness.add_read_past({tp(0): 1})
    harness.run_until_done(read_past)
    assert isinstance(read_past.exception(), TopicRecreatedError)
    assert not harness.worker.truncation_suspected
    again = harness.add_read_past({tp(0): 1})
    harness.run_until_done(again)
    assert again.exception() is None
    assert harness.delivered == [(0, 0)]


def test_a_record_written_below_the_position_reveals_a_truncation(cluster: FakeCluster, harness: WorkerHarness) -> None:
    read_five(cluster, harness)
    harness.worker.on_written(tp(0), 3, 5, harness.worker.log_generation)
    read_past = harness.add_read_past({tp(0): 4})
    harness.run_times(5)
    assert not read_past.done()
    error = truncated(to=2)
    harness.consumer.failures = [error]
    harness.run_until_done(read_past)
    assert read_past.exception() is error
    harness.run_until_done(harness.add_read_past({tp(0): 4}))
    assert harness.delivered == [(0, 2), (0, 3), (0, 4)]


def test_a_truncation_that_the_consumer_does_not_detect_counts_after_a_timeout(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    read_five(cluster, harness)
    harness.worker.on_written(tp(0), 3, 5, harness.worker.log_generation)
    started = cluster.system.now
    read_past = harness.add_read_past({tp(0): 4})
    harness.run_until_done(read_past)
    assert isinstance(read_past.exception(), TruncatedError)
    assert 10 <= cluster.system.now - started < 15
    harness.run_until_done(harness.read_to_end())
    assert harness.delivered == [(0, each) for each in range(5)]


def test_records_sent_before_a_truncation_reveal_nothing(cluster: FakeCluster, harness: WorkerHarness) -> None:
    read_five(cluster, harness)
    generation = harness.worker.log_generation
    harness.consumer.failures = [truncated(to=3)]
    harness.run_times(2)
    harness.worker.on_written(tp(0), 3, 5, generation)
    assert not harness.worker.truncation_suspected


def test_positions_are_reset_before_pending_reads_fail(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """Otherwise a read that a callback requests would complete at once."""
    read_five(cluster, harness)
    harness.consumer.failures = [truncated(to=3)]
    found: list[Any] = []
    read_past = harness.add_read_past({tp(0): 9})
    read_past.add_done_callback(lambda _: found.append((harness.worker.positions[tp(0)], len(harness.resets))))
    harness.run_until_done(read_past)
    assert found == [(3, 1)]
