from __future__ import annotations

from bench.measure import Sample
from bench.rdd import evaluate_goals, render
from bench.rdd_peers import KAFKA_PYTHON, RECORDS, WAYS, records
from bench.rdd_planning import BatchPlanning
from bench.summary import Series
from bench.topics import Topic

TOPIC = Topic(100, "none", 1000, purpose="rdd")
PLANNING = BatchPlanning(100, 0.01, 0.02)


def series(**seconds: float) -> list[Series]:
    """One run of each way, a second long unless told otherwise."""
    return [
        Series(TOPIC.label, "rdd", way, 10_000_000, 100, "none", (Sample(seconds.get(way, 1.0), 2.0),)) for way in WAYS
    ]


def test_kafka_python_reads_a_share() -> None:
    assert records(RECORDS, TOPIC) == 1000
    assert records(KAFKA_PYTHON, TOPIC) == 50


def test_goals_are_judged_by_ratios() -> None:
    goal_results = {
        name: reached for name, _, _, reached in evaluate_goals({each.peer: each for each in series()}, PLANNING)
    }
    assert list(goal_results.values()) == [True, False, False, True]
    faster = series(**{KAFKA_PYTHON: 3.0})
    assert [reached for *_, reached in evaluate_goals({each.peer: each for each in faster}, PLANNING)] == [
        True, False, True, True,
    ]  # fmt: skip


def test_the_tables_name_every_way() -> None:
    text = render(series(), PLANNING)
    assert all(f"| {way} |" in text for way in WAYS)
    assert "ends of the logs 10 ms, preferred hosts and RDD 20 ms" in text
