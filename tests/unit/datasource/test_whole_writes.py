"""Writes on a simulated cluster, called as Spark does: one process plans, others run tasks, and another one commits."""

from __future__ import annotations

import json
import pickle
import uuid
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType
from tests.settings import task_settings
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client import cluster_client, connection_pool
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.datasource import write_task
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError, TransactionStateError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.spark.checkpoint_files import REWOUND_CONF
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME, load_write_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

QUERY, RUN = str(uuid.uuid4()), str(uuid.uuid4())
SCHEMA = StructType().add("value", BinaryType()).add("partition", IntegerType())
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"}
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class Spark:
    """Runs writes of one query."""

    def __init__(self, cluster: UnitCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.properties: dict[str, str] = {}
        self.tasks_ended = 0
        self._task = (0, 0)
        pool = cluster.pool
        monkeypatch.setattr(cluster_client, "POOL", pool)
        monkeypatch.setattr(connection_pool, "POOL", pool)
        monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(folder))
        monkeypatch.setattr("pyspark.TaskContext.get", self._context)
        monkeypatch.setattr(write_task, "end_task", self._end_task)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        (folder / SHARED_FOLDER_NAME).mkdir()

    def begin_batch(self, batch: int, offsets: str = "{}") -> None:
        """Set what Spark records of a batch before it is written."""
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
        (self.checkpoint / "offsets" / str(batch)).write_text(offsets)
        self.properties = {
            "sql.streaming.queryId": QUERY,
            "streaming.sql.batchId": str(batch),
            "spark.jobGroup.id": RUN,
        }

    def source(self, **options: str) -> KafkaSourceProvider:
        return KafkaSourceProvider({"kafka.bootstrap.servers": "broker-1:9092", "topic": "t", **options})

    def run(
        self, writer: Any, task: int, *batches: pa.RecordBatch, more: Iterable[pa.RecordBatch] = (), attempt: int = 0
    ) -> Any:
        """Run a task in another process."""
        self._task = (task, attempt)
        try:
            return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(chain(batches, more))))
        finally:
            self._task = (0, 0)

    def written(self) -> list[list[bytes | None]]:
        """Return the committed values of each partition."""
        self.cluster.sleep(1)  # control records are written after the response to EndTxn
        oracle = self.cluster.environment.oracle
        return [
            [value for _, value in oracle.records((tp.topic, tp.partition), 0, 1 << 60, READ_COMMITTED)]
            for tp in PARTITIONS
        ]

    def staged_files(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*.staged")]

    def _context(self) -> Any:
        partition, attempt = self._task
        return SimpleNamespace(
            partitionId=lambda: partition, attemptNumber=lambda: attempt, getLocalProperty=self.properties.get
        )

    def _end_task(self) -> None:
        self.tasks_ended += 1


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    with UnitCluster({"t": 3}) as cluster:
        yield Spark(cluster, tmp_path, monkeypatch)


def rows(*values: bytes, partition: int | None = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"value": list(values), "partition": pa.array([partition] * len(values), pa.int32())}
    )


def test_a_batch_write_reports_what_its_tasks_have_written(spark: Spark) -> None:
    spark.properties = {"spark.jobGroup.id": "nightly"}
    writer: Any = spark.source().writer(SCHEMA, overwrite=False)
    parts = [rows(b"a", b"b", partition=1), rows(b"c", partition=2)]
    messages = [spark.run(writer, 0, *parts), spark.run(writer, 1, rows(b"d", partition=1), attempt=2)]
    assert [(each.task.partition, each.task.attempt, each.task.job_group) for each in messages] == [
        (0, 0, "nightly"),
        (1, 2, "nightly"),
    ]
    assert spark.tasks_ended == 2, "each of them cleans up"
    pickle.loads(pickle.dumps(writer)).commit(messages)
    assert spark.written() == [[], [b"a", b"b", b"d"], [b"c"]]
    report = load_write_report(spark.folder / SHARED_FOLDER_NAME, "nightly")
    assert report is not None
    assert (report.query_id, report.batch_id) == (None, None)
    found = {tp: (each.first_offset, each.next_offset, each.records) for tp, each in report.partitions.items()}
    assert found == {PARTITIONS[1]: (0, 3, 3), PARTITIONS[2]: (0, 1, 1)}


def test_the_small_batches_of_a_task_share_a_request(spark: Spark) -> None:
    writer = spark.source().writer(SCHEMA, overwrite=False)
    spark.run(writer, 0, *(rows(b"a", b"b", partition=partition) for partition in range(3)))
    assert spark.cluster.sent("Produce") == 1


