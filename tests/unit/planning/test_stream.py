"""Starts and ends of micro-batches on a cluster where nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    GlobalTimestamp,
    Latest,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.stream import StreamPlan, StreamPlanner, StreamTuning
from pyspark_kafka_direct.planning.stream_start import Committed, StreamStart, moves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.planning.stream_view import Assigned

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def planner(
    view: Cluster, start: StreamStart | None = None, clock: Clock | None = None, **limits: float | None
) -> StreamPlanner:
    tuning = StreamTuning(start or Earliest(), Limits(**limits))  # type: ignore[arg-type]
    return StreamPlanner(tuning, view, clock or Clock())


def first_end(stream: StreamPlanner) -> dict[TopicPartition, int]:
    """As Spark asks a new query: nothing but these two calls comes before its first batch is in the checkpoint."""
    return stream.next_end(stream.initial())


def planned(plan: StreamPlan) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


@pytest.mark.parametrize(
    ("position", "moving"),
    [
        (Earliest(), False),
        (Latest(), True),
        (GlobalTimestamp(5), True),
        (SpecificTimestamps({T0: 5}), True),
        (SpecificOffsets({T0: 5, T1: EARLIEST}), False),
        (SpecificOffsets({T0: 5, T1: LATEST}), True),
        (SpecificOffsets({}, {"t": LATEST}), True),
        (SpecificOffsets({}, {"t": EARLIEST}), False),
    ],
)
def test_which_starts_move(position: Position, moving: bool) -> None:
    assert moves(position) is moving


def test_from_earliest_the_first_batch_has_everything() -> None:
    view = cluster(10, 5)
    view.logs[T1] = (2, 5)
    stream = planner(view)
    start = stream.initial()
    assert start == {T0: 0, T1: 2}
    end = stream.next_end(start)
    assert end == {T0: 10, T1: 5}
    assert planned(stream.plan(start, end)) == [(0, 0, 10), (1, 2, 5)]
    assert stream.next_end(end) == end
    assert planned(stream.plan(end, end)) == []


def test_a_start_that_moves_makes_an_empty_first_batch() -> None:
    view = cluster(10)
    stream = planner(view, Latest())
    start = stream.initial()
    view.logs[T0] = (0, 14)
    assert stream.initial() == start == {T0: 10}, "looked up once"
    assert stream.next_end(start) == start
    end = stream.next_end(start)
    assert planned(stream.plan(start, end)) == [(0, 10, 14)]


def test_the_empty_first_batch_replayed_reads_nothing_and_loses_nothing() -> None:
    view = cluster(10)
    start = planner(view, Latest()).initial()
    view.logs[T0] = (0, 14)
    view.logs[T1] = (0, 3)
    again = planner(view, Latest())  # the query died in its first batch: another process
    later = again.initial()
    assert later == {T0: 14, T1: 3}
    assert planned(again.plan(later, start, empty=True)) == []
    end = again.next_end(start)
    assert planned(again.plan(start, end)) == [(0, 10, 14), (1, 0, 3)]
    assert view.warnings == []


def test_after_the_empty_first_batch_is_replayed_nothing_is_held_back() -> None:
    view = cluster(10)
    stream = planner(view, GlobalTimestamp(10, "latest"))
    stream.freeze()
    view.logs[T0] = (0, 14)
    start = stream.initial()
    assert start == {T0: 10}
    again = planner(view, GlobalTimestamp(10, "latest"))
    again.freeze()
    assert again.initial() == start, "found by its timestamp, where there was nothing before"
    assert planned(again.plan(start, start, empty=True)) == []
    assert again.next_end(start) == {T0: 14}, "with Trigger.AvailableNow the query would be over"


@pytest.mark.parametrize("position", [Latest(), Committed(Latest()), GlobalTimestamp(3, "latest")])
def test_a_first_batch_of_another_source_whose_start_is_not_known_is_refused(position: StreamStart) -> None:
    again = planner(cluster(10), position)
    start = again.initial()
    for end in ({T0: 8}, start):
        with pytest.raises(OptionError, match=r"where it began is not known.* last line of .*sources/0/0"):
            again.plan(start, end)
    assert planner(cluster(10), position).plan(start, {T0: 8}, empty=True).ranges == (), "and ours is not"


@pytest.mark.parametrize(
    ("position", "begin"), [(GlobalTimestamp(3), 3), (Earliest(), 0), (SpecificOffsets({T0: 5}), 5)]
)
def test_a_first_batch_of_another_source_is_read_where_its_start_can_be_found_again(
    position: StreamStart, begin: int
) -> None:
    again = planner(cluster(10), position)
    assert planned(again.plan(again.initial(), {T0: 8})) == [(0, begin, 8)]
    assert planned(again.plan({T0: 8}, again.next_end({T0: 8}))) == [(0, 8, 10)]


def test_the_first_batch_from_earliest_replayed_after_retention_reads_what_is_left() -> None:
    view = cluster(10, 10)
    first = planner(view)
    end = first.next_end(first.initial())
    view.logs = {T0: (4, 12), T1: (11, 12)}
    again = planner(view)
    assert planned(again.plan(again.initial(), end)) == [(0, 4, 10)]


def test_trigger_once_is_refused_with_a_start_that_moves_and_takes_everything_otherwise() -> None:
    stream = planner(cluster(10), Latest(), max_offsets=2)
    with pytest.raises(OptionError, match=r"Trigger\.Once, and for .* use Trigger\.AvailableNow where all"):
        stream.next_end(stream.initial(), unlimited=True)
    stream = planner(cluster(10), max_offsets=2)
    assert stream.next_end(stream.initial(), unlimited=True) == {T0: 10}
    restarted = planner(cluster(10), Latest(), max_offsets=2)
    assert restarted.next_end({T0: 4}, unlimited=True) == {T0: 10}


@pytest.mark.parametrize(
    ("position", "wanted"),
    [
        (SpecificOffsets({T0: 3, T1: LATEST, T2: EARLIEST}), {T0: 3, T1: 6, T2: 1}),
        (SpecificOffsets({}, {"t": LATEST}), {T0: 9, T1: 6, T2: 4}),
        (GlobalTimestamp(5, "latest"), {T0: 5, T1: 5, T2: 4}),
        (SpecificTimestamps({T0: 0, T1: 2, T2: 0}), {T0: 0, T1: 2, T2: 1}),
    ],
)
def test_starting_positions(position: Position, wanted: Mapping[TopicPartition, int]) -> None:
    view = cluster(9, 6, 4)
    view.logs[T2] = (1, 4)
    assert planner(view, position).initial() == wanted


def test_a_start_by_whole_topics_minds_no_topic_that_comes_later() -> None:
    """SPARK-58774: the option names the topics of the start only, after a restart too."""
    view = cluster(9, 6)
    position = SpecificOffsets({T1: 2}, {"t": EARLIEST})
    new = TopicPartition("u", 0)
    stream = planner(view, position)
    first = first_end(stream)
    assert planned(stream.plan(stream.initial(), first)) == [(0, 0, 9), (1, 2, 6)]
    for restarted in (False, True):
        view = cluster(9, 6)
        stream = planner(view, position)
        assert first_end(stream) == first
        view.logs[new], view.ids["u"] = (0, 5), UUID(int=2)
        stream = planner(view, position) if restarted else stream
        stream._idle = None
        end = stream.next_end(first)
        assert end == {**first, new: 5}
        assert [r for r in stream.plan(first, end).ranges if r.count()] == [OffsetRange("u", 0, 0, 5)]
    with pytest.raises(OffsetPlanError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        first_end(planner(view, position))  # which begins when the topic is there already


def test_starting_positions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OffsetPlanError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        first_end(planner(cluster(9, 6), SpecificOffsets({T0: 3})))
    with pytest.raises(OffsetPlanError, match="no record has timestamp"):
        first_end(planner(cluster(9, 6), GlobalTimestamp(7)))


def test_a_start_from_committed_offsets() -> None:
    view = cluster(9, 6, 4)
    view.group = {T0: 5, T1: 0, T2: 4}
    assert moves(Committed())
    stream = planner(view, Committed())
    start = stream.initial()
    assert start == {T0: 5, T1: 0, T2: 4}
    view.group = {T0: 9}
    assert stream.next_end(start) == start, "it moves, so the first batch is empty"
    with pytest.raises(OffsetPlanError, match="no committed offset for t-1, t-2; set committedOffsetsFallback") as told:
        first_end(planner(view, Committed()))
    assert (told.value.topic, told.value.partition) == ("t", 1)
    assert planner(view, Committed(Earliest())).initial() == {T0: 9, T1: 0, T2: 0}
    assert planner(view, Committed(Latest())).initial() == {T0: 9, T1: 6, T2: 4}


def test_a_topic_that_is_not_known_yet_is_looked_for_again() -> None:
    view = Cluster({})
    with pytest.raises(TopicNotFoundError):
        first_end(planner(view))
    assert view.waits == 2

    def appear(view: Cluster) -> None:
        view.logs[T0] = (0, 7)

    view = Cluster({}, on_wait=appear)
    assert planner(view).initial() == {T0: 0}


def test_new_partitions_are_read_from_their_start_also_within_a_limit() -> None:
    view = cluster(10)
    stream = planner(view, Latest(), max_offsets=10)
    start = stream.initial()
    stream.next_end(start)
    view.logs |= {T0: (0, 15), T1: (0, 15)}
    end = stream.next_end(start)
    assert end == {T0: 12, T1: 7}
    assert planned(stream.plan(start, end)) == [(0, 10, 12), (1, 0, 7)]


def test_the_limit_as_in_sparks_test() -> None:
    stream = planner(cluster(101, 11, 1), max_offsets=10)
    start = stream.initial()
    end = stream.next_end(start)
    assert end == {T0: 8, T1: 1, T2: 1}
    assert stream.next_end(end) == {T0: 17, T1: 2, T2: 1}
    restarted = planner(cluster(101, 11, 1), max_offsets=10)
    assert restarted.next_end(end) == {T0: 17, T1: 2, T2: 1}
    assert restarted.next_end(end, unlimited=True) == {T0: 101, T1: 11, T2: 1}


def test_a_limit_in_bytes() -> None:
    view = cluster(100, 100)
    view.sizes = {T0: 10.0, T1: 30.0}
    stream = planner(view, max_bytes=400)
    start = stream.initial()
    end = stream.next_end(start)
    assert end == {T0: 10, T1: 10}, "10 offsets of 10 bytes and 10 of 30"
    assert view.sampled == [{T0, T1}]
    view.sizes = {}
    assert stream.next_end(end) == {T0: 20, T1: 20}, "as large as the ones before"
    assert planner(view, max_bytes=10_000, max_offsets=3).next_end(start) == {T0: 1, T1: 1}
    assert len(view.warnings) == 1, "nothing could be sampled"
    view.sizes = {T0: 1.0}
    assert planner(view, max_bytes=10_000).next_end(start) == {T0: 100, T1: 100}
    assert planner(view, max_bytes=10_000).next_end(start, unlimited=True) == {T0: 100, T1: 100}


def test_only_the_partitions_with_the_most_to_read_are_sampled() -> None:
    view = cluster(*range(1, 101))
    stream = planner(view, max_bytes=1)
    stream.next_end(stream.initial())
    assert view.sampled == [{TopicPartition("t", number) for number in range(84, 100)}]


def test_the_largest_limit_with_a_start_inside() -> None:
    stream = planner(cluster(10), SpecificOffsets({T0: 5}), max_offsets=MAX_OFFSET)
    assert stream.next_end(stream.initial()) == {T0: 10}


def test_both_limits_as_in_sparks_test() -> None:
    view, clock = cluster(21, 11, 1), Clock()
    stream = planner(view, clock=clock, min_offsets=15, max_offsets=20, max_delay=5.0)
    end = stream.next_end(stream.initial())
    assert end == {T0: 12, T1: 6, T2: 1}, "19 of 33"
    clock.now += 1
    assert stream.next_end(end) == end, "14 are left: too few"
    view.logs |= {T0: (0, 30), T1: (0, 21)}
    clock.now += 1
    capped = stream.next_end(end)
    assert sum(capped.values()) - sum(end.values()) <= 20
    clock.now += 4
    assert stream.next_end(capped) == capped
    clock.now += 1
    assert stream.next_end(capped) == {T0: 30, T1: 21, T2: 1}
    assert stream.next_end(capped, unlimited=True) == {T0: 30, T1: 21, T2: 1}


def test_the_minimum_holds_back_and_is_ignored_by_once() -> None:
    view, clock = cluster(3), Clock()
    stream = planner(view, clock=clock, min_offsets=15, max_delay=5.0)
    end = stream.next_end(stream.initial())
    assert end == {T0: 3}
    view.logs[T0] = (0, 9)
    assert stream.next_end(end) == end
    assert stream.next_end(end, unlimited=True) == {T0: 9}


@pytest.mark.parametrize(("log", "enough"), [((0, 49), True), ((0, 48), False), ((20, 49), True), ((40, 48), False)])
def test_the_minimum_counts_the_offsets_of_new_partitions_from_zero(log: tuple[int, int], enough: bool) -> None:
    view, clock = cluster(100), Clock()
    limits = Limits(min_offsets=50, max_delay=60.0)
    stream = StreamPlanner(StreamTuning(Earliest(), limits, fail_on_data_loss=False), view, clock)
    end = stream.next_end(stream.initial())
    view.logs = {T0: (0, 101), T1: log}
    assert stream.next_end(end) == ({T0: 101, T1: log[1]} if enough else end)


def test_an_idle_stream_asks_ten_times_a_second_at_most() -> None:
    view, clock = cluster(3), Clock()
    stream = planner(view, clock=clock)
    end = stream.next_end(stream.initial())
    before = view.looks
    for _ in range(100):
        assert stream.next_end(end) == end
        clock.now += 0.01
    assert 9 <= view.looks - before <= 11
    view.logs[T0] = (0, 4)
    clock.now += 0.1
    assert stream.next_end(end) == {T0: 4}
    view.logs[T0] = (0, 5)
    assert stream.next_end({T0: 4}) == {T0: 5}, "after a batch there is no pause"


def test_looks_that_take_long_are_rarer() -> None:
    clock = Clock()

    class Slow(Cluster):
        def assigned(self, *, strict: bool) -> Assigned:
            clock.now += 0.05
            return super().assigned(strict=strict)

    view = Slow({T0: (0, 3)})
    stream = planner(view, clock=clock)
    end = stream.next_end(stream.initial())
    before, began = view.looks, clock.now
    while clock.now < began + 10:
        stream.next_end(end)
        clock.now += 0.01
    assert 8 <= view.looks - before <= 10


def test_read_committed_waits_at_the_last_stable_offset() -> None:
    view = cluster(10)
    view.stable[T0] = 4
    stream = StreamPlanner(StreamTuning(SpecificOffsets({T0: 7}), read_committed=True), view, Clock())
    start = stream.initial()
    assert stream.next_end(start) == start, "beyond it, but within the log: not lost"
    assert view.waits == 0
    view.stable[T0] = 9
    stream._idle = None
    assert stream.next_end(start) == {T0: 9}


def test_tasks_can_be_more_than_partitions() -> None:
    view = cluster(10, 10, 1)
    tuning = StreamTuning(Earliest(), min_partitions=6, max_records_per_partition=4)
    stream = StreamPlanner(tuning, view, Clock())
    start = stream.initial()
    ranges = stream.plan(start, stream.next_end(start)).ranges
    assert len(ranges) >= 6
    assert max(r.count() for r in ranges) <= 4
    assert sum(r.count() for r in ranges) == 21


def test_the_progress_report_knows_what_a_limit_left() -> None:
    stream = planner(cluster(10), max_offsets=1)
    assert stream.known_latest is None
    stream.next_end(stream.initial())
    assert stream.known_latest == {T0: 10}


def test_a_replayed_batch_asks_for_the_starts_of_its_new_partitions() -> None:
    view = cluster(10, 10)
    again = planner(view)
    assert planned(again.plan({T0: 4}, {T0: 6, T1: 3})) == [(0, 4, 6), (1, 0, 3)]
    assert planned(again.plan({T0: 4}, {T0: 6, T1: 3})) == [(0, 4, 6), (1, 0, 3)]


@given(
    st.integers(1, 40),
    st.sampled_from([Earliest(), Latest()]),
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=8),
    st.sets(st.integers(0, 20)),
)
def test_every_offset_is_read_once_whatever_happens_between_batches(
    limit: int, position: Position, growth: list[list[int]], restarts: set[int]
) -> None:
    """Logs grow, partitions are added, the query is restarted between any two batches."""
    view, clock = cluster(*growth[0]), Clock()
    stream = planner(view, position, clock, max_offsets=limit)
    start = stream.initial()
    first = dict(start)
    read: dict[TopicPartition, int] = dict(start)
    steps = growth[1:]
    for step in range(500):
        if steps:
            for partition, more in enumerate(steps.pop(0)):
                tp = TopicPartition("t", partition)
                view.logs[tp] = (0, view.logs.get(tp, (0, 0))[1] + more)
        clock.now += 1
        end = stream.next_end(start)
        if step in restarts and step > 0:
            stream = planner(view, position, clock, max_offsets=limit)
        for r in stream.plan(start, end).ranges:
            assert r.from_offset == read.get(r.topic_partition, 0)
            read[r.topic_partition] = r.until_offset
        done = end == start and not steps and step > 0
        start = end
        if done:
            break
    assert read == {tp: log[1] for tp, log in view.logs.items() if log[1] or tp in first}
