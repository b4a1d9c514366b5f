"""Plans of batch reads: starts, ends and ranges on a simulated cluster."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.positions import at_time, at_times

from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    OffsetSpec,
)
from pyspark_kafka_direct.options.positions import BeforeNow, LastOffsets
from pyspark_kafka_direct.options.subscription import SubscribeStrategy
from pyspark_kafka_direct.planning.batch_planner import plan_offset_specs
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.planning.offset_resolution import NO_RECORD
from pyspark_kafka_direct.planning.pushed_filters import Comparison, PushedFilters, push_filters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.unit.planning.planner_cluster import NewCluster, PlannerCluster

    from pyspark_kafka_direct.planning.batch_planner import BatchPlan

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
EARLIEST_TO_LATEST = [(0, 0, 10), (1, 4, 7)]


@pytest.fixture
def brokers(cluster: NewCluster) -> PlannerCluster:
    """Three partitions with records at 1000, 2000 and 3000 ms; the second lost its first four offsets."""
    brokers = cluster()
    brokers.cluster.create_topic("t", 3)
    brokers.selection = SubscribeStrategy(("t",))
    for tp, times in ((T0, [1000] * 4 + [2000] * 3 + [3000] * 3), (T1, [500] * 4 + [1000, 2000, 3000])):
        for time in times:
            brokers.cluster.append(tp, [b"value"], timestamp=time)
    brokers.delete_records(T1, 4)
    return brokers


def batch_plan(
    brokers: PlannerCluster,
    start: OffsetSpec | None = None,
    end: OffsetSpec | None = None,
    *,
    pushed: PushedFilters | None = None,
    fail: bool = True,
    **options: Any,
) -> BatchPlan:
    settings = brokers.settings(start, end=end, fail_on_data_loss=fail, **options)
    return plan_batch_query(settings, pushed=pushed, pool=brokers.pool).plan


def planned(plan: BatchPlan) -> list[tuple[int, int, int]]:
    return [(each.partition, each.from_offset, each.until_offset) for each in plan.ranges]


def lookups(brokers: PlannerCluster) -> list[int]:
    """Return the positions that were requested, one of each request."""
    requests = [
        {each.timestamp for topic in request.topics for each in topic.partitions}
        for request in brokers.received("ListOffsets")
    ]
    assert all(len(positions) == 1 for positions in requests)
    return [position for positions in requests for position in positions]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (AT_EARLIEST, AT_LATEST, EARLIEST_TO_LATEST),
        (AT_EARLIEST, None, EARLIEST_TO_LATEST),
        (
            OffsetSpec({T0: 3, T1: EARLIEST, T2: EARLIEST}),
            OffsetSpec({T0: 5, T1: LATEST, T2: LATEST}),
            [(0, 3, 5), (1, 4, 7)],
        ),
        (
            at_times({T0: 2000, T1: 1500, T2: 0}, "latest"),
            at_times({T0: 3000, T1: 2500, T2: 1}, "latest"),
            [(0, 4, 7), (1, 5, 6)],
        ),
        (at_time(2000, "latest"), at_time(3000, "latest"), [(0, 4, 7), (1, 5, 6)]),
        (at_time(2000, "latest"), AT_LATEST, [(0, 4, 10), (1, 5, 7)]),
        (AT_EARLIEST, at_time(2000, "latest"), [(0, 0, 4), (1, 4, 5)]),
        (at_time(2000, "latest"), OffsetSpec({T0: 5, T1: 7, T2: 0}), [(0, 4, 5), (1, 5, 7)]),
        (OffsetSpec({T0: 1, T1: 4, T2: 0}), at_time(2000), [(0, 1, 4), (1, 4, 5)]),
        (at_time(9000, "latest"), AT_LATEST, []),
        (AT_EARLIEST, at_time(9000), EARLIEST_TO_LATEST),
    ],
)
def test_starts_and_ends(
    brokers: PlannerCluster, start: OffsetSpec, end: OffsetSpec | None, expected: list[tuple[int, int, int]]
) -> None:
    assert planned(batch_plan(brokers, start, end)) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (AT_LATEST, {T0: 10, T1: 7, T2: 0}),
        (OffsetSpec({T0: 10, T1: LATEST, T2: LATEST}), {T1: 7, T2: 0}),
        (at_time(3000), {T2: 0}),
    ],
)
def test_which_ends_of_a_batch_are_the_latest(
    brokers: PlannerCluster, end: OffsetSpec, expected: dict[TopicPartition, int]
) -> None:
    assert batch_plan(brokers, AT_EARLIEST, end).latest == expected


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (at_time(9000), AT_LATEST, "no record has timestamp 9000"),
        (
            OffsetSpec({T0: 8, T1: 4, T2: 0}),
            at_time(2000),
            r"resolved start offset 8 \(given\) is greater than the resolved end",
        ),
    ],
)
def test_starts_and_ends_that_do_not_fit_are_rejected(
    brokers: PlannerCluster, start: OffsetSpec, end: OffsetSpec, message: str
) -> None:
    with pytest.raises(InvalidOffsetsError, match=message):
        batch_plan(brokers, start, end)


def test_resolved_start_after_the_latest(brokers: PlannerCluster) -> None:
    start = OffsetSpec({T0: 11, T1: 4, T2: 0})
    with pytest.raises(DataLossError, match="beyond the end"):
        batch_plan(brokers, start)
    assert planned(batch_plan(brokers, start, fail=False)) == [(1, 4, 7)]
    assert planned(batch_plan(brokers, start, read_committed=True)) == [(1, 4, 7)]


def test_offsets_that_aged_out(brokers: PlannerCluster) -> None:
    start = OffsetSpec({T0: 0, T1: 0, T2: 0})
    with pytest.raises(DataLossError, match=r"aged out\): offsets \[0, 4\) of t-1"):
        batch_plan(brokers, start)
    result = batch_plan(brokers, start, fail=False)
    assert planned(result) == EARLIEST_TO_LATEST
    [loss] = result.losses
    assert "offsets [0, 4) of t-1" in loss.message
    assert (loss.cause, loss.offsets, result.warnings) == (DataLossCause.AGED_OUT, {T1: 4}, ())


@pytest.mark.parametrize(("start", "end"), [(OffsetSpec({T0: 0}), AT_LATEST), (AT_EARLIEST, OffsetSpec({T0: 0}))])
def test_mismatches_are_found_before_the_first_lookup(
    brokers: PlannerCluster, start: OffsetSpec, end: OffsetSpec
) -> None:
    with pytest.raises(InvalidOffsetsError, match="missing: t-1, t-2"):
        batch_plan(brokers, start, end)
    assert lookups(brokers) == []


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (AT_EARLIEST, AT_LATEST, [EARLIEST, LATEST]),
        (at_time(5, "latest"), at_time(6, "latest"), [EARLIEST, 5, 6, LATEST, 5, 6]),  # again in the empty partition
    ],
)
def test_lookups_are_few_and_in_order(
    cluster: NewCluster, start: OffsetSpec, end: OffsetSpec, expected: list[int]
) -> None:
    brokers = cluster(10, 7, 0)
    batch_plan(brokers, start, end)
    assert lookups(brokers) == expected


def test_without_partitions_there_is_no_lookup(cluster: NewCluster) -> None:
    brokers = cluster()
    assert batch_plan(brokers, AT_EARLIEST, AT_LATEST).ranges == ()
    assert batch_plan(brokers, offset_ranges=()).ranges == ()
    assert lookups(brokers) == []


def test_only_the_range_at_the_log_start_counts_as_earliest(brokers: PlannerCluster) -> None:
    start = OffsetSpec({T0: 0, T1: EARLIEST, T2: EARLIEST})
    assert batch_plan(brokers, start).from_earliest == {OffsetRange("t", 1, 4, 7)}
    split = batch_plan(brokers, start, max_records_per_partition=2)
    assert planned(split)[-2:] == [(1, 4, 5), (1, 5, 7)]
    assert split.from_earliest == {OffsetRange("t", 1, 4, 5)}
    filtered = batch_plan(brokers, AT_EARLIEST, pushed=push_filters([Comparison("offset", ">=", 5)]))
    assert filtered.from_earliest == frozenset(), "a filter has set the start"


def test_splits_come_last(brokers: PlannerCluster) -> None:
    assert planned(batch_plan(brokers, min_partitions=4)) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 4, 7)]
    assert planned(batch_plan(brokers, max_records_per_partition=5)) == [(0, 0, 5), (0, 5, 10), (1, 4, 7)]


def test_filters_narrow_before_the_split_and_look_up_last(brokers: PlannerCluster) -> None:
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=2000)
    pushed = push_filters([Comparison("partition", "=", 0), Comparison("timestamp", ">=", since)])
    assert planned(batch_plan(brokers, min_partitions=2, pushed=pushed)) == [(0, 4, 7), (0, 7, 10)]
    assert lookups(brokers)[-2:] == [LATEST, 2000]


def test_explicit_ranges_keep_their_order(brokers: PlannerCluster) -> None:
    ranges = [OffsetRange("t", *each) for each in ((1, 5, 7), (0, 8, 9), (0, 0, 3), (2, 0, 0))]
    result = batch_plan(brokers, offset_ranges=ranges)
    assert planned(result) == [(1, 5, 7), (0, 8, 9), (0, 0, 3)]
    assert result.from_earliest == frozenset()


def test_explicit_ranges_must_exist_unless_data_loss_is_allowed(brokers: PlannerCluster) -> None:
    missing = [OffsetRange("x", 0, 0, 1), OffsetRange("t", 7, 0, 1)]
    found = OffsetRange("t", 0, 2, 4)
    for each in missing:
        with pytest.raises(TopicNotFoundError, match="topic-partition that does not exist") as caught:
            batch_plan(brokers, offset_ranges=[found, each])
        assert (caught.value.topic, caught.value.partition) == each.topic_partition
    assert batch_plan(brokers, offset_ranges=[*missing, found], fail=False).ranges == (found, *missing), "tasks skip"


def test_explicit_ranges_outside_the_log_are_data_loss(brokers: PlannerCluster) -> None:
    ranges = [OffsetRange("t", 1, 0, 6), OffsetRange("t", 0, 5, 50)]
    with pytest.raises(DataLossError):
        batch_plan(brokers, offset_ranges=ranges)
    result = batch_plan(brokers, offset_ranges=ranges, fail=False)
    assert planned(result) == [(1, 4, 6), (0, 5, 10)]
    assert len(result.losses) == 2


@pytest.mark.parametrize("deleted", [False, True])
def test_the_task_decides_whether_a_range_of_a_recreated_or_deleted_topic_is_lost(
    brokers: PlannerCluster, deleted: bool
) -> None:
    brokers.grow(TopicPartition("u", 0), 4)
    if deleted:
        brokers.event("delete_topic", topic="t")
    old = UUID(int=1)
    ranges = [
        OffsetRange("t", 1, 0, 50, topic_id=old),
        OffsetRange("t", 0, 5, 5, topic_id=old),
        OffsetRange("u", 0, 1, 3, topic_id=brokers.topic_id("u")),
    ]
    result = batch_plan(brokers, offset_ranges=ranges)
    assert result.ranges == (OffsetRange("u", 0, 1, 3), ranges[0])
    assert result.ranges[1].topic_id == old
    assert result.selected == result.ranges
    result = batch_plan(brokers, offset_ranges=ranges, pushed=push_filters([Comparison("offset", ">=", 40)]))
    assert result.ranges == (OffsetRange("t", 1, 40, 50),)
    assert result.ranges[0].topic_id == old


def test_a_range_with_an_id_is_planned_as_one_without_where_brokers_have_no_ids(cluster: NewCluster) -> None:
    ranges = [OffsetRange("t", 0, 5, 50, topic_id=UUID(int=1))]
    with pytest.raises(DataLossError, match="beyond the end"):
        batch_plan(cluster(10, topic_ids=False), offset_ranges=ranges)


def test_with_read_committed_the_task_handles_an_end_beyond_the_last_stable_offset(brokers: PlannerCluster) -> None:
    ranges = [OffsetRange("t", 0, 5, 50)]
    assert planned(batch_plan(brokers, offset_ranges=ranges, read_committed=True)) == [(0, 5, 50)]


@pytest.mark.parametrize("deposed", ["t", "u"])
@pytest.mark.parametrize(
    ("start", "first"),
    [
        (AT_EARLIEST, 4),
        (at_time(2), 4),
        (at_time(5), 5),
        (OffsetSpec(others=LastOffsets(5)), 5),
    ],
)
def test_a_deposed_leader_does_not_decide_on_any_start(
    cluster: NewCluster, start: OffsetSpec, first: int, deposed: str
) -> None:
    """Its retention has deleted records that the current leader has."""
    brokers = cluster(10)
    brokers.expire_and_depose("tu", deposed)
    result = batch_plan(brokers, start)
    assert result.ranges == tuple(OffsetRange(topic, 0, first, 10) for topic in "tu")
    assert (result.warnings, result.losses) == ((), ())


def ago(brokers: PlannerCluster, timestamp: int) -> BeforeNow:
    """The relative time that is this timestamp now; some milliseconds pass until the plan."""
    return BeforeNow(int(brokers.pool.system.wall_time() * 1000) - timestamp)


def test_both_ends_of_a_batch_are_before_the_same_now(brokers: PlannerCluster) -> None:
    start, end = OffsetSpec(others=ago(brokers, 1500)), OffsetSpec(others=ago(brokers, 2500))
    assert planned(batch_plan(brokers, start, end)) == [(0, 4, 7), (1, 5, 6)]
    start_time, end_time = sorted({lookup for lookup in lookups(brokers) if lookup >= 0})
    assert end_time - start_time == 1000


def test_a_time_before_now_is_the_end_of_the_log_if_all_records_are_older(brokers: PlannerCluster) -> None:
    brokers.cluster.append(T0, [b"value"], timestamp=9000)
    assert planned(batch_plan(brokers, OffsetSpec(others=ago(brokers, 8500)))) == [(0, 10, 11)]
    assert planned(batch_plan(brokers, None, OffsetSpec(others=ago(brokers, 8500)))) == EARLIEST_TO_LATEST


def test_the_last_offsets(brokers: PlannerCluster) -> None:
    assert planned(batch_plan(brokers, OffsetSpec(others=LastOffsets(2)))) == [(0, 8, 10), (1, 5, 7)]
    assert planned(batch_plan(brokers, OffsetSpec(others=LastOffsets(5)))) == [(0, 5, 10), (1, 4, 7)]
    with pytest.raises(InvalidOffsetsError, match=r"resolved start offset 8 \(last\) is greater than the resolved end"):
        batch_plan(brokers, OffsetSpec(others=LastOffsets(2)), OffsetSpec({T0: 5}, others=LATEST))


def test_a_partial_map_with_a_fallback(brokers: PlannerCluster) -> None:
    start = OffsetSpec({T0: 3}, others=ago(brokers, 1500))
    assert planned(batch_plan(brokers, start)) == [(0, 3, 10), (1, 5, 7)]


def test_retention_passes_the_start_of_the_last_offsets(brokers: PlannerCluster) -> None:
    """All of a partition: as with earliest, records that are deleted before they are read are no loss."""
    plan = batch_plan(brokers, OffsetSpec(others=LastOffsets(5)))
    assert [each.topic_partition for each in plan.from_earliest] == [T1]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (at_time(50, "latest"), AT_LATEST, (5, 6)),
        (at_time(50), AT_LATEST, (5, 6)),
        (AT_EARLIEST, at_time(50), (0, 5)),
        (OffsetSpec(others=BeforeNow(50)), OffsetSpec(others=BeforeNow(50)), None),
    ],
)
def test_a_record_that_arrives_before_the_end_is_requested(
    brokers: PlannerCluster, start: OffsetSpec, end: OffsetSpec, expected: tuple[int, int] | None
) -> None:
    """It was skipped although it is new enough, or read although it lies after the end."""
    has_arrived = False

    def fetch_offsets(requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        nonlocal has_arrived
        has_arrived |= LATEST in requested.values()
        found = {EARLIEST: 0, LATEST: 6}
        return {tp: found.get(lookup, 5 if has_arrived else NO_RECORD) for tp, lookup in requested.items()}

    plan = plan_offset_specs(start, end, [T0], fetch_offsets, brokers.settings(), now_ms=100)
    assert [(each.from_offset, each.until_offset) for each in plan.ranges] == ([] if expected is None else [expected])


@pytest.mark.parametrize("lookups_before", range(7))
@pytest.mark.parametrize(
    ("start", "end", "filters"),
    [
        (at_time(5000, "latest"), AT_LATEST, []),
        (at_time(5000, "latest"), at_time(7000), []),
        (at_time(5000, "latest"), at_time(5000), []),
        (at_time(2000, "latest"), at_time(5000), []),
        (AT_EARLIEST, at_time(5000), []),
        (OffsetSpec(others=LastOffsets(2)), at_time(9000), []),
        (AT_EARLIEST, AT_LATEST, [Comparison("timestamp", ">=", datetime(1970, 1, 1, second=5, tzinfo=UTC))]),
    ],
)
def test_all_or_none_of_the_records_are_planned_that_arrive_between_two_lookups(
    brokers: PlannerCluster, start: OffsetSpec, end: OffsetSpec, filters: Sequence[Comparison], lookups_before: int
) -> None:
    """Nothing is lost, although the first record with a time may lie behind older ones that have arrived, too."""
    reader, pushed = brokers.reader(), push_filters(filters)
    has_arrived = False

    def arrive() -> None:
        nonlocal has_arrived
        has_arrived = True
        for tp, times in ((T0, (3500, 4500, 6000, 8000)), (T1, (6000, 3500))):
            for time in times:
                brokers.cluster.append(tp, [b"value"], timestamp=time)

    def plan_with_arrival(lookup: int | None = None) -> BatchPlan:
        numbers = itertools.count()

        def fetch_offsets(requested: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            if next(numbers) == lookup:
                arrive()
            return reader.offsets(requested)

        settings = brokers.settings()
        return plan_offset_specs(start, end, [T0, T1, T2], fetch_offsets, settings, now_ms=9000, pushed=pushed)

    before = plan_with_arrival()
    meanwhile = plan_with_arrival(lookups_before)
    if not has_arrived:
        arrive()
    assert meanwhile in (before, plan_with_arrival())
    assert (meanwhile.warnings, meanwhile.losses) == ((), ())