def test_rows_without_a_timestamp_have_the_time_of_the_write(spark: Spark) -> None:
    spark.begin_batch(7)
    writer = spark.source(stampBatch="true").streamWriter(SCHEMA, overwrite=False)
    times = []

    def slow_rows() -> Iterator[pa.RecordBatch]:
        for value in (b"a", b"b"):
            spark.cluster.sleep(60)
            times.append(int(spark.cluster.process.wall_time() * 1000))
            yield rows(value)

    spark.run(writer, 2, more=slow_rows(), attempt=1)
    config = task_settings(spark.cluster.client().settings, FetchSettings())
    task = RangeTask(OffsetRange("t", 0, 0, 2))
    batches = [*read_range(*config, task, ("timestamp", "headers"), pool=spark.cluster.pool)]
    for time, found in zip(times, pa.Table.from_batches(batches).to_pylist(), strict=True):
        assert time * 1000 <= pa.scalar(found["timestamp"], pa.timestamp("us", "UTC")).value < (time + 1000) * 1000
        assert {each["key"]: each["value"] for each in found["headers"]} == {
            "spark.query.id": QUERY.encode(),
            "spark.batch.id": b"7",
            "spark.partition.id": b"2",
            "spark.attempt": b"1",
        }


def test_a_failed_write_says_how_many_records_remain(spark: Spark, caplog: pytest.LogCaptureFixture) -> None:
    writer: Any = spark.source().writer(SCHEMA, overwrite=False)
    writer.abort([None, None])
    assert caplog.messages == []
    writer.abort([spark.run(writer, 0, rows(b"a", b"b")), spark.run(writer, 1, rows(b"c")), None])
    assert [message for message in caplog.messages if "the write failed" in message] == [
        "the write failed; 3 records of 2 finished tasks remain in Kafka, and maybe records of other tasks"
    ]


def test_a_stream_without_messages_saves_no_report(spark: Spark) -> None:
    spark.begin_batch(0)
    writer: Any = spark.source().streamWriter(SCHEMA, overwrite=False)
    writer.commit([], 0)
    writer.commit([None], 0)
    assert list((spark.folder / SHARED_FOLDER_NAME).iterdir()) == []


@pytest.mark.parametrize("threshold", ["1", "1000000"])
def test_a_micro_batch_is_committed_once(spark: Spark, threshold: str) -> None:
    options = {**EXACTLY_ONCE, "checkpointLocation": str(spark.checkpoint), "stagingThreshold": threshold}
    for attempt in range(2):  # of the same batch: Spark runs it again after a failure
        spark.begin_batch(0)
        source = spark.source(**options)
        writer = source.streamWriter(SCHEMA, overwrite=False)
        messages = [spark.run(writer, 0, rows(b"a", partition=1)), spark.run(writer, 1, rows(b"b", b"c"))]
        assert len(spark.staged_files()) == (2 if threshold == "1" else 0)
        assert spark.tasks_ended == 2 * (attempt + 1)
        committing: Any = pickle.loads(pickle.dumps(source)).streamWriter(SCHEMA, overwrite=False)
        committing.commit(messages, 0)
        assert spark.written() == [[b"b", b"c"], [b"a"], []]
        assert spark.staged_files() == []
        report = load_write_report(spark.folder / SHARED_FOLDER_NAME, QUERY, 0)
        assert report is not None
        assert {tp: each.records for tp, each in report.partitions.items()} == {PARTITIONS[0]: 2, PARTITIONS[1]: 1}


@pytest.mark.parametrize("rewound", [1, 3])
def test_a_stream_resumes_behind_batches_that_a_rewind_has_added(spark: Spark, rewound: int) -> None:
    """The sink has none of them."""
    options = {**EXACTLY_ONCE, "checkpointLocation": str(spark.checkpoint)}

    def commit(batch: int, value: bytes) -> None:
        spark.begin_batch(batch)
        source = spark.source(**options)
        messages = [spark.run(source.streamWriter(SCHEMA, overwrite=False), 0, rows(value))]
        committing: Any = pickle.loads(pickle.dumps(source)).streamWriter(SCHEMA, overwrite=False)
        committing.commit(messages, batch)

    commit(0, b"a")
    for batch in range(1, 1 + rewound):
        spark.begin_batch(batch, json.dumps({"conf": {REWOUND_CONF: "true"}}).join(["v1\n", "\n{}"]))
    commit(1 + rewound, b"b")
    assert spark.written() == [[b"a", b"b"], [], []]
    with pytest.raises(TransactionStateError, match=f"batch {3 + rewound}"):
        commit(3 + rewound, b"c")  # the batch before it has not been sent
    assert spark.written() == [[b"a", b"b"], [], []]


