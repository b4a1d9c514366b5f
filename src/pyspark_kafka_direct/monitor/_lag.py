"""How far a query is behind, by partition, by source and in all; made from Spark's progress reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.monitor._history import EndHistory
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.runtime.spark_versions import reports_latest

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a report holds where there are no offsets, as at the start of a query's first batch. PySpark makes "None" of
# Java's null in the reports that it hands a listener, and "null" in those that it reads from JSON (Spark Connect).
_NO_OFFSETS = (None, "None", "null", "")


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition after a batch.

    Attributes:
        topic: Topic.
        partition: Partition.
        offset: Next offset to read.
        latest: The partition's end when the batch was planned, or when it was looked for since.
        lag: Offsets between the two.
        seconds: How long ago ``offset`` was the end, interpolated from the ends seen before; ``None`` while too little
            was seen to tell.
        rate: Offsets per second of the batch; 0 while idle.
    """

    topic: str
    partition: int
    offset: int
    latest: int
    lag: int
    seconds: float | None
    rate: float


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of a query after a batch; the three offsets are those Spark's own source reports.

    Attributes:
        group: The option ``commitGroupId``, or what stands for it: the query's name or id.
        partitions: By topic and partition.
    """

    group: str
    partitions: tuple[PartitionLag, ...]

    @property
    def min_offsets_behind(self) -> int:
        """Of the partition that is least behind."""
        return min((each.lag for each in self.partitions), default=0)

    @property
    def max_offsets_behind(self) -> int:
        """Of the partition that is most behind."""
        return max((each.lag for each in self.partitions), default=0)

    @property
    def avg_offsets_behind(self) -> float:
        """Offsets behind, on average over the partitions."""
        return self.total / len(self.partitions) if self.partitions else 0.0

    @property
    def total(self) -> int:
        """Offsets behind, of all partitions together."""
        return sum(each.lag for each in self.partitions)

    @property
    def max_seconds_behind(self) -> float | None:
        """Seconds behind, of the partition that is most behind, among those where it is known."""
        return max((each.seconds for each in self.partitions if each.seconds is not None), default=None)

    @property
    def rate(self) -> float:
        """Offsets per second of the batch."""
        return sum(each.rate for each in self.partitions)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """A query after its last batch.

    Attributes:
        query_id: Stays the same over restarts from a checkpoint.
        run_id: Of this start of the query.
        name: The query's name, if it has one.
        batch_id: The batch.
        time: When that was, in seconds since 1970: at the batch's end, or later, if the query was looked at while idle.
        sources: The query's sources of this package, in the order of the query.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    time: float
    sources: tuple[SourceLag, ...]

    def __str__(self) -> str:
        lines = [f"{self.name or self.query_id}, batch {self.batch_id}: {_summary(self)}"]
        for source in self.sources:
            lines += [
                f"  {each.topic}-{each.partition}: offset {each.offset}, latest {each.latest}, lag {each.lag}"
                f" ({'unknown' if each.seconds is None else f'{each.seconds:.1f}'} s), {each.rate:.0f}/s"
                for each in source.partitions
            ]
        return "\n".join(lines)

    @property
    def line(self) -> str:
        """All in one line, for a log."""
        return f"query {self.name or self.query_id}, batch {self.batch_id}: {_summary(self)}"


class LagTracker:
    """Follows one source of one query; not for several threads."""

    def __init__(self) -> None:
        self._histories: dict[TopicPartition, EndHistory] = {}

    def after(self, source: SourceBatch, group: str) -> SourceLag:
        """Return where the source is after this batch."""
        began, ended, seen = source.began_ms / 1000, source.ended_ms / 1000, source.seen_at_ms / 1000
        partitions = []
        for tp, offset in sorted(source.end.items()):
            latest = source.latest.get(tp)
            if latest is None:
                continue  # deleted, or planned by an earlier run: nothing can be said
            history = self._histories.setdefault(tp, EndHistory())
            history.add(latest, seen)
            read = max(offset - source.start[tp], 0) if tp in source.start else 0
            partitions.append(
                PartitionLag(
                    tp.topic,
                    tp.partition,
                    offset,
                    latest,
                    max(latest - offset, 0),
                    history.seconds_behind(offset, max(ended, seen)),
                    read / max(ended - began, 0.001),
                )
            )
        for gone in self._histories.keys() - source.end.keys():
            del self._histories[gone]
        return SourceLag(group, tuple(partitions))


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What a progress report says of one source.

    Attributes:
        description: Spark's text for the source, different for each.
        began_ms: When the batch began, since 1970.
        ended_ms: When it ended.
        rows: Rows that were read; more than there are when a sink reads them twice.
        start: Where the batch began; empty in a query's first.
        end: Where it ended.
        latest: The partitions' ends; empty when the report does not tell them.
        seen_ms: When these were seen, if not when the batch was planned.
    """

    description: str
    began_ms: float
    ended_ms: float
    rows: int
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    seen_ms: float | None = None

    @property
    def seen_at_ms(self) -> float:
        """When ``latest`` was seen."""
        return self.began_ms if self.seen_ms is None else self.seen_ms

    @property
    def records(self) -> int:
        """How many offsets it spanned, however often the sink read them."""
        if self.end.keys() - self.start.keys():
            return self.rows  # the first batch, or new partitions: where they began is not told
        return sum(max(offset - self.start[tp], 0) for tp, offset in self.end.items())


def source_batch(progress: Mapping[str, Any], source: Mapping[str, Any]) -> SourceBatch | None:
    """Read a progress report.

    Args:
        progress: The report, as ``StreamingQueryProgress`` or its JSON has it.
        source: One of its sources.

    Returns:
        ``None`` when the source's offsets are none of Kafka's: it is another kind of source.
    """
    try:
        end = _offsets(source["endOffset"])
        if not end:
            return None
        began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp() * 1000
        return SourceBatch(
            source["description"],
            began,
            began + progress["durationMs"].get("triggerExecution", progress["batchDuration"]),
            int(source["numInputRows"]),
            _offsets(source["startOffset"]),
            end,
            _offsets(source["latestOffset"]) if reports_latest(source["description"]) else {},
        )
    except (KeyError, TypeError, ValueError):
        return None


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    return {} if text in _NO_OFFSETS else partition_offsets_from_json(str(text))


def _summary(lag: QueryLag) -> str:
    parts = []
    for source in lag.sources:
        seconds = source.max_seconds_behind
        parts.append(
            f"{source.total} offsets behind in {len(source.partitions)} partitions (min {source.min_offsets_behind}, "
            f"max {source.max_offsets_behind}, average {source.avg_offsets_behind:.1f}, "
            f"{'unknown' if seconds is None else f'{seconds:.1f}'} s), {source.rate:.0f} offsets/s"
        )
    return "; ".join(parts)
