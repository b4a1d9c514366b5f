from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from bench import results
from bench.measure import Sample
from bench.profiles import PARTS, PROFILES, narrowed, quick
from bench.report import render
from bench.results import Results
from bench.stream_goals import evaluate_stream_goals
from bench.stream_summary import (
    CATCH_UP,
    LARGE,
    LARGE_WRITTEN,
    PLANNING,
    SMALL,
    SMALL_WRITTEN,
    Batch,
    Kind,
    PlannerAlone,
    StreamCase,
    StreamRun,
    StreamSeries,
    percentile,
)
from bench.summary import EXACTLY_ONCE, JVM, OURS
from bench.topics import Topic
from tests.unit.bench.machines import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = Topic(100, "none", 2_000_000, padding=0, purpose="stream")


def series(kind: Kind, peer: str, milliseconds: list[int], seconds: float = 1.0) -> StreamSeries:
    per_trigger = None if kind == CATCH_UP else 1_000_000
    case = StreamCase(kind, TOPIC, per_trigger, batches=len(milliseconds), rounds=1)
    records = 2_000_000 // len(milliseconds)
    batches = tuple(
        Batch(records, {"triggerExecution": took, "latestOffset": 4, "queryPlanning": 9}) for took in milliseconds
    )
    return StreamSeries(case, peer, (StreamRun(Sample(seconds, seconds * 2, 0.1), batches),))


EVERYTHING = [
    series(SMALL, JVM, [200, 190, 210, 400]),
    series(SMALL, OURS, [220, 210, 230, 200]),
    series(LARGE, JVM, [1000, 1000]),
    series(LARGE, OURS, [400, 400]),
    series(CATCH_UP, JVM, [1500], seconds=2.0),
    series(CATCH_UP, OURS, [1000], seconds=1.25),
    series(PLANNING, JVM, [1000, 1000]),
    series(PLANNING, OURS, [900, 900]),
]
WRITTEN = [
    series(SMALL_WRITTEN, OURS, [200, 210, 220]),
    series(SMALL_WRITTEN, EXACTLY_ONCE, [300, 265, 240]),
    series(LARGE_WRITTEN, JVM, [1000, 1000]),
    series(LARGE_WRITTEN, EXACTLY_ONCE, [800, 800]),
]
PLANNER = PlannerAlone(100, (0.002, 0.003, 0.004), (0.009, 0.009, 0.009))


def test_batches_and_runs_against_their_bounds() -> None:
    goal_results = evaluate_stream_goals(EVERYTHING, PLANNER)
    assert [(goal_result.measured, goal_result.reached) for goal_result in goal_results] == [
        ("1.05x", True),  # of the medians, 215 and 205
        ("0.57x", None),
        ("2.50x", True),
        ("1.60x", False),  # by the clock, the query's start and end included
        ("3.0 ms", True),
        ("9.0 ms", False),
    ]


def test_what_was_not_measured_is_left_out() -> None:
    assert evaluate_stream_goals([], None) == []
    assert evaluate_stream_goals(EVERYTHING[1:2], None) == []


def test_percentiles() -> None:
    assert percentile(range(1, 201), 0.99) == 198
    assert percentile([7], 0.99) == 7
    assert percentile([1, 2], 0.5) == 1


def test_the_report_and_its_json(tmp_path: Path) -> None:
    found = Results("quick-streams", "2026-01-02T03:04:05+00:00", MACHINE, 5, streams=EVERYTHING, planner=PLANNER)
    results.write(found, tmp_path / "streams.json")
    assert results.read(tmp_path / "streams.json") == found
    assert json.loads((tmp_path / "streams.json").read_text())["goals"][0]["reached"] is True
    text = render(found, markdown=True)
    for told in (
        "| 100 B none, 1,000,000 records per trigger | Spark, kafka-direct | triggerExecution | 215 ms | 230 ms | 4 |",
        "| 100 B none, AvailableNow over 2 M records | Spark, kafka-direct | 1.600 | 1.25 | 1.60x | 1.25 |",
        "| 100 partitions: partitions | 9.0 ms | 9.0 ms |",
    ):
        assert told in text


@pytest.mark.parametrize("name", PROFILES)
def test_streams_are_a_part_by_themselves(name: str) -> None:
    profile = PARTS["streams"](PROFILES[name]())
    assert (profile.name, profile.cases, profile.beside) == (f"{name}-streams", (), ())
    assert {case.kind for case in profile.stream_cases} == {SMALL, LARGE, CATCH_UP, PLANNING}
    for case in profile.stream_cases:
        counted = (case.per_trigger or 0) * (case.warm_up + case.batches + 1)
        assert counted <= case.topic.records, "one batch more than is counted, and none cut short"
        assert (case.per_trigger or 0) % case.topic.partitions == 0
        assert case.warm_up + case.batches < 100, "Spark keeps so many progress events"
    assert PROFILES[name]().stream_cases == ()


def test_narrowed() -> None:
    small = narrowed(PARTS["streams"](quick()), peers=[OURS], scale=0.01, rounds=2)
    assert {case.rounds for case in small.stream_cases} == {2}
    assert {case.topic.records for case in small.stream_cases} == {200_000, 2000}
    assert [case.per_trigger for case in small.stream_cases] == [10, 10_000, None, 100]
    assert len(small.topics) == 2, "a topic that several cases read is loaded once"


def test_exactly_once_against_its_bounds() -> None:
    on_top, speed = evaluate_stream_goals(WRITTEN, None)
    assert (on_top.measured, on_top.reached) == ("55 ms", True)
    assert (speed.measured, speed.reached) == ("1.25x", False)
    assert evaluate_stream_goals(WRITTEN[1:3], None) == []


def test_the_report_names_the_sinks() -> None:
    found = Results("quick-sink", "now", MACHINE, 1, streams=WRITTEN)
    text = render(found)
    assert "Spark, kafka-direct, exactly-once" in text
    assert "100 B none, 1,000,000 made rows per trigger into a topic" in text
    assert "latestOffset" not in text, "the source of made rows is nobody's matter"