def test_a_batch_write_is_one_transaction(spark: Spark) -> None:
    writer: Any = spark.source(**EXACTLY_ONCE, jobId="load-1").writer(SCHEMA, overwrite=False)
    messages = [spark.run(writer, number, rows(b"%d" % number, partition=number)) for number in range(3)]
    assert spark.written() == [[], [], []]
    pickle.loads(pickle.dumps(writer)).commit(messages)
    assert spark.written() == [[b"0"], [b"1"], [b"2"]]
    again: Any = spark.source(**EXACTLY_ONCE, jobId="load-1").writer(SCHEMA, overwrite=False)
    again.commit([spark.run(again, 0, rows(b"x"))])
    assert spark.written() == [[b"0"], [b"1"], [b"2"]], "the job was committed before"

    for value in (b"3", b"4"):  # without a name, each write is another one
        unnamed: Any = spark.source(**EXACTLY_ONCE).writer(SCHEMA, overwrite=False)
        unnamed.commit([spark.run(unnamed, 0, rows(value))])
    assert spark.written()[0] == [b"0", b"3", b"4"]


def test_a_write_within_foreach_batch_is_committed_once(spark: Spark, caplog: pytest.LogCaptureFixture) -> None:
    options = {**EXACTLY_ONCE, "checkpointLocation": str(spark.checkpoint)}
    for run in (RUN, str(uuid.uuid4())):  # the second run repeats a batch whose end Spark has not recorded
        spark.begin_batch(0)
        spark.properties["spark.jobGroup.id"] = run
        writer: Any = spark.source(**options).writer(SCHEMA, overwrite=False)
        writer.commit([spark.run(writer, 0, rows(b"a"))])
        assert spark.written() == [[b"a"], [], []]
        report = load_write_report(spark.folder / SHARED_FOLDER_NAME, QUERY, 0)
        assert report is not None
        assert report.records == 1
    unchecked: Any = spark.source(**EXACTLY_ONCE).writer(SCHEMA, overwrite=False)
    with pytest.raises(OptionError, match="foreach_batch_writer"):
        spark.run(unchecked, 0, rows(b"a"))
    with pytest.raises(OptionError, match=r"checkpointLocation .* cannot be read"):
        spark.source(**EXACTLY_ONCE, checkpointLocation="/no/such/folder").writer(SCHEMA, overwrite=False)
    spark.begin_batch(0, '{"t":{"0":9}}')  # as in a copy of the checkpoint
    spark.properties["spark.jobGroup.id"] = str(uuid.uuid4())
    other: Any = spark.source(**options).writer(SCHEMA, overwrite=False)
    with pytest.raises(TransactionStateError, match=r"batch 0 .* with other content"):
        other.commit([spark.run(other, 0, rows(b"b"))])
    assert spark.written() == [[b"a"], [], []]
    named = spark.source(**options, jobId="load").writer(SCHEMA, overwrite=False)
    with pytest.raises(OptionError, match="jobId cannot be used within foreachBatch"):
        spark.run(named, 0, rows(b"a"))
    assert not [message for message in caplog.messages if "jobId" in message]


def test_a_failed_task_leaves_no_file(spark: Spark) -> None:
    options = {**EXACTLY_ONCE, "stagingThreshold": "1", "stagingLocation": str(spark.folder / "staging")}
    writer: Any = spark.source(**options).writer(SCHEMA, overwrite=False)
    finished = spark.run(writer, 0, rows(b"a"))
    with pytest.raises(KafkaDirectError, match="partition 99"):
        spark.run(writer, 1, rows(*[b"b" * 100_000] * 40), rows(b"c", partition=99))
    assert len(spark.staged_files()) == 1

    def killed() -> Iterator[pa.RecordBatch]:
        assert len(spark.staged_files()) == 1
        yield rows(*[b"b" * 100_000] * 40)
        assert len(spark.staged_files()) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spark.run(writer, 1, more=killed())
    assert len(spark.staged_files()) == 1
    writer.abort([finished, None])
    assert spark.staged_files() == []
    assert spark.written() == [[], [], []]


def test_a_stream_needs_a_checkpoint_that_python_can_read(spark: Spark) -> None:
    spark.begin_batch(0)
    with pytest.raises(OptionError, match="checkpointLocation is not an option of the query"):
        spark.source(**EXACTLY_ONCE).streamWriter(SCHEMA, overwrite=False)


def test_a_task_outside_of_spark_has_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: None)
    assert write_task.WriteTaskContext.begin() == write_task.WriteTaskContext()


def test_columns_that_a_stream_does_not_write_cause_a_warning(spark: Spark, caplog: pytest.LogCaptureFixture) -> None:
    spark.source().streamWriter(SCHEMA.add("carrier", StringType()), overwrite=False)
    assert [message for message in caplog.messages if "carrier are not written" in message]
