"""Exactly-once delivery end to end, with Spark: tasks and drivers are killed, micro-batch queries take over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.deliveries import committed
from tests.integration.stream_queries import produce
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.continuous import continuous_query, settle
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.groups import Group

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


class Flow:
    """Two topics of two partitions each, something that produces, and a query between them."""

    def __init__(self, spark: SparkSession, servers: str, source: str, output: str, folder: Path) -> None:
        self.spark, self.servers, self.source, self.output = spark, servers, source, output
        self.checkpoint = str(folder / "checkpoint")
        self.sent = 0
        self.options = {"delivery": "exactly-once", "transactionalIdPrefix": output}
        self._over = threading.Event()
        self._producer = threading.Thread(target=self._produce)
        self._producer.start()

    def _produce(self) -> None:
        while not self._over.wait(0.005):
            produce(self.servers, self.source, [self.sent], partition=self.sent % 2)
            self.sent += 1

    def start(self, function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None = None) -> ContinuousQuery:
        reading = {"kafka.bootstrap.servers": self.servers, "subscribe": self.source, "startingOffsets": "earliest"}
        query = continuous_query(self.spark).read(reading).select("value")
        if function is not None:
            query = query.map_batches(function)
        written = query.to_kafka(self.output, self.options)
        return written.start(checkpointLocation=self.checkpoint, epochInterval=0.1)

    def found(self) -> Counter[int]:
        return Counter(int(value) for value in committed(self.servers, self.output, 2))

    def until(self, count: int) -> None:
        wait_until(lambda: len(self.found()) >= count, f"{count} rows", 90)

    def micro_batch(self) -> None:
        """Let a micro-batch query go on, through all that was produced."""
        reader = self.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        rows = reader.option("subscribe", self.source).load().select("value")
        writer = rows.writeStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        writer = writer.option("topic", self.output).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    def stop_producing(self) -> None:
        self._over.set()
        self._producer.join()

    def all_once(self) -> None:
        """Wait until all has arrived, and see that nothing came twice."""
        self.stop_producing()
        self.until(self.sent)
        assert self.found() == Counter(range(self.sent))


@pytest.fixture
def flow(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Flow]:
    made = Flow(spark, kafka.bootstrap_servers, make_topic(2), make_topic(2), tmp_path)
    yield made
    made.stop_producing()


def test_a_worker_is_killed_and_nothing_is_lost_or_repeated(flow: Flow, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        (pids / str(os.getpid())).touch()
        return batch

    query = flow.start(tell)
    try:
        for _ in range(2):
            before = len(flow.found())
            flow.until(before + 40)
            pid = max(pids.iterdir(), key=lambda path: path.stat().st_mtime)
            os.kill(int(pid.name), signal.SIGKILL)
            for each in pids.iterdir():
                each.unlink()
            wait_until(lambda: bool(list(pids.iterdir())), "the tasks are back", 60)
        flow.all_once()
        assert query.exception() is None
    finally:
        query.stop()


def test_a_micro_batch_query_takes_over_after_a_clean_stop_and_back(flow: Flow) -> None:
    for _ in range(2):
        before = len(flow.found())
        query = flow.start()
        flow.until(before + 30)
        query.stop()
        assert query.exception() is None
        flow.micro_batch()
    query = flow.start()
    try:
        flow.all_once()
    finally:
        query.stop()


def test_a_driver_is_killed_and_a_micro_batch_query_takes_over_when_it_was_settled(flow: Flow) -> None:
    for number in range(2):
        before = len(flow.found())
        command = [sys.executable, str(APP), flow.servers, flow.source, flow.output, flow.checkpoint]
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            flow.until(before + 40)
            time.sleep(0.03 * number)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        settled = settle(flow.spark, flow.checkpoint, {"kafka.bootstrap.servers": flow.servers, **flow.options})
        assert settled is not None
        assert sum(settled.values()) >= before + 40
        assert settle(flow.spark, flow.checkpoint, {"kafka.bootstrap.servers": flow.servers, **flow.options}) == settled
        flow.micro_batch()
        assert flow.found() == Counter(range(len(flow.found())))
    query = flow.start()  # and a continuous one after it
    try:
        flow.all_once()
    finally:
        query.stop()


def test_settling_asks_for_the_offsets_of_all_partitions_by_name(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else brokers leave those out whose first offset is just being committed."""
    query = flow.start()
    flow.until(10)
    query.stop()
    asked: list[object] = []
    noted = Group.noted

    def spy(group: Group, partitions: Collection[TopicPartition] | None = None, **more: Any) -> Any:
        asked.append(None if partitions is None else sorted(partitions))
        return noted(group, partitions, **more)

    monkeypatch.setattr(Group, "noted", spy)
    settle(flow.spark, flow.checkpoint, {"kafka.bootstrap.servers": flow.servers, **flow.options})
    assert [TopicPartition(flow.source, 0), TopicPartition(flow.source, 1)] in asked


def test_what_is_no_query_cannot_be_settled(flow: Flow, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": flow.servers, **flow.options}
    with pytest.raises(OptionError, match="there is no query in"):
        settle(flow.spark, str(tmp_path / "nothing"), options)
    with pytest.raises(OptionError, match="only a query that delivers exactly-once"):
        settle(flow.spark, flow.checkpoint, options | {"delivery": "at-least-once"})
    with pytest.raises(OptionError, match="transactionalIdPrefix is missing"):
        settle(flow.spark, flow.checkpoint, {"kafka.bootstrap.servers": flow.servers})


def test_another_driver_that_takes_over_ends_the_query_for_good(flow: Flow) -> None:
    query = flow.start()
    try:
        flow.until(20)
        settle(flow.spark, flow.checkpoint, {"kafka.bootstrap.servers": flow.servers, **flow.options})
        wait_until(lambda: not query.isActive, "the query has ended", 60)
        assert "taken over" in str(query.exception())
    finally:
        query.stop()
    query = flow.start()
    try:
        flow.all_once()
    finally:
        query.stop()
