"""The checks of the continuous soak detect errors, and its plans are reproducible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.continuous.plan import FAULTS, ROUNDS_OF_A_QUERY, plan_query, plan_run
from tests.soak.continuous.results import ReplayWindow, unexpected_duplicates
from tests.soak.continuous.run import committed
from tests.soak.writer import Logged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.continuous.plan import Delivery

BOTH: tuple[Delivery, ...] = ("at-least-once", "exactly-once")


def log(*numbers: int, partition: int = 0) -> list[Logged]:
    return [Logged("t", partition, offset, b"key", b"%d" % number, 0) for offset, number in enumerate(numbers)]


SOURCE = log(*range(10))


@pytest.mark.parametrize(
    "window", [ReplayWindow({0: 5}, {0: 10}), ReplayWindow({0: 7}, {0: 8}), ReplayWindow({}, {0: 8})]
)
def test_records_after_the_last_committed_epoch_may_be_repeated(window: ReplayWindow) -> None:
    assert unexpected_duplicates(log(*range(10), 7), SOURCE, [window]) == []


@pytest.mark.parametrize(
    "windows", [[], [ReplayWindow({0: 8}, {0: 10})], [ReplayWindow({0: 0}, {0: 7})], [ReplayWindow({1: 0}, {1: 9})]]
)
def test_records_of_a_committed_epoch_may_not_be_repeated(windows: list[ReplayWindow]) -> None:
    assert unexpected_duplicates(log(*range(10), 7), SOURCE, windows) == [
        "1 records were written again although their epoch was committed (partition 0, offset 7: 2, not 1)"
    ]


def test_a_record_may_be_repeated_once_for_each_fault() -> None:
    window = ReplayWindow({0: 5}, {0: 10})
    thrice = log(*range(10), 7, 7)
    assert unexpected_duplicates(thrice, SOURCE, [window, window]) == []
    assert unexpected_duplicates(thrice, SOURCE, [ReplayWindow({0: 5}, {0: 10}, times=2)]) == []
    assert unexpected_duplicates(thrice, SOURCE, [window]) == [
        "1 records were written again although their epoch was committed (partition 0, offset 7: 3, not 2)"
    ]


def test_plans_are_reproducible_and_have_all_faults() -> None:
    plans = plan_run(3, 95, BOTH)
    assert plans == plan_run(3, 95, BOTH)
    assert [len(plan.rounds) for plan in plans] == [ROUNDS_OF_A_QUERY] * 9 + [5]
    assert {plan.delivery for plan in plans} == set(BOTH)
    assert {each.fault for plan in plans for each in plan.rounds} == set(FAULTS)
    assert len({(plan.delivery, plan.cluster) for plan in plans}) == 4


def test_executors_are_killed_only_on_a_cluster() -> None:
    plans = [plan_query(seed, 10, "exactly-once") for seed in range(20)]
    assert not any(each.fault == "executor" for plan in plans if not plan.cluster for each in plan.rounds)
    assert any(each.fault == "executor" for plan in plans if plan.cluster for each in plan.rounds)


def test_committed_offsets_of_a_checkpoint(tmp_path: Path) -> None:
    assert committed(tmp_path) == {}
    for name in ("offsets", "commits"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    for epoch in (6, 7):
        (tmp_path / "checkpoint" / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch},"1":3}}}}')
    (tmp_path / "checkpoint" / "commits" / "6").write_text("v1\n{}")
    assert committed(tmp_path) == {0: 6, 1: 3}
