"""Python's Kafka clients as peers, without Spark: a consumer whose records become Arrow record batches.

One process, one consumer, both partitions, all columns that Spark's source has but the headers. That is the loop one
would write by hand; it says what the client costs before there is any Spark. Settings are the clients' defaults, except
that confluent-kafka is told to check CRCs, as all others do.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import Sample, sample
from bench.summary import CONFLUENT, KAFKA_PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from bench.topics import Topic

_DEADLINE = 300.0  # seconds for one run
_POLL = 5.0
_BATCH_RECORDS = 10_000
_BATCH_BYTES = 16 << 20


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


def _to_arrow(poll: Callable[[int], Sequence[tuple[Any, ...]]], topic: Topic, records: int) -> tuple[int, int]:
    import pyarrow.compute as pc

    deadline = time.monotonic() + _DEADLINE
    largest = min(_BATCH_RECORDS, _BATCH_BYTES // topic.value_bytes)
    seen = length = 0
    while seen < records:
        if time.monotonic() > deadline:
            raise BenchError(f"{topic.name}: {seen} of {records} records came within {_DEADLINE:.0f} s")
        rows = poll(min(largest, records - seen))
        if rows:
            batch = _record_batch(rows)
            seen += batch.num_rows
            length += pc.sum(pc.binary_length(batch.column("value"))).as_py()
    return seen, length


def _record_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.int32())
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


_READERS: dict[str, Callable[[str, Topic, int], tuple[int, int]]] = {
    CONFLUENT: _confluent,
    KAFKA_PYTHON: _kafka_python,
}
