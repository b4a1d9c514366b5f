"""What a topic holds, read by a client that is not ours: kafka-python."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEADLINE = 60  # seconds


class Consumed(NamedTuple):
    """A record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def consume(servers: str, topic: str, isolation_level: str = "read_uncommitted") -> list[Consumed]:
    """Read all records of a topic, by partition and offset."""
    return sorted(_consume(servers, topic, isolation_level), key=lambda each: (each.partition, each.offset))


def values(servers: str, topic: str) -> list[str]:
    """Read the values of a topic, sorted."""
    return sorted((each.value or b"").decode() for each in consume(servers, topic))


def _consume(servers: str, topic: str, isolation_level: str) -> Iterator[Consumed]:
    consumer: Any = KafkaConsumer(
        bootstrap_servers=servers.split(","), enable_auto_commit=False, isolation_level=isolation_level
    )
    try:
        partitions = [ClientPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        assert partitions, f"there is no topic {topic}"
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        deadline = time.monotonic() + _DEADLINE
        while any(consumer.position(each) < ends[each] for each in partitions):
            assert time.monotonic() < deadline, f"{topic} could not be read within {_DEADLINE} s"
            for records in consumer.poll(timeout_ms=200).values():
                for each in records:
                    headers = list(each.headers)
                    yield Consumed(each.partition, each.offset, each.key, each.value, headers, each.timestamp)
    finally:
        consumer.close()
