"""The connections of KafkaRDD's tasks: reused between tasks, new after a retry, thread-safe, limited in number.

The tests of Spark's ``KafkaDataConsumerSuite`` for its consumer cache, applied to the connection pool.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from tests.settings import task_settings

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange
from pyspark_kafka_direct.direct.arrow_columns import ArrowColumns
from pyspark_kafka_direct.direct.kafka_rdd import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.client.connection import Connection

RECORDS = 200


@pytest.fixture
def topic(bench: Workbench) -> str:
    name = bench.make_topic()
    bench.write(name, *[[b"%d" % number for number in range(start, start + 10)] for start in range(0, RECORDS, 10)])
    return name


@pytest.fixture
def reader(bench: Workbench) -> Iterator[RangeTaskReader]:
    """A reader with settings that only this test uses, so that it shares no connection."""
    yield RangeTaskReader(*task_settings(*bench.settings(client_id=f"test-{os.urandom(4).hex()}"), poll_timeout=60.0))
    POOL.clear()


def pooled(reader: RangeTaskReader) -> list[Connection]:
    """The idle connections of the test's tasks."""
    return [
        idle.connection for idle in POOL._idle.values() if idle.key.settings.client_id == reader.connection.client_id
    ]


@contextlib.contextmanager
def attempt(number: int) -> Iterator[None]:
    """Spark's task context, as set by a worker."""
    context = TaskContext._getOrCreate()
    context._attemptNumber = number
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)  # type: ignore[arg-type]


def offsets(reader: RangeTaskReader, task: RangeTask) -> list[int]:
    return [record.offset for record in ReadRecords(reader, None, None)(0, [task])]


def test_the_next_task_uses_the_same_connection(bench: Workbench, topic: str, reader: RangeTaskReader) -> None:
    """ "KafkaDataConsumer reuse in case of same groupId and TopicPartition"."""
    task = RangeTask(OffsetRange(topic, 0, 0, 5), bench.topic_id(topic), bench.known_leader(topic))
    assert offsets(reader, task) == [0, 1, 2, 3, 4]
    (first,) = pooled(reader)
    with attempt(0):
        assert offsets(reader, task) == [0, 1, 2, 3, 4]
        assert list(CountRecords(reader)(0, [task])) == [5]
        assert sum(batch.num_rows for batch in ReadArrow(reader, ArrowColumns(("value",)))(0, [task])) == 5
    assert pooled(reader) == [first]


@pytest.mark.parametrize("what", ["records", "arrow", "count"])
def test_a_retried_task_uses_a_new_connection(bench: Workbench, topic: str, reader: RangeTaskReader, what: str) -> None:
    """ "new KafkaDataConsumer instance in case of Task retry": the old one is closed."""
    task = RangeTask(OffsetRange(topic, 0, 0, 5), bench.topic_id(topic), bench.known_leader(topic))
    work: dict[str, Any] = {
        "records": ReadRecords(reader, None, None),
        "arrow": ReadArrow(reader, ArrowColumns(("value",))),
        "count": CountRecords(reader),
    }
    list(work[what](0, [task]))
    (first,) = pooled(reader)
    with attempt(1):
        assert len(list(work[what](0, [task]))) in (1, 5)
    (second,) = pooled(reader)
    assert second is not first
    assert first.fileno() < 0  # closed


def test_concurrent_use(bench: Workbench, topic: str, reader: RangeTaskReader) -> None:
    """ "concurrent use of KafkaDataConsumer": 100 threads, 500 uses of one partition, right data, no exception."""
    leader, topic_id = bench.known_leader(topic), bench.topic_id(topic)

    def use(number: int) -> bool:
        start = number % 150
        task = RangeTask(OffsetRange(topic, 0, start, start + 50), topic_id, leader if number % 2 else None)
        records = list(ReadRecords(reader, None, int)(0, [task]))
        return [record.value for record in records] == list(range(start, start + 50))

    with ThreadPoolExecutor(100) as threads:
        assert all(threads.map(use, range(500)))
    assert 1 <= len(pooled(reader)) <= 4  # bounded


def test_workers_reuse_their_connections_between_jobs(spark: SparkSession, bench: Workbench, topic: str) -> None:
    client = f"test-{os.urandom(4).hex()}"

    def count_with_connections(records: Iterable[Any]) -> Iterator[tuple[int, set[int], int]]:
        import os

        from pyspark_kafka_direct.client.connection_pool import POOL

        record_count = len(list(records))
        connections = {id(idle.connection) for idle in POOL._idle.values() if idle.key.settings.client_id == client}
        yield os.getpid(), connections, record_count

    params = {"bootstrap.servers": bench.bootstrap_servers, "client.id": client}
    results: list[tuple[int, set[int], int]] = []
    # Spark starts another worker if a job starts before the worker of the last job is idle, and alternates between
    # them.
    for _ in range(20):
        results += (
            KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 0, RECORDS)])
            .mapPartitions(count_with_connections)
            .collect()
        )
    assert {record_count for *_, record_count in results} == {RECORDS}
    workers = {pid for pid, *_ in results}
    assert len(workers) < len(results)
    for worker in workers:
        worker_connections = [connections for pid, connections, _ in results if pid == worker]
        assert worker_connections[0]
        assert all(connections == worker_connections[0] for connections in worker_connections)
