"""The soak's judgement must be able to fail."""

from __future__ import annotations

from tests.soak.direct import plan_runs
from tests.soak.plan import plan_run
from tests.soak.results import Row, faults, offsets_at
from tests.soak.writer import Logged

LOG = [
    Logged("t", partition, offset, b"k", b"%d" % (10 * partition + offset), 1000 + offset)
    for partition in (0, 1)
    for offset in range(5)
]
RIGHT = [Row(*record[:5]) for record in LOG]


def test_each_record_once_is_right() -> None:
    assert faults(reversed(RIGHT), LOG) == []


def test_a_missing_record() -> None:
    assert faults(RIGHT[1:], LOG) == ["1 records missing: [('t', 0, 0, b'k', b'0')]"]


def test_a_record_that_is_there_twice() -> None:
    assert faults([*RIGHT, RIGHT[-1]], LOG) == ["1 records more than once: [('t', 1, 4, b'k', b'14')]"]


def test_a_record_from_before_the_start() -> None:
    assert faults(RIGHT, LOG[1:]) == ["1 records not asked for: [('t', 0, 0, b'k', b'0')]"]


def test_a_record_with_another_value() -> None:
    assert faults([RIGHT[0]._replace(value=b"x"), *RIGHT[1:]], LOG) == [
        "1 records missing: [('t', 0, 0, b'k', b'0')]",
        "1 records not asked for: [('t', 0, 0, b'k', b'x')]",
    ]


def test_two_topics_of_one_name_are_told_apart_by_their_values() -> None:
    again = [record._replace(value=b"new-%d" % number) for number, record in enumerate(LOG)]
    assert faults([*RIGHT, *(Row(*record[:5]) for record in again)], LOG + again) == []
    assert faults(RIGHT + RIGHT, LOG + again)[0].startswith("10 records missing")


def test_the_offset_of_a_timestamp() -> None:
    assert offsets_at(LOG, 1003) == {("t", 0): 3, ("t", 1): 3}


def test_a_run_follows_from_its_seed() -> None:
    first, second = plan_run(7, 8), plan_run(7, 8)
    assert first == second
    assert [len(plan.rounds) for plan in first] == [5, 3]
    assert plan_run(8, 3)[0].rounds == first[1].rounds, "a query is repeated by its own seed"


def test_each_run_of_direct_streams_follows_from_its_seed() -> None:
    plans = plan_runs(7, 25, 0.1)
    assert plans == plan_runs(7, 25, 0.1)
    assert [plan.kills for plan in plans] == [10, 10, 5]
    assert {plan.offsets for plan in plans} == {"checkpoint", "database"}
    assert all((plan.deletes is None) == (plan.offsets == "checkpoint") for plan in plans)
    assert plan_runs(8, 10, 0.1) == plans[1:2], "an application is repeated by its own seed"
