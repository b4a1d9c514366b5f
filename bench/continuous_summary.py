"""Latencies of long-running queries, and their throughput, as the few numbers that are reported."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.goals import Verdict
from bench.stream_summary import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.summary import Series

CONTINUOUS = "JVM, Trigger.Continuous"
REAL_TIME = "JVM, real-time mode"
MICRO_BATCH = "JVM, micro-batch"
OURS = "continuous runner"
EXACTLY_ONCE = "continuous runner, exactly-once"
NO_QUERY = "no query, one hop"
"""What the harness costs: it reads the topic that it writes."""

WAYS = (CONTINUOUS, REAL_TIME, MICRO_BATCH, OURS, EXACTLY_ONCE)
THROUGHPUT_WAYS = (MICRO_BATCH, OURS)

EPOCH_MS = 1000.0
EXACTLY_ONCE_EPOCH_MS = 100.0

_MOST_P50_MS = 3.0
_MOST_P99_MS = 15.0
_MOST_P999_MS = 40.0
_MOST_ON_TOP_MS = 30.0
_LEAST_SPEED = 2.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """One run, in milliseconds from producing a record to receiving what the query wrote of it.

    Attributes:
        records: How many were measured.
        p50: Half of them took no longer.
        p99: 99 of 100.
        p999: 999 of 1000.
        longest: All.
        doubles: How many came more than once.
    """

    records: int
    p50: float
    p99: float
    p999: float
    longest: float
    doubles: int = 0

    @classmethod
    def of(cls, milliseconds: Sequence[float], doubles: int = 0) -> Latencies:
        """Sum them up."""
        p50, p99, p999 = (percentile(milliseconds, share) for share in (0.5, 0.99, 0.999))
        return cls(len(milliseconds), p50, p99, p999, max(milliseconds), doubles)


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """All measured runs of one way.

    Attributes:
        way: One of ``WAYS``, or ``NO_QUERY``.
        runs: In the order they were taken; the first round is not among them.
    """

    way: str
    runs: tuple[Latencies, ...]

    @property
    def p50(self) -> float:
        """Median of the runs."""
        return median(run.p50 for run in self.runs)

    @property
    def p99(self) -> float:
        """Median of the runs."""
        return median(run.p99 for run in self.runs)

    @property
    def p999(self) -> float:
        """Median of the runs."""
        return median(run.p999 for run in self.runs)

    @property
    def longest(self) -> float:
        """Of all runs."""
        return max(run.longest for run in self.runs)


def render(
    latencies: Sequence[LatencySeries], throughput: Sequence[Series], rate: int, failures: Mapping[str, str]
) -> str:
    """Return the tables, as Markdown."""
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
    verdicts = judge(latencies, throughput)
    if verdicts:
        lines += ["| goal | wanted | measured | reached |", "|---|---|---|---|"]
        lines += [
            f"| {each.name} | {each.wanted} | {each.measured} | {'yes' if each.reached else 'no'} |"
            for each in verdicts
        ]
        lines.append("")
    lines += [f"{what} failed: {reason}" for what, reason in failures.items()]
    return "\n".join(lines).rstrip()


def judge(latencies: Sequence[LatencySeries], throughput: Sequence[Series]) -> list[Verdict]:
    """Hold what was measured against the goals: reported, never asserted; what was not measured is left out."""
    by_way = {each.way: each for each in latencies}
    verdicts: list[Verdict] = []
    if (ours := by_way.get(OURS)) is not None:
        verdicts.append(_at_most("p50", ours.p50, _MOST_P50_MS))
        if (theirs := by_way.get(REAL_TIME)) is not None:
            verdicts.append(_at_most("p50, against real-time mode", ours.p50, theirs.p50))
        verdicts.append(_at_most("p99", ours.p99, _MOST_P99_MS))
        verdicts.append(_at_most("p99.9", ours.p999, _MOST_P999_MS))
    if (once := by_way.get(EXACTLY_ONCE)) is not None:
        name = f"exactly-once, epochs of {EXACTLY_ONCE_EPOCH_MS:g} ms: p99"
        verdicts.append(_at_most(name, once.p99, EXACTLY_ONCE_EPOCH_MS + _MOST_ON_TOP_MS))
    speeds = {each.peer: each.records_per_second for each in throughput}
    if OURS in speeds and MICRO_BATCH in speeds:
        times = speeds[OURS] / speeds[MICRO_BATCH]
        name = f"records/s of an identity map, against {MICRO_BATCH}"
        verdicts.append(Verdict(name, f">= {_LEAST_SPEED:g}x", f"{times:.2f}x", times >= _LEAST_SPEED))
    return verdicts


def _at_most(name: str, measured: float, most: float) -> Verdict:
    return Verdict(name, f"<= {most:.3g} ms", f"{measured:.1f} ms", measured <= most)
