"""Which task reads what, what reports of epochs add up to, and when a continuous query restarts."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous.continuous_epochs import (
    EpochReport,
    EpochResult,
    PartitionChanges,
    RestartBudget,
    TaskAssignment,
    abbreviated,
    assign_partitions,
    detect_partition_changes,
    merge_task_reports,
    next_epoch_request_time,
)
from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Collection

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 12))
SETS = st.frozensets(PARTITIONS, max_size=25)


def tp(*names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[1:])) for name in names)


class TestAssignment:
    def test_each_partition_has_a_task(self) -> None:
        assert assign_partitions(tp("b0", "a1", "a0")) == (tp("a0"), tp("a1"), tp("b0"))

    def test_partitions_are_spread_evenly(self) -> None:
        assert assign_partitions(tp("a0", "a1", "a2", "b0", "b1"), 2) == (tp("a0", "a2", "b1"), tp("a1", "b0"))

    def test_nothing_to_read_needs_no_task(self) -> None:
        assert assign_partitions((), 3, [tp("a0")]) == ()

    def test_new_partitions_go_to_the_tasks_with_the_fewest(self) -> None:
        before = assign_partitions(tp("a0", "a1", "a2"), 2)
        assert assign_partitions(tp("a0", "a1", "a2", "a3", "a4"), 2, before) == (tp("a0", "a2", "a4"), tp("a1", "a3"))

    @pytest.mark.parametrize("tasks_max", [0, -1])
    def test_there_must_be_a_task(self, tasks_max: int) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            assign_partitions(tp("a0"), tasks_max)

    @given(SETS, st.none() | st.integers(1, 30), st.lists(PARTITIONS, unique=True), st.integers(1, 6))
    def test_assignments_are_complete_even_and_stable(
        self, wanted: frozenset[TopicPartition], tasks_max: int | None, old: list[TopicPartition], size: int
    ) -> None:
        before = [old[begin : begin + size] for begin in range(0, len(old), size)]
        found = assign_partitions(wanted, tasks_max, before)
        assert sorted(partition for task in found for partition in task) == sorted(wanted)
        assert len(found) == min(len(wanted), tasks_max or len(wanted))
        assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1
        assert all(list(task) == sorted(task) for task in found)
        assert assign_partitions(sorted(wanted, reverse=True), tasks_max, before) == found
        assert assign_partitions(wanted, tasks_max, found) == found

    @given(SETS, st.integers(1, 5), SETS)
    def test_as_few_partitions_as_possible_move(
        self, old: frozenset[TopicPartition], tasks_max: int, new: frozenset[TopicPartition]
    ) -> None:
        before, wanted = assign_partitions(old, tasks_max), old | new
        after = assign_partitions(wanted, tasks_max, before)
        stayed = sum(len(set(one) & set(other)) for one, other in zip(before, after, strict=False))
        sizes = [len(task) for task in after]
        had = [*(len(task) for task in before), *([0] * (len(after) - len(before)))]
        best = max(sum(map(min, had, order)) for order in permutations(sizes))
        assert stayed == best


class TestRestarts:
    def test_restarts_are_limited_within_the_window(self) -> None:
        budget: RestartBudget | None = RestartBudget(2, 60)
        for now in (0.0, 10.0):
            assert budget is not None
            budget = budget.after_failure(now)
        assert budget == RestartBudget(2, 60, (0.0, 10.0))
        assert budget.after_failure(59.9) is None
        assert budget.after_failure(60.0) == RestartBudget(2, 60, (10.0, 60.0))

    def test_no_restarts_may_be_allowed(self) -> None:
        assert RestartBudget(0, 60).after_failure(5) is None

    @given(st.integers(0, 5), st.lists(st.integers(0, 100).map(float), max_size=30).map(sorted))
    def test_the_budget_is_exceeded_at_the_first_window_with_too_many_failures(
        self, max_restarts: int, times: list[float]
    ) -> None:
        budget: RestartBudget | None = RestartBudget(max_restarts, 10)
        for index, now in enumerate(times):
            assert budget is not None
            budget = budget.after_failure(now)
            assert (budget is None) == (sum(now - 10 < each for each in times[: index + 1]) > max_restarts)
            if budget is None:
                break


TASKS: TaskAssignment = (tp("a0", "a2"), tp("a1"))
START_OFFSETS = dict(zip(tp("a0", "a1", "a2"), (5, 6, 7), strict=True))


def report(number: int, /, **more: object) -> EpochReport:
    offsets = {each: START_OFFSETS[each] + 10 for each in TASKS[number]}
    plain = EpochReport(3, offsets, 20, 300, 1.5 + number, 25)
    return replace(plain, **more)  # type: ignore[arg-type]


def by_task(*reports: EpochReport) -> dict[int, EpochReport]:
    return dict(enumerate(reports))


class TestMergingReports:
    def test_reports_of_a_completed_epoch_are_merged(self) -> None:
        moved = {each: offset + 10 for each, offset in START_OFFSETS.items()}
        merged = merge_task_reports(3, TASKS, START_OFFSETS, by_task(report(0), report(1)))
        assert merged == EpochResult(3, moved, 40, 600, 2.5, rows_read=50)
        assert list(merge_task_reports(3, TASKS, START_OFFSETS, {1: report(1), 0: report(0)}).offsets) == sorted(
            START_OFFSETS
        )

    def test_ids_of_recreated_topics_are_merged(self) -> None:
        reports = by_task(
            report(0, recreated_topic_ids={TASKS[0][1]: UUID(int=7)}),
            report(1, recreated_topic_ids={TASKS[1][0]: UUID(int=8)}),
        )
        assert merge_task_reports(3, TASKS, START_OFFSETS, reports).recreated_topic_ids == {
            TASKS[0][1]: UUID(int=7),
            TASKS[1][0]: UUID(int=8),
        }

    def test_ids_of_recreated_topics_are_merged_across_epochs(self) -> None:
        epochs = [
            merge_task_reports(3, TASKS, START_OFFSETS, by_task(report(0, recreated_topic_ids=topic_ids), report(1)))
            for topic_ids in (
                {TASKS[0][0]: UUID(int=7), TASKS[0][1]: UUID(int=7)},
                {TASKS[0][1]: UUID(int=8)},
                {},
            )
        ]
        one = epochs[0].merged_with(epochs[1]).merged_with(epochs[2])
        assert one.recreated_topic_ids == {TASKS[0][0]: UUID(int=7), TASKS[0][1]: UUID(int=8)}

    def test_the_sizes_of_merged_epochs_are_added(self) -> None:
        first = merge_task_reports(3, TASKS, START_OFFSETS, by_task(report(0, flush_ms=9.0), report(1)))
        later = {each: offset + 1 for each, offset in first.offsets.items()}
        second = replace(first, offsets=later, rows=1, bytes=2, flush_ms=3.0, rows_read=4, last=True)
        assert first.merged_with(second) == EpochResult(3, later, 41, 602, 9.0, last=True, rows_read=54)

    def test_malformed_records_of_all_reports_are_retained(self) -> None:
        counts: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = [
            ({TASKS[0][0]: 4}, {}),
            ({}, {TASKS[1][0]: 1}),
            ({TASKS[0][0]: 2}, {TASKS[0][0]: 7}),
        ]
        reports = [report(task, malformed_records=counts[task][0], schema_errors=counts[task][1]) for task in (0, 1)]
        first = merge_task_reports(3, TASKS, START_OFFSETS, by_task(*reports))
        changed = report(0, malformed_records=counts[2][0], schema_errors=counts[2][1])
        second = merge_task_reports(3, TASKS, START_OFFSETS, by_task(changed, report(1)))
        assert first.merged_with(second).malformed_records == tuple(counts)

    def test_skipped_offsets_of_all_reports_are_retained(self) -> None:
        skipped = [{TASKS[0][0]: 4}, {TASKS[1][0]: 0}, {TASKS[0][0]: 2}]
        cause = DataLossCause.AGED_OUT
        reports = {task: report(task, skipped_offsets={cause: skipped[task]}) for task in (0, 1)}
        first = merge_task_reports(3, TASKS, START_OFFSETS, reports)
        reports = by_task(report(0, skipped_offsets={cause: skipped[2]}), report(1))
        second = merge_task_reports(3, TASKS, START_OFFSETS, reports)
        assert first.merged_with(second).skipped_offsets == tuple((cause, offsets) for offsets in skipped)

    def test_an_epoch_may_have_no_records(self) -> None:
        unchanged = by_task(
            report(0, offsets={each: START_OFFSETS[each] for each in TASKS[0]}),
            report(1, offsets={TASKS[1][0]: 6}),
        )
        assert merge_task_reports(3, TASKS, START_OFFSETS, unchanged).offsets == START_OFFSETS

    def test_the_start_of_a_partition_may_be_unknown(self) -> None:
        reports = by_task(report(0), report(1, offsets={TASKS[1][0]: 0}))
        assert merge_task_reports(3, TASKS, {}, reports).offsets[TASKS[1][0]] == 0

    @pytest.mark.parametrize(
        ("reports", "message", "task"),
        [
            (by_task(report(0)), "no report of task 1", 1),
            ({}, "no report of task 0, 1", None),
            (by_task(report(0), report(1, epoch=2)), "task 1 reported epoch 2", 1),
            (by_task(report(0), report(1), report(1)), "there is no task 2: the run has 2", 2),
            ({**by_task(report(0), report(1)), -1: report(1)}, "there is no task -1: the run has 2", -1),
            (by_task(report(0, offsets={TASKS[0][0]: 9}), report(1)), "task 0 did not report a-2", 0),
            (by_task(report(0), report(1, offsets=START_OFFSETS)), "reported a-0, a-2, which it does not read", 1),
            (by_task(report(0), report(1, offsets={TASKS[1][0]: 5})), "task 1 moved back from offset 6 to 5", 1),
        ],
        ids=["one missing", "all missing", "epoch", "beyond", "negative", "less", "more", "backwards"],
    )
    def test_an_inconsistent_report_is_an_error(
        self, reports: dict[int, EpochReport], message: str, task: int | None
    ) -> None:
        with pytest.raises(QueryRunError, match="epoch 3") as caught:
            merge_task_reports(3, TASKS, START_OFFSETS, reports)
        assert message in str(caught.value)
        assert caught.value.task_index == task

    def test_a_position_may_move_back_only_after_data_loss(self) -> None:
        there = {TASKS[1][0]: 2}
        lost = by_task(report(0), report(1, offsets=there, reset_positions=there))
        assert merge_task_reports(3, TASKS, START_OFFSETS, lost).offsets[TASKS[1][0]] == 2
        with pytest.raises(QueryRunError, match="task 1 moved back from offset 2 to 1"):
            merge_task_reports(
                3, TASKS, START_OFFSETS, by_task(report(0), report(1, offsets={TASKS[1][0]: 1}, reset_positions=there))
            )
        reports = by_task(report(0, reset_positions=there), report(1, offsets=there))
        with pytest.raises(QueryRunError, match="task 1 moved back from offset 6 to 2"):
            merge_task_reports(3, TASKS, START_OFFSETS, reports)

    def test_the_error_names_the_position_that_moved_back(self) -> None:
        with pytest.raises(QueryRunError) as caught:
            merge_task_reports(3, TASKS, START_OFFSETS, {1: report(1, offsets={TASKS[1][0]: 5})})
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("a", 1, 5)

    @given(SETS.filter(bool), st.integers(1, 6), st.data())
    def test_every_report_counts(self, wanted: frozenset[TopicPartition], tasks_max: int, data: st.DataObject) -> None:
        tasks = assign_partitions(wanted, tasks_max)
        ends = {each: data.draw(st.integers(0, 1 << 62)) for each in sorted(wanted)}
        reports = {
            task: EpochReport(0, {each: ends[each] for each in partitions}, task, 1, 0.5)
            for task, partitions in enumerate(tasks)
        }
        order = dict(data.draw(st.permutations(list(reports.items()))))
        whole = merge_task_reports(0, tasks, ends, order)
        assert whole == EpochResult(0, ends, sum(range(len(tasks))), len(tasks), 0.5)
        with pytest.raises(QueryRunError):
            merge_task_reports(0, tasks, ends, dict(list(order.items())[1:]))


class TestPartitionChanges:
    @pytest.mark.parametrize(
        ("existing", "new", "missing", "end_run"),
        [
            (tp("a0", "a1"), (), (), False),
            (tp("a0", "a1", "a2"), tp("a2"), (), True),
            (tp("a0"), (), tp("a1"), False),
            ((), (), tp("a0", "a1"), False),
            (tp("a0", "b0"), tp("b0"), tp("a1"), True),
        ],
        ids=["same", "new", "missing", "all missing", "both"],
    )
    def test_the_first_refresh(
        self,
        existing: Collection[TopicPartition],
        new: Collection[TopicPartition],
        missing: Collection[TopicPartition],
        end_run: bool,
    ) -> None:
        assert detect_partition_changes(tp("a0", "a1"), existing) == PartitionChanges(
            frozenset(new), frozenset(missing), end_run
        )

    def test_a_partition_missing_twice_counts_as_deleted(self) -> None:
        reading = tp("a0", "a1", "a2")
        first = detect_partition_changes(reading, tp("a0", "a1"))
        assert detect_partition_changes(reading, tp("a0", "a1"), first).end_run
        assert not detect_partition_changes(reading, reading, first).end_run
        assert not detect_partition_changes(reading, tp("a0", "a2"), first).end_run, "another one is missing"


class TestEpochRequestTimes:
    @pytest.mark.parametrize(
        ("now", "due"), [(10.0, 11.0), (10.9, 11.0), (11.0, 12.0), (11.2, 12.0), (14.5, 15.0)], ids=str
    )
    def test_requests_stay_on_multiples_of_the_interval(self, now: float, due: float) -> None:
        assert next_epoch_request_time(10.0, 1.0, now) == due

    @example(569.0, 0.7, 655.8 - 569.0)  # 124 intervals after 569 are 655.8 by rounding
    @given(st.floats(0, 1e6), st.floats(0.01, 1e4), st.floats(0, 1e6))
    def test_the_next_request_is_in_the_future_and_within_an_interval(
        self, due: float, interval: float, delay: float
    ) -> None:
        next_due = next_epoch_request_time(due, interval, due + delay)
        assert due + delay < next_due <= due + delay + interval * 1.001


def test_long_lists_are_abbreviated() -> None:
    assert abbreviated([1, 2]) == "1, 2"
    assert abbreviated(range(7)) == "0, 1, 2, 3, 4 and 2 more"
