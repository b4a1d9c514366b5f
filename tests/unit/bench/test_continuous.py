"""The summary of latencies from topic to topic, and the goals, which must be able to be missed."""

from __future__ import annotations

import pytest
from bench.continuous_summary import (
    EXACTLY_ONCE,
    MICRO_BATCH,
    OURS,
    REAL_TIME,
    Latencies,
    LatencySeries,
    evaluate_goals,
    render,
)
from bench.measure import Sample
from bench.summary import Series


def latencies(way: str, p50: float, p99: float = 10.0, p999: float = 20.0) -> LatencySeries:
    return LatencySeries(way, (Latencies(1000, p50, p99, p999, 50.0, 2), Latencies(1000, p50, p99, p999, 70.0)))


def backlog(way: str, seconds: float) -> Series:
    return Series("100 B none", "topic", way, 3_000_000, 100, "none", (Sample(seconds, 2 * seconds),))


def test_latencies_are_summed_up() -> None:
    found = Latencies.of([float(each) for each in range(1000, 0, -1)], doubles=3)
    assert found == Latencies(1000, 500.0, 990.0, 999.0, 1000.0, 3)


def test_a_series_has_the_medians_of_its_runs_and_the_longest_of_all() -> None:
    runs = [Latencies(10, float(each), each + 1.0, each + 2.0, each + 3.0) for each in (9, 1, 4)]
    series = LatencySeries(OURS, tuple(runs))
    assert (series.p50, series.p99, series.p999, series.longest) == (4.0, 5.0, 6.0, 12.0)


def test_all_goals_are_reached() -> None:
    found = [latencies(OURS, 2.0), latencies(REAL_TIME, 4.0), latencies(EXACTLY_ONCE, 60.0, 129.0)]
    goal_results = evaluate_goals(found, [backlog(MICRO_BATCH, 6.0), backlog(OURS, 2.0)])
    assert [(each.name, each.wanted, each.measured, each.reached) for each in goal_results] == [
        ("p50", "<= 3 ms", "2.0 ms", True),
        ("p50, against real-time mode", "<= 4 ms", "2.0 ms", True),
        ("p99", "<= 15 ms", "10.0 ms", True),
        ("p99.9", "<= 40 ms", "20.0 ms", True),
        ("exactly-once, epochs of 100 ms: p99", "<= 130 ms", "129.0 ms", True),
        ("records/s of an identity map, against JVM, micro-batch", ">= 2x", "3.00x", True),
    ]


def test_all_goals_are_missed() -> None:
    found = [latencies(OURS, 4.0, 16.0, 41.0), latencies(REAL_TIME, 3.0), latencies(EXACTLY_ONCE, 60.0, 131.0)]
    goal_results = evaluate_goals(found, [backlog(MICRO_BATCH, 3.0), backlog(OURS, 2.0)])
    assert [each.reached for each in goal_results] == [False] * 6


@pytest.mark.parametrize("way", [REAL_TIME, MICRO_BATCH])
def test_what_was_not_measured_is_not_judged(way: str) -> None:
    assert evaluate_goals([latencies(way, 4.0)], [backlog(way, 1.0)]) == []


def test_the_tables() -> None:
    text = render([latencies(OURS, 2.0)], [backlog(OURS, 2.0)], 1000, {REAL_TIME: "no such trigger"})
    assert "1,000 records/s, 2 runs each" in text
    assert f"| {OURS} | 2.0 | 10.0 | 20.0 | 70.0 | 2,000 | 2 |" in text
    assert f"| {OURS} | 2.00 | 1.50 | 1.33 |" in text
    assert text.endswith("JVM, real-time mode failed: no such trigger")
