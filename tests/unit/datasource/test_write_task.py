"""Write tasks: the partition with which one starts, and what it stages."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.datasource import write_task
from pyspark_kafka_direct.datasource.write_task import (
    BatchWriteJob,
    StagingConfig,
    StagingWriteTask,
    WriteTaskContext,
)
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.payloads import write_rows
from pyspark_kafka_direct.payloads.spark.write_schema import resolve_write_schema
from pyspark_kafka_direct.planning.commit_decision import Ticket
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.options.settings import ConnectionSettings

JOB = BatchWriteJob("job", from_option=False)
QUERY, RUN = str(uuid.uuid4()), str(uuid.uuid4())


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


def staging_task(connection: ConnectionSettings, staging: StagingConfig, job: BatchWriteJob | None) -> StagingWriteTask:
    return StagingWriteTask(
        connection=connection,
        produce=ProducerSettings(),
        schema=resolve_write_schema(StructType([StructField("value", BinaryType())]), "t"),
        topic="t",
        stamp=False,
        job=job,
        staging=staging,
        ticket=Ticket("id", 1),
    )


def test_a_task_that_runs_again_with_the_same_number_has_a_file_of_its_own(tmp_path: Path) -> None:
    """A stage that Spark repeats begins with attempt 0 again, and the first task may still run."""
    location = StagingConfig("p.sink", 1, str(tmp_path)).open()
    assert location is not None
    staging = StagingConfig("p.sink", 1, str(tmp_path), probe=location.prepare())
    write_task._check_location.cache_clear()
    with UnitCluster({"t": 1}) as cluster:
        client = cluster.client()
        task = staging_task(client.settings, staging, None)
        context = WriteTaskContext(3, 0, QUERY, 7, None, RUN)
        paths = set()
        for value in (b"a", b"b"):
            rows = pa.RecordBatch.from_pydict({"value": [value]})
            staged = task.write(iter([rows]), context, client.pool).staged
            assert isinstance(staged, StagedFile)
            paths.add(staged.path)
        assert len(paths) == 2


def test_all_parts_of_a_large_batch_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rows, "_SPLIT_BYTES", 100)
    with UnitCluster({"t": 1}) as cluster:
        client = cluster.client()
        task = staging_task(client.settings, StagingConfig("p.sink", 1 << 20), JOB)
        rows = pa.RecordBatch.from_pydict({"value": [b"%060d" % number for number in range(9)]})
        staged = task.write(iter([rows, rows]), WriteTaskContext(3, 1), client.pool).staged
        assert isinstance(staged, StagedInline)
        assert [staged.data.count(b"%060d" % number) for number in range(9)] == [2] * 9


@pytest.mark.parametrize("batch_id", [7, None])
@pytest.mark.parametrize("is_default", [True, False])
def test_rows_are_staged_and_the_folder_is_checked(tmp_path: Path, batch_id: int | None, is_default: bool) -> None:
    """The folder of the driver is not that of the executor: its probe is missing."""
    write_task._check_location.cache_clear()
    with UnitCluster({"t": 1}) as cluster:
        client = cluster.client()
        staging = StagingConfig("p.sink", 1 << 20, str(tmp_path), is_default=is_default, probe="of the driver")
        task = staging_task(client.settings, staging, JOB if batch_id is None else None)
        context = WriteTaskContext(3, 1, QUERY if batch_id is not None else None, batch_id, None, RUN)
        rows = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
        if batch_id is None and is_default:  # it can be repeated, and needs the folder only for many rows
            message = task.write(iter([rows]), context, client.pool)
            assert (message.task, message.location) == (context, str(tmp_path))
            assert message.attempt.kind == "job"
        else:
            with pytest.raises(OptionError, match="is not the same"):
                task.write(iter([rows]), context, client.pool)
        located = dataclasses.replace(task, staging=dataclasses.replace(staging, location=None))
        message = located.write(iter([rows]), context, client.pool)
        assert isinstance(message.staged, StagedInline)
        assert message.attempt.batch == (batch_id if batch_id is not None else message.attempt.batch)
        assert cluster.sent("Produce") == 0
