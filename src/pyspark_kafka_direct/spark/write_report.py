"""The report of a batch write: offsets, records and bytes by partition, as JSON.

    {"queryId":"...","batchId":7,"topics":{"delays":{"0":{"firstOffset":5,"nextOffset":9,"records":4,"bytes":120}}}}

Offsets are -1 if the broker does not return them (``acks=0``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNKNOWN_OFFSET: Final = -1

_KEYS: Final = ("firstOffset", "nextOffset", "records", "bytes")  # in the order of PartitionWriteReport's fields


@dataclass(frozen=True, slots=True)
class PartitionWriteReport:
    """The records written to one partition; those of other producers may lie between the two offsets."""

    first_offset: int
    next_offset: int
    records: int
    bytes: int  # as sent


@dataclass(frozen=True, slots=True)
class BatchWriteReport:
    """The records that a batch has written."""

    query_id: str | None  # None for a batch query
    batch_id: int | None
    partitions: Mapping[TopicPartition, PartitionWriteReport]

    @property
    def records(self) -> int:
        return sum(report.records for report in self.partitions.values())

    @property
    def bytes(self) -> int:
        return sum(report.bytes for report in self.partitions.values())

    def to_json(self) -> str:
        topics: dict[str, dict[str, object]] = {}
        for (topic, partition), report in sorted(self.partitions.items()):
            values = (report.first_offset, report.next_offset, report.records, report.bytes)
            topics.setdefault(topic, {})[str(partition)] = dict(zip(_KEYS, values, strict=True))
        return json.dumps({"queryId": self.query_id, "batchId": self.batch_id, "topics": topics})

    @classmethod
    def from_json(cls, text: str) -> BatchWriteReport:
        """Parse the output of ``to_json``, or raise ``ValueError``."""
        try:
            report = json.loads(text)
            partitions = {
                TopicPartition(topic, int(partition)): PartitionWriteReport(*(int(values[key]) for key in _KEYS))
                for topic, values_by_partition in report["topics"].items()
                for partition, values in values_by_partition.items()
            }
            return cls(report["queryId"], report["batchId"], partitions)
        except (
            AttributeError,
            KeyError,
            TypeError,
        ) as error:  # JSON of another form; json.loads and int raise ValueError
            raise ValueError(f"not a write report: {text[:200]!r}") from error


def merge_write_reports(
    parts: Iterable[Mapping[TopicPartition, PartitionWriteReport]],
) -> dict[TopicPartition, PartitionWriteReport]:
    """Merge the reports of several tasks or writes."""
    merged: dict[TopicPartition, PartitionWriteReport] = {}
    for part in parts:
        for partition, report in part.items():
            earlier = merged.get(partition)
            merged[partition] = report if earlier is None else _merge(earlier, report)
    return merged


def _merge(one: PartitionWriteReport, other: PartitionWriteReport) -> PartitionWriteReport:
    first_offsets = [report.first_offset for report in (one, other) if report.first_offset != UNKNOWN_OFFSET]
    return PartitionWriteReport(
        first_offset=min(first_offsets, default=UNKNOWN_OFFSET),
        next_offset=max(one.next_offset, other.next_offset),
        records=one.records + other.records,
        bytes=one.bytes + other.bytes,
    )
