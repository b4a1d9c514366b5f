"""The checks of the sink soak detect errors, its plans are reproducible, and its breakpoints suspend processes."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.soak.sink.breakpoints import Breakpoint
from tests.soak.sink.hook.sitecustomize import STEPS
from tests.soak.sink.plan import (
    KILLS_OF_A_QUERY,
    ROUNDS_OF_A_QUERY,
    Delivery,
    cases,
    plan_kills,
    plan_query,
    plan_run,
)
from tests.soak.sink.progress import Progress
from tests.soak.sink.results import sink_faults
from tests.soak.sink.run import Outcome
from tests.soak.writer import Logged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.sink.plan import Round

DELIVERIES: tuple[Delivery, ...] = ("at-least-once", "exactly-once")
KEYS = 3


def log(*numbers: int) -> list[Logged]:
    """Records in this order, with a partition for each key."""
    return [Logged("t", n % KEYS, offset, b"k%d" % (n % KEYS), b"%d" % n, 1000) for offset, n in enumerate(numbers)]


EXPECTED = log(*range(12))


def violations(copied: list[Logged], delivery: Delivery = "exactly-once", *, ordered: bool = True) -> list[str]:
    return sink_faults(copied, EXPECTED, delivery, ordered=ordered)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_each_record_once_is_valid(delivery: Delivery) -> None:
    assert violations(EXPECTED, delivery) == []


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_lost_record(delivery: Delivery) -> None:
    assert violations(log(*range(11)), delivery) == ["1 records missing: [(b'k2', b'11')]"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_unexpected_record(delivery: Delivery) -> None:
    assert violations(log(*range(13)), delivery) == ["1 records unexpected: [(b'k0', b'12')]"]


def test_a_duplicate_violates_only_exactly_once() -> None:
    twice = log(*range(12), 11)
    assert violations(twice) == ["1 records more than once: [(b'k2', b'11')]"]
    assert violations(twice, "at-least-once") == []


def test_a_repeated_sequence_is_in_order() -> None:
    assert violations(log(0, 3, 6, 0, 3, 6, 9, 1, 2, 4, 5, 7, 8, 10, 11), "at-least-once") == []


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_records_of_a_key_out_of_order(delivery: Delivery) -> None:
    mixed = log(0, 1, 2, 6, 3, 4, 5, 7, 8, 9, 10, 11)
    assert violations(mixed, delivery) == ["1 records out of order: [(b'k0', b'3')]"]
    assert violations(mixed, delivery, ordered=False) == []


def test_a_key_in_two_partitions() -> None:
    moved = [each._replace(partition=2) if each.value == b"9" else each for each in EXPECTED]
    assert violations(moved) == ["1 records of a key in two partitions: [(b'k0', b'9')]"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_runs_are_reproducible(delivery: Delivery) -> None:
    plans = plan_run(7, 2 * ROUNDS_OF_A_QUERY + 3, delivery)
    assert plans == plan_run(7, 2 * ROUNDS_OF_A_QUERY + 3, delivery)
    assert [len(plan.rounds) for plan in plans] == [ROUNDS_OF_A_QUERY, ROUNDS_OF_A_QUERY, 3]
    assert plan_query(8, ROUNDS_OF_A_QUERY, delivery) == plans[1], "a query can be repeated by its own seed"


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_ninety_rounds_have_every_case(delivery: Delivery) -> None:
    done = Counter((each.step, each.fault) for plan in plan_run(3, 90, delivery) for each in plan.rounds)
    assert set(done) == set(cases(delivery))


def test_two_hundred_kills_have_every_step_equally_often() -> None:
    plans = plan_run(3, 200, "exactly-once", only_drivers=True)
    assert plans[1] == plan_kills(4, KILLS_OF_A_QUERY)
    done = Counter(each.step for plan in plans for each in plan.rounds)
    assert done.total() == 200
    assert {each.fault for plan in plans for each in plan.rounds} == {"driver"}
    assert set(done) == {step for step, _ in cases("exactly-once")}
    assert max(done.values()) - min(done.values()) <= len(plans)


def test_every_step_exists_and_is_used() -> None:
    for step, each in STEPS.items():
        for module, function in each.functions():
            owner = importlib.import_module(f"pyspark_kafka_direct.{module}")
            assert callable(functools.reduce(getattr, function.split("."), owner)), step
    used = {step for delivery in DELIVERIES for step, _ in cases(delivery)}
    assert set(STEPS) < used


def test_progress_is_restored(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    plans = plan_run(5, 13, "exactly-once")
    outcome = Outcome(Counter({"driver, committed": 2}), drivers=3, records=100, batches=9, duplicates=0, aborted=4)
    Progress(file, 5, "exactly-once", Outcome).add(plans[1], outcome)
    resumed = Progress(file, 77, "exactly-once", Outcome)
    assert resumed.seed == 5
    assert [resumed.outcome(plan) for plan in plans] == [None, outcome]
    with pytest.raises(ValueError, match="exactly-once, not at-least-once"):
        Progress(file, 5, "at-least-once", Outcome)


TWO_CALLS = """
from pyspark_kafka_direct.producer.row_writer import RowWriter

class EmptyWriter:
    _encoders = {}

for _ in range(2):
    RowWriter.flush(EmptyWriter())
    print("passed", flush=True)
"""


@pytest.mark.parametrize("skip", [0, 1])
def test_a_process_is_suspended_at_its_step_until_it_is_released(tmp_path: Path, skip: int) -> None:
    breakpoint_ = Breakpoint(tmp_path / "breakpoint")
    breakpoint_.arm("staged", skip=skip)
    with subprocess.Popen(
        [sys.executable, "-c", TWO_CALLS],
        env={**os.environ, **breakpoint_.environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while breakpoint_.held is None:
            assert process.poll() is None, "the process was not suspended"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert breakpoint_.held == process.pid
        assert process.poll() is None
        breakpoint_.release()
        assert process.communicate(timeout=300)[0].split() == ["passed", "passed"]


def test_a_process_at_another_step_is_not_suspended(tmp_path: Path) -> None:
    breakpoint_ = Breakpoint(tmp_path / "breakpoint")
    breakpoint_.arm("staging")
    environment = {**os.environ, **breakpoint_.environment}
    done = subprocess.run([sys.executable, "-c", TWO_CALLS], env=environment, check=True, timeout=300, text=True)
    assert done.returncode == 0
    assert breakpoint_.held is None


def test_the_hook_runs_the_module_that_it_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('run')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = {**os.environ, **Breakpoint(tmp_path / "breakpoint").environment}
    command = [sys.executable, "-c", "import sys; print(type(sys.meta_path[0]).__name__)"]
    output = subprocess.run(command, env=environment, check=True, timeout=300, text=True, capture_output=True).stdout
    assert output.split() == ["run", "_WrappingFinder"]


def rounds_with(delivery: Delivery, fault: str) -> list[Round]:
    return [each for plan in plan_run(0, 90, delivery) for each in plan.rounds if each.fault == fault]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_every_zombie_was_suspended(delivery: Delivery) -> None:
    assert all(each.step in STEPS for each in rounds_with(delivery, "zombie"))
