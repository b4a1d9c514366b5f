"""Drawing and running histories, in this process and in others."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import pytest
from tests.simulation import scenarios as scenario_package
from tests.simulation import toy_scenario
from tests.simulation.errors import ProcessKilled
from tests.simulation.expected import ExpectedFailure, expected_failure
from tests.simulation.history import Event, History, Plan, plain
from tests.simulation.runner import (
    SHARES,
    draw_history,
    failure_of,
    find_scenario,
    run_history,
    run_seed,
    scenario_names,
    stable_part,
)

TOY = toy_scenario.NAME


def history_with(*values: int, records: int = 3) -> History:
    events = tuple(Event("mark", request=number, args={"value": value}) for number, value in enumerate(values))
    return History(7, "short", "tables", Plan(TOY, {"requests": 3, "records": records, "delay": 0.5}, events))


@pytest.mark.parametrize("seed", range(3))
def test_histories_survive_json(seed: int) -> None:
    history = draw_history(seed, TOY)
    assert History.loads(history.dumps()) == history
    assert history.plan.events


def test_histories_of_all_scenarios_survive_json() -> None:
    for name in scenario_names():
        for seed in range(10):
            history = draw_history(seed, name)
            assert History.loads(history.dumps()) == history


def test_lists_become_tuples_and_other_objects_are_rejected() -> None:
    assert Event("a", args={"b": [1, ["c"]]}).args == {"b": (1, ("c",))}
    with pytest.raises(TypeError, match="plain data"):
        plain({"a": {1}})
    with pytest.raises(TypeError, match="strings as keys"):
        plain({1: "a"})


def test_a_seed_determines_the_history_and_its_trace() -> None:
    one, other = run_seed(5, TOY), run_seed(5, TOY)
    assert one.history == other.history
    assert one.trace == other.trace
    assert one.digest == other.digest
    assert one.digest != run_seed(6, TOY).digest


def test_sizes_and_codecs_are_drawn_in_their_shares() -> None:
    histories = [draw_history(seed, TOY) for seed in range(4000)]
    sizes, codecs = Counter(each.size for each in histories), Counter(each.codec for each in histories)
    assert 150 < sizes["long"] < 250
    assert 20 < codecs["kio"] < 65


def test_a_given_size_changes_nothing_but_the_plan() -> None:
    assert draw_history(5, TOY, "long").size == "long"
    assert draw_history(5, TOY, "short") == draw_history(5, TOY)


def test_modules_of_scenarios_have_a_share() -> None:
    modules = [each.name for each in pkgutil.iter_modules(scenario_package.__path__)]
    loaded = {name: importlib.import_module(f"{scenario_package.__name__}.{name}") for name in modules}
    names = {name: module.NAME for name, module in loaded.items() if hasattr(module, "NAME")}
    assert names == {name: name for name in names}
    assert set(names) <= set(SHARES)
    with pytest.raises(LookupError, match="no scenario nothing"):
        find_scenario("nothing")


def test_failures_have_a_kind_and_a_traceback() -> None:
    outcome = run_history(history_with(31, 32))
    assert outcome.failure is not None
    assert outcome.failure.kind == f"{TOY}: ViolationError: n bad marks after n requests"
    assert outcome.failure.message == "2 bad marks after 2 requests\nwith details"
    assert "toy_scenario.py" in outcome.failure.traceback
    assert outcome.requests == 2
    assert outcome.simulated_seconds == pytest.approx(0.5)
    assert outcome.coverage == {("mark", "Metadata", "completed"): 1, ("mark", "Fetch", "completed"): 1}
    assert run_history(history_with(31)).failure is None


def test_kinds_lack_what_differs_between_seeds() -> None:
    assert stable_part("topic 'a-1', offset -12: 3.5 s\nmore") == "topic ..., offset -n: n s"
    assert stable_part("it isn't 'a' and doesn't end") == "it isn't ... and doesn't end"
    assert failure_of("a", ExceptionGroup("several", [KeyError("x")])).kind == "a: KeyError: ..."
    assert failure_of("a", ProcessKilled()).kind == "a: ProcessKilled"


def test_expected_failures_match_by_scenario_and_kind() -> None:
    table = [ExpectedFailure("a", "a: KeyError*", "the issue", ())]
    assert expected_failure("a", "a: KeyError: x", table) is table[0]
    assert expected_failure("a", "a: ValueError", table) is None
    assert expected_failure("b", "a: KeyError: x", table) is None
