"""The soak's judgement must be able to fail."""

from __future__ import annotations

from tests.soak.plan import plan_run
from tests.soak.results import Row, faults, offsets_at
from tests.soak.writer import Logged

LOG = [Logged(partition, offset, b"k", b"%d" % offset, 1000 + offset) for partition in (0, 1) for offset in range(5)]
START = {0: 2, 1: 0}
RIGHT = [Row(*record[:4]) for record in LOG if record.offset >= START[record.partition]]


def test_each_record_once_is_right() -> None:
    assert faults(reversed(RIGHT), LOG, START) == []


def test_a_missing_record() -> None:
    assert faults(RIGHT[1:], LOG, START) == ["1 records missing, (partition, offset): [(0, 2)]"]


def test_a_record_that_is_there_twice() -> None:
    assert faults([*RIGHT, RIGHT[-1]], LOG, START) == ["1 records more than once, (partition, offset): [(1, 4)]"]


def test_a_record_from_before_the_start() -> None:
    assert faults([*RIGHT, Row(0, 1, b"k", b"1")], LOG, START) == [
        "1 records not asked for, (partition, offset): [(0, 1)]"
    ]


def test_a_record_with_another_value() -> None:
    assert faults([RIGHT[0]._replace(value=b"x"), *RIGHT[1:]], LOG, START) == [
        "1 records with another key or value, (partition, offset): [(0, 2)]"
    ]


def test_the_offset_of_a_timestamp() -> None:
    assert offsets_at(LOG, 1003) == {0: 3, 1: 3}


def test_a_run_follows_from_its_seed() -> None:
    first, second = plan_run(7, 8), plan_run(7, 8)
    assert first == second
    assert [len(plan.rounds) for plan in first] == [5, 3]
    assert plan_run(8, 3)[0].rounds == first[1].rounds, "a query is repeated by its own seed"
