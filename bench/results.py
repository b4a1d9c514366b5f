"""Everything one benchmark found, and its JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.decoding import Decoding
from bench.goals import GoalResult, evaluate_goals, evaluate_write_goals
from bench.latency import Latency
from bench.measure import Sample
from bench.memory import Memory
from bench.planning import Planning
from bench.run import Failure
from bench.stream_goals import evaluate_stream_goals
from bench.stream_summary import PlannerAlone, StreamSeries, read_planner, read_series
from bench.summary import JVM, Series, find, ratio

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Results:
    """What one run of a profile found.

    Attributes:
        started: UTC, ISO 8601.
        minutes: The whole run took.
        machine: See ``machine.describe``.
        rounds: Measured runs behind every median.
        load_seconds: By topic name.
    """

    profile: str
    started: str
    machine: dict[str, Any]
    rounds: int
    minutes: float = 0.0
    load_seconds: dict[str, float] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    writes: list[Series] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    decoding: Decoding | None = None
    planning: Planning | None = None
    memory: Memory | None = None
    latencies: list[Latency] = field(default_factory=list)
    streams: list[StreamSeries] = field(default_factory=list)
    planner: PlannerAlone | None = None

    def goal_results(self) -> list[GoalResult]:
        """Hold the results against the goals."""
        beside = evaluate_goals(self.series, self.decoding, self.planning, self.memory, self.latencies)
        return beside + evaluate_write_goals(self.writes) + evaluate_stream_goals(self.streams, self.planner)


def write(results: Results, path: Path) -> None:
    """Write the results, with the figures and ratios that follow from them, as JSON."""
    document = asdict(results)
    for name, everything in (("series", results.series), ("writes", results.writes)):
        for entry, series in zip(document[name], everything, strict=True):
            entry["figures"] = _figures(series, everything)
    document["goals"] = [asdict(goal_result) for goal_result in results.goal_results()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def read(path: Path) -> Results:
    """Read back what ``write`` wrote, to draw and print it again."""
    document = json.loads(path.read_text())
    del document["goals"]
    for name in ("series", "writes"):
        document[name] = [_read_series(entry) for entry in document.get(name, [])]
    document["failures"] = [Failure(**entry) for entry in document["failures"]]
    document["latencies"] = [Latency(**entry | {"seconds": tuple(entry["seconds"])}) for entry in document["latencies"]]
    document["decoding"] = Decoding(**document["decoding"]) if document["decoding"] else None
    document["planning"] = Planning(**document["planning"]) if document["planning"] else None
    document["streams"] = [read_series(entry) for entry in document.get("streams", [])]
    document["planner"] = read_planner(document.get("planner"))
    document["memory"] = Memory(**document["memory"]) if document["memory"] else None
    return Results(**document)


def _read_series(entry: dict[str, Any]) -> Series:
    del entry["figures"]
    return Series(**entry | {"samples": tuple(Sample(**sample) for sample in entry["samples"])})


def _figures(series: Series, everything: list[Series]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "records_per_second": round(series.records_per_second),
        "megabytes_per_second": round(series.megabytes_per_second, 1),
        "core_us_per_record": round(series.core_us_per_record, 4),
        "broker_core_us_per_record": round(series.broker_core_us_per_record, 4),
        "median_seconds": round(series.seconds, 4),
        "spread_seconds": [round(seconds, 4) for seconds in series.spread],
    }
    base = find(everything, series.topic, series.sink, JVM)
    if base is not None:
        compared = ratio(series, base)
        figures["jvm_ratio"] = {"speed": round(compared.speed, 3), "cpu": round(compared.cpu, 3)}
    return figures
