"""Trigger.AvailableNow: frozen ends, and the four checks."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest, GlobalTimestamp, Latest, Position, SpecificOffsets
from pyspark_kafka_direct.planning.stream import StreamPlan, StreamPlanner, StreamTuning
from pyspark_kafka_direct.planning.stream_view import Assigned

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

MISMATCHED = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"
GREATER_THAN_FROZEN = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"
LOST = "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"
GREATER_THAN_LATEST = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"


def planner(view: Cluster, *, start: Position | None = None, fail: bool = True, **limits: int) -> StreamPlanner:
    tuning = StreamTuning(start or Earliest(), Limits(**limits), fail_on_data_loss=fail)
    return StreamPlanner(tuning, view, Clock())


def planned(plan: StreamPlan) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def run(stream: StreamPlanner, start: dict[TopicPartition, int] | None = None) -> list[list[tuple[int, int, int]]]:
    """All batches until the query ends: until a batch would not move."""
    position = stream.initial() if start is None else start
    batches: list[list[tuple[int, int, int]]] = []
    while True:
        end = stream.next_end(position)
        if end == position and not (start is None and not batches):
            return batches
        batches.append(planned(stream.plan(position, end)))
        position = end


def test_fifteen_records_five_per_trigger_are_three_batches() -> None:
    stream = planner(cluster(15), max_offsets=5)
    stream.freeze()
    assert run(stream) == [[(0, 0, 5)], [(0, 5, 10)], [(0, 10, 15)]]


def test_what_comes_later_is_left_for_the_next_run() -> None:
    view = cluster(10)
    stream = planner(view)
    stream.freeze()
    assert stream.initial() == {T0: 0}
    view.logs |= {T0: (0, 14), T1: (0, 3)}
    assert run(stream) == [[(0, 0, 10)]]
    again = planner(view)
    again.freeze()
    assert run(again, {T0: 10}) == [[(0, 10, 14), (1, 0, 3)]]


def test_a_start_that_moves_costs_one_empty_batch_and_never_lies_after_the_frozen_ends() -> None:
    view = cluster(10)
    for position in (Latest(), GlobalTimestamp(99, "latest")):
        stream = planner(view, start=position)
        stream.freeze()
        view.logs[T0] = (0, view.logs[T0][1] + 4)
        assert run(stream) == [[]]
    stream = planner(view, start=GlobalTimestamp(3))
    stream.freeze()
    assert run(stream) == [[], [(0, 3, 18)]]


def test_an_offset_given_beyond_the_frozen_end_is_not_moved_before_it() -> None:
    """It would be as silent as wrong: the user named a record that is not there."""
    stream = planner(cluster(10), start=SpecificOffsets({T0: 12}))
    stream.freeze()
    assert stream.initial() == {T0: 12}
    with pytest.raises(DataLossError, match="offset was changed from 12 to 10"):
        stream.next_end(stream.initial())


@pytest.mark.parametrize(
    "position", [GlobalTimestamp(12), SpecificOffsets({}, {"t": LATEST}), SpecificOffsets({T0: EARLIEST})]
)
def test_a_start_that_is_looked_up_is_moved_before_the_frozen_end(position: Position) -> None:
    view = cluster(10)
    stream = planner(view, start=position)
    stream.freeze()
    view.logs[T0] = (11, 14)
    assert stream.initial() == {T0: 10}


def test_a_minimum_does_not_hold_back_the_last_records() -> None:
    stream = planner(cluster(12), max_offsets=5, min_offsets=5)
    stream.freeze()
    assert run(stream) == [[(0, 0, 5)], [(0, 5, 10)], [(0, 10, 12)]]


def test_ends_frozen_too_early_are_corrected() -> None:
    view = cluster(8)
    stream = planner(view)
    stream.freeze()
    view.logs[T0] = (0, 12)  # the leader that was asked lagged: the query had read up to 10 before
    assert run(stream, {T0: 10}) == []


class Stale(Cluster):
    """Its first answer knows partition 0 only, as of a broker that has not heard of the other yet."""

    def assigned(self, *, strict: bool) -> Assigned:
        found = super().assigned(strict=strict)
        return found if self.looks > 1 else Assigned(frozenset({T0}), found.topic_ids)


@pytest.mark.parametrize("read", [7, 0])
@pytest.mark.parametrize("fail", [True, False])
def test_a_first_look_that_misses_a_partition_is_not_believed(fail: bool, read: int) -> None:
    """What the query had read is no loss, and not to be read again from its start by the next run."""
    view = Stale({T0: (0, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    stream = planner(view, fail=fail)
    stream.freeze()
    assert run(stream, {T0: 5, T1: read}) == [[(0, 5, 10), (1, read, 10)]]
    assert (view.waits, view.warnings) == (0, [])


@pytest.mark.parametrize(("position", "wanted"), [(Latest(), [[]]), (Earliest(), [[(0, 0, 10), (1, 0, 10)]])])
def test_a_new_query_begins_in_a_partition_that_the_first_look_missed(
    position: Position, wanted: list[list[tuple[int, int, int]]]
) -> None:
    """Found by the next run it would be an added one, and be read from its start, whatever the query's start is."""
    view = Stale({T0: (0, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    stream = planner(view, start=position)
    stream.freeze()
    assert stream.initial().keys() == {T0, T1}
    view.logs[T1] = (0, 14)
    assert run(stream) == wanted


@pytest.mark.parametrize("start", [None, {T0: 5, U0: 5}])
def test_tasks_learn_the_id_of_a_topic_that_the_first_look_missed(start: dict[TopicPartition, int] | None) -> None:
    ids = {"t": UUID(int=1), "u": UUID(int=2)}

    class StaleTopics(Stale):
        def assigned(self, *, strict: bool) -> Assigned:
            found = super().assigned(strict=strict)
            return Assigned(found.partitions, {tp.topic: ids[tp.topic] for tp in found.partitions})

    stream = planner(StaleTopics({T0: (0, 10), U0: (0, 10)}))
    stream.freeze()
    begin = start or stream.initial()
    end = stream.next_end(begin)
    assert end == {T0: 10, U0: 10}
    assert stream.plan(begin, end).topic_ids == ids


def test_a_partition_that_every_look_misses_is_gone() -> None:
    view = cluster(10)
    stream = planner(view)
    stream.freeze()
    with pytest.raises(DataLossError, match=r"t-1 are gone"):
        stream.next_end({T0: 5, T1: 7})
    assert view.waits == 2
    stream = planner(view, fail=False)
    stream.freeze()
    assert run(stream, {T0: 5, T1: 7}) == [[(0, 5, 10)]]


@pytest.mark.parametrize("fail", [True, False])
def test_partitions_that_are_lost_meanwhile(fail: bool) -> None:
    view = cluster(5, 5)
    stream = planner(view, fail=fail, max_offsets=2)
    stream.freeze()
    start = stream.initial()
    end = stream.next_end(start)
    del view.logs[T1]
    with pytest.raises(DataLossError, match=rf"latest offset: t-0, .*end offset: t-0, t-1; .*{LOST}"):
        stream.plan(start, end)
    assert view.waits == 2


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_are_lost_meanwhile(fail: bool) -> None:
    view = cluster(15)
    stream = planner(view, fail=fail)
    stream.freeze()
    start = stream.initial()
    end = stream.next_end(start)
    view.recreate("t", 1, [10])
    with pytest.raises(
        DataLossError,
        match=rf'latest offset: {{"t":{{"0":10}}}}, end offset: {{"t":{{"0":15}}}}; .*{GREATER_THAN_LATEST}',
    ):
        stream.plan(start, end)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_created_again_meanwhile_with_a_longer_log(fail: bool) -> None:
    """Its offsets would pass for those of the old one, and the next run, which knows no id, would go on behind them."""
    view = cluster(15)
    stream = planner(view, fail=fail, max_offsets=5)
    stream.freeze()
    start = stream.initial()
    end = stream.next_end(start)
    assert planned(stream.plan(start, end)) == [(0, 0, 5)]
    view.recreate("t", 2, [30])
    with pytest.raises(DataLossError, match=r"deleted and created again while .*Trigger.AvailableNow was running: t;"):
        stream.plan(end, stream.next_end(end))
    assert view.waits == 2, "metadata could be old"


@pytest.mark.parametrize("fail", [True, False])
def test_ends_that_do_not_fit_the_frozen_ones(fail: bool) -> None:
    view = cluster(5)
    stream = planner(view, fail=fail)
    early = stream.next_end(stream.initial())
    view.logs[T1] = (0, 5)
    stream.freeze()
    with pytest.raises(DataLossError, match=MISMATCHED):
        stream.plan(stream.initial(), early)
    view.logs = {T0: (0, 3)}
    stream.freeze()
    with pytest.raises(DataLossError, match=GREATER_THAN_FROZEN):
        stream.plan(stream.initial(), early)


def test_a_batch_of_an_earlier_run_is_not_checked() -> None:
    view = cluster(5)
    first = planner(view)
    first.freeze()
    start = first.initial()
    end = first.next_end(start)
    view.logs |= {T1: (0, 4)}
    again = planner(view)  # the batch failed in its job, partitions were added (SPARK-53560)
    again.freeze()
    assert planned(again.plan(again.initial(), end)) == [(0, 0, 5)]
    assert run(again, end) == [[(1, 0, 4)]]


def test_no_topics_at_all_end_at_once() -> None:
    stream = planner(Cluster({}))
    stream.freeze()
    assert run(stream, {}) == []
