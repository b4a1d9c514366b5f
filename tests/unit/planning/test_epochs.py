"""Who reads what, what epochs add up to, and when a continuous query starts again."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.epochs import (
    Assignment,
    EpochResult,
    PartitionLook,
    Restarts,
    TaskReport,
    add_up,
    assign,
    compare,
    named,
    next_mark,
)

if TYPE_CHECKING:
    from collections.abc import Collection

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 12))
SETS = st.frozensets(PARTITIONS, max_size=25)


def tp(*names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[1:])) for name in names)


class TestAssignment:
    def test_each_partition_has_a_task(self) -> None:
        assert assign(tp("b0", "a1", "a0")) == (tp("a0"), tp("a1"), tp("b0"))

    def test_tasks_take_turns(self) -> None:
        assert assign(tp("a0", "a1", "a2", "b0", "b1"), 2) == (tp("a0", "a2", "b1"), tp("a1", "b0"))

    def test_nothing_to_read_needs_no_task(self) -> None:
        assert assign((), 3, [tp("a0")]) == ()

    def test_new_partitions_go_where_there_is_least(self) -> None:
        before = assign(tp("a0", "a1", "a2"), 2)
        assert assign(tp("a0", "a1", "a2", "a3", "a4"), 2, before) == (tp("a0", "a2", "a4"), tp("a1", "a3"))

    @pytest.mark.parametrize("most", [0, -1])
    def test_there_must_be_a_task(self, most: int) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            assign(tp("a0"), most)

    @given(SETS, st.none() | st.integers(1, 30), st.lists(PARTITIONS, unique=True), st.integers(1, 6))
    def test_it_is_whole_even_and_stable(
        self, wanted: frozenset[TopicPartition], most: int | None, old: list[TopicPartition], size: int
    ) -> None:
        before = [old[begin : begin + size] for begin in range(0, len(old), size)]
        found = assign(wanted, most, before)
        assert sorted(partition for task in found for partition in task) == sorted(wanted)
        assert len(found) == min(len(wanted), most or len(wanted))
        assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1
        assert all(list(task) == sorted(task) for task in found)
        assert assign(sorted(wanted, reverse=True), most, before) == found
        assert assign(wanted, most, found) == found

    @given(SETS, st.integers(1, 5), SETS)
    def test_as_few_as_possible_move(
        self, old: frozenset[TopicPartition], most: int, new: frozenset[TopicPartition]
    ) -> None:
        before, wanted = assign(old, most), old | new
        after = assign(wanted, most, before)
        stayed = sum(len(set(one) & set(other)) for one, other in zip(before, after, strict=False))
        sizes = [len(task) for task in after]
        had = [*(len(task) for task in before), *([0] * (len(after) - len(before)))]
        best = max(sum(map(min, had, order)) for order in permutations(sizes))
        assert stayed == best


class TestRestarts:
    def test_so_many_within_the_window_and_no_more(self) -> None:
        left: Restarts | None = Restarts(2, 60)
        for now in (0.0, 10.0):
            assert left is not None
            left = left.after_failure(now)
        assert left == Restarts(2, 60, (0.0, 10.0))
        assert left.after_failure(59.9) is None
        assert left.after_failure(60.0) == Restarts(2, 60, (10.0, 60.0))

    def test_none_at_all(self) -> None:
        assert Restarts(0, 60).after_failure(5) is None

    @given(st.integers(0, 5), st.lists(st.integers(0, 100).map(float), max_size=30).map(sorted))
    def test_it_ends_at_the_first_window_that_is_too_full(self, most: int, times: list[float]) -> None:
        left: Restarts | None = Restarts(most, 10)
        for index, now in enumerate(times):
            assert left is not None
            left = left.after_failure(now)
            assert (left is None) == (sum(now - 10 < each for each in times[: index + 1]) > most)
            if left is None:
                break


TASKS: Assignment = (tp("a0", "a2"), tp("a1"))
BEFORE = dict(zip(tp("a0", "a1", "a2"), (5, 6, 7), strict=True))


def report(number: int, /, **more: object) -> TaskReport:
    offsets = {each: BEFORE[each] + 10 for each in TASKS[number]}
    plain = TaskReport(number, 3, offsets, 20, 300, 1.5 + number, 25)
    return replace(plain, **more)  # type: ignore[arg-type]


class TestAddingUp:
    def test_whole_epochs(self) -> None:
        moved = {each: offset + 10 for each, offset in BEFORE.items()}
        assert add_up(3, TASKS, BEFORE, [report(1), report(0)]) == EpochResult(3, moved, 40, 600, 2.5, rows_read=50)
        assert list(add_up(3, TASKS, BEFORE, [report(1), report(0)]).offsets) == sorted(BEFORE)

    def test_topics_that_were_created_anew(self) -> None:
        reports = [report(0, anew={TASKS[0][1]: UUID(int=7)}), report(1, anew={TASKS[1][0]: UUID(int=8)})]
        assert add_up(3, TASKS, BEFORE, reports).anew == {TASKS[0][1]: UUID(int=7), TASKS[1][0]: UUID(int=8)}

    def test_topics_that_were_created_anew_in_epochs_that_are_told_as_one(self) -> None:
        epochs = [
            add_up(3, TASKS, BEFORE, [report(0, anew=anew), report(1)])
            for anew in (
                {TASKS[0][0]: UUID(int=7), TASKS[0][1]: UUID(int=7)},
                {TASKS[0][1]: UUID(int=8)},
                {},
            )
        ]
        one = epochs[0].and_then(epochs[1]).and_then(epochs[2])
        assert one.anew == {TASKS[0][0]: UUID(int=7), TASKS[0][1]: UUID(int=8)}

    def test_nothing_moved(self) -> None:
        idle = [report(0, offsets={each: BEFORE[each] for each in TASKS[0]}), report(1, offsets={TASKS[1][0]: 6})]
        assert add_up(3, TASKS, BEFORE, idle).offsets == BEFORE

    def test_where_a_partition_begins_may_be_unknown(self) -> None:
        assert add_up(3, TASKS, {}, [report(0), report(1, offsets={TASKS[1][0]: 0})]).offsets[TASKS[1][0]] == 0

    @pytest.mark.parametrize(
        ("reports", "says", "task"),
        [
            ([report(0)], "no report of task 1", 1),
            ([], "no report of task 0, 1", None),
            ([report(0), report(1), report(0)], "task 0 reported twice", 0),
            ([report(0), report(1, epoch=2)], "task 1 reported epoch 2", 1),
            ([report(0), report(1), report(1, task=2)], "there is no task 2: the run has 2", 2),
            ([report(0), report(1), report(1, task=-1)], "there is no task -1: the run has 2", -1),
            ([report(0, offsets={TASKS[0][0]: 9}), report(1)], "task 0 did not report a-2", 0),
            ([report(0), report(1, offsets={**BEFORE})], "task 1 reported a-0, a-2, which it does not read", 1),
            ([report(0), report(1, offsets={TASKS[1][0]: 5})], "task 1 went back from offset 6 to 5", 1),
        ],
        ids=["one missing", "all missing", "twice", "epoch", "beyond", "negative", "less", "more", "back"],
    )
    def test_what_does_not_add_up_is_named(self, reports: list[TaskReport], says: str, task: int | None) -> None:
        with pytest.raises(RunFailedError, match="epoch 3") as caught:
            add_up(3, TASKS, BEFORE, reports)
        assert says in str(caught.value)
        assert caught.value.task == task

    def test_a_position_may_go_back_where_the_log_was_lost(self) -> None:
        there = {TASKS[1][0]: 2}
        lost = [report(0), report(1, offsets=there, sought=there)]
        assert add_up(3, TASKS, BEFORE, lost).offsets[TASKS[1][0]] == 2
        with pytest.raises(RunFailedError, match="task 1 went back from offset 2 to 1"):
            add_up(3, TASKS, BEFORE, [report(0), report(1, offsets={TASKS[1][0]: 1}, sought=there)])
        with pytest.raises(RunFailedError, match="task 1 went back from offset 6 to 2"):
            add_up(3, TASKS, BEFORE, [report(0, sought=there), report(1, offsets=there)])

    def test_where_a_position_went_back_is_told(self) -> None:
        with pytest.raises(RunFailedError) as caught:
            add_up(3, TASKS, BEFORE, [report(1, offsets={TASKS[1][0]: 5})])
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("a", 1, 5)

    @given(SETS.filter(bool), st.integers(1, 6), st.data())
    def test_every_report_counts(self, wanted: frozenset[TopicPartition], most: int, data: st.DataObject) -> None:
        tasks = assign(wanted, most)
        ends = {each: data.draw(st.integers(0, 1 << 62)) for each in sorted(wanted)}
        reports = [
            TaskReport(task, 0, {each: ends[each] for each in partitions}, task, 1, 0.5)
            for task, partitions in enumerate(tasks)
        ]
        order = data.draw(st.permutations(reports))
        whole = add_up(0, tasks, ends, order)
        assert whole == EpochResult(0, ends, sum(range(len(tasks))), len(tasks), 0.5)
        with pytest.raises(RunFailedError):
            add_up(0, tasks, ends, order[1:])


class TestOtherPartitions:
    @pytest.mark.parametrize(
        ("found", "new", "missing", "drain"),
        [
            (tp("a0", "a1"), (), (), False),
            (tp("a0", "a1", "a2"), tp("a2"), (), True),
            (tp("a0"), (), tp("a1"), False),
            ((), (), tp("a0", "a1"), False),
            (tp("a0", "b0"), tp("b0"), tp("a1"), True),
        ],
        ids=["same", "new", "gone", "all gone", "both"],
    )
    def test_a_first_look(
        self,
        found: Collection[TopicPartition],
        new: Collection[TopicPartition],
        missing: Collection[TopicPartition],
        drain: bool,
    ) -> None:
        assert compare(tp("a0", "a1"), found) == PartitionLook(frozenset(new), frozenset(missing), drain)

    def test_what_was_missed_twice_is_deleted(self) -> None:
        reading = tp("a0", "a1", "a2")
        first = compare(reading, tp("a0", "a1"))
        assert compare(reading, tp("a0", "a1"), first).drain
        assert not compare(reading, reading, first).drain
        assert not compare(reading, tp("a0", "a2"), first).drain, "another one is missing"


class TestTimesOfMarks:
    @pytest.mark.parametrize(
        ("now", "due"), [(10.0, 11.0), (10.9, 11.0), (11.0, 12.0), (11.2, 12.0), (14.5, 15.0)], ids=str
    )
    def test_they_keep_the_beat(self, now: float, due: float) -> None:
        assert next_mark(10.0, 1.0, now) == due

    @given(st.floats(0, 1e6), st.floats(0.01, 1e4), st.floats(0, 1e6))
    def test_the_next_one_is_ahead_and_not_far(self, due: float, interval: float, late: float) -> None:
        following = next_mark(due, interval, due + late)
        assert due + late < following <= due + late + interval * 1.001


def test_a_few_are_named() -> None:
    assert named([1, 2]) == "1, 2"
    assert named(range(7)) == "0, 1, 2, 3, 4 and 2 more"
