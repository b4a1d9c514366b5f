"""Ranges return exactly their records, once each, with all fields."""

from __future__ import annotations

import datetime
import random
import select
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.consumer.fetcher import Fetcher
from pyspark_kafka_direct.consumer.range_counter import RecordCounter
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.records import COLUMNS, arrow_schema

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

BATCH_SIZES = (1, 5, 3, 4)
COUNT = sum(BATCH_SIZES)

HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [("one", b"1")],
    [("null", None), ("empty", b"")],
    [("twice", b"1"), ("twice", b"2")],
]


def key_of(offset: int) -> bytes | None:
    return (None, b"", f"key-{offset}".encode())[offset % 3]


def value_of(offset: int) -> bytes | None:
    return (f"value-{offset}".encode(), None, b"", b"x" * offset)[offset % 4]


def timestamp_of(offset: int) -> int:
    return 1_700_000_000_000 + (offset * 7919) % 1000  # not in order


@pytest.fixture(scope="module")
def topic(bench: Workbench) -> str:
    """Records of all kinds in batches of known sizes."""
    topic = bench.make_topic()
    producer = bench.producer()
    offset = 0
    for size in BATCH_SIZES:
        for _ in range(size):
            producer.produce(
                topic,
                value_of(offset),
                key_of(offset),
                partition=0,
                timestamp=timestamp_of(offset),
                headers=HEADERS[offset % len(HEADERS)],
            )
            offset += 1
        assert producer.flush(300) == 0
    assert bench.end(topic) == COUNT
    return topic


def expected(topic: str, offset: int) -> dict[str, Any]:
    headers = HEADERS[offset % len(HEADERS)]
    seconds, milliseconds = divmod(timestamp_of(offset), 1000)
    return {
        "key": key_of(offset),
        "value": value_of(offset),
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(microsecond=milliseconds * 1000),
        "timestampType": 0,
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
        "leaderEpoch": 0,
    }


def test_every_range_gives_exactly_its_records(bench: Workbench, topic: str) -> None:
    for first in range(COUNT + 1):
        for until in range(first, COUNT + 1):
            read = bench.read(topic, first, until, columns=COLUMNS)
            assert read.rows == [expected(topic, offset) for offset in range(first, until)], (first, until)
            assert (read.counts.records, read.counts.gaps, read.counts.lost) == (until - first, 0, 0)
            assert all(batch.num_rows and batch.schema == arrow_schema(COLUMNS) for batch in read.batches)


def test_any_columns_in_any_order(bench: Workbench, topic: str) -> None:
    rng = random.Random(7)
    for _ in range(30):
        columns = tuple(rng.sample(COLUMNS, rng.randint(1, len(COLUMNS))))
        read = bench.read(topic, 2, 11, columns=columns)
        assert {tuple(batch.schema.names) for batch in read.batches} == {columns}
        assert read.rows == [{name: expected(topic, offset)[name] for name in columns} for offset in range(2, 11)]


def test_no_columns_still_count_the_records(bench: Workbench, topic: str) -> None:
    read = bench.read(topic, 3, 9, columns=())
    assert sum(batch.num_rows for batch in read.batches) == 6


def test_empty_range_sends_no_request(bench: Workbench, topic: str) -> None:
    read = bench.run(bench.request(topic, 5, 5), bootstrap_servers="127.0.0.1:1")
    assert (read.rows, read.counts.fetches) == ([], 0)


@pytest.mark.parametrize(("max_rows", "largest_batch"), [(1, 1), (4, 4), (100, COUNT)])
def test_batches_are_limited_by_rows(bench: Workbench, topic: str, max_rows: int, largest_batch: int) -> None:
    read = bench.read(topic, 0, COUNT, max_rows=max_rows)
    assert read.offsets == list(range(COUNT))
    assert max(batch.num_rows for batch in read.batches) == largest_batch


def test_batches_are_limited_by_bytes(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"v" * 1000] * 100)
    read = bench.read(topic, 0, 100, max_bytes=10_000)
    assert read.offsets == list(range(100))
    assert {batch.num_rows for batch in read.batches[:-1]} == {9}


def test_many_fetches(bench: Workbench) -> None:
    """More than one response holds, with ends in the middle of batches."""
    topic = bench.make_topic()
    count = 30_000
    bench.write(topic, (b"%06d" % number + b"." * 94 for number in range(count)), batch_size=20_000)
    read = bench.read(topic, 7, count - 7, kafka={"max.partition.fetch.bytes": 100_000})
    assert read.offsets == list(range(7, count - 7))
    assert [value[:6] for value in read.values] == [b"%06d" % number for number in range(7, count - 7)]
    assert 20 < read.counts.fetches < 60
    assert read.counts.retries == 0
    assert 100 * count < read.counts.record_bytes < 200 * count


def test_next_fetch_is_in_flight_while_records_are_used(bench: Workbench, topic: str) -> None:
    request = bench.request(topic, 0, COUNT)
    config, task = bench.config(request, max_partition_fetch_bytes=1), request.task
    replica = ReadReplica(config.connection, config.fetch, task.offsets.topic_partition, task.topic_id)
    counter = RecordCounter(topic, 0, 0, COUNT)
    steps = Fetcher(task, replica, counter, ReadCounts()).run()
    next(steps)
    assert counter.records == BATCH_SIZES[0]
    channel = replica._channel
    assert channel is not None
    connection = channel.connection
    bench.wait_until(lambda: bool(select.select([connection.fileno()], [], [], 0)[0]), "the next response has arrived")
    next(steps)
    assert counter.records == sum(BATCH_SIZES[:2])
    assert replica._channel is channel  # the response was the wanted one
    replica.release()


def test_records_larger_than_a_fetch(bench: Workbench) -> None:
    topic = bench.make_topic(max_message_bytes=12 << 20)
    values = [b"small", b"L" * (10 << 20), b"between", b"M" * (3 << 20), b""]
    for value in values:
        bench.write(topic, [value], message_max_bytes=12 << 20)
    assert bench.read(topic, 0, 5).values == values
    tiny = {"max.partition.fetch.bytes": 100, "fetch.max.bytes": 100, "receive.buffer.bytes": 4096}
    assert bench.read(topic, 0, 5, kafka=tiny).values == values
    assert bench.read(topic, 1, 2).values == values[1:2]


def test_log_append_time(bench: Workbench) -> None:
    topic = bench.make_topic(message_timestamp_type="LogAppendTime")
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    producer = bench.producer()
    for _ in range(3):
        producer.produce(topic, b"v", partition=0, timestamp=1_000)
    assert producer.flush(300) == 0
    rows = bench.read(topic, 0, 3, columns=("timestamp", "timestampType")).rows
    assert {row["timestampType"] for row in rows} == {1}
    assert all(before < row["timestamp"] < before + datetime.timedelta(minutes=5) for row in rows)


def test_the_log_line_at_the_end(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="pyspark_kafka_direct.consumer"):
        bench.read(topic, 2, 11)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "pyspark_kafka_direct.consumer"]
    assert line.startswith(f"{topic}-0 [2, 11): 9 records, ")
    assert f"bytes in 1 fetches from {bench.bootstrap_servers}, " in line
    assert line.endswith(" s waiting for brokers")


def test_abandoned_read_releases_its_connection(bench: Workbench, topic: str) -> None:
    batches = bench.open(bench.request(topic, 0, COUNT), max_partition_fetch_bytes=1)
    assert next(iter(batches)).column("offset")[0].as_py() == 0
    batches.close()  # type: ignore[attr-defined]
    assert bench.read(topic, 0, COUNT).offsets == list(range(COUNT))
