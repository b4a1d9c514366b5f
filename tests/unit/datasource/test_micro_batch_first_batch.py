"""A query that died in its first batch restarts with changed topics: the logged end decides."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    CommittedStart,
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

# Starts that an empty partition 1 does not fit, and the start of partition 0, which ends at 10.
STARTS = [
    (SpecificOffsets({T0: 3}), 3),
    (SpecificOffsets({T0: EARLIEST}), 0),
    (SpecificTimestamps({T0: 4}), 4),
    (GlobalTimestamp(4), 4),
]


def planner(reader: FakeOffsetReader, start: StartingOffsetSpec, *, fail: bool = True) -> MicroBatchPlanner:
    return MicroBatchPlanner(read_settings(start, fail_on_data_loss=fail), reader, FakeClock())


def planned(plan: MicroBatchPlan) -> list[tuple[str, int, int]]:
    return [(str(r.topic_partition), r.from_offset, r.until_offset) for r in plan.ranges]


@pytest.mark.parametrize(("spec", "first_offset"), STARTS)
def test_a_partition_added_since_is_read_after_the_first_batch(spec: StartingOffsetSpec, first_offset: int) -> None:
    reader = cluster(10, 0)
    restarted = planner(reader, spec)
    start = restarted.initial_offsets()
    assert restarted.initial_offsets() == start
    assert planned(restarted.plan(start, {T0: 8})) == [("t-0", first_offset, 8)]
    reader.logs[T1] = (0, 2)
    end = restarted.next_end_offsets({T0: 8})
    assert planned(restarted.plan({T0: 8}, end)) == [("t-0", 8, 10), ("t-1", 0, 2)]
    assert reader.warnings == []


@pytest.mark.parametrize("spec", [GlobalTimestamp(4), SpecificTimestamps({T0: 4}), CommittedStart()])
def test_a_partition_added_since_does_not_affect_the_empty_first_batch(spec: StartingOffsetSpec) -> None:
    reader = cluster(10, 0)
    reader.group_offsets = {T0: 4}
    restarted = planner(reader, spec)
    assert restarted.plan(restarted.initial_offsets(), {T0: 4}, {T0: 4}).ranges == ()
    assert planned(restarted.plan({T0: 4}, restarted.next_end_offsets({T0: 4}))) == [("t-0", 4, 10)]


@pytest.mark.parametrize("spec", [start for start, _ in STARTS])
def test_a_new_query_whose_start_does_not_fit_is_rejected(spec: StartingOffsetSpec) -> None:
    with pytest.raises(InvalidOffsetsError, match=r"t-1"):
        first_end(planner(cluster(10, 0), spec))
    stream = planner(cluster(10, 0), spec)
    stream.fix_end_offsets()
    with pytest.raises(InvalidOffsetsError, match=r"t-1"):
        first_end(stream)


def test_a_new_query_with_a_missing_partition_is_rejected() -> None:
    with pytest.raises(InvalidOffsetsError, match=r"not assigned: t-1"):
        first_end(planner(cluster(10), SpecificOffsets({T0: 3, T1: 3})))
    with pytest.raises(TopicNotFoundError):
        first_end(planner(FakeOffsetReader({}), Earliest()))


@pytest.mark.parametrize("spec", [Earliest(), SpecificOffsets({}, {"t": EARLIEST, "u": EARLIEST}), GlobalTimestamp(0)])
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_deleted_since_is_data_loss(spec: StartingOffsetSpec, fail: bool) -> None:
    """It is data loss in the batch, to which failOnDataLoss applies, and not an unknown start."""

    class Strict(FakeOffsetReader):
        def assigned(self, *, strict: bool) -> AssignedPartitions:
            if strict and U0 not in self.logs:
                raise TopicNotFoundError("no such topic: u", topic="u")
            return super().assigned(strict=strict)

    reader = Strict({T0: (4, 10), U0: (0, 5)})
    first = planner(reader, spec)
    first.initial_offsets()
    end = {T0: 10, U0: 5}
    del reader.logs[U0]
    restarted = planner(reader, spec, fail=fail)
    start = restarted.initial_offsets()
    if fail:
        with pytest.raises(DataLossError, match=r"u-0 cannot be found"):
            restarted.plan(start, end)
        return
    assert planned(restarted.plan(start, end)) == [("t-0", 4, 10)]
    assert ["u-0 cannot be found" in warning for warning in reader.warnings] == [True]


def test_a_partition_missing_when_the_start_was_resolved_is_not_an_added_one() -> None:
    """Its log may start anywhere: retention may have deleted records before the query started."""

    class Stale(FakeOffsetReader):
        def assigned(self, *, strict: bool) -> AssignedPartitions:
            assigned_now = super().assigned(strict=strict)
            return (
                assigned_now
                if self.refreshes > 1
                else AssignedPartitions(assigned_now.partitions - {T1}, assigned_now.topic_ids)
            )

    reader = Stale({T0: (0, 10), T1: (3, 10)})
    restarted = planner(reader, Earliest())
    start = restarted.initial_offsets()
    assert start == {T0: 0}
    assert planned(restarted.plan(start, {T0: 10, T1: 10})) == [("t-0", 0, 10), ("t-1", 3, 10)]
    assert reader.warnings == []


def test_a_batch_that_runs_again_does_not_trust_one_broker_that_lacks_its_topic() -> None:
    """Otherwise its tasks had no topic id, so that one of them might read a topic that was recreated meanwhile."""

    class Lagging(FakeOffsetReader):
        def assigned(self, *, strict: bool) -> AssignedPartitions:
            assigned_now = super().assigned(strict=strict)
            return assigned_now if self.waits else AssignedPartitions(frozenset())

    reader = Lagging({T0: (0, 10)}, ids={"t": UUID(int=7)})
    plan = planner(reader, Latest()).plan({T0: 3}, {T0: 8})
    assert planned(plan) == [("t-0", 3, 8)]
    assert plan.topic_ids == {"t": UUID(int=7)}
    assert reader.warnings == []


def test_a_missing_partition_with_an_explicit_offset_is_left_to_its_task() -> None:
    """As in Spark: the range starts at the user's offset, and the task reports that the partition does not exist."""
    restarted = planner(cluster(10), SpecificOffsets({T0: 3, T1: 2}))
    assert planned(restarted.plan(restarted.initial_offsets(), {T0: 8, T1: 6})) == [("t-0", 3, 8), ("t-1", 2, 6)]


