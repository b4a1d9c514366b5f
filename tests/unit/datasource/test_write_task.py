"""The partition with which a write task starts."""

from __future__ import annotations

from collections import Counter

from pyspark_kafka_direct.datasource.write_task import BatchWriteJob, WriteTaskContext

JOB = BatchWriteJob("job", from_option=False)


def stream_task(batch: int, partition: int = 0, attempt: int = 0) -> WriteTaskContext:
    return WriteTaskContext(partition, attempt, "query", batch)


def test_batches_start_with_different_partitions() -> None:
    starts = Counter(stream_task(batch).first_sticky_partition(None) % 6 for batch in range(600))
    assert set(starts) == set(range(6))
    assert max(starts.values()) < 2 * min(starts.values())


def test_batch_writes_start_with_different_partitions() -> None:
    jobs = [BatchWriteJob(f"job-{number}", from_option=False) for number in range(60)]
    assert {WriteTaskContext().first_sticky_partition(job) % 6 for job in jobs} == set(range(6))


def test_tasks_of_a_batch_start_with_consecutive_partitions() -> None:
    first = stream_task(7).first_sticky_partition(None)
    assert [stream_task(7, task).first_sticky_partition(None) for task in range(4)] == [*range(first, first + 4)]


def test_retries_start_with_the_same_partition() -> None:
    # A batch that foreachBatch writes again has another job.
    again = BatchWriteJob("other", from_option=False)
    assert stream_task(7, 1).first_sticky_partition(JOB) == stream_task(7, 1, 5).first_sticky_partition(again)
    assert WriteTaskContext(1, 0).first_sticky_partition(JOB) == WriteTaskContext(1, 5).first_sticky_partition(JOB)
