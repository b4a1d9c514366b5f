"""Shrinking, and the stories of shrunk failures."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.simulation import toy_scenario
from tests.simulation.history import Event, History, Plan
from tests.simulation.runner import Failure, Outcome, draw_history, run_history
from tests.simulation.shrink import shrink
from tests.simulation.story import format_line, replay_command, request_names, story

TOY = toy_scenario.NAME
KIND = "a kind"


def history_of(count: int, **parameters: Any) -> History:
    events = tuple(Event("event", at=float(number), args={"number": number}) for number in range(count))
    return History(1, "short", "tables", Plan(TOY, parameters, events))


def outcome_of(history: History, kind: str | None) -> Outcome:
    failure = None if kind is None else Failure(kind, "message", "Traceback:\nmessage")
    return Outcome(history, failure, 0, 0.0, 0.0, [], Counter())


def numbers(history: History) -> list[int]:
    return [event.args["number"] for event in history.plan.events]


@pytest.mark.parametrize(
    "needed",
    [set[int](), {0}, {99}, {3, 70}, {10, 11, 12}, {0, 25, 50, 75, 99}, set(range(0, 100, 10))],
    ids=len,
)
def test_only_the_needed_events_are_left(needed: set[int]) -> None:
    def run(history: History) -> Outcome:
        return outcome_of(history, KIND if needed <= set(numbers(history)) else None)

    shrunk = shrink(history_of(100), KIND, run)
    assert numbers(shrunk.outcome.history) == sorted(needed)
    assert shrunk.events_drawn == 100
    assert shrunk.reproducible
    assert not shrunk.exhausted
    assert shrunk.runs <= 250


def test_no_event_can_be_removed_even_if_failures_are_irregular() -> None:
    def run(history: History) -> Outcome:
        left = numbers(history)
        return outcome_of(history, KIND if len(left) % 3 == 2 and 7 in left else None)

    left = shrink(history_of(50), KIND, run).outcome.history
    events = left.plan.events
    assert 2 <= len(events) <= 8
    for index in range(len(events)):
        without = left.with_plan(left.plan.with_events(events[:index] + events[index + 1 :]))
        assert run(without).failure is None


def test_failures_of_another_kind_do_not_count() -> None:
    def run(history: History) -> Outcome:
        left = numbers(history)
        return outcome_of(history, KIND if {3, 4} <= set(left) else "another kind")

    assert numbers(shrink(history_of(10), KIND, run).outcome.history) == [3, 4]


def test_parameters_become_as_small_as_the_failure_allows() -> None:
    def run(history: History) -> Outcome:
        parameters = history.plan.parameters
        return outcome_of(history, KIND if parameters["records"] >= 37 and parameters["delay"] > 1.9 else None)

    shrunk = shrink(history_of(4, records=100, delay=8.0, other=5), KIND, run)
    left = shrunk.outcome.history.plan.parameters
    assert left["records"] == 37
    assert left["delay"] == pytest.approx(1.9, abs=0.02)
    assert left["other"] == 5
    assert numbers(shrunk.outcome.history) == []


def test_elements_of_sequences_are_removed() -> None:
    def run(history: History) -> Outcome:
        left = [each["at"] for each in history.plan.parameters["reads"]]
        return outcome_of(history, KIND if {3, 17} <= set(left) else None)

    reads = tuple({"at": number} for number in range(30))
    history = history_of(2)
    shrunk = shrink(history.with_plan(history.plan.with_parameter("reads", reads)), KIND, run)
    assert shrunk.outcome.history.plan.parameters["reads"] == ({"at": 3}, {"at": 17})
    assert "  reads: 2\n    at=3\n    at=17\n" in story(shrunk)


def test_events_are_tried_again_with_smaller_parameters() -> None:
    def run(history: History) -> Outcome:
        left = set(numbers(history))
        fails = 1 in left and (history.plan.parameters["records"] < 10 or 5 in left)
        return outcome_of(history, KIND if fails else None)

    shrunk = shrink(history_of(10, records=100), KIND, run)
    assert numbers(shrunk.outcome.history) == [1]
    assert shrunk.outcome.history.plan.parameters["records"] == 3


def test_the_budget_is_kept_and_the_story_says_so() -> None:
    def run(history: History) -> Outcome:
        return outcome_of(history, KIND if set(range(50)) <= set(numbers(history)) else None)

    shrunk = shrink(history_of(100), KIND, run, budget=60)
    assert shrunk.runs == 60
    assert shrunk.exhausted
    assert len(shrunk.outcome.history.plan.events) < 100
    assert "NOTE: more than 20 are left, because the budget of runs is spent" in story(shrunk)
    unlimited = shrink(history_of(100), KIND, run, budget=5000)
    assert len(unlimited.outcome.history.plan.events) == 50
    assert "because removing any one of them changes the failure" in story(unlimited)


def test_a_failure_that_does_not_return_is_not_shrunk() -> None:
    shrunk = shrink(history_of(3), KIND, lambda history: outcome_of(history, None))
    assert not shrunk.reproducible
    assert shrunk.runs == 1
    assert "depends on something besides its seed" in story(shrunk)


def test_shrinking_is_deterministic() -> None:
    draws = random.Random(1)
    for seed in draws.sample(range(1000), 5):
        history = draw_history(seed, TOY, "long")
        outcome = run_history(history)
        assert outcome.failure is not None
        one, other = (shrink(history, outcome.failure.kind, run_history) for _ in range(2))
        assert one.outcome.history == other.outcome.history
        assert one.runs == other.runs
        assert len(one.outcome.history.plan.events) <= 2


def test_a_story_has_events_in_order_with_names_of_requests() -> None:
    events = (
        Event("mark", request=2, args={"value": 31}),
        Event("mark", request=9, args={"value": 1}),
        Event("elect", at=0.6, args={"brokers": (1, 2)}),
        Event("mark", request=1, args={"value": 32}),
    )
    history = History(3, "short", "tables", Plan(TOY, {"requests": 5, "records": 3, "delay": 0.5}, events, 10.0))
    outcome = run_history(history)
    assert outcome.failure is not None
    text = story(shrink(history, outcome.failure.kind, run_history, budget=1), "a/b.json")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    start = next(index for index, line in enumerate(lines) if "in order of time" in line)
    assert lines[start + 1 : start + 5] == [
        "0.500000 mark of request 1 (Fetch) value=32",
        "0.600000 elect brokers=[1, 2]",
        "0.750000 mark of request 2 (Produce) value=31",
        "- mark of number 9 value=1",
    ]
    assert "shrunk: python -m tests.simulation --plan a/b.json" in lines
    assert "tests.simulation.errors.ViolationError: 2 bad marks after 3 requests" in lines
    assert "with details" in lines
    assert lines[-1] == f"kind: {TOY}: ViolationError: n bad marks after n requests"
    assert any(line.startswith("0.750000 fault 2 mark Produce") for line in lines)


def test_nested_parameters_have_a_line_for_each_element() -> None:
    calls = (({"kind": "a", "at": 1.5}, {"kind": "b"}), ())
    history = history_of(0, calls=calls, log=tuple({"at": number} for number in range(12)), values=(1, 2))
    text = story(shrink(history, KIND, lambda each: outcome_of(each, KIND), budget=1))
    assert "  calls: 2\n    [(kind=a, at=1.5), (kind=b)]\n    []\n  log: 12\n    at=0\n" in text
    assert "    at=9\n    and 2 others\n  values: [1, 2]\n" in text


def test_the_command_names_what_the_seed_alone_does_not_give() -> None:
    assert replay_command(draw_history(3, TOY)) == f"SEED=3 make simulate SCENARIO={TOY}"
    assert replay_command(draw_history(3, TOY, "long")) == f"SEED=3 make simulate SCENARIO={TOY} SIZE=long"
    assert replay_command(draw_history(3)) == "SEED=3 make simulate"


def test_names_of_requests_come_from_the_trace() -> None:
    trace = [
        (0.1, "connected", "driver", 1, 0),
        (0.2, "fault", 0, "lose_request", "Metadata"),
        (0.3, "request", 1, "driver", 1, "Fetch", 12),
        (0.4, "late request", 2, "driver", 1, "Produce"),
    ]
    assert request_names(trace) == {0: "Metadata", 1: "Fetch", 2: "Produce"}
    assert format_line(trace[2]) == "    0.300000  request        1 driver 1 Fetch 12"