@pytest.mark.parametrize("spec", [GlobalTimestamp(4), SpecificTimestamps({T0: 4, T1: 4})])
def test_a_partition_without_a_record_for_its_timestamp_is_read_from_its_log_start(
    spec: StartingOffsetSpec,
) -> None:
    """It had one when the batch was planned, and the batch starts there: the remaining records lie after it."""
    restarted = planner(cluster(10, 3), spec)
    assert planned(restarted.plan(restarted.initial_offsets(), {T0: 8, T1: 2})) == [("t-0", 4, 8), ("t-1", 0, 2)]


@pytest.mark.parametrize(
    "spec", [SpecificTimestamps({T0: 4, T1: 4}), SpecificOffsets({T0: 4, T1: EARLIEST}), GlobalTimestamp(4)]
)
def test_unassigned_partitions_are_not_looked_up(spec: StartingOffsetSpec) -> None:
    reader = cluster(10, 10, 0)
    reader.unselected = {T1}
    assert planner(reader, spec).initial_offsets() == {T0: 4}


@pytest.mark.parametrize("spec", [Latest(), CommittedStart(Latest())])
def test_a_first_batch_of_another_source_is_rejected_with_changed_topics_too(spec: StartingOffsetSpec) -> None:
    reader = cluster(10, 0)
    restarted = planner(reader, spec)
    with pytest.raises(KafkaDirectError, match="Its start is not known"):
        restarted.plan(restarted.initial_offsets(), {T0: 8})


def first_end(stream: MicroBatchPlanner) -> dict[TopicPartition, int]:
    """As Spark starts a new query: only these two calls come before its first batch is in the checkpoint."""
    return stream.next_end_offsets(stream.initial_offsets())


def test_several_brokers_are_asked_before_the_first_records_of_a_first_batch_are_skipped() -> None:
    """A leader that was deposed may have deleted records that the current leader still has."""

    class DeposedLeader(FakeOffsetReader):
        def raise_epoch_floors(self, topics: Collection[str]) -> None:
            super().raise_epoch_floors(topics)
            self.logs[T0] = (4, 10)

    reader = DeposedLeader({T0: (8, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    restarted = planner(reader, Earliest())
    start = restarted.initial_offsets()
    reader.logs[T0] = (8, 10)
    reader.floor_requests.clear()
    plan = restarted.plan(start, {T0: 10, T1: 10}, {T0: 3, T1: 0})
    assert planned(plan) == [("t-0", 4, 10), ("t-1", 0, 10)]
    assert "offsets [3, 4) of t-0 were removed by retention" in reader.warnings[0]
    assert reader.floor_requests == [{"t"}]


@pytest.mark.parametrize("spec", [GlobalTimestamp(4), SpecificTimestamps({T0: 4})])
def test_the_first_records_of_a_first_batch_are_not_skipped_unless_it_starts_at_earliest(
    spec: StartingOffsetSpec,
) -> None:
    """The task decides whether their loss fails the query."""
    reader = FakeOffsetReader({T0: (6, 10)}, {"t": UUID(int=1)})
    restarted = planner(reader, spec)
    start = restarted.initial_offsets()
    assert start == {T0: 6}
    assert planned(restarted.plan(start, {T0: 8}, {T0: 4})) == [("t-0", 4, 8)]
    assert reader.warnings == []


@pytest.mark.parametrize("fail", [True, False])
def test_records_of_an_added_partition_that_retention_removed_are_data_loss(fail: bool) -> None:
    """The recorded start shows that the partition was added after the query started."""
    reader = FakeOffsetReader({T0: (0, 10), T1: (3, 10)}, {"t": UUID(int=1)})
    restarted = planner(reader, Earliest(), fail=fail)
    start, end = restarted.initial_offsets(), {T0: 10, T1: 10}
    if fail:
        with pytest.raises(DataLossError, match="t-1 starts from offset 3 instead of 0"):
            restarted.plan(start, end, {T0: 0})
        return
    assert planned(restarted.plan(start, end, {T0: 0})) == [("t-0", 0, 10), ("t-1", 3, 10)]
    assert reader.losses == [(DataLossCause.AGED_OUT, {T1: 3})]


def test_a_partition_deleted_since_the_recorded_start_is_data_loss() -> None:
    restarted = planner(cluster(10), Earliest())
    with pytest.raises(DataLossError, match="t-1 do not exist any more"):
        restarted.plan(restarted.initial_offsets(), {T0: 10}, {T0: 0, T1: 0})
