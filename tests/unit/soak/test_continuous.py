"""The judgement of the soak of continuous queries must be able to fail; its plans repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.continuous.plan import DEEDS, ROUNDS_OF_A_QUERY, plan_query, plan_run
from tests.soak.continuous.results import Window, unexpected_doubles
from tests.soak.continuous.run import committed
from tests.soak.writer import Logged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.sink.plan import Delivery

BOTH: tuple[Delivery, ...] = ("at-least-once", "exactly-once")


def log(*numbers: int, partition: int = 0) -> list[Logged]:
    return [Logged("t", partition, at, b"key", b"%d" % number, 0) for at, number in enumerate(numbers)]


SOURCE = log(*range(10))


@pytest.mark.parametrize("window", [Window({0: 5}, {0: 10}), Window({0: 7}, {0: 8}), Window({}, {0: 8})])
def test_a_record_after_the_last_committed_epoch_may_come_again(window: Window) -> None:
    assert unexpected_doubles(log(*range(10), 7), SOURCE, [window]) == []


@pytest.mark.parametrize("windows", [[], [Window({0: 8}, {0: 10})], [Window({0: 0}, {0: 7})], [Window({1: 0}, {1: 9})]])
def test_a_record_of_a_committed_epoch_may_not_come_again(windows: list[Window]) -> None:
    assert unexpected_doubles(log(*range(10), 7), SOURCE, windows) == [
        "1 records were written again though their epoch was committed (partition 0, offset 7: 2, not 1)"
    ]


def test_a_record_may_come_again_once_for_each_deed() -> None:
    window = Window({0: 5}, {0: 10})
    thrice = log(*range(10), 7, 7)
    assert unexpected_doubles(thrice, SOURCE, [window, window]) == []
    assert unexpected_doubles(thrice, SOURCE, [Window({0: 5}, {0: 10}, times=2)]) == []
    assert unexpected_doubles(thrice, SOURCE, [window]) == [
        "1 records were written again though their epoch was committed (partition 0, offset 7: 3, not 2)"
    ]


def test_plans_repeat_and_have_all_deeds() -> None:
    plans = plan_run(3, 95, BOTH)
    assert plans == plan_run(3, 95, BOTH)
    assert [len(plan.rounds) for plan in plans] == [ROUNDS_OF_A_QUERY] * 9 + [5]
    assert {plan.delivery for plan in plans} == set(BOTH)
    assert {each.deed for plan in plans for each in plan.rounds} == set(DEEDS)
    assert len({(plan.delivery, plan.cluster) for plan in plans}) == 4


def test_executors_are_killed_where_there_are_some() -> None:
    plans = [plan_query(seed, 10, "exactly-once") for seed in range(20)]
    assert not any(each.deed == "executor" for plan in plans if not plan.cluster for each in plan.rounds)
    assert any(each.deed == "executor" for plan in plans if plan.cluster for each in plan.rounds)


def test_what_a_checkpoint_has_committed(tmp_path: Path) -> None:
    assert committed(tmp_path) == {}
    for name in ("offsets", "commits"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    for epoch in (6, 7):
        (tmp_path / "checkpoint" / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch},"1":3}}}}')
    (tmp_path / "checkpoint" / "commits" / "6").write_text("v1\n{}")
    assert committed(tmp_path) == {0: 6, 1: 3}
