"""A query that died in its first batch restarts with changed topics: the logged end decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.positions import at_time, at_times
from tests.unit.planning.planner_cluster import NewCluster, planned

from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    CommittedStart,
    OffsetSpec,
)
from pyspark_kafka_direct.options.subscription import AssignStrategy, SubscribeStrategy
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

# Starts that an empty partition 1 does not fit, and the start of partition 0, which ends at 10.
STARTS = [
    (OffsetSpec({T0: 3}), 3),
    (OffsetSpec({T0: EARLIEST}), 0),
    (at_times({T0: 4}), 4),
    (at_time(4), 4),
]


@pytest.mark.parametrize(("spec", "first_offset"), STARTS)
def test_a_partition_added_since_is_read_after_the_first_batch(
    cluster: NewCluster, spec: StartingOffsetSpec, first_offset: int
) -> None:
    brokers = cluster(10, 0)
    restarted = brokers.planner(spec)
    start = restarted.initial_offsets()
    assert restarted.initial_offsets() == start
    assert planned(restarted.plan(start, {T0: 8})) == [("t-0", first_offset, 8)]
    brokers.grow(T1, 2)
    end = restarted.next_end_offsets({T0: 8})
    assert planned(restarted.plan({T0: 8}, end)) == [("t-0", 8, 10), ("t-1", 0, 2)]
    assert brokers.warnings == []


@pytest.mark.parametrize("spec", [at_time(4), at_times({T0: 4}), CommittedStart()])
def test_a_partition_added_since_does_not_affect_the_empty_first_batch(
    cluster: NewCluster, spec: StartingOffsetSpec
) -> None:
    brokers = cluster(10, 0)
    brokers.commit({T0: 4})
    restarted = brokers.planner(spec)
    assert restarted.plan(restarted.initial_offsets(), {T0: 4}, {T0: 4}).ranges == ()
    assert planned(restarted.plan({T0: 4}, restarted.next_end_offsets({T0: 4}))) == [("t-0", 4, 10)]


@pytest.mark.parametrize("spec", [start for start, _ in STARTS])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_new_query_whose_start_does_not_fit_is_rejected(
    cluster: NewCluster, spec: StartingOffsetSpec, available_now: bool
) -> None:
    stream = cluster(10, 0).planner(spec)
    if available_now:
        stream.fix_end_offsets()
    with pytest.raises(InvalidOffsetsError, match=r"t-1"):
        stream.next_end_offsets(stream.initial_offsets())


def test_a_new_query_with_a_missing_partition_is_rejected(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner(OffsetSpec({T0: 3, T1: 3}))
    with pytest.raises(InvalidOffsetsError, match=r"not assigned: t-1"):
        stream.next_end_offsets(stream.initial_offsets())
    brokers.selection = SubscribeStrategy(("u",))
    stream = brokers.planner()
    with pytest.raises(TopicNotFoundError):
        stream.next_end_offsets(stream.initial_offsets())


@pytest.mark.parametrize("spec", [AT_EARLIEST, OffsetSpec({}, {"t": EARLIEST, "u": EARLIEST}), at_time(0)])
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_deleted_since_is_data_loss(cluster: NewCluster, spec: StartingOffsetSpec, fail: bool) -> None:
    """It is data loss in the batch, to which failOnDataLoss applies, and not an unknown start."""
    brokers = cluster(10)
    brokers.delete_records(T0, 4)
    brokers.selection = SubscribeStrategy(("t", "u"))
    end = {T0: 10, U0: 5}
    restarted = brokers.planner(spec, fail=fail)
    start = restarted.initial_offsets()
    if fail:
        with pytest.raises(DataLossError, match=r"u-0 cannot be found"):
            restarted.plan(start, end)
        return
    assert planned(restarted.plan(start, end)) == [("t-0", 4, 10)]
    assert ["u-0 cannot be found" in warning for warning in brokers.warnings] == [True]


def test_a_partition_missing_when_the_start_was_resolved_is_not_an_added_one(cluster: NewCluster) -> None:
    """Its log may start anywhere: retention may have deleted records before the query started."""
    brokers = cluster(10)
    brokers.hide(T1, 10, start=3)
    restarted = brokers.planner()
    start = restarted.initial_offsets()
    assert start == {T0: 0}
    assert planned(restarted.plan(start, {T0: 10, T1: 10})) == [("t-0", 0, 10), ("t-1", 3, 10)]
    assert brokers.warnings == []


def test_a_batch_that_runs_again_does_not_trust_one_broker_that_lacks_its_topic(cluster: NewCluster) -> None:
    """Otherwise its tasks had no topic id, so that one of them might read a topic that was recreated meanwhile."""
    brokers = cluster()
    brokers.hide(T0, 10)
    plan = brokers.planner(AT_LATEST).plan({T0: 3}, {T0: 8})
    assert planned(plan) == [("t-0", 3, 8)]
    assert plan.topic_ids == {"t": brokers.topic_id("t")}
    assert brokers.losses == []


def test_a_missing_partition_with_an_explicit_offset_is_left_to_its_task(cluster: NewCluster) -> None:
    """As in Spark: the range starts at the user's offset, and the task reports that the partition does not exist."""
    restarted = cluster(10).planner(OffsetSpec({T0: 3, T1: 2}))
    assert planned(restarted.plan(restarted.initial_offsets(), {T0: 8, T1: 6})) == [("t-0", 3, 8), ("t-1", 2, 6)]


