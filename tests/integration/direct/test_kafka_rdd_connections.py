"""Connections of KafkaRDD's tasks: kept from task to task, new on a retry, safe in many threads, bounded.

What Spark's ``KafkaDataConsumerSuite`` checks of its consumer cache, checked of the pool of connections.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext

from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange
from pyspark_kafka_direct.direct._task import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.runtime.range_task import RangeTask, Reading
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.wire.connection import Connection

RECORDS = 200


@pytest.fixture
def topic(bench: Workbench) -> str:
    name = bench.make_topic()
    bench.write(name, *[[b"%d" % number for number in range(start, start + 10)] for start in range(0, RECORDS, 10)])
    return name


@pytest.fixture
def reading(bench: Workbench) -> Iterator[Reading]:
    """Settings that only this test uses, so that its connections are its own."""
    yield Reading(*bench.settings(client_id=f"test-{os.urandom(4).hex()}"), 60.0)
    POOL.clear()


def pooled(reading: Reading) -> list[Connection]:
    """The idle connections to the brokers, by way of which the test's tasks read."""
    return [
        connection for key, connection in POOL._idle.values() if key.settings.client_id == reading.settings.client_id
    ]


@contextlib.contextmanager
def attempt(number: int) -> Iterator[None]:
    """Spark's own context of a task, as a worker sets it."""
    context = TaskContext._getOrCreate()
    context._attemptNumber = number
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)  # type: ignore[arg-type]


def offsets(reading: Reading, task: RangeTask) -> list[int]:
    return [record.offset for record in ReadRecords(reading, None, None)(0, [task])]


def test_the_next_task_uses_the_same_connection(bench: Workbench, topic: str, reading: Reading) -> None:
    """ "KafkaDataConsumer reuse in case of same groupId and TopicPartition"."""
    task = RangeTask(OffsetRange(topic, 0, 0, 5), bench.topic_id(topic), bench.known_leader(topic))
    assert offsets(reading, task) == [0, 1, 2, 3, 4]
    (first,) = pooled(reading)
    with attempt(0):
        assert offsets(reading, task) == [0, 1, 2, 3, 4]
        assert list(CountRecords(reading)(0, [task])) == [5]
        assert sum(batch.num_rows for batch in ReadArrow(reading, ("value",))(0, [task])) == 5
    assert pooled(reading) == [first]


@pytest.mark.parametrize("what", ["records", "arrow", "count"])
def test_a_retried_task_uses_a_new_connection(bench: Workbench, topic: str, reading: Reading, what: str) -> None:
    """ "new KafkaDataConsumer instance in case of Task retry": the old one is closed."""
    task = RangeTask(OffsetRange(topic, 0, 0, 5), bench.topic_id(topic), bench.known_leader(topic))
    work: dict[str, Any] = {
        "records": ReadRecords(reading, None, None),
        "arrow": ReadArrow(reading, ("value",)),
        "count": CountRecords(reading),
    }
    list(work[what](0, [task]))
    (first,) = pooled(reading)
    with attempt(1):
        assert len(list(work[what](0, [task]))) in (1, 5)
    (second,) = pooled(reading)
    assert second is not first
    assert first.fileno() < 0  # closed


def test_concurrent_use(bench: Workbench, topic: str, reading: Reading) -> None:
    """ "concurrent use of KafkaDataConsumer": 100 threads, 500 uses of one partition, right data, no exception."""
    leader, topic_id = bench.known_leader(topic), bench.topic_id(topic)

    def use(number: int) -> bool:
        start = number % 150
        task = RangeTask(OffsetRange(topic, 0, start, start + 50), topic_id, leader if number % 2 else None)
        records = list(ReadRecords(reading, None, int)(0, [task]))
        return [record.value for record in records] == list(range(start, start + 50))

    with ThreadPoolExecutor(100) as threads:
        assert all(threads.map(use, range(500)))
    assert 1 <= len(pooled(reading)) <= 4  # bounded


def test_workers_keep_their_connections_between_jobs(spark: SparkSession, bench: Workbench, topic: str) -> None:
    client = f"test-{os.urandom(4).hex()}"

    def look(records: Iterable[Any]) -> Iterator[tuple[int, set[int], int]]:
        import os

        from pyspark_kafka_direct.wire.pool import POOL

        seen = len(list(records))
        ours = {id(connection) for key, connection in POOL._idle.values() if key.settings.client_id == client}
        yield os.getpid(), ours, seen

    params = {"bootstrap.servers": bench.bootstrap_servers, "client.id": client}
    found: list[tuple[int, set[int], int]] = []
    # A worker more is started when a job begins before the last one's worker is back, and idle ones take turns.
    for _ in range(20):
        found += (
            KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 0, RECORDS)])
            .mapPartitions(look)
            .collect()
        )
    assert {seen for *_, seen in found} == {RECORDS}
    workers = {pid for pid, *_ in found}
    assert len(workers) < len(found)
    for worker in workers:
        kept = [connections for pid, connections, _ in found if pid == worker]
        assert kept[0]
        assert all(connections == kept[0] for connections in kept)
