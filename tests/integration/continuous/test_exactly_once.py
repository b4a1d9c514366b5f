"""Exactly-once delivery with Spark: killed tasks and drivers, and handover to micro-batch queries."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.read_back import TopicReader
from tests.integration.transactional_batches import committed
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.continuous import continuous_query, recover_checkpoint
from pyspark_kafka_direct.errors import OptionError, TaskStartTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.continuous import ContinuousQuery

APP = Path(__file__).with_name("exactly_once_app.py")


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    return make_spark(master="local[3]")


class CopyQuery:
    """Two topics with two partitions each, a producer, and a query that copies records between them."""

    def __init__(self, spark: SparkSession, servers: str, source: str, output: str, folder: Path) -> None:
        self.spark, self.servers, self.source, self.output = spark, servers, source, output
        self.checkpoint = str(folder / "checkpoint")
        self.sent = 0
        self.options = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": output}
        self._stopping = threading.Event()
        self._producer = threading.Thread(target=self._produce)
        self._producer.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        while not self._stopping.wait(0.02):
            producer.produce(self.source, b"%d" % self.sent, partition=self.sent % 2)
            assert producer.flush(300) == 0
            self.sent += 1

    def start(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None = None, **settings: Any
    ) -> ContinuousQuery:
        read_options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.source,
            "startingOffsets": "earliest",
        }
        query = continuous_query(self.spark).read(read_options).select("value")
        if function is not None:
            query = query.map_batches(function)
        with_output = query.to_kafka(self.output, self.options)
        options = {"checkpointLocation": self.checkpoint, "epochInterval": 0.1, "taskStartTimeout": 600, **settings}
        return with_output.start(**options)

    def found(self) -> Counter[int]:
        return Counter(int(value) for value in committed(self.servers, self.output, 2))

    def wait_for(self, count: int) -> None:
        with TopicReader(self.servers, self.output, "read_committed") as reader:
            wait_until(lambda: len(reader.read()) >= count, f"{count} rows")

    def micro_batch(self) -> None:
        """Process all available records with a micro-batch query."""
        reader = self.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        rows = reader.option("subscribe", self.source).load().select("value")
        writer = rows.writeStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        writer = writer.option("topic", self.output).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(600)

    def stop_producing(self) -> None:
        self._stopping.set()
        self._producer.join()

    def expect_each_record_once(self) -> None:
        """Wait until all records have arrived, each of them once."""
        self.stop_producing()
        self.wait_for(self.sent)
        assert self.found() == Counter(range(self.sent))


@pytest.fixture
def copy_query(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[CopyQuery]:
    copy_query = CopyQuery(spark, kafka.bootstrap_servers, make_topic(2), make_topic(2), tmp_path)
    yield copy_query
    copy_query.stop_producing()


def test_killed_workers_lose_and_repeat_nothing(copy_query: CopyQuery, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def record_process_id(batch: pa.RecordBatch) -> pa.RecordBatch:
        (pids / str(os.getpid())).touch()
        return batch

    query = copy_query.start(record_process_id)
    try:
        for _ in range(2):
            before = len(copy_query.found())
            copy_query.wait_for(before + 40)
            pid = max(pids.iterdir(), key=lambda path: path.stat().st_mtime)
            os.kill(int(pid.name), signal.SIGKILL)
            for each in pids.iterdir():
                each.unlink()
            wait_until(lambda: bool(list(pids.iterdir())), "the restarted tasks")
        copy_query.expect_each_record_once()
        assert query.exception() is None
    finally:
        query.stop()


def test_a_second_driver_without_free_cores_does_not_fence_the_first(copy_query: CopyQuery) -> None:
    first = copy_query.start()
    try:
        copy_query.wait_for(10)
        second = copy_query.start(taskStartTimeout=2)  # two tasks, but one core is free
        with pytest.raises(TaskStartTimeoutError):
            second.awaitTermination(600)
        copy_query.expect_each_record_once()
        assert first.exception() is None
    finally:
        first.stop()


def test_handover_to_a_micro_batch_query_and_back(copy_query: CopyQuery) -> None:
    query = copy_query.start()
    copy_query.wait_for(30)
    query.stop()
    assert query.exception() is None
    copy_query.micro_batch()
    query = copy_query.start()
    try:
        copy_query.expect_each_record_once()
    finally:
        query.stop()


def test_handover_to_a_micro_batch_query_after_a_killed_driver_and_recovery(copy_query: CopyQuery) -> None:
    command = [
        sys.executable,
        str(APP),
        copy_query.servers,
        copy_query.source,
        copy_query.output,
        copy_query.checkpoint,
    ]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        copy_query.wait_for(40)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    options = {"kafka.bootstrap.servers": copy_query.servers, **copy_query.options}
    recovered = recover_checkpoint(copy_query.spark, copy_query.checkpoint, options)
    assert recovered is not None
    assert sum(recovered.values()) >= 40
    assert recover_checkpoint(copy_query.spark, copy_query.checkpoint, options) == recovered
    copy_query.micro_batch()
    assert copy_query.found() == Counter(range(len(copy_query.found())))
    query = copy_query.start()  # and a continuous query afterwards
    try:
        copy_query.expect_each_record_once()
    finally:
        query.stop()


def test_recovery_fetches_the_offsets_of_all_partitions_by_name(
    copy_query: CopyQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise brokers omit partitions whose first offset is pending."""
    query = copy_query.start()
    copy_query.wait_for(10)
    query.stop()
    requested: list[object] = []
    committed_with_metadata = ConsumerGroup.committed_with_metadata

    def spy(group: ConsumerGroup, partitions: Collection[TopicPartition] | None = None, **keywords: Any) -> Any:
        requested.append(None if partitions is None else sorted(partitions))
        return committed_with_metadata(group, partitions, **keywords)

    monkeypatch.setattr(ConsumerGroup, "committed_with_metadata", spy)
    recover_checkpoint(
        copy_query.spark, copy_query.checkpoint, {"kafka.bootstrap.servers": copy_query.servers, **copy_query.options}
    )
    assert [TopicPartition(copy_query.source, 0), TopicPartition(copy_query.source, 1)] in requested


def test_recovery_without_a_query_is_rejected(copy_query: CopyQuery, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": copy_query.servers, **copy_query.options}
    with pytest.raises(OptionError, match="is not the checkpoint of a query"):
        recover_checkpoint(copy_query.spark, str(tmp_path / "nothing"), options)
    with pytest.raises(OptionError, match="only exactly-once queries need recover_checkpoint"):
        recover_checkpoint(copy_query.spark, copy_query.checkpoint, options | {"deliveryGuarantee": "at-least-once"})
    with pytest.raises(OptionError, match="transactionalIdPrefix is missing"):
        recover_checkpoint(copy_query.spark, copy_query.checkpoint, {"kafka.bootstrap.servers": copy_query.servers})


def test_a_fenced_query_ends_for_good(copy_query: CopyQuery) -> None:
    query = copy_query.start()
    try:
        copy_query.wait_for(20)
        recover_checkpoint(
            copy_query.spark,
            copy_query.checkpoint,
            {"kafka.bootstrap.servers": copy_query.servers, **copy_query.options},
        )
        wait_until(lambda: not query.isActive, "the end of the query")
        # The driver reports the newer entry of the fencing log, or a task the response of its transaction coordinator.
        assert re.search("has taken control of the query|has acquired the transactional id", str(query.exception()))
    finally:
        query.stop()
    query = copy_query.start()
    try:
        copy_query.expect_each_record_once()
    finally:
        query.stop()
