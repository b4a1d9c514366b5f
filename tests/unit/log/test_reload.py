"""A table is read again after a reset and after an error, and an error loses no record."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.fake_cluster import FakeCluster, WorkerHarness, read_five, tp

from pyspark_kafka_direct.errors import AuthorizationError, TopicNotFoundError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.log import record_callbacks

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.offsets import TopicPartition


class CountingView:
    """Counts the rows of each partition, as a table that is loaded aside after a reset."""

    def __init__(self) -> None:
        self.rows = 0
        self.aside: int | None = None
        self.errors: list[BaseException] = []

    def cleanup_policy_error(self, cleanup_policy: str) -> Exception:
        return ValueError(f"rejected: {cleanup_policy}")

    def check_partition_count(self, topic: LogTopic) -> None:
        pass

    def begin_reload(self) -> None:
        self.aside = 0

    def end_reload(self) -> None:
        assert self.aside is not None
        self.rows, self.aside = self.aside, None

    def apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        if self.errors:
            raise self.errors.pop()
        if self.aside is None:
            self.rows += rows.num_rows
        else:
            self.aside += rows.num_rows


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(2)


@pytest.fixture
def view() -> CountingView:
    return CountingView()


@pytest.fixture
def harness(cluster: FakeCluster, view: CountingView) -> WorkerHarness:
    harness = WorkerHarness(cluster, view=view, on_record=None, on_batch=view.apply)
    cluster.write(5)
    harness.run_until_done(harness.read_to_end())
    assert view.rows == 5
    return harness


def truncated(to: int) -> TruncatedError:
    error = TruncatedError("truncated", topic=tp(0).topic, partition=0, offset=5)
    error.truncated_to = to
    return error


def test_the_earlier_contents_remain_until_everything_was_read_again(
    cluster: FakeCluster, harness: WorkerHarness, view: CountingView
) -> None:
    harness.consumer.failures = [truncated(to=3)]
    cluster.ends[tp(0)] = 4
    cluster.max_records = 1
    harness.run_times()
    harness.run_times()
    read_past = harness.add_read_past({tp(0): 2})
    seen = []
    while not read_past.done():
        seen.append((view.rows, view.aside))
        harness.run_times()
    assert (5, 2) in seen, "the read past offset 1 waits for the whole table"
    assert all(rows == 5 for rows, _ in seen)
    assert (view.rows, view.aside) == (4, None)
    assert harness.worker.reloading is False


def test_a_table_is_complete_again_although_no_read_is_requested(
    cluster: FakeCluster, harness: WorkerHarness, view: CountingView
) -> None:
    harness.consumer.failures = [TopicRecreatedError("another", topic=tp(0).topic)]
    cluster.recreate(partitions=1)
    cluster.write(2)
    harness.run_times(60)
    assert (view.rows, view.aside) == (2, None)


def test_an_error_while_rows_are_applied_fails_reads_until_the_table_was_read_again(
    cluster: FakeCluster, harness: WorkerHarness, view: CountingView
) -> None:
    error = MemoryError()
    view.errors = [error, error]
    cluster.write(3)
    first = harness.read_to_end()
    harness.run_until_done(first)
    assert first.exception(0) is error
    second = harness.read_to_end()
    harness.run_until_done(second)
    assert second.exception(0) is error
    third = harness.read_to_end()
    harness.run_until_done(third)
    assert third.exception(0) is None
    assert view.rows == 8


def test_a_table_with_an_error_is_read_again_after_pauses(
    cluster: FakeCluster, harness: WorkerHarness, view: CountingView
) -> None:
    view.errors = [MemoryError()] * 1000
    cluster.write(1)
    started = cluster.system.now
    harness.run_times(60)
    applied = 1000 - len(view.errors)
    assert applied > 3
    assert cluster.system.now - started > applied / 2


def test_records_that_cannot_be_converted_are_delivered_later(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = WorkerHarness(cluster)
    harness.run_until_done(harness.read_to_end())
    cluster.write(3)
    cluster.write(2, partition=1)
    convert = record_callbacks.to_log_records
    failing = [tp(0), tp(1), tp(1)]

    def to_log_records(partition: TopicPartition, rows: pa.RecordBatch) -> Any:
        if partition in failing:
            failing.remove(partition)
            raise MemoryError
        return convert(partition, rows)

    monkeypatch.setattr(record_callbacks, "to_log_records", to_log_records)
    failed = harness.read_to_end()
    harness.run_until_done(failed)
    assert isinstance(failed.exception(0), MemoryError)
    while failing:
        harness.run_times()
    again = harness.read_to_end()
    harness.run_until_done(again)
    assert again.exception(0) is None
    assert sorted(harness.delivered) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_consumer_that_is_reopened_resumes_in_the_same_topic_and_epoch(cluster: FakeCluster) -> None:
    harness = WorkerHarness(cluster)
    read_five(cluster, harness)
    assert harness.consumer.start.topic_ids == dict.fromkeys(harness.worker.positions, cluster.topic_id)
    assert harness.consumer.start.last_epochs == {}
    harness.consumer.last_epochs[tp(0)] = 7
    harness.consumer.failures = [TopicNotFoundError("missing")]
    harness.run_times(20)
    assert len(cluster.consumers) == 2
    assert harness.consumer.start.offsets == {tp(0): 5, tp(1): 0}
    assert harness.consumer.start.topic_ids == dict.fromkeys(harness.worker.positions, cluster.topic_id)
    assert harness.consumer.start.last_epochs[tp(0)] == 7


def test_a_view_rejects_a_topic_whose_records_expire(cluster: FakeCluster, view: CountingView) -> None:
    cluster.cleanup_policy = "compact,delete"
    harness = WorkerHarness(cluster, view=view, on_record=None, on_batch=view.apply)
    future = harness.read_to_end()
    harness.run_until_done(future)
    with pytest.raises(ValueError, match="rejected: compact,delete"):
        future.result(0)
    assert cluster.consumers == []


def test_a_log_warns_of_a_topic_whose_records_expire(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.cleanup_policy = "delete"
    harness = WorkerHarness(cluster)
    harness.run_until_done(harness.read_to_end())
    assert "has cleanup.policy=delete" in caplog.text


def test_a_policy_that_may_not_be_read_does_no_harm(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    def deny() -> None:
        if cluster.requests[-1] == "config":
            raise AuthorizationError("no permission")

    cluster.on_request = deny
    harness = WorkerHarness(cluster, view=CountingView(), on_record=None, on_batch=lambda *_: None)
    future = harness.read_to_end()
    with caplog.at_level(logging.DEBUG):
        harness.run_until_done(future)
    assert future.exception(0) is None
    assert [record.levelno for record in caplog.records if "no permission" in record.message] == [logging.DEBUG]
