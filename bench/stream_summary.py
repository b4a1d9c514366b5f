"""Runs of streaming queries, as the few numbers that are reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bench.measure import Sample
from bench.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind: TypeAlias = Literal[
    "small batches", "large batches", "catching up", "planning", "small batches written", "large batches written"
]

SMALL: Kind = "small batches"
LARGE: Kind = "large batches"
CATCH_UP: Kind = "catching up"
PLANNING: Kind = "planning"
SMALL_WRITTEN: Kind = "small batches written"
LARGE_WRITTEN: Kind = "large batches written"

WRITTEN = (SMALL_WRITTEN, LARGE_WRITTEN)
SPEEDS = (LARGE, CATCH_UP, LARGE_WRITTEN)
"""Kinds whose figure is records per second; of the others it is the length of a batch."""

TRIGGER, LATEST_OFFSET, QUERY_PLANNING = "triggerExecution", "latestOffset", "queryPlanning"


@dataclass(frozen=True, slots=True)
class StreamCase:
    """A streaming query from a topic into the noop sink, or of made rows into a topic.

    Attributes:
        kind: What is looked at.
        topic: From its start; of what is written, the values and the codec.
        per_trigger: Records of a batch (``maxOffsetsPerTrigger``); none for Trigger.AvailableNow without a limit, else
            the trigger is the default one: a batch begins when the one before is done.
        batches: Counted of each run.
        warm_up: Batches at the start of each run that are not counted.
        rounds: Counted runs of each peer.
    """

    kind: Kind
    topic: Topic
    per_trigger: int | None = None
    batches: int = 1
    warm_up: int = 0
    rounds: int = 5

    @property
    def label(self) -> str:
        """As the report names it."""
        if self.kind == CATCH_UP:
            records = self.topic.end_offset * self.topic.partitions
            return f"{self.topic.label}, AvailableNow over {records / 1e6:g} M records"
        if self.kind in WRITTEN:
            return f"{self.topic.label}, {self.per_trigger:,} made rows per trigger into a topic"
        where = f", {self.topic.partitions} partitions" if self.kind == PLANNING else ""
        return f"{self.topic.label}, {self.per_trigger:,} records per trigger{where}"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch.

    Attributes:
        records: That it read.
        durations: The progress event's ``durationMs``.
    """

    records: int
    durations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One query.

    Attributes:
        cost: Of the whole query, from ``start()`` on; what is not counted of its batches included.
        batches: Those that count.
    """

    cost: Sample
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class StreamSeries:
    """All runs of one peer on one case."""

    case: StreamCase
    peer: str
    runs: tuple[StreamRun, ...]

    def milliseconds(self, what: str) -> list[int]:
        """A duration of every counted batch of all runs."""
        return [batch.durations.get(what, 0) for run in self.runs for batch in run.batches]

    @property
    def records_per_second(self) -> float:
        """Median of the runs: by the clock for catching up, else while batches were running."""
        return median(self._speed(run) for run in self.runs)

    @property
    def told(self) -> str:
        """The one figure that matters."""
        if self.case.kind in SPEEDS:
            return f"{self.records_per_second / 1e6:7.3f} M records/s"
        what = QUERY_PLANNING if self.case.kind == PLANNING else TRIGGER
        return f"{what}: median {median(self.milliseconds(what)):.0f} ms"

    def _speed(self, run: StreamRun) -> float:
        records = sum(batch.records for batch in run.batches)
        if self.case.kind == CATCH_UP:
            return records / run.cost.seconds
        return records / sum(batch.durations[TRIGGER] for batch in run.batches) * 1000


@dataclass(frozen=True, slots=True)
class PlannerAlone:
    """This package's planner without Spark: seconds of each call, the first one left out."""

    partitions: int
    latest_offset: tuple[float, ...]
    plan: tuple[float, ...]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def find_stream(everything: Sequence[StreamSeries], kind: str, peer: str) -> StreamSeries | None:
    """The series of that peer, if it was run."""
    return next((series for series in everything if (series.case.kind, series.peer) == (kind, peer)), None)


def read_series(entry: dict[str, Any]) -> StreamSeries:
    """Read back a series from its JSON."""
    case = StreamCase(**entry["case"] | {"topic": Topic(**entry["case"]["topic"])})
    runs = [
        StreamRun(Sample(**run["cost"]), tuple(Batch(**batch) for batch in run["batches"])) for run in entry["runs"]
    ]
    return StreamSeries(case, entry["peer"], tuple(runs))


def read_planner(entry: dict[str, Any] | None) -> PlannerAlone | None:
    """Read back the planner's figures from their JSON."""
    return None if entry is None else PlannerAlone(**{name: _tuple(value) for name, value in entry.items()})


def scaled(case: StreamCase, scale: float) -> StreamCase:
    """The same with fewer or more records, in all and in a batch."""
    topic, per_trigger = case.topic, case.per_trigger
    each = max(1, int(topic.records * scale) // topic.partitions)
    if per_trigger is not None:
        per_trigger = max(1, int(per_trigger * scale) // topic.partitions) * topic.partitions
    return replace(case, topic=replace(topic, records=each * topic.partitions), per_trigger=per_trigger)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
