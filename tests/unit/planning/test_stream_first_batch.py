"""A query that died in its first batch, restarted on topics that have changed: the logged end decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster

from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError, OffsetPlanError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.stream import StreamPlan, StreamPlanner, StreamTuning
from pyspark_kafka_direct.planning.stream_start import Committed
from pyspark_kafka_direct.planning.stream_view import Assigned

if TYPE_CHECKING:
    from pyspark_kafka_direct.planning.stream_start import StreamStart

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

# Starts that a partition 1 without records does not fit, and where partition 0 begins: it ends at 10.
STARTS = [
    (SpecificOffsets({T0: 3}), 3),
    (SpecificOffsets({T0: EARLIEST}), 0),
    (SpecificTimestamps({T0: 4}), 4),
    (GlobalTimestamp(4), 4),
]


def planner(view: Cluster, start: StreamStart, *, fail: bool = True) -> StreamPlanner:
    return StreamPlanner(StreamTuning(start, fail_on_data_loss=fail), view, Clock())


def planned(plan: StreamPlan) -> list[tuple[str, int, int]]:
    return [(str(r.topic_partition), r.from_offset, r.until_offset) for r in plan.ranges]


@pytest.mark.parametrize(("position", "begin"), STARTS)
def test_a_partition_was_added_meanwhile(position: StreamStart, begin: int) -> None:
    view = cluster(10, 0)
    again = planner(view, position)
    start = again.initial()
    assert again.initial() == start
    assert planned(again.plan(start, {T0: 8})) == [("t-0", begin, 8)]
    view.logs[T1] = (0, 2)
    end = again.next_end({T0: 8})
    assert planned(again.plan({T0: 8}, end)) == [("t-0", 8, 10), ("t-1", 0, 2)]
    assert view.warnings == []


@pytest.mark.parametrize("position", [GlobalTimestamp(4), SpecificTimestamps({T0: 4}), Committed()])
def test_a_partition_was_added_beside_our_empty_first_batch(position: StreamStart) -> None:
    view = cluster(10, 0)
    view.group = {T0: 4}
    again = planner(view, position)
    assert again.plan(again.initial(), {T0: 4}, empty=True).ranges == ()
    assert planned(again.plan({T0: 4}, again.next_end({T0: 4}))) == [("t-0", 4, 10)]


@pytest.mark.parametrize("position", [start for start, _ in STARTS])
def test_a_new_query_whose_start_does_not_fit_is_refused_all_the_same(position: StreamStart) -> None:
    with pytest.raises(OffsetPlanError, match=r"t-1"):
        first_end(planner(cluster(10, 0), position))
    stream = planner(cluster(10, 0), position)
    stream.freeze()
    with pytest.raises(OffsetPlanError, match=r"t-1"):
        first_end(stream)


def test_a_named_partition_is_gone_when_a_new_query_starts() -> None:
    with pytest.raises(OffsetPlanError, match=r"not assigned: t-1"):
        first_end(planner(cluster(10), SpecificOffsets({T0: 3, T1: 3})))
    with pytest.raises(TopicNotFoundError):
        first_end(planner(Cluster({}), Earliest()))


@pytest.mark.parametrize(
    "position", [Earliest(), SpecificOffsets({}, {"t": EARLIEST, "u": EARLIEST}), GlobalTimestamp(0)]
)
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_was_deleted_meanwhile(position: StreamStart, fail: bool) -> None:
    """It is a loss of the batch, for failOnDataLoss to decide; not a start that cannot be found."""

    class Strict(Cluster):
        def assigned(self, *, strict: bool) -> Assigned:
            if strict and U0 not in self.logs:
                raise TopicNotFoundError("no such topic: u", topic="u")
            return super().assigned(strict=strict)

    view = Strict({T0: (4, 10), U0: (0, 5)})
    first = planner(view, position)
    first.initial()
    end = {T0: 10, U0: 5}
    del view.logs[U0]
    again = planner(view, position, fail=fail)
    start = again.initial()
    if fail:
        with pytest.raises(DataLossError, match=r"u-0 cannot be found"):
            again.plan(start, end)
        return
    assert planned(again.plan(start, end)) == [("t-0", 4, 10)]
    assert ["u-0 cannot be found" in warning for warning in view.warnings] == [True]


def test_a_partition_that_the_look_for_the_start_missed_is_no_added_one() -> None:
    """Its log may begin anywhere: retention had been at work before the query began."""

    class Stale(Cluster):
        def assigned(self, *, strict: bool) -> Assigned:
            found = super().assigned(strict=strict)
            return found if self.looks > 1 else Assigned(found.partitions - {T1}, found.topic_ids)

    view = Stale({T0: (0, 10), T1: (3, 10)})
    again = planner(view, Earliest())
    start = again.initial()
    assert start == {T0: 0}
    assert planned(again.plan(start, {T0: 10, T1: 10})) == [("t-0", 0, 10), ("t-1", 3, 10)]
    assert view.warnings == []


def test_a_partition_whose_offset_was_given_is_left_to_its_task() -> None:
    """As in Spark: the range is planned from what the user gave, and the task finds that the partition is gone."""
    again = planner(cluster(10), SpecificOffsets({T0: 3, T1: 2}))
    assert planned(again.plan(again.initial(), {T0: 8, T1: 6})) == [("t-0", 3, 8), ("t-1", 2, 6)]


@pytest.mark.parametrize("position", [GlobalTimestamp(4), SpecificTimestamps({T0: 4, T1: 4})])
def test_a_partition_without_a_record_for_its_timestamp_is_read_from_its_log_start(position: StreamStart) -> None:
    """It had one when the batch was planned, before which nothing was read: what is left lies behind that."""
    again = planner(cluster(10, 3), position)
    assert planned(again.plan(again.initial(), {T0: 8, T1: 2})) == [("t-0", 4, 8), ("t-1", 0, 2)]


@pytest.mark.parametrize(
    "position", [SpecificTimestamps({T0: 4, T1: 4}), SpecificOffsets({T0: 4, T1: EARLIEST}), GlobalTimestamp(4)]
)
def test_what_is_not_assigned_is_not_looked_up(position: StreamStart) -> None:
    view = cluster(10, 10, 0)
    view.unselected = {T1}
    assert planner(view, position).initial() == {T0: 4}


@pytest.mark.parametrize("position", [Latest(), Committed(Latest())])
def test_a_first_batch_of_another_source_is_refused_on_changed_topics_too(position: StreamStart) -> None:
    view = cluster(10, 0)
    again = planner(view, position)
    with pytest.raises(KafkaDirectError, match="where it began is not known"):
        again.plan(again.initial(), {T0: 8})


def first_end(stream: StreamPlanner) -> dict[TopicPartition, int]:
    """As Spark asks a new query: nothing but these two calls comes before its first batch is in the checkpoint."""
    return stream.next_end(stream.initial())