@pytest.mark.parametrize("spec", [at_time(4), at_times({T0: 4, T1: 4})])
def test_a_partition_without_a_record_for_its_timestamp_is_read_from_its_log_start(
    cluster: NewCluster, spec: StartingOffsetSpec
) -> None:
    """It had one when the batch was planned, and the batch starts there: the remaining records lie after it."""
    restarted = cluster(10, 3).planner(spec)
    assert planned(restarted.plan(restarted.initial_offsets(), {T0: 8, T1: 2})) == [("t-0", 4, 8), ("t-1", 0, 2)]


@pytest.mark.parametrize("spec", [at_times({T0: 4, T1: 4}), OffsetSpec({T0: 4, T1: EARLIEST}), at_time(4)])
def test_unassigned_partitions_are_not_looked_up(cluster: NewCluster, spec: StartingOffsetSpec) -> None:
    brokers = cluster(10, 10, 0)
    brokers.selection = AssignStrategy((T0, TopicPartition("t", 2)))
    assert brokers.planner(spec).initial_offsets() == {T0: 4}


@pytest.mark.parametrize("spec", [AT_LATEST, CommittedStart(AT_LATEST)])
def test_a_first_batch_of_another_source_is_rejected_with_changed_topics_too(
    cluster: NewCluster, spec: StartingOffsetSpec
) -> None:
    restarted = cluster(10, 0).planner(spec)
    with pytest.raises(KafkaDirectError, match="Its start is not known"):
        restarted.plan(restarted.initial_offsets(), {T0: 8})


def test_several_brokers_are_asked_before_the_first_records_of_a_first_batch_are_skipped(cluster: NewCluster) -> None:
    """A leader that was deposed may have deleted records that the current leader still has."""
    brokers = cluster(10, 10, 10)
    partitions = (T0, T1, TopicPartition("t", 2))
    for tp, log_start in ((T0, 4), (partitions[2], 6)):
        brokers.delete_records(tp, log_start)
    restarted = brokers.planner()
    start = restarted.initial_offsets()
    brokers.depose_leader(T0, start=8)
    plan = restarted.plan(start, dict.fromkeys(partitions, 10), dict(zip(partitions, (3, 0, 1), strict=True)))
    assert planned(plan) == [("t-0", 4, 10), ("t-1", 0, 10), ("t-2", 6, 10)]
    for warning, expired in zip(brokers.warnings, ("[3, 4) of t-0", "[1, 6) of t-2"), strict=True):
        assert f"offsets {expired} were removed by retention" in warning


@pytest.mark.parametrize("spec", [at_time(4), at_times({T0: 4})])
def test_the_first_records_of_a_first_batch_are_not_skipped_unless_it_starts_at_earliest(
    cluster: NewCluster, spec: StartingOffsetSpec
) -> None:
    """The task decides whether their loss fails the query."""
    brokers = cluster(10)
    brokers.delete_records(T0, 6)
    restarted = brokers.planner(spec)
    start = restarted.initial_offsets()
    assert start == {T0: 6}
    assert planned(restarted.plan(start, {T0: 8}, {T0: 4})) == [("t-0", 4, 8)]
    assert brokers.warnings == []


@pytest.mark.parametrize("fail", [True, False])
def test_records_of_an_added_partition_that_retention_removed_are_data_loss(cluster: NewCluster, fail: bool) -> None:
    """The recorded start shows that the partition was added after the query started."""
    brokers = cluster(10, 10)
    brokers.delete_records(T1, 3)
    restarted = brokers.planner(fail=fail)
    start, end = restarted.initial_offsets(), {T0: 10, T1: 10}
    if fail:
        with pytest.raises(DataLossError, match="t-1 starts from offset 3 instead of 0"):
            restarted.plan(start, end, {T0: 0})
        return
    assert planned(restarted.plan(start, end, {T0: 0})) == [("t-0", 0, 10), ("t-1", 3, 10)]
    assert brokers.losses == [(DataLossCause.AGED_OUT, {T1: 3})]


def test_a_partition_deleted_since_the_recorded_start_is_data_loss(cluster: NewCluster) -> None:
    restarted = cluster(10).planner()
    with pytest.raises(DataLossError, match="t-1 do not exist any more"):
        restarted.plan(restarted.initial_offsets(), {T0: 10}, {T0: 0, T1: 0})
