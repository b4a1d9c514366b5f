"""What a batch has written: where, how many records and bytes, in one text for whoever asks.

    {"queryId":"...","batchId":7,"topics":{"delays":{"0":{"firstOffset":5,"nextOffset":9,"records":4,"bytes":120}}}}

Offsets are -1 where the broker does not tell them (``acks=0``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionWritten:
    """What was written to one partition. Other writers' records may lie between the two offsets.

    Attributes:
        first_offset: Offset of the first record; ``UNKNOWN`` where the broker did not tell it.
        next_offset: Offset after the last record; ``UNKNOWN`` likewise.
        records: How many records.
        bytes: How many bytes, as they were sent.
    """

    first_offset: int
    next_offset: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """What a batch has written.

    Attributes:
        query_id: Of the streaming query; ``None`` for a batch query.
        batch_id: Of the micro-batch; ``None`` for a batch query.
        partitions: The same by partition.
    """

    query_id: str | None
    batch_id: int | None
    partitions: Mapping[TopicPartition, PartitionWritten]

    @property
    def records(self) -> int:
        """How many records were written."""
        return sum(each.records for each in self.partitions.values())

    @property
    def bytes(self) -> int:
        """How many bytes were written, as they were sent."""
        return sum(each.bytes for each in self.partitions.values())

    def to_text(self) -> str:
        """Return it as JSON."""
        topics: dict[str, dict[str, object]] = {}
        for (topic, partition), each in sorted(self.partitions.items()):
            values = (each.first_offset, each.next_offset, each.records, each.bytes)
            topics.setdefault(topic, {})[str(partition)] = dict(zip(_KEYS, values, strict=True))
        return json.dumps({"queryId": self.query_id, "batchId": self.batch_id, "topics": topics})

    @classmethod
    def from_text(cls, text: str) -> BatchWritten:
        """Read what ``to_text`` has made.

        Raises:
            ValueError: The text is something else.
        """
        try:
            found = json.loads(text)
            partitions = {
                TopicPartition(topic, int(number)): PartitionWritten(*(int(each[key]) for key in _KEYS))
                for topic, numbers in found["topics"].items()
                for number, each in numbers.items()
            }
            return cls(found["queryId"], found["batchId"], partitions)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a report of what was written: {text[:200]!r}") from error


def together(parts: Iterable[Mapping[TopicPartition, PartitionWritten]]) -> dict[TopicPartition, PartitionWritten]:
    """Return what several tasks, or several writes, have written."""
    found: dict[TopicPartition, PartitionWritten] = {}
    for part in parts:
        for partition, each in part.items():
            other = found.get(partition)
            found[partition] = each if other is None else _sum(other, each)
    return found


_KEYS: Final = ("firstOffset", "nextOffset", "records", "bytes")


def _sum(one: PartitionWritten, other: PartitionWritten) -> PartitionWritten:
    firsts = [each.first_offset for each in (one, other) if each.first_offset != UNKNOWN]
    return PartitionWritten(
        min(firsts, default=UNKNOWN),
        max(one.next_offset, other.next_offset),
        one.records + other.records,
        one.bytes + other.bytes,
    )
