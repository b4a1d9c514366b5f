"""Plans of batch reads: starts, ends and ranges with fake logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.settings import read_settings

from pyspark_kafka_direct.datasource.batch_planner import BatchPlan, plan_explicit_ranges, plan_offset_specs
from pyspark_kafka_direct.datasource.pushed_filters import Comparison, push_filters
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.planning.offset_resolution import NO_RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.settings import ReadSettings

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
ALL = [T0, T1, T2]


@dataclass
class Logs:
    """Fake logs as (log start, timestamps), and the lookups that were requested."""

    logs: Mapping[TopicPartition, tuple[int, list[int]]]
    requested: list[set[int]] = field(default_factory=list)

    def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.requested.append(set(wanted.values()))
        return {tp: self.lookup(*self.logs[tp], requested_offset) for tp, requested_offset in wanted.items()}

    @staticmethod
    def lookup(first: int, times: list[int], requested_offset: int) -> int:
        if requested_offset == EARLIEST:
            return first
        if requested_offset == LATEST:
            return first + len(times)
        return next((first + index for index, time in enumerate(times) if time >= requested_offset), NO_RECORD)


def logs() -> Logs:
    """Three partitions with records at 1000, 2000 and 3000 ms; the second lost its first four offsets."""
    return Logs({T0: (0, [1000] * 4 + [2000] * 3 + [3000] * 3), T1: (4, [1000, 2000, 3000]), T2: (0, [])})


def planned(plan: BatchPlan) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def plan(start: OffsetSpec, end: OffsetSpec, options: ReadSettings | None = None) -> list[tuple[int, int, int]]:
    return planned(plan_offset_specs(start, end, ALL, logs(), options or read_settings()))


def test_earliest_to_latest() -> None:
    assert plan(Earliest(), Latest()) == [(0, 0, 10), (1, 4, 7)]


def test_explicit_offsets_with_keywords() -> None:
    start = SpecificOffsets({T0: 3, T1: EARLIEST, T2: EARLIEST})
    end = SpecificOffsets({T0: 5, T1: LATEST, T2: LATEST})
    assert plan(start, end) == [(0, 3, 5), (1, 4, 7)]


def test_timestamps_on_both_sides() -> None:
    start = SpecificTimestamps({T0: 2000, T1: 1500, T2: 0}, "latest")
    assert plan(start, SpecificTimestamps({T0: 3000, T1: 2500, T2: 1}, "latest")) == [(0, 4, 7), (1, 5, 6)]
    assert plan(GlobalTimestamp(2000, "latest"), GlobalTimestamp(3000, "latest")) == [(0, 4, 7), (1, 5, 6)]


def test_a_timestamp_on_one_side() -> None:
    assert plan(GlobalTimestamp(2000, "latest"), Latest()) == [(0, 4, 10), (1, 5, 7)]
    assert plan(Earliest(), GlobalTimestamp(2000, "latest")) == [(0, 0, 4), (1, 4, 5)]
    assert plan(GlobalTimestamp(2000, "latest"), SpecificOffsets({T0: 5, T1: 7, T2: 0})) == [(0, 4, 5), (1, 5, 7)]
    assert plan(SpecificOffsets({T0: 1, T1: 4, T2: 0}), GlobalTimestamp(2000)) == [(0, 1, 4), (1, 4, 5)]


def test_no_match_for_the_start_fails_and_for_the_end_reads_to_the_latest() -> None:
    with pytest.raises(InvalidOffsetsError, match="no record has timestamp 9000"):
        plan(GlobalTimestamp(9000), Latest())
    assert plan(GlobalTimestamp(9000, "latest"), Latest()) == []
    assert plan(Earliest(), GlobalTimestamp(9000)) == [(0, 0, 10), (1, 4, 7)]


def test_resolved_start_after_resolved_end() -> None:
    with pytest.raises(
        InvalidOffsetsError, match=r"resolved start offset 8 \(given\) is greater than the resolved end"
    ):
        plan(SpecificOffsets({T0: 8, T1: 4, T2: 0}), GlobalTimestamp(2000))


def test_resolved_start_after_the_latest() -> None:
    start = SpecificOffsets({T0: 11, T1: 4, T2: 0})
    with pytest.raises(DataLossError, match="beyond the end"):
        plan(start, Latest())
    assert plan(start, Latest(), read_settings(fail_on_data_loss=False)) == [(1, 4, 7)]
    assert plan(start, Latest(), read_settings(read_committed=True)) == [(1, 4, 7)]


def test_offsets_that_aged_out() -> None:
    start = SpecificOffsets({T0: 0, T1: 0, T2: 0})
    with pytest.raises(DataLossError, match=r"aged out\): offsets \[0, 4\) of t-1"):
        plan(start, Latest())
    result = plan_offset_specs(start, Latest(), ALL, logs(), read_settings(fail_on_data_loss=False))
    assert planned(result) == [(0, 0, 10), (1, 4, 7)]
    [loss] = result.losses
    assert "offsets [0, 4) of t-1" in loss.message
    assert (loss.cause, loss.offsets, result.warnings) == (DataLossCause.AGED_OUT, {T1: 4}, ())


def test_mismatches_are_found_before_the_first_lookup() -> None:
    cluster = logs()
    pairs: list[tuple[OffsetSpec, OffsetSpec]] = [
        (SpecificOffsets({T0: 0}), Latest()),
        (Earliest(), SpecificOffsets({T0: 0})),
    ]
    for start, end in pairs:
        with pytest.raises(InvalidOffsetsError, match="missing: t-1, t-2"):
            plan_offset_specs(start, end, ALL, cluster, read_settings())
    assert cluster.requested == []


def test_lookups_are_few_and_in_order() -> None:
    cluster = logs()
    plan_offset_specs(Earliest(), Latest(), ALL, cluster, read_settings())
    assert cluster.requested == [{EARLIEST}, {LATEST}]
    cluster = logs()
    plan_offset_specs(GlobalTimestamp(5, "latest"), GlobalTimestamp(6, "latest"), ALL, cluster, read_settings())
    assert cluster.requested == [{EARLIEST}, {5}, {6}, {LATEST}]


def test_without_partitions_there_is_no_lookup() -> None:
    cluster = logs()
    assert plan_offset_specs(Earliest(), Latest(), [], cluster, read_settings()) == BatchPlan(())
    assert plan_explicit_ranges([], {}, {}, cluster, read_settings()) == BatchPlan(())
    assert cluster.requested == []


def test_only_the_range_at_the_log_start_counts_as_earliest() -> None:
    start = SpecificOffsets({T0: 0, T1: EARLIEST, T2: EARLIEST})
    unsplit = plan_offset_specs(start, Latest(), ALL, logs(), read_settings())
    assert unsplit.from_earliest == {OffsetRange("t", 1, 4, 7)}
    split = plan_offset_specs(start, Latest(), ALL, logs(), read_settings(max_records_per_partition=2))
    assert planned(split)[-2:] == [(1, 4, 5), (1, 5, 7)]
    assert split.from_earliest == {OffsetRange("t", 1, 4, 5)}


def test_a_range_whose_start_a_filter_sets_does_not_count_as_earliest() -> None:
    pushed = push_filters([Comparison("offset", ">=", 5)])
    assert (
        plan_offset_specs(Earliest(), Latest(), ALL, logs(), read_settings(), pushed=pushed).from_earliest
        == frozenset()
    )


def test_splits_come_last() -> None:
    assert plan(Earliest(), Latest(), read_settings(min_partitions=4)) == [
        (0, 0, 3),
        (0, 3, 6),
        (0, 6, 10),
        (1, 4, 7),
    ]
    assert plan(Earliest(), Latest(), read_settings(max_records_per_partition=5)) == [
        (0, 0, 5),
        (0, 5, 10),
        (1, 4, 7),
    ]


def test_filters_narrow_before_the_split_and_look_up_last() -> None:
    cluster = logs()
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=2000)
    pushed = push_filters([Comparison("partition", "=", 0), Comparison("timestamp", ">=", since)])
    result = plan_offset_specs(Earliest(), Latest(), ALL, cluster, read_settings(min_partitions=2), pushed=pushed)
    assert planned(result) == [(0, 4, 7), (0, 7, 10)]
    assert cluster.requested == [{EARLIEST}, {LATEST}, {2000}]


def test_explicit_ranges_keep_their_order() -> None:
    ranges = [
        OffsetRange("t", 1, 5, 7),
        OffsetRange("t", 0, 8, 9),
        OffsetRange("t", 0, 0, 3),
        OffsetRange("t", 2, 0, 0),
    ]
    result = plan_explicit_ranges(ranges, {"t": [0, 1, 2]}, {}, logs(), read_settings())
    assert planned(result) == [(1, 5, 7), (0, 8, 9), (0, 0, 3)]
    assert result.from_earliest == frozenset()


def test_explicit_ranges_must_exist() -> None:
    with pytest.raises(TopicNotFoundError, match="topic-partition that does not exist"):
        plan_explicit_ranges([OffsetRange("t", 7, 0, 1)], {"t": [0, 1, 2]}, {}, logs(), read_settings())
    with pytest.raises(TopicNotFoundError):
        plan_explicit_ranges([OffsetRange("x", 0, 0, 1)], {"t": [0]}, {}, logs(), read_settings())


def test_the_task_skips_an_explicit_range_that_does_not_exist_if_data_loss_is_allowed() -> None:
    ranges = [OffsetRange("x", 0, 0, 1), OffsetRange("t", 7, 0, 1), OffsetRange("t", 0, 2, 4)]
    result = plan_explicit_ranges(ranges, {"t": [0]}, {}, logs(), read_settings(fail_on_data_loss=False))
    assert result.ranges == (OffsetRange("t", 0, 2, 4), *ranges[:2])


def test_explicit_ranges_outside_the_log_are_data_loss() -> None:
    ranges = [OffsetRange("t", 1, 0, 6), OffsetRange("t", 0, 5, 50)]
    with pytest.raises(DataLossError):
        plan_explicit_ranges(ranges, {"t": [0, 1]}, {}, logs(), read_settings())
    result = plan_explicit_ranges(ranges, {"t": [0, 1]}, {}, logs(), read_settings(fail_on_data_loss=False))
    assert planned(result) == [(1, 4, 6), (0, 5, 10)]
    assert len(result.losses) == 2


@pytest.mark.parametrize("topic_ids", [{"t": UUID(int=2), "u": UUID(int=1)}, {"u": UUID(int=1)}])
def test_the_task_decides_whether_a_range_of_a_recreated_or_deleted_topic_is_lost(topic_ids: dict[str, UUID]) -> None:
    topics = {topic: [0, 1, 2] for topic in topic_ids}
    cluster = Logs({TopicPartition("u", 0): (0, [1000] * 4)})  # a lookup for "t" would fail
    lost = OffsetRange("t", 1, 0, 50, topic_id=UUID(int=1))
    ranges = [lost, OffsetRange("t", 0, 5, 5, topic_id=UUID(int=1)), OffsetRange("u", 0, 1, 3, topic_id=UUID(int=1))]
    result = plan_explicit_ranges(ranges, topics, topic_ids, cluster, read_settings())
    assert result.ranges == (OffsetRange("u", 0, 1, 3), lost)
    assert result.ranges[1].topic_id == UUID(int=1)
    pushed = push_filters([Comparison("offset", ">=", 40)])
    result = plan_explicit_ranges(ranges, topics, topic_ids, cluster, read_settings(), pushed=pushed)
    assert result.ranges == (OffsetRange("t", 1, 40, 50),)
    assert result.ranges[0].topic_id == UUID(int=1)


def test_a_range_with_an_id_is_planned_as_one_without_where_brokers_have_no_ids() -> None:
    ranges = [OffsetRange("t", 0, 5, 50, topic_id=UUID(int=1))]
    with pytest.raises(DataLossError, match="beyond the end"):
        plan_explicit_ranges(ranges, {"t": [0]}, {"t": None}, logs(), read_settings())


def test_with_read_committed_the_task_handles_an_end_beyond_the_last_stable_offset() -> None:
    ranges = [OffsetRange("t", 0, 5, 50)]
    assert planned(plan_explicit_ranges(ranges, {"t": [0]}, {}, logs(), read_settings(read_committed=True))) == [
        (0, 5, 50)
    ]


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.integers(0, 20), st.lists(st.integers(0, 50), max_size=20)),
        min_size=1,
    ),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_a_time_window_reads_from_the_first_new_record_to_the_first_too_new_one(
    content: dict[TopicPartition, tuple[int, list[int]]], since: int, until: int
) -> None:
    start, end = GlobalTimestamp(since, "latest"), GlobalTimestamp(until, "latest")
    expected = []
    for tp, (first, times) in sorted(content.items()):
        bounds = [next((i for i, time in enumerate(times) if time >= t), len(times)) for t in (since, until)]
        expected.append(OffsetRange(*tp, first + bounds[0], max(first + bounds[1], first + bounds[0])))
        if bounds[0] > bounds[1] and bounds[1] < len(times):
            with pytest.raises(InvalidOffsetsError, match="greater than"):
                plan_offset_specs(start, end, list(content), Logs(content), read_settings())
            return
    result = plan_offset_specs(start, end, list(content), Logs(content), read_settings())
    assert list(result.ranges) == [r for r in expected if r.count()]
