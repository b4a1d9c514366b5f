from __future__ import annotations

from dataclasses import replace

from bench.decoding import Decoding
from bench.goals import evaluate_goals, evaluate_write_goals
from bench.latency import FIRST_BATCH, LIMIT, SHOW, Latency
from bench.measure import Sample
from bench.memory import Memory
from bench.planning import Planning
from bench.summary import JVM, OURS, WARM, Series
from bench.writers import WRITE


def pair(topic: str, sink: str, speed: float, cpu: float) -> list[Series]:
    return [
        Series(topic, sink, JVM, 100, 100, "none", (Sample(1.0, 1.0),)),
        Series(topic, sink, OURS, 100, 100, "none", (Sample(1 / speed, cpu),)),
    ]


def reached(*args: object, **kwargs: object) -> dict[str, bool | None]:
    return {goal_result.name: goal_result.reached for goal_result in evaluate_goals(*args, **kwargs)}  # type: ignore[arg-type]


def test_ratios_against_their_bounds() -> None:
    assert reached(pair("100 B none", "noop", speed=2.6, cpu=0.6)) == {
        "100 B none, all columns: records/s": True,
        "100 B none, all columns: CPU per record": False,
    }
    assert reached(pair("1 KiB zstd", "noop", speed=1.4, cpu=0.1)) == {"1 KiB zstd, all columns: records/s": False}


def test_what_was_not_measured_is_left_out() -> None:
    assert evaluate_goals([]) == []
    assert evaluate_goals(pair("100 B none", "noop", 3, 0.1)[1:]) == []
    assert evaluate_goals([], planning=Planning(1000, {JVM: 0.2})) == []


def test_the_decoder_alone() -> None:
    assert list(reached([], Decoding(12e6, 0.9)).values()) == [True, False]


def test_planning_memory_and_first_rows() -> None:
    assert list(reached([], None, Planning(1000, {}, 0.4, 0.02, {"Metadata": 1, "ListOffsets": 2})).values()) == [True]
    assert list(reached([], None, Planning(1000, {}, 0.4, 0.02, {"ListOffsets": 2000})).values()) == [False]
    assert list(reached([], None, None, Memory(299_000_000, 2 * 10**9, 1, 1.0)).values()) == [True]
    assert list(reached([], None, None, Memory(301_000_000, 2 * 10**9, 1, 1.0)).values()) == [False]
    shown = [Latency(SHOW, OURS, (0.2,), 3), Latency(SHOW, JVM, (0.3,), 0), Latency(FIRST_BATCH, OURS, (0.01,), 0)]
    assert reached([], latencies=shown) == {"show()": None, "show(), console": False}


def test_first_rows_with_a_warm_daemon_against_the_jvm_connector() -> None:
    shown = [Latency(SHOW, WARM, (0.2, 0.1, 0.1), 0), Latency(LIMIT, WARM, (0.13,), 0)]
    assert reached([], latencies=shown) == {}
    theirs = [Latency(SHOW, JVM, (0.1, 0.1, 0.3), 0), Latency(LIMIT, JVM, (0.12,), 0)]
    assert reached([], latencies=shown + theirs) == {
        "show(), warm daemon": True,
        "limit(10).collect(), warm daemon": False,
    }


def test_writing_has_goals_for_small_records_only() -> None:
    small, large = pair("100 B lz4", WRITE, speed=3.1, cpu=0.6), pair("1 KiB lz4", WRITE, speed=0.5, cpu=0.6)
    large = [replace(series, value_bytes=1024) for series in large]
    assert {goal_result.name: goal_result.reached for goal_result in evaluate_write_goals(small + large)} == {
        "writing 100 B lz4: records/s": True,
        "writing 100 B lz4: CPU per record": False,
        "writing 1 KiB lz4: records/s": None,
        "writing 1 KiB lz4: CPU per record": None,
    }
    assert evaluate_write_goals(small[1:]) == []
