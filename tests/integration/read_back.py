"""What a topic holds, read by a client that is not ours: kafka-python."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEADLINE = 600  # seconds


class Consumed(NamedTuple):
    """A record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


class TopicReader:
    """Reads a topic from its start with one consumer, for tests that wait for records.

    A new consumer for each check of the condition would use most of the CPU time of the wait.
    """

    def __init__(self, servers: str, topic: str, isolation_level: str = "read_uncommitted") -> None:
        self._topic = topic
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=servers.split(","), enable_auto_commit=False, isolation_level=isolation_level
        )
        self._records: list[Consumed] = []
        numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            self._consumer.close()
            raise AssertionError(f"there is no topic {topic}")
        self._partitions = [ClientPartition(topic, number) for number in numbers]
        self._consumer.assign(self._partitions)
        self._consumer.seek_to_beginning(*self._partitions)

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> list[Consumed]:
        """Wait a moment for more records, and return all records so far, by partition and offset."""
        self._poll()
        self._records.sort()
        return self._records

    def read_to_end(self) -> list[Consumed]:
        """Read up to the current ends, and return all records."""
        ends = self._consumer.end_offsets(self._partitions)
        deadline = time.monotonic() + _DEADLINE
        while any(self._consumer.position(each) < ends[each] for each in self._partitions):
            assert time.monotonic() < deadline, f"{self._topic} could not be read within {_DEADLINE} s"
            self._poll()
        self._records.sort()
        return self._records

    def _poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=200).values():
            for each in records:
                headers = list(each.headers)
                self._records.append(
                    Consumed(each.partition, each.offset, each.key, each.value, headers, each.timestamp)
                )


def consume(servers: str, topic: str, isolation_level: str = "read_uncommitted") -> list[Consumed]:
    """Read all records of a topic, by partition and offset."""
    with TopicReader(servers, topic, isolation_level) as reader:
        return reader.read_to_end()


def values(servers: str, topic: str) -> list[str]:
    """Read the values of a topic, sorted."""
    return values_of(consume(servers, topic))


def values_of(records: Iterable[Consumed]) -> list[str]:
    """Return the values of records, sorted."""
    return sorted((each.value or b"").decode() for each in records)
