"""The checks of the soaks detect errors."""

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
EXPECTED = [Row(*record[:5]) for record in LOG]


def test_each_record_once_is_valid() -> None:
    assert faults(reversed(EXPECTED), LOG) == []


def test_a_missing_record() -> None:
    assert faults(EXPECTED[1:], LOG) == ["1 records missing: [('t', 0, 0, b'k', b'0')]"]


def test_a_duplicate() -> None:
    assert faults([*EXPECTED, EXPECTED[-1]], LOG) == ["1 records more than once: [('t', 1, 4, b'k', b'14')]"]


def test_a_record_from_before_the_start() -> None:
    assert faults(EXPECTED, LOG[1:]) == ["1 records unexpected: [('t', 0, 0, b'k', b'0')]"]


def test_a_record_with_another_value() -> None:
    assert faults([EXPECTED[0]._replace(value=b"x"), *EXPECTED[1:]], LOG) == [
        "1 records missing: [('t', 0, 0, b'k', b'0')]",
        "1 records unexpected: [('t', 0, 0, b'k', b'x')]",
    ]


def test_records_of_a_recreated_topic_differ_by_value() -> None:
    recreated = [record._replace(value=b"new-%d" % number) for number, record in enumerate(LOG)]
    assert faults([*EXPECTED, *(Row(*record[:5]) for record in recreated)], LOG + recreated) == []
    assert faults(EXPECTED + EXPECTED, LOG + recreated)[0].startswith("10 records missing")


def test_the_offset_of_a_timestamp() -> None:
    assert offsets_at(LOG, 1003) == {("t", 0): 3, ("t", 1): 3}


def test_runs_are_reproducible() -> None:
    first, second = plan_run(7, 8), plan_run(7, 8)
    assert first == second
    assert [len(plan.rounds) for plan in first] == [5, 3]
    assert plan_run(8, 3)[0].rounds == first[1].rounds, "a query can be repeated by its own seed"


def test_runs_of_direct_streams_are_reproducible() -> None:
    plans = plan_runs(7, 25, 0.1)
    assert plans == plan_runs(7, 25, 0.1)
    assert [plan.kills for plan in plans] == [10, 10, 5]
    assert {plan.offsets for plan in plans} == {"checkpoint", "database"}
    assert all((plan.deletes is None) == (plan.offsets == "checkpoint") for plan in plans)
    assert plan_runs(8, 10, 0.1) == plans[1:2], "an application can be repeated by its own seed"
