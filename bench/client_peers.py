"""Kafka clients as peers, without Spark: a consumer whose records become Arrow record batches.

One process, one consumer, both partitions, all columns that Spark's source has but the headers. With Python's clients,
that is the loop one would write by hand; it says what the client costs before there is any Spark. Settings are the
defaults, except that confluent-kafka checks CRCs, as all others do, and that kafkarrow has the settings with which it
is fastest here. kafkarrow is optional: `is_installed` says whether this Python has it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import Sample, sample
from bench.summary import CONFLUENT, KAFKA_PYTHON, KAFKARROW, READ_ARROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from bench.topics import Topic

_DEADLINE = 300.0  # seconds for one run
_POLL = 5.0
_BATCH_RECORDS = 10_000
_BATCH_BYTES = 16 << 20
_KAFKARROW_TUNING = {
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "262144",
    "fetch.queue.backoff.ms": "5",
}
_KAFKARROW_BATCH_RECORDS = 65_536
_KAFKARROW_POLL_MS = 10  # a poll waits for its whole timeout if partitions are paused


@dataclass(frozen=True, slots=True)
class Clients:
    """Where the clients read from."""

    bootstrap_servers: str
    broker_pid: int | None = None


@contextmanager
def clients(settings: Clients) -> Iterator[Clients]:
    """Import what the clients need, so that no run pays for it."""
    import confluent_kafka  # noqa: F401
    import kafka  # noqa: F401
    import pyarrow  # noqa: F401

    yield settings


def read(clients: Clients, peer: str, topic: Topic, records: int) -> Sample:
    """Read that many records of a topic into Arrow and say what it cost.

    Raises:
        BenchError: They did not come within the deadline, or other ones did.
    """
    loop = _READERS[peer]
    seen, cost = sample(lambda: loop(clients.bootstrap_servers, topic, records), clients.broker_pid)
    if seen != (records, records * topic.value_bytes):
        raise BenchError(f"{peer} from {topic.name}: got {seen} (records, bytes), not {records} records")
    return cost


def is_installed(peer: str) -> bool:
    """Tell whether this Python has the library of a client."""
    return peer != KAFKARROW or find_spec(KAFKARROW) is not None


def can_read(clients: Clients, peer: str, codec: str) -> bool:
    """Tell whether a client, as installed, decompresses that codec."""
    if peer != KAFKA_PYTHON or codec == "none":
        return True
    from kafka import codec as codecs

    return bool(getattr(codecs, f"has_{codec}")())


def _confluent(bootstrap_servers: str, topic: Topic, records: int) -> tuple[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",  # asked for, though nothing is committed
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic.name, partition, 0) for partition in range(topic.partitions)])

        def poll(wanted: int) -> list[tuple[Any, ...]]:
            rows = []
            for message in consumer.consume(wanted, _POLL):
                if message.error() is not None:
                    raise BenchError(f"{CONFLUENT} from {topic.name}: {message.error()}")
                kind, timestamp = message.timestamp()
                place = (message.topic(), message.partition(), message.offset())
                rows.append((message.key(), message.value(), *place, timestamp, kind - 1))
            return rows

        return _to_arrow(poll, topic, records)
    finally:
        consumer.close()


def _kafka_python(bootstrap_servers: str, topic: Topic, records: int) -> tuple[int, int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)

        def poll(wanted: int) -> list[tuple[Any, ...]]:
            polled = consumer.poll(timeout_ms=int(_POLL * 1000), max_records=wanted)
            return [
                (each.key, each.value, each.topic, each.partition, each.offset, each.timestamp, each.timestamp_type)
                for some in polled.values()
                for each in some
            ]

        return _to_arrow(poll, topic, records)
    finally:
        consumer.close()


def _kafkarrow(bootstrap_servers: str, topic: Topic, records: int) -> tuple[int, int]:
    from kafkarrow import ConsumerManager, SourceTopic

    config = {"bootstrap.servers": bootstrap_servers, "check.crcs": "true", **_KAFKARROW_TUNING}
    manager = ConsumerManager(config, [SourceTopic.from_earliest(topic.name)], _KAFKARROW_BATCH_RECORDS)
    deadline = time.monotonic() + _DEADLINE
    seen = length = 0
    while seen < records:
        _check(deadline, topic, seen, records)
        batch = manager.poll(timeout_ms=_KAFKARROW_POLL_MS)
        seen += batch.num_rows
        length += _value_bytes(batch)
    return seen, length


def _read_arrow(bootstrap_servers: str, topic: Topic, records: int) -> tuple[int, int]:
    from pyspark_kafka_direct import OffsetRange, read_arrow

    each = records // topic.partitions
    ranges = [OffsetRange(topic.name, partition, 0, each) for partition in range(topic.partitions)]
    seen = length = 0
    with read_arrow(ranges, {"bootstrap.servers": bootstrap_servers}) as batches:
        for batch in batches:
            seen += batch.num_rows
            length += _value_bytes(batch)
    return seen, length


def _to_arrow(poll: Callable[[int], Sequence[tuple[Any, ...]]], topic: Topic, records: int) -> tuple[int, int]:
    deadline = time.monotonic() + _DEADLINE
    largest = min(_BATCH_RECORDS, _BATCH_BYTES // topic.value_bytes)
    seen = length = 0
    while seen < records:
        _check(deadline, topic, seen, records)
        rows = poll(min(largest, records - seen))
        if rows:
            batch = _record_batch(rows)
            seen += batch.num_rows
            length += _value_bytes(batch)
    return seen, length


def _check(deadline: float, topic: Topic, seen: int, records: int) -> None:
    if time.monotonic() > deadline:
        raise BenchError(f"{topic.name}: {seen} of {records} records came within {_DEADLINE:.0f} s")


def _value_bytes(batch: pa.RecordBatch) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0


def _record_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.int32())
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


_READERS: dict[str, Callable[[str, Topic, int], tuple[int, int]]] = {
    CONFLUENT: _confluent,
    KAFKA_PYTHON: _kafka_python,
    KAFKARROW: _kafkarrow,
    READ_ARROW: _read_arrow,
}
