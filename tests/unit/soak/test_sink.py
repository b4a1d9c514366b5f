"""The judgement of the sink's soak must be able to fail; its plans repeat; its hook holds processes."""

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
from tests.soak.sink.hold import Hold
from tests.soak.sink.hook.sitecustomize import STEPS
from tests.soak.sink.plan import ROUNDS_OF_A_QUERY, Delivery, cases, plan_query, plan_run
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
    """Records in an order, each key in a partition of its own."""
    return [Logged("t", n % KEYS, place, b"k%d" % (n % KEYS), b"%d" % n, 1000) for place, n in enumerate(numbers)]


WHOLE = log(*range(12))


def found(copied: list[Logged], delivery: Delivery = "exactly-once", *, ordered: bool = True) -> list[str]:
    return sink_faults(copied, WHOLE, delivery, ordered=ordered)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_each_record_once_is_right(delivery: Delivery) -> None:
    assert found(WHOLE, delivery) == []


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_lost_record(delivery: Delivery) -> None:
    assert found(log(*range(11)), delivery) == ["1 records missing: [(b'k2', b'11')]"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_record_that_nobody_wrote(delivery: Delivery) -> None:
    assert found(log(*range(13)), delivery) == ["1 records that nobody wrote: [(b'k0', b'12')]"]


def test_a_record_that_is_there_twice_is_wrong_only_with_exactly_once() -> None:
    twice = log(*range(12), 11)
    assert found(twice) == ["1 records more than once: [(b'k2', b'11')]"]
    assert found(twice, "at-least-once") == []


def test_a_replay_of_several_records_is_in_order() -> None:
    assert found(log(0, 3, 6, 0, 3, 6, 9, 1, 2, 4, 5, 7, 8, 10, 11), "at-least-once") == []


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_record_that_overtook_one_of_its_key(delivery: Delivery) -> None:
    mixed = log(0, 1, 2, 6, 3, 4, 5, 7, 8, 9, 10, 11)
    assert found(mixed, delivery) == ["1 records out of order: [(b'k0', b'3')]"]
    assert found(mixed, delivery, ordered=False) == []


def test_a_key_in_two_partitions() -> None:
    moved = [each._replace(partition=2) if each.value == b"9" else each for each in WHOLE]
    assert found(moved) == ["1 records of a key that is in two partitions: [(b'k0', b'9')]"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_run_follows_from_its_seed(delivery: Delivery) -> None:
    plans = plan_run(7, 2 * ROUNDS_OF_A_QUERY + 3, delivery)
    assert plans == plan_run(7, 2 * ROUNDS_OF_A_QUERY + 3, delivery)
    assert [len(plan.rounds) for plan in plans] == [ROUNDS_OF_A_QUERY, ROUNDS_OF_A_QUERY, 3]
    assert plan_query(8, ROUNDS_OF_A_QUERY, delivery) == plans[1], "a query is repeated by its own seed"


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_ninety_rounds_have_every_case(delivery: Delivery) -> None:
    done = Counter((each.step, each.deed) for plan in plan_run(3, 90, delivery) for each in plan.rounds)
    assert set(done) == set(cases(delivery))


def test_every_step_is_a_function_of_the_sink_and_is_used() -> None:
    for step, each in STEPS.items():
        for module, function in each.functions():
            owner = importlib.import_module(f"pyspark_kafka_direct.{module}")
            assert callable(functools.reduce(getattr, function.split("."), owner)), step
    used = {step for delivery in DELIVERIES for step, _ in cases(delivery)}
    assert set(STEPS) < used


def test_progress_is_found_again(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    plans = plan_run(5, 13, "exactly-once")
    outcome = Outcome(Counter({"driver, committed": 2}), drivers=3, records=100, batches=9, doubles=0, aborted=4)
    Progress(file, 5, "exactly-once", Outcome).add(plans[1], outcome)
    again = Progress(file, 77, "exactly-once", Outcome)
    assert again.seed == 5
    assert [again.outcome(plan) for plan in plans] == [None, outcome]
    with pytest.raises(ValueError, match="exactly-once, not at-least-once"):
        Progress(file, 5, "at-least-once", Outcome)


COMES_TWICE = """
from pyspark_kafka_direct.writing.rows import RowWriter

class Nothing:
    _encoders = {}

for _ in range(2):
    RowWriter.flush(Nothing())
    print("passed", flush=True)
"""


@pytest.mark.parametrize("skip", [0, 1])
def test_a_process_is_held_at_its_step_until_it_is_released(tmp_path: Path, skip: int) -> None:
    hold = Hold(tmp_path / "hold")
    hold.arm("staged", skip=skip)
    with subprocess.Popen(
        [sys.executable, "-c", COMES_TWICE],
        env={**os.environ, **hold.environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while hold.held is None:
            assert process.poll() is None, "it was not held"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert hold.held == process.pid
        assert process.poll() is None
        hold.release()
        assert process.communicate(timeout=60)[0].split() == ["passed", "passed"]


def test_a_process_that_comes_to_another_step_is_not_held(tmp_path: Path) -> None:
    hold = Hold(tmp_path / "hold")
    hold.arm("staging")
    environment = {**os.environ, **hold.environment}
    done = subprocess.run([sys.executable, "-c", COMES_TWICE], env=environment, check=True, timeout=60, text=True)
    assert done.returncode == 0
    assert hold.held is None


def test_the_hook_hides_no_other_module_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('run')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = {**os.environ, **Hold(tmp_path / "hold").environment}
    command = [sys.executable, "-c", "import sys; print(type(sys.meta_path[0]).__name__)"]
    said = subprocess.run(command, env=environment, check=True, timeout=60, text=True, capture_output=True).stdout
    assert said.split() == ["run", "_Wrapping"]


def rounds_with(delivery: Delivery, deed: str) -> list[Round]:
    return [each for plan in plan_run(0, 90, delivery) for each in plan.rounds if each.deed == deed]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_what_goes_on_as_a_zombie_has_been_held(delivery: Delivery) -> None:
    assert all(each.step in STEPS for each in rounds_with(delivery, "zombie"))
