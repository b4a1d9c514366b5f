"""What this data source is meant to reach against Spark's JVM connector. Reported, never asserted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench.latency import FIRST_BATCH, LIMIT, SHOW, Latency
from bench.spark_peers import MAP_IN_ARROW, NOOP, VALUE
from bench.summary import JVM, OURS, WARM, Series, find, ratio
from bench.topics import CODECS, SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.decoding import Decoding
    from bench.memory import Memory
    from bench.planning import Planning


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio to the JVM connector for one size, codec and sink."""

    value_bytes: int
    codec: str
    sink: str
    metric: Literal["speed", "cpu"]
    bound: float

    @property
    def name(self) -> str:
        """As the report names it."""
        what = {NOOP: "all columns", VALUE: "value only", MAP_IN_ARROW: "mapInArrow"}[self.sink]
        told = "records/s" if self.metric == "speed" else "CPU per record"
        return f"{SIZES[self.value_bytes]} {self.codec}, {what}: {told}"


GOALS = (
    Goal(100, "none", NOOP, "speed", 2.5),
    Goal(100, "none", NOOP, "cpu", 0.55),
    Goal(100, "none", VALUE, "speed", 3.8),
    Goal(100, "none", MAP_IN_ARROW, "speed", 2.0),
    Goal(1024, "none", NOOP, "speed", 1.8),
    Goal(10240, "none", NOOP, "speed", 1.3),
    *(Goal(1024, codec, NOOP, "speed", 1.5) for codec in CODECS if codec != "none"),
)

WRITE_SPEED, WRITE_CPU = 3.0, 0.5
WRITE_SIZE = 100

MEMORY_BOUND_MB = 300


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal, what was measured, and whether it is reached; ``None`` where the run says nothing about it."""

    name: str
    wanted: str
    measured: str
    reached: bool | None


def evaluate_goals(
    everything: Sequence[Series],
    decoding: Decoding | None = None,
    planning: Planning | None = None,
    memory: Memory | None = None,
    latencies: Sequence[Latency] = (),
) -> list[GoalResult]:
    """Hold what was measured against the goals; those that were not measured are left out."""
    goal_results = [goal_result for goal in GOALS if (goal_result := _evaluate(goal, everything)) is not None]
    if decoding is not None:
        goal_results += _evaluate_decoding(decoding)
    if planning is not None and planning.warm_seconds is not None:
        goal_results.append(_evaluate_planning(planning))
    if memory is not None:
        peak = memory.peak_bytes / 1e6
        name = f"worker's peak memory, range of {memory.range_bytes / 1e9:.1f} GB"
        goal_results.append(GoalResult(name, f"< {MEMORY_BOUND_MB} MB", f"{peak:.0f} MB", peak < MEMORY_BOUND_MB))
    return goal_results + _evaluate_latencies(latencies)


def _evaluate(goal: Goal, everything: Sequence[Series]) -> GoalResult | None:
    topic = f"{SIZES[goal.value_bytes]} {goal.codec}"
    ours, theirs = find(everything, topic, goal.sink, OURS), find(everything, topic, goal.sink, JVM)
    if ours is None or theirs is None:
        return None
    compared = ratio(ours, theirs)
    if goal.metric == "speed":
        return GoalResult(goal.name, f">= {goal.bound:g}x", f"{compared.speed:.2f}x", compared.speed >= goal.bound)
    return GoalResult(goal.name, f"<= {goal.bound:g}x", f"{compared.cpu:.2f}x", compared.cpu <= goal.bound)


def evaluate_write_goals(everything: Sequence[Series]) -> list[GoalResult]:
    """Hold what was written against the goals, which are for small records; the other sizes are reported."""
    goal_results = []
    for ours in everything:
        theirs = find(everything, ours.topic, ours.sink, JVM)
        if ours.peer != OURS or theirs is None:
            continue
        compared, judged = ratio(ours, theirs), ours.value_bytes == WRITE_SIZE
        for what, measured, wanted, reached in (
            ("records/s", compared.speed, f">= {WRITE_SPEED:g}x", compared.speed >= WRITE_SPEED),
            ("CPU per record", compared.cpu, f"<= {WRITE_CPU:g}x", compared.cpu <= WRITE_CPU),
        ):
            wish, result = (wanted, reached) if judged else ("reported", None)
            goal_results.append(GoalResult(f"writing {ours.topic}: {what}", wish, f"{measured:.2f}x", result))
    return goal_results


def _evaluate_decoding(decoding: Decoding) -> list[GoalResult]:
    name = "decoder alone, 100 B"
    records, gigabytes = decoding.records_per_second / 1e6, decoding.gigabytes_per_second
    return [
        GoalResult(f"{name}: records/s per core", ">= 10 M", f"{records:.1f} M", records >= 10),
        GoalResult(f"{name}: bytes/s per core", ">= 1 GB", f"{gigabytes:.2f} GB", gigabytes >= 1),
    ]


def _evaluate_planning(planning: Planning) -> GoalResult:
    assert planning.warm_seconds is not None
    requests = sum((planning.requests or {}).values())
    return GoalResult(
        f"planning {planning.partitions} partitions, on the wire",
        "a few requests, well under 1 s",
        f"{requests} requests, {planning.warm_seconds * 1000:.0f} ms",
        requests <= 10 and planning.warm_seconds < 0.5,
    )


def _evaluate_latencies(latencies: Sequence[Latency]) -> list[GoalResult]:
    single = next((each.median_seconds for each in latencies if each.action == FIRST_BATCH), None)
    goal_results = []
    for each in latencies:
        if each.peer != OURS or each.action not in (SHOW, LIMIT):
            continue
        told = f"{each.median_seconds * 1000:.0f} ms"
        if single is not None:
            told += f" (one fetch: {single * 1000:.0f} ms)"
        goal_results.append(
            GoalResult(each.action, "about one fetch", told, None),
        )
        clean = each.trace_lines == 0
        goal_results.append(GoalResult(f"{each.action}, console", "no stack trace", f"{each.trace_lines} lines", clean))
    return goal_results + _evaluate_warm(latencies)


def _evaluate_warm(latencies: Sequence[Latency]) -> list[GoalResult]:
    medians = {(each.action, each.peer): each.median_seconds for each in latencies}
    goal_results = []
    for action in (SHOW, LIMIT):
        ours, theirs = medians.get((action, WARM)), medians.get((action, JVM))
        if ours is not None and theirs is not None:
            wanted, told = f"<= {theirs * 1000:.0f} ms, the JVM connector's", f"{ours * 1000:.0f} ms"
            goal_results.append(GoalResult(f"{action}, warm daemon", wanted, told, ours <= theirs))
    return goal_results
