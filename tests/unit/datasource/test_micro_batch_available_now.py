"""Trigger.AvailableNow: fixed end offsets, and the checks against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.positions import at_time
from tests.unit.planning.planner_cluster import NewCluster, planned

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    OffsetSpec,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

MISMATCHED = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"
GREATER_THAN_PREFETCHED = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"
LOST = "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"
GREATER_THAN_LATEST = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"


def run(stream: MicroBatchPlanner, start: dict[TopicPartition, int] | None = None) -> list[list[tuple[str, int, int]]]:
    """All batches until the query ends, that is until a batch is empty."""
    position = stream.initial_offsets() if start is None else start
    batches: list[list[tuple[str, int, int]]] = []
    while True:
        end = stream.next_end_offsets(position)
        if end == position and not (start is None and not batches):
            return batches
        batches.append(planned(stream.plan(position, end)))
        position = end


@pytest.mark.parametrize(
    ("limits", "last"), [({"max_offsets": 5}, 15), ({"max_offsets": 5, "min_offsets": 5}, 12)], ids=["", "minimum"]
)
def test_fixed_ends_are_limited_and_a_minimum_does_not_delay_the_last_records(
    cluster: NewCluster, limits: dict[str, Any], last: int
) -> None:
    stream = cluster(last).planner(**limits)
    stream.fix_end_offsets()
    assert stream.known_latest == {T0: last}, "for the progress report"
    assert run(stream) == [[("t-0", 0, 5)], [("t-0", 5, 10)], [("t-0", 10, last)]]


def test_records_that_arrive_later_are_left_for_the_next_run(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner()
    stream.fix_end_offsets()
    assert stream.initial_offsets() == {T0: 0}
    brokers.grow(T0, 14)
    brokers.grow(T1, 3)
    assert run(stream) == [[("t-0", 0, 10)]]
    restarted = brokers.planner()
    restarted.fix_end_offsets()
    assert run(restarted, {T0: 10}) == [[("t-0", 10, 14), ("t-1", 0, 3)]]


def test_a_start_that_can_change_takes_one_empty_batch_and_never_lies_after_the_fixed_ends(cluster: NewCluster) -> None:
    brokers = cluster(10)
    for spec, end in ((AT_LATEST, 14), (at_time(99, "latest"), 18)):
        stream = brokers.planner(spec)
        stream.fix_end_offsets()
        brokers.grow(T0, end)
        assert run(stream) == [[]]
    stream = brokers.planner(at_time(3))
    stream.fix_end_offsets()
    assert run(stream) == [[], [("t-0", 3, 18)]]


def test_an_explicit_offset_beyond_the_fixed_end_is_not_moved_before_it(cluster: NewCluster) -> None:
    """Moving it would be wrong and silent: the user requested a record that does not exist."""
    stream = cluster(10).planner(OffsetSpec({T0: 12}))
    stream.fix_end_offsets()
    assert stream.initial_offsets() == {T0: 12}
    with pytest.raises(DataLossError, match="offset was changed from 12 to 10"):
        stream.next_end_offsets(stream.initial_offsets())


@pytest.mark.parametrize("spec", [at_time(12), OffsetSpec({}, {"t": LATEST}), OffsetSpec({T0: EARLIEST})])
def test_a_resolved_start_is_moved_before_the_fixed_end(cluster: NewCluster, spec: OffsetSpec) -> None:
    brokers = cluster(10)
    stream = brokers.planner(spec)
    stream.fix_end_offsets()
    brokers.grow(T0, 14, start=11)
    assert stream.initial_offsets() == {T0: 10}


def test_ends_fixed_too_early_are_corrected(cluster: NewCluster) -> None:
    brokers = cluster(8, 8)
    stream = brokers.planner()
    stream.fix_end_offsets()
    for tp in (T0, T1):
        brokers.grow(tp, 12)  # the leader lagged: the query had read up to 10 before
    assert run(stream, {T0: 10, T1: 10}) == []


@pytest.mark.parametrize("read", [7, 0])
@pytest.mark.parametrize("fail", [True, False])
def test_a_partition_that_the_first_response_lacks_is_not_lost(cluster: NewCluster, fail: bool, read: int) -> None:
    """What the query had read is not lost, and the next run must not read it again."""
    brokers = cluster(10)
    brokers.hide(T1, 10)
    stream = brokers.planner(fail=fail)
    stream.fix_end_offsets()
    assert run(stream, {T0: 5, T1: read}) == [[("t-0", 5, 10), ("t-1", read, 10)]]
    assert brokers.warnings == []


@pytest.mark.parametrize(
    ("spec", "expected"), [(AT_LATEST, [[]]), (AT_EARLIEST, [[("t-0", 0, 10), ("t-1", 0, 10)]])], ids=repr
)
def test_a_new_query_starts_in_a_partition_that_the_first_response_lacks(
    cluster: NewCluster, spec: OffsetSpec, expected: list[list[tuple[str, int, int]]]
) -> None:
    """The next run would treat it as an added partition and read it from its log start."""
    brokers = cluster(10)
    brokers.hide(T1, 10)
    stream = brokers.planner(spec)
    stream.fix_end_offsets()
    brokers.heal()
    assert stream.initial_offsets().keys() == {T0, T1}
    brokers.append(T1, 4)
    assert run(stream) == expected


@pytest.mark.parametrize("start", [None, {T0: 5, U0: 5}])
def test_tasks_get_the_id_of_a_topic_that_the_first_response_lacks(
    cluster: NewCluster, start: dict[TopicPartition, int] | None
) -> None:
    brokers = cluster(10)
    brokers.hide(U0, 10)
    stream = brokers.planner()
    stream.fix_end_offsets()
    brokers.heal()
    first_start = start or stream.initial_offsets()
    end = stream.next_end_offsets(first_start)
    assert end == {T0: 10, U0: 10}
    assert stream.plan(first_start, end).topic_ids == {name: brokers.topic_id(name) for name in "tu"}


def test_a_partition_that_every_response_lacks_is_lost(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner()
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=r"t-1 do not exist any more"):
        stream.next_end_offsets({T0: 5, T1: 7})
    stream = brokers.planner(fail=False)
    stream.fix_end_offsets()
    assert run(stream, {T0: 5, T1: 7}) == [[("t-0", 5, 10)]]


@pytest.mark.parametrize("fail", [True, False])
def test_partitions_deleted_during_the_query_fail_it(cluster: NewCluster, fail: bool) -> None:
    brokers = cluster(5)
    brokers.grow(U0, 5)
    stream = brokers.planner(fail=fail, max_offsets=2)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    brokers.event("delete_topic", topic="u")
    began = brokers.now
    with pytest.raises(DataLossError, match=rf"latest offset: t-0, .*end offset: t-0, u-0; .*{LOST}"):
        stream.plan(start, end)
    assert brokers.now - began > 5, "several brokers confirm it"


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_lost_during_the_query_fail_it(cluster: NewCluster, fail: bool) -> None:
    brokers = cluster(15)
    stream = brokers.planner(fail=fail)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    brokers.truncate(T0, 10)
    with pytest.raises(
        DataLossError,
        match=rf'latest offset: {{"t":{{"0":10}}}}, end offset: {{"t":{{"0":15}}}}; .*{GREATER_THAN_LATEST}',
    ):
        stream.plan(start, end)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_recreated_with_a_longer_log_fails_the_query(cluster: NewCluster, fail: bool) -> None:
    """Its offsets would look like those of the old topic, and the next run, without the old id, would skip records."""
    brokers = cluster(15)
    brokers.grow(U0, 15)
    stream = brokers.planner(fail=fail, max_offsets=10)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-0", 0, 5), ("u-0", 0, 5)]
    for topic in "tu":
        brokers.recreate(topic, 30)
    began = brokers.now
    with pytest.raises(DataLossError, match=r"deleted and recreated while .*Trigger.AvailableNow was running: t, u;"):
        stream.plan(end, stream.next_end_offsets(end))
    assert brokers.now - began > 5, "the metadata may be stale"


@pytest.mark.parametrize("fail", [True, False])
def test_ends_that_do_not_match_the_fixed_ones_fail_the_query(cluster: NewCluster, fail: bool) -> None:
    brokers = cluster(5)
    stream = brokers.planner(fail=fail)
    early = stream.next_end_offsets(stream.initial_offsets())
    brokers.grow(T1, 5)
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=MISMATCHED):
        stream.plan(stream.initial_offsets(), early)
    brokers.recreate("t", 3)
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=GREATER_THAN_PREFETCHED):
        stream.plan(stream.initial_offsets(), early)


def test_a_batch_of_an_earlier_run_is_not_checked(cluster: NewCluster) -> None:
    brokers = cluster(5)
    first = brokers.planner()
    first.fix_end_offsets()
    start = first.initial_offsets()
    end = first.next_end_offsets(start)
    brokers.grow(T1, 4)
    restarted = brokers.planner()  # the batch failed in its job, partitions were added (SPARK-53560)
    restarted.fix_end_offsets()
    assert planned(restarted.plan(restarted.initial_offsets(), end)) == [("t-0", 0, 5)]
    assert run(restarted, end) == [[("t-1", 0, 4)]]


def test_without_topics_the_query_ends_immediately(cluster: NewCluster) -> None:
    stream = cluster().planner()
    stream.fix_end_offsets()
    assert run(stream, {}) == []
