"""Random topics (transactions, compaction, gaps, deleted records), and what librdkafka reads from them."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition
from tests.integration.transactional_batches import wait_for_markers
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    import random

    from tests.integration.workbench import Workbench

PARTITIONS: Final = 3
FIRST_TIMESTAMP: Final = 1_700_000_000_000
TIMESTAMPS: Final = 400  # few, so that partitions have equal ones; those of a partition are in no order

_SECONDS: Final = 600.0
_KEYS: Final = [b"", b"a", b"b", "ключ".encode(), b"\x00\xff"]
_VALUES: Final = [b"", b"v", b"\x00" * 300, b"\xff\xfe not UTF-8", b"x" * 20_000]
_HEADERS: Final = [("trace", b"1"), ("trace", b""), ("", None), ("имя".encode().decode(), b"\x00\xff")]
_CODECS: Final = ["none", "gzip", "snappy", "lz4", "zstd"]


class Row(NamedTuple):
    """The columns of a record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int  # milliseconds
    timestamp_type: int
    headers: list[dict[str, Any]] | None


def write_random_topic(bench: Workbench, source: random.Random, *, compacted: bool) -> str:
    """Create a topic, write to it, and delete the first records of some partitions."""
    config: dict[str, Any] = {"retention_ms": -1}
    if compacted:
        config |= {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.01, "segment_ms": 50}
        config |= {"delete_retention_ms": 50}
    topic = bench.make_topic(PARTITIONS, **config)
    for number in range(6):
        _write(bench, source, topic, number % PARTITIONS, compacted=compacted)
    if compacted:
        _compact(bench, topic, source)
    for partition in range(PARTITIONS):
        if partition == 0 or source.random() < 0.5:
            bench.delete_records(topic, source.randrange(1, bench.end(topic, partition) + 1), partition)
    _wait_for_markers(bench, topic)
    return topic


def read_by_librdkafka(servers: str, topics: list[str], isolation: str) -> list[Row]:
    """Return the records of all partitions from their log starts to their ends, by partition and offset."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": uuid.uuid4().hex,
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 20,  # at the ends
        "log_level": 0,
    }
    consumer = Consumer(config)
    left = {(topic, partition) for topic in topics for partition in range(PARTITIONS)}
    rows: list[Row] = []
    try:
        consumer.assign([ClientPartition(*each, OFFSET_BEGINNING) for each in left])
        deadline = time.monotonic() + _SECONDS
        while left:
            assert time.monotonic() < deadline, f"{left} were not read in {_SECONDS} s"
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                elif error.name() == "_PARTITION_EOF":
                    left.discard((message.topic(), message.partition()))
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:3])


def offsets_of_time(servers: str, topic: str, milliseconds: int, isolation: str) -> dict[int, int]:
    """Return the offset of each partition where librdkafka starts at a time; -1 at the end."""
    config = {"bootstrap.servers": servers, "group.id": "unused", "isolation.level": isolation}
    consumer = Consumer(config)
    try:
        wanted = [ClientPartition(topic, partition, milliseconds) for partition in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.offsets_for_times(wanted, _SECONDS)}
    finally:
        consumer.close()


def _row(message: Any) -> Row:
    kind, timestamp = message.timestamp()
    headers = message.headers()
    return Row(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp=timestamp,
        timestamp_type=kind - 1,
        headers=None if headers is None else [{"key": name, "value": value} for name, value in headers],
    )


def _write(bench: Workbench, source: random.Random, topic: str, first: int, *, compacted: bool) -> None:
    """Write a batch to this partition, and some to others: plain, in a committed or in an aborted transaction."""
    more: dict[str, Any] = {"compression_type": source.choice(_CODECS)}
    in_transaction = source.random() < 0.6
    if in_transaction:
        more["transactional_id"] = f"{topic}-{source.randrange(3)}"  # a later producer fences an earlier one
    producer = bench.producer(**more)
    if in_transaction:
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
    for partition in (first, *source.choices(range(PARTITIONS), k=source.randrange(3))):
        for _ in range(source.choice([1, 2, 30])):
            key = source.choice(_KEYS if compacted else [None, *_KEYS])
            producer.produce(
                topic,
                source.choice([None, *_VALUES]),
                key,
                partition,
                headers=source.choices(_HEADERS, k=source.randrange(4)) if source.random() < 0.5 else None,
                timestamp=FIRST_TIMESTAMP + source.randrange(TIMESTAMPS),
            )
        assert producer.flush(_SECONDS) == 0
    if in_transaction and source.random() < 0.5:
        producer.commit_transaction(_SECONDS)
    elif in_transaction:
        producer.abort_transaction(_SECONDS)


def _compact(bench: Workbench, topic: str, source: random.Random) -> None:
    """Wait until the cleaner has removed records, and stop it: its next run would change what tests compare."""
    _wait_for_markers(bench, topic)
    partition = source.randrange(PARTITIONS)
    producer = bench.producer()
    first = bench.end(topic, partition)

    def is_cleaned() -> bool:
        # Each record replaces the one before. Its timestamp rolls the active segment, which the cleaner never touches.
        producer.produce(topic, b"newer", _KEYS[0], partition)
        assert producer.flush(_SECONDS) == 0
        return first not in bench.read(topic, first, first + 1, partition=partition, columns=("offset",)).offsets

    wait_until(is_cleaned, f"{topic} is compacted")
    bench.alter_topic(topic, cleanup_policy="delete")


def _wait_for_markers(bench: Workbench, topic: str) -> None:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    wait_for_markers(bench.bootstrap_servers, partitions)
