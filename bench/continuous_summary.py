"""The latencies and the throughput of long-running queries, summarized for the report."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.goals import GoalResult
from bench.stream_summary import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.summary import Series

CONTINUOUS = "JVM, Trigger.Continuous"
REAL_TIME = "JVM, real-time mode"
MICRO_BATCH = "JVM, micro-batch"
# Names in the committed results.
OURS = "continuous runner"
EXACTLY_ONCE = "continuous runner, exactly-once"
NO_QUERY = "no query, one hop"  # the latency of the harness, which reads the topic that it writes

WAYS = (CONTINUOUS, REAL_TIME, MICRO_BATCH, OURS, EXACTLY_ONCE)
THROUGHPUT_WAYS = (MICRO_BATCH, OURS)

EPOCH_MS = 1000.0
EXACTLY_ONCE_EPOCH_MS = 100.0

_MAX_P50_MS = 3.0
_MAX_P99_MS = 15.0
_MAX_P999_MS = 40.0
_MAX_ON_TOP_MS = 30.0
_MIN_SPEED = 2.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latencies of one run in milliseconds, from producing a record to receiving the query's output."""

    records: int
    p50: float
    p99: float
    p999: float
    longest: float
    doubles: int = 0

    @classmethod
    def of(cls, milliseconds: Sequence[float], doubles: int = 0) -> Latencies:
        p50, p99, p999 = (percentile(milliseconds, share) for share in (0.5, 0.99, 0.999))
        return cls(len(milliseconds), p50, p99, p999, max(milliseconds), doubles)


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """All measured runs of one way, without the first round."""

    way: str
    runs: tuple[Latencies, ...]

    @property
    def p50(self) -> float:
        return median(run.p50 for run in self.runs)

    @property
    def p99(self) -> float:
        return median(run.p99 for run in self.runs)

    @property
    def p999(self) -> float:
        return median(run.p999 for run in self.runs)

    @property
    def longest(self) -> float:
        """The maximum of all runs."""
        return max(run.longest for run in self.runs)


def render(
    latencies: Sequence[LatencySeries], throughput: Sequence[Series], rate: int, failures: Mapping[str, str]
) -> str:
    """Return the tables as Markdown."""
    lines = []
    if latencies:
        first = latencies[0].runs
        lines += [
            f"From producing to receiving, {rate:,} records/s, {len(first)} runs each; medians of the runs, in ms",
            "",
            "| way | p50 | p99 | p99.9 | longest | records | came twice |",
            "|---|---|---|---|---|---|---|",
        ]
        for each in latencies:
            records, doubles = (sum(getattr(run, name) for run in each.runs) for name in ("records", "doubles"))
            numbers = " | ".join(f"{value:,.1f}" for value in (each.p50, each.p99, each.p999, each.longest))
            lines.append(f"| {each.way} | {numbers} | {records:,} | {doubles:,} |")
        lines.append("")
    if throughput:
        one = throughput[0]
        lines += [
            f"A backlog of {one.records:,} records, {one.topic}, from topic to topic, {len(one.samples)} runs each",
            "",
            "| way | seconds | M records/s | core-us/record |",
            "|---|---|---|---|",
        ]
        for run in throughput:
            speed = run.records_per_second / 1e6
            lines.append(f"| {run.peer} | {run.seconds:.2f} | {speed:.2f} | {run.core_us_per_record:.2f} |")
        lines.append("")
    goal_results = evaluate_goals(latencies, throughput)
    if goal_results:
        lines += ["| goal | wanted | measured | reached |", "|---|---|---|---|"]
        lines += [
            f"| {each.name} | {each.wanted} | {each.measured} | {'yes' if each.reached else 'no'} |"
            for each in goal_results
        ]
        lines.append("")
    lines += [f"{way} failed: {reason}" for way, reason in failures.items()]
    return "\n".join(lines).rstrip()


def evaluate_goals(latencies: Sequence[LatencySeries], throughput: Sequence[Series]) -> list[GoalResult]:
    """Compare the measurements with the goals, for the report only."""
    by_way = {each.way: each for each in latencies}
    goal_results: list[GoalResult] = []
    if (ours := by_way.get(OURS)) is not None:
        goal_results.append(_at_most("p50", ours.p50, _MAX_P50_MS))
        if (theirs := by_way.get(REAL_TIME)) is not None:
            goal_results.append(_at_most("p50, against real-time mode", ours.p50, theirs.p50))
        goal_results.append(_at_most("p99", ours.p99, _MAX_P99_MS))
        goal_results.append(_at_most("p99.9", ours.p999, _MAX_P999_MS))
    if (once := by_way.get(EXACTLY_ONCE)) is not None:
        name = f"exactly-once, epochs of {EXACTLY_ONCE_EPOCH_MS:g} ms: p99"
        goal_results.append(_at_most(name, once.p99, EXACTLY_ONCE_EPOCH_MS + _MAX_ON_TOP_MS))
    speeds = {each.peer: each.records_per_second for each in throughput}
    if OURS in speeds and MICRO_BATCH in speeds:
        times = speeds[OURS] / speeds[MICRO_BATCH]
        name = f"records/s of an identity map, against {MICRO_BATCH}"
        goal_results.append(GoalResult(name, f">= {_MIN_SPEED:g}x", f"{times:.2f}x", times >= _MIN_SPEED))
    return goal_results


def _at_most(name: str, measured: float, most: float) -> GoalResult:
    return GoalResult(name, f"<= {most:.3g} ms", f"{measured:.1f} ms", measured <= most)
