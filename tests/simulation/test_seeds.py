"""Running many seeds in processes, and the command line."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.simulation import __main__ as command_line
from tests.simulation import coverage, toy_scenario
from tests.simulation.expected import ExpectedFailure
from tests.simulation.pool import SeedPool, Totals, Worker, WorkerEndedError, first_difference
from tests.simulation.runner import run_seed
from tests.simulation.seeds import mended_seeds, run_seeds, summary

if TYPE_CHECKING:
    from pathlib import Path

TOY = toy_scenario.NAME
WriteScenario = Callable[[str], str]

HEADER = """
import time
from tests.simulation.history import Plan
NAME = "{name}"
"""


@pytest.fixture
def write_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteScenario:
    """Writes a scenario that processes started by this one can import, and returns its name."""

    def write(text: str) -> str:
        (tmp_path / "written").mkdir()
        (tmp_path / "written" / "scenario.py").write_text(HEADER.format(name="written.scenario") + text, "utf-8")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        return "written.scenario"

    return write


def passing_seed() -> int:
    return next(seed for seed in range(100) if run_seed(seed, TOY, "short").failure is None)


def test_processes_share_the_seeds() -> None:
    seeds = range(100, 320)
    totals = SeedPool(2, scenario=TOY, hang_seconds=300).run(seeds)
    assert sorted(each["seed"] for each in totals.results) == list(seeds)
    assert sorted(totals.digests) == [100, 200, 300]
    assert totals.digests[200] == run_seed(200, TOY).digest
    failed = [seed for seed in seeds if run_seed(seed, TOY).failure is not None]
    assert [each["seed"] for each in totals.failures] == failed
    expected: Counter[tuple[str, str, str]] = Counter()
    for seed in seeds:
        expected.update([*run_seed(seed, TOY).coverage])  # each history counts once
    assert totals.coverage == expected


def test_a_history_that_hangs_is_reported_and_the_others_run(write_scenario: WriteScenario) -> None:
    name = write_scenario(
        """
def draw(rng, size):
    return Plan(NAME, {"hangs": rng.random() < 0.3})

def run(world, plan):
    if plan.parameters["hangs"]:
        time.sleep(60)
"""
    )
    totals = SeedPool(1, scenario=name, hang_seconds=0.3).run(range(8))
    hanging = [each["seed"] for each in totals.failures]
    assert sorted(each["seed"] for each in totals.results) == list(range(8))
    assert 0 < len(hanging) < 8
    assert {each["kind"] for each in totals.failures} == {f"{name}: it hangs"}
    assert all("in run" in each["traceback"] for each in totals.failures)


def test_no_further_seeds_are_run_if_each_ends_the_process(write_scenario: WriteScenario) -> None:
    name = write_scenario(
        """
def draw(rng, size):
    raise SystemExit("no plan")
"""
    )
    totals = SeedPool(2, scenario=name, hang_seconds=300).run(range(1000))
    assert {each["kind"] for each in totals.failures} == {f"{name}: the process ends"}
    assert "no plan" in totals.failures[0]["traceback"]
    assert 10 <= len(totals.failures) <= 11


def test_a_trace_that_depends_on_the_hash_seed_is_reported(
    write_scenario: WriteScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_scenario(
        """
def draw(rng, size):
    return Plan(NAME, {})

def run(world, plan):
    world.trace("first")
    world.trace("order", *{f"topic-{number}" for number in range(20)})
"""
    )
    assert run_seeds(range(195, 205), scenario=name, processes=1, hang_seconds=300) == 1
    output = capsys.readouterr().out
    assert "DIFFERENT: the trace of seed 200 differs in another process" in output
    one, other = [line.partition(": ")[2] for line in output.splitlines() if line.startswith("  line 1 of ")]
    assert one.split()[:2] == other.split()[:2] == ["0.000000", "order"]
    assert sorted(one.split()) == sorted(other.split())
    assert one != other


def test_state_that_remains_in_the_process_is_reported(
    write_scenario: WriteScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_scenario(
        """
runs = []

def draw(rng, size):
    return Plan(NAME, {})

def run(world, plan):
    runs.append(1)
    world.trace("runs", len(runs))
"""
    )
    assert run_seeds(range(195, 205), scenario=name, processes=1, hang_seconds=300) == 1
    assert "it depends on the seeds that ran before it" in capsys.readouterr().out


def test_failures_are_shrunk_and_stored(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seeds(range(1, 30), scenario=TOY, processes=1, hang_seconds=300, keep_going=True) == 1
    output = capsys.readouterr().out
    assert "UNEXPECTED FAILURES of 2 kinds" in output
    file = re.search(r"--plan (\S+-2\.json)", output)
    assert file is not None
    monkeypatch.setattr(sys, "argv", ["simulation", "--plan", file[1], "--trace"])
    assert command_line.main() == 1
    assert "n bad marks after n requests" in capsys.readouterr().out


def test_seeds_end_at_the_first_failure_unless_they_keep_going(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seeds(range(2000), scenario=TOY, processes=1, hang_seconds=300) == 1
    assert re.search(r"^50 seeds in .* MB in a process$", capsys.readouterr().out, re.MULTILINE)


def test_seeds_pass_and_coverage_is_written(
    write_scenario: WriteScenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_scenario(
        """
def draw(rng, size):
    return Plan(NAME, {})

def run(world, plan):
    world.coverage["stall_request", "Fetch", "completed"] += 2
"""
    )
    file = tmp_path / "coverage.json"
    assert run_seeds(range(20), scenario=name, processes=2, hang_seconds=300, coverage_file=file) == 0
    assert coverage.read(file) == ({("stall_request", "Fetch", "completed"): 20}, 20)
    assert "no unexpected failures" in capsys.readouterr().out


def test_examples_of_expected_failures_must_fail() -> None:
    kind = f"{TOY}: ViolationError: *"
    fails, passes = 2, passing_seed()
    table = [ExpectedFailure(TOY, kind, "an issue", ((passes, "short"),))]
    (line,) = mended_seeds(table, 30)
    assert line.startswith(f"MENDED: {TOY}, seed {passes} (short) passes")
    # Workers have the table of the module, which lacks this entry: the failure counts as another one.
    (line,) = mended_seeds([table[0]._replace(seeds=((fails, "short"),))], 30)
    assert "fails in another way" in line


def test_expected_failures_are_counted_and_do_not_fail_a_run() -> None:
    result = {"seed": 1, "scenario": "a", "size": "short", "requests": 1, "ms": 1.0, "kind": "k", "issue": "i"}
    totals = Totals([result])
    assert totals.failures == []
    assert "  expected failures: 1 (i)" in summary(totals, 1.0)


def test_a_process_that_ends_is_an_error() -> None:
    with Worker(1) as worker, pytest.raises(WorkerEndedError, match="no_such_module"):
        worker.result({"task": "trace", "seed": 1, "scenario": "no_such_module.at_all", "size": None})


def test_the_first_difference_of_two_traces() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == (1, "b", "c")
    assert first_difference(["a"], ["a", "c"]) == (1, "", "c")


def test_the_seed_of_the_tree_depends_on_the_code_alone() -> None:
    assert command_line.tree_seed() == command_line.tree_seed() < 100_000_000


def test_one_seed_is_replayed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    passes = passing_seed()
    monkeypatch.setattr(sys, "argv", ["simulation", "--seed", str(passes), "--scenario", TOY, "--trace"])
    assert command_line.main() == 0
    output = capsys.readouterr().out
    assert f"seed {passes} passes: {TOY}" in output
    assert "Metadata" in output
