"""The lag of a query by partition and source, from Spark's progress reports."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.spark.spark_versions import reports_latest_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

# The values of an offset field without offsets, for example the start offsets of a query's first batch. PySpark
# converts Java's null to "None" in reports that it passes to a listener, and to "null" in reports that it reads from
# JSON (Spark Connect).
_NO_OFFSETS = (None, "None", "null", "")

_MAX_POINTS = 60  # per partition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition after a batch.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The next offset to read.
        latest: The end of the log (the high watermark), as of the planning of the batch or of a later request.
        lag: ``latest`` minus ``offset``.
        seconds: The time since ``offset`` was the end offset, interpolated from earlier end offsets; ``None`` if too
            few are known.
        rate: The offsets per second of the batch; 0 while the query is idle.
        last_stable_offset: The offset up to which a ``read_committed`` query could read when its last batch was
            planned: the start of the first open transaction, or else ``latest``. ``None`` if it is not known, and with
            ``read_uncommitted``.
    """

    topic: str
    partition: int
    offset: int
    latest: int
    lag: int
    seconds: float | None
    rate: float
    last_stable_offset: int | None = None


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of one source of a query after a batch, with the three statistics that Spark's own source reports.

    Attributes:
        group: The option ``commitGroupId``, or else the query's name or id.
        partitions: The partitions, sorted by topic and partition.
    """

    group: str
    partitions: tuple[PartitionLag, ...]

    @property
    def min_offsets_behind(self) -> int:
        """The smallest lag of a partition."""
        return min((partition.lag for partition in self.partitions), default=0)

    @property
    def max_offsets_behind(self) -> int:
        """The largest lag of a partition."""
        return max((partition.lag for partition in self.partitions), default=0)

    @property
    def avg_offsets_behind(self) -> float:
        """The average lag of the partitions."""
        return self.total / len(self.partitions) if self.partitions else 0.0

    @property
    def total(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def max_seconds_behind(self) -> float | None:
        """The largest known lag of a partition in seconds."""
        return max((partition.seconds for partition in self.partitions if partition.seconds is not None), default=None)

    @property
    def rate(self) -> float:
        """The offsets per second of the batch."""
        return sum(partition.rate for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The lag of a query after its last batch.

    Attributes:
        query_id: The id of the query, which stays the same when it restarts from a checkpoint.
        run_id: The id of this run of the query.
        name: The name of the query, if it has one.
        batch_id: The id of the batch.
        time: The time of the lag in seconds since 1970: the end of the batch, or a later refresh while the query was
            idle.
        sources: The sources of this package, in the order of the query.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    time: float
    sources: tuple[SourceLag, ...]

    def __str__(self) -> str:
        lines = [f"{self.name or self.query_id}, batch {self.batch_id}: {_format_lag(self)}"]
        for source in self.sources:
            lines += [
                f"  {partition.topic}-{partition.partition}: offset {partition.offset}, latest {partition.latest}, "
                f"lag {partition.lag}"
                f" ({_format_seconds(partition.seconds)}), {partition.rate:.0f}/s{_format_stable_end(partition)}"
                for partition in source.partitions
            ]
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """The lag in one line, for a log."""
        return f"query {self.name or self.query_id}, batch {self.batch_id}: {_format_lag(self)}"


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """The part of a progress report about one source.

    Attributes:
        description: Spark's description of the source, which is unique.
        began_ms: The start of the batch, in milliseconds since 1970.
        ended_ms: The end of the batch.
        rows: The number of rows read; higher than the number of records if a sink reads them twice.
        start: The offsets at which the batch starts; empty in the first batch of a query.
        end: The offsets at which the batch ends.
        latest: The high watermarks of the partitions; empty if the report does not contain them.
        latest_fetched_ms: When ``latest`` was fetched, if that was after the batch was planned.
        last_stable_offsets: The last stable offsets, which the report of a ``read_committed`` query contains.
    """

    description: str
    began_ms: float
    ended_ms: float
    rows: int
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    latest_fetched_ms: float | None = None
    last_stable_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def latest_as_of_ms(self) -> float:
        """The time of ``latest``, in milliseconds since 1970."""
        return self.began_ms if self.latest_fetched_ms is None else self.latest_fetched_ms

    @property
    def records(self) -> int:
        """The number of offsets in the batch, even if the sink read them several times."""
        if self.end.keys() - self.start.keys():
            # The first batch, or new partitions, whose start offsets are not reported: the rows are the best estimate.
            return self.rows
        return sum(max(offset - self.start[tp], 0) for tp, offset in self.end.items())


class LagTracker:
    """Computes the lag of one source of one query from its batches; not thread-safe."""

    def __init__(self) -> None:
        self._histories: dict[TopicPartition, EndOffsetHistory] = {}

    def update(self, source: SourceBatch, group: str) -> SourceLag:
        """Return the lag of the source after this batch."""
        began, ended, as_of = source.began_ms / 1000, source.ended_ms / 1000, source.latest_as_of_ms / 1000
        partitions = []
        for tp, offset in sorted(source.end.items()):
            latest = source.latest.get(tp)
            if latest is None:
                continue  # the partition was deleted, or an earlier run planned the batch: its lag is unknown
            history = self._histories.setdefault(tp, EndOffsetHistory())
            history.add(latest, as_of)
            # Without a reported start, the rate is unknown, and 0: the rows of the source are those of all partitions.
            read_count = max(offset - source.start[tp], 0) if tp in source.start else 0
            partitions.append(
                PartitionLag(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=offset,
                    latest=latest,
                    lag=max(latest - offset, 0),
                    seconds=history.seconds_behind(offset, max(ended, as_of)),
                    rate=read_count / max(ended - began, 0.001),
                    last_stable_offset=source.last_stable_offsets.get(tp),
                )
            )
        for deleted in self._histories.keys() - source.end.keys():
            del self._histories[deleted]
        return SourceLag(group, tuple(partitions))


class EndOffsetHistory:
    """The end offsets of one partition over time, from which the lag in seconds is interpolated."""

    # The method of kafka-lag-exporter: interpolate between the two points around an offset. If the offset is older than
    # all points, extrapolate the line through the oldest and the newest point. Times are in seconds.

    def __init__(self, max_points: int = _MAX_POINTS) -> None:
        self._points: deque[_Point] = deque(maxlen=max_points)

    def add(self, offset: int, time: float) -> None:
        """Add the end offset at this time."""
        points = self._points
        if points and time <= points[-1].time:  # a newer end offset is known
            return
        if points and offset < points[-1].offset:
            points.clear()  # the topic was recreated, so earlier points do not apply
        if len(points) > 1 and points[-2].offset == points[-1].offset == offset:
            points.pop()  # while the offset does not change, only the first and the last point are needed
        points.append(_Point(offset, time))

    def seconds_behind(self, offset: int, now: float) -> float | None:
        """Return the seconds since ``offset`` was the end offset; ``None`` if too few points are known."""
        points = self._points
        if not points:
            return None
        if offset >= points[-1].offset:
            return 0.0
        for earlier, later in reversed([*pairwise(points)]):
            # The interpolated time is the last one at which the offset was the end offset: until then there was no lag.
            if earlier.offset <= offset:
                return max(now - _interpolate(earlier, later, offset), 0.0)
        first, last = points[0], points[-1]
        if first.offset == last.offset:  # no line through them
            return None
        return max(now - _interpolate(first, last, offset), 0.0)


def parse_source_progress(
    progress: Mapping[str, Any], source: Mapping[str, Any], *, read_committed: bool = False
) -> SourceBatch | None:
    """Parse one source of a progress report; ``None`` if its offsets are not Kafka offsets."""
    # Spark's field ``latestOffset`` is the end up to which the query may read.
    try:
        end = _parse_offsets(source["endOffset"])
        if not end:
            return None
        began_ms = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp() * 1000
        latest = _parse_offsets(source["latestOffset"]) if reports_latest_offset(source["description"]) else {}
        return SourceBatch(
            description=source["description"],
            began_ms=began_ms,
            ended_ms=began_ms + progress["durationMs"].get("triggerExecution", progress["batchDuration"]),
            rows=int(source["numInputRows"]),
            start=_parse_offsets(source["startOffset"]),
            end=end,
            latest={} if read_committed else latest,
            last_stable_offsets=latest if read_committed else {},
        )
    except (KeyError, TypeError, ValueError):
        return None


class _Point(NamedTuple):
    offset: int
    time: float


def _parse_offsets(offsets_json: str | None) -> dict[TopicPartition, int]:
    return {} if offsets_json in _NO_OFFSETS else partition_offsets_from_json(str(offsets_json))


def _format_lag(lag: QueryLag) -> str:
    parts = []
    for source in lag.sources:
        max_seconds = source.max_seconds_behind
        parts.append(
            f"{source.total} offsets behind in {len(source.partitions)} partitions (min {source.min_offsets_behind}, "
            f"max {source.max_offsets_behind}, average {source.avg_offsets_behind:.1f}, "
            f"{'' if max_seconds is None else 'at most '}{_format_seconds(max_seconds)}), {source.rate:.0f} offsets/s"
        )
    return "; ".join(parts)


def _format_stable_end(partition: PartitionLag) -> str:
    offset = partition.last_stable_offset
    return f", last stable offset {offset}" if offset is not None and offset < partition.latest else ""


def _format_seconds(seconds: float | None) -> str:
    return "time unknown" if seconds is None else f"{seconds:.1f} s"


def _interpolate(first: _Point, second: _Point, offset: int) -> float:
    return first.time + (offset - first.offset) * (second.time - first.time) / (second.offset - first.offset)
