"""Records, partitions and topics that go between two batches, with failOnDataLoss either way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster, without_ids

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest, Position, SpecificOffsets
from pyspark_kafka_direct.planning.stream import StreamPlan, StreamPlanner, StreamTuning

if TYPE_CHECKING:
    from collections.abc import Mapping

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)


def planner(
    view: Cluster, *, fail: bool, start: Position | None = None, max_offsets: int | None = None
) -> StreamPlanner:
    tuning = StreamTuning(start or Earliest(), Limits(max_offsets=max_offsets), fail_on_data_loss=fail)
    return StreamPlanner(tuning, view, Clock())


def planned(plan: StreamPlan) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def test_a_partition_that_is_gone() -> None:
    view = cluster(10, 10)
    del view.logs[T1]
    start = {T0: 4, T1: 4}
    with pytest.raises(DataLossError, match=r"t-1 are gone.*PARTITIONS_DELETED.*failOnDataLoss=false"):
        planner(view, fail=True).next_end(start)
    stream = planner(view, fail=False)
    end = stream.next_end(start)
    assert end == {T0: 10}
    assert planned(stream.plan(start, end)) == [("t", 0, 4, 10)]
    assert "t-1 are gone" in view.warnings[0]
    with pytest.raises(DataLossError, match="t-1 are gone"):
        planner(view, fail=True).plan(start, end)


@pytest.mark.parametrize("replayed", [False, True])
def test_a_partition_that_is_there_but_not_selected_any_more(replayed: bool) -> None:
    """The selection was changed between two runs: nothing is deleted, and selected again it would be read again."""
    view = cluster(10, 10)
    view.unselected = {T1}

    def go_on(fail: bool) -> list[tuple[str, int, int, int]]:
        stream, start = planner(view, fail=fail), {T0: 4, T1: 4}
        end = {T0: 10} if replayed else stream.next_end(start)
        assert end == {T0: 10}
        return planned(stream.plan(start, end))

    with pytest.raises(DataLossError, match=r"t-1 are not selected any more.*they exist.*Name them again") as caught:
        go_on(True)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert "gone" not in str(caught.value)
    assert go_on(False) == [("t", 0, 4, 10)]
    assert "read from their start" in view.warnings[0]


def test_of_two_missing_partitions_one_can_be_gone_and_the_other_not_selected() -> None:
    view = cluster(10, 10)
    view.unselected = {T1}
    assert planner(view, fail=False).next_end({T0: 4, T1: 4, T2: 4}) == {T0: 10}
    assert "t-2 are gone" in view.warnings[0]
    assert "t-1 are not selected any more" in view.warnings[1]


def test_all_partitions_gone_keep_their_offsets_instead_of_an_empty_end() -> None:
    view = cluster(10)
    stream = planner(view, fail=False)
    start = stream.next_end(stream.initial())
    view.logs.clear()
    view.ids.clear()
    assert stream.next_end(start) == start  # SPARK-41375
    view.logs[U0] = (0, 3)
    end = stream.next_end({**start})
    assert end == start, "an idle look is good for a moment"
    stream._idle = None
    assert stream.next_end(start) == {U0: 3}


def test_an_end_that_went_back_is_looked_at_again_and_then_lost() -> None:
    view = without_ids(cluster(1))
    with pytest.raises(DataLossError, match=r"offset was changed from 2 to 1.*PARTITION_OFFSET_CHANGED"):
        planner(view, fail=True).next_end({T0: 2})
    assert view.waits == 2
    stream = planner(view, fail=False)
    end = stream.next_end({T0: 2})
    assert end == {T0: 1}
    assert planned(stream.plan({T0: 2}, end)) == []
    assert "changed from 2 to 1" in view.warnings[0]
    view.logs[T0] = (0, 5)
    assert planned(stream.plan(end, stream.next_end(end))) == [("t", 0, 1, 5)]


@pytest.mark.parametrize("fail", [True, False])
def test_a_partition_of_which_nothing_was_read_yet_is_looked_for_again(fail: bool) -> None:
    def appear(view: Cluster) -> None:
        view.logs[T1] = (0, 9)

    view = cluster(9)
    view.on_wait = appear
    assert planner(view, fail=fail).next_end({T0: 9, T1: 0}) == {T0: 9, T1: 9}
    assert (view.waits, view.warnings) == (1, [])


@pytest.mark.parametrize("fail", [True, False])
def test_an_end_that_only_lagged_is_no_loss(fail: bool) -> None:
    def catch_up(view: Cluster) -> None:
        view.logs = {T0: (0, 9), T1: (0, 9)}

    view = cluster(1)
    view.on_wait = catch_up
    assert planner(view, fail=fail).next_end({T0: 2, T1: 9}) == {T0: 9, T1: 9}
    assert (view.waits, view.warnings) == (1, [])


def test_a_starting_offset_beyond_the_end() -> None:
    view = cluster(5)
    stream = planner(view, fail=True, start=SpecificOffsets({T0: 9}))
    with pytest.raises(DataLossError, match="the given start lies beyond the end"):
        stream.next_end(stream.initial())
    stream = planner(view, fail=False, start=SpecificOffsets({T0: 9}))
    end = stream.next_end(stream.initial())
    assert planned(stream.plan(stream.initial(), end)) == []


def test_an_added_partition_that_does_not_start_at_zero() -> None:
    view = cluster(5)
    view.logs[T1] = (3, 8)
    with pytest.raises(DataLossError, match="t-1 starts from offset 3 instead of 0"):
        planner(view, fail=True).next_end({T0: 5})
    stream = planner(view, fail=False)
    end = stream.next_end({T0: 5})
    assert planned(stream.plan({T0: 5}, end)) == [("t", 1, 3, 8)]
    assert "instead of 0" in view.warnings[0]
    with pytest.raises(DataLossError, match="instead of 0"):
        planner(view, fail=True).plan({T0: 5}, end)


def test_the_partitions_of_the_first_start_may_begin_anywhere() -> None:
    view = cluster(5)
    view.logs[T0] = (3, 5)
    stream = planner(view, fail=True)
    start = stream.initial()
    assert planned(stream.plan(start, stream.next_end(start))) == [("t", 0, 3, 5)]


@pytest.mark.parametrize("high_watermark", [6, 7])
def test_beyond_the_last_stable_offset_only_the_high_watermark_tells_a_loss(high_watermark: int) -> None:
    view = without_ids(cluster(high_watermark))
    view.stable[T0] = 4
    stream = StreamPlanner(StreamTuning(Earliest(), read_committed=True, fail_on_data_loss=False), view, Clock())
    end = stream.next_end({T0: 7})
    lost = high_watermark < 7
    assert (end, view.waits) == (({T0: 4}, 2) if lost else ({T0: 7}, 0))
    assert ["changed from 7 to 4" in warning for warning in view.warnings] == [True] * lost


def test_under_read_uncommitted_the_end_itself_tells_a_loss() -> None:
    view = without_ids(cluster(9))
    view.stable[T0] = 4  # what ListOffsets answers; the high watermark is not asked for
    with pytest.raises(DataLossError, match="changed from 7 to 4"):
        planner(view, fail=True).next_end({T0: 7})


@pytest.mark.parametrize("replayed", [True, False])
def test_an_added_partition_whose_records_were_all_removed_is_read_up_to_its_end(replayed: bool) -> None:
    """Retention went beyond the end of the batch since: what is left of it is empty, and not one loss more."""
    view = cluster(5, 5)
    stream, start = planner(view, fail=False), {T0: 2}
    end = {T0: 5, T1: 5} if replayed else stream.next_end(start)
    view.logs[T1] = (7, 9)
    assert planned(stream.plan(start, end)) == [("t", 0, 2, 5)]
    assert len(view.warnings) == 1
    assert "t-1 starts from offset 7 instead of 0" in view.warnings[0]


def test_an_added_partition_that_is_gone_again() -> None:
    view = cluster(5)
    with pytest.raises(DataLossError, match=r"t-1 cannot be found.*INITIAL_OFFSET_NOT_FOUND"):
        planner(view, fail=True).plan({T0: 2}, {T0: 5, T1: 5})
    assert planned(planner(view, fail=False).plan({T0: 2}, {T0: 5, T1: 5})) == [("t", 0, 2, 5)]


@pytest.mark.parametrize("fail", [True, False])
def test_an_added_partition_that_one_broker_does_not_know_is_not_gone(fail: bool) -> None:
    """The batch is planned again after a restart: what it leaves out is never read."""

    class Stale(Cluster):
        def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            found = super().offsets(wanted)
            return found if self.waits and self.looks > 1 else {tp: end for tp, end in found.items() if tp != T1}

    view = Stale({T0: (0, 9), T1: (0, 9)})
    assert planned(planner(view, fail=fail).plan({T0: 2}, {T0: 5, T1: 5})) == [("t", 0, 2, 5), ("t", 1, 0, 5)]
    assert (view.waits, view.warnings) == (1, [])


def test_a_recreated_topic_is_known_by_its_id() -> None:
    view = cluster(5, 5)
    stream = planner(view, fail=True)
    start = stream.next_end(stream.initial())
    view.recreate("t", 2, [9, 9])
    stream._idle = None
    with pytest.raises(DataLossError, match=r"deleted and created again, its id was 0.*1 and is 0.*2 now") as caught:
        stream.next_end(start)
    assert caught.value.topic == "t"
    assert view.waits == 2, "metadata could be old"


@pytest.mark.parametrize("ends", [[9, 3], [5, 5], [5], [0, 0]])
@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_recreated_topic_is_read_from_its_start_when_loss_is_allowed(ends: list[int], limit: int | None) -> None:
    view = cluster(5, 5)
    stream = planner(view, fail=False, max_offsets=limit)
    start = stream.initial()
    while (end := stream.next_end(start)) != start:
        start = end
    view.recreate("t", 2, ends)
    stream._idle = None
    read = []
    for _ in range(30):
        end = stream.next_end(start)
        read += planned(stream.plan(start, end))
        start, stream._idle = end, None
    for partition, size in enumerate(ends):
        offsets = [offset for _, number, a, b in read if number == partition for offset in range(a, b)]
        assert offsets == list(range(size))
    assert sum("created again" in warning for warning in view.warnings) == 1


@pytest.mark.parametrize("size", [3, 5, 200])
def test_a_recreated_topic_is_read_from_its_start_by_a_restart_within_the_batch_too(size: int) -> None:
    """The restarted planner does not know the old id: only the end in the checkpoint can tell it where to begin."""
    view = cluster(5)
    stream = planner(view, fail=False)
    start = stream.next_end(stream.initial())
    view.recreate("t", 2, [size])
    stream._idle = None
    end = stream.next_end(start)
    again = planner(view, fail=False)  # killed before the batch was done
    assert planned(again.plan(start, end)) == planned(stream.plan(start, end)) == []
    assert planned(again.plan(end, again.next_end(end))) == [("t", 0, 0, size)]


def test_a_recreated_topic_of_which_nothing_was_read_costs_no_batch() -> None:
    view = cluster(0)
    stream = planner(view, fail=False)
    start = stream.next_end(stream.initial())
    view.recreate("t", 2, [7])
    stream._idle = None
    assert planned(stream.plan(start, stream.next_end(start))) == [("t", 0, 0, 7)]


def test_old_metadata_about_a_topic_is_no_recreation() -> None:
    view = cluster(5)
    stream = planner(view, fail=True)
    start = stream.next_end(stream.initial())
    view.recreate("t", 2, [5])
    view.on_wait = lambda view: view.recreate("t", 1, [7])
    stream._idle = None
    assert stream.next_end(start) == {T0: 7}


def test_ids_are_not_known_after_a_restart() -> None:
    view = cluster(9)
    view.recreate("t", 2, [9])
    assert planner(view, fail=True).next_end({T0: 5}) == {T0: 9}


def test_tasks_learn_the_ids_at_the_time_of_planning() -> None:
    view = cluster(5)
    stream = planner(view, fail=True)
    start = stream.initial()
    end = stream.next_end(start)
    before = view.ids["t"]
    view.recreate("t", 2, [5])
    assert stream.plan(start, end).topic_ids == {"t": before}


def test_an_offset_that_went_back_in_a_replayed_batch() -> None:
    view = cluster(9)
    with pytest.raises(DataLossError, match="changed from 7 to 3"):
        planner(view, fail=True).plan({T0: 7}, {T0: 3})
    assert planned(planner(view, fail=False).plan({T0: 7}, {T0: 3})) == []


def with_minimum(view: Cluster, clock: Clock) -> StreamPlanner:
    limits = Limits(min_offsets=50, max_delay=60.0)
    return StreamPlanner(StreamTuning(Earliest(), limits, fail_on_data_loss=False), view, clock)


@pytest.mark.parametrize("sizes", [[200], [5, 200], [5, 60, 200], [100, 200], [0, 200], [99, 101, 300]])
def test_a_minimum_does_not_lose_records_of_a_recreated_topic(sizes: list[int]) -> None:
    view, clock = cluster(100), Clock()
    stream = with_minimum(view, clock)
    start = stream.initial()
    end = stream.next_end(start)
    assert end == {T0: 100}
    view.recreate("t", 2, [0])
    read = []
    start = end
    for size in sizes:
        view.logs[T0] = (0, size)
        for _ in range(61 if size == sizes[-1] else 3):
            clock.now += 1
            end = stream.next_end(start)
            read += [offset for r in stream.plan(start, end).ranges for offset in range(r.from_offset, r.until_offset)]
            start = end
    assert read == list(range(sizes[-1]))


@pytest.mark.parametrize("left", [(0, 5), None])
def test_a_minimum_does_not_hide_what_was_lost_until_records_come_again(left: tuple[int, int] | None) -> None:
    """Without ids only an offset tells; held back with the rest, it would be overtaken by the new log."""
    view, clock = without_ids(cluster(100, 100)), Clock()
    stream = with_minimum(view, clock)
    start = stream.next_end(stream.initial())
    view.logs = {tp: log for tp, log in {T0: left, T1: (0, 110)}.items() if log is not None}
    clock.now += 1
    end = stream.next_end(start)
    assert planned(stream.plan(start, end)) == [("t", 1, 100, 110)], "ten are too few, but do not wait"
    view.logs = {T0: (0, 120), T1: (0, 110)}
    clock.now += 1
    begin = 0 if left is None else left[1]
    assert planned(stream.plan(end, stream.next_end(end))) == [("t", 0, begin, 120)]


def test_a_limit_does_not_count_records_that_are_gone() -> None:
    """They would be crawled through, limit by limit, in batches without records."""
    view = cluster(1000, 10)
    view.logs[T0] = (900, 1000)
    stream, start = planner(view, fail=False, max_offsets=55), {T0: 0, T1: 0}
    end = stream.next_end(start)
    assert end == {T0: 950, T1: 5}
    assert planned(stream.plan(start, end)) == [("t", 0, 900, 950), ("t", 1, 0, 5)]
    assert [warning for warning in view.warnings if "[0, 900) of t-0 were removed by retention" in warning]
    last = stream.next_end(end)
    assert planned(stream.plan(end, last)) == [("t", 0, 950, 1000), ("t", 1, 5, 10)]
    assert len(view.warnings) == 1, "the loss is told once"


@pytest.mark.parametrize("limit", [None, 50])
def test_a_batch_of_all_there_is_leaves_the_loss_to_its_tasks(limit: int | None) -> None:
    """Without a limit, or with Trigger.Once, nothing is counted, so nobody has to ask where logs begin."""
    view = cluster(1000)
    view.logs[T0] = (900, 1000)
    stream = planner(view, fail=False, max_offsets=limit)
    end = stream.next_end({T0: 0}, unlimited=limit is not None)
    assert planned(stream.plan({T0: 0}, end)) == [("t", 0, 0, 1000)]
    assert view.warnings == []


def test_a_log_may_lose_records_between_the_look_that_finds_its_partition_and_the_next_one() -> None:
    class Racing(Cluster):
        def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            found = super().offsets(wanted)
            if wanted.get(T1) == EARLIEST:
                self.logs[T1] = (self.logs[T1][0] + 7, 100)
            return found

    view = Racing({T0: (0, 10), T1: (0, 100)})
    stream, start = planner(view, fail=False, max_offsets=1000), {T0: 0}
    end = stream.next_end(start)
    assert end == {T0: 10, T1: 100}
    assert "[0, 7) of t-1 were removed by retention" in view.warnings[0]
    assert planned(stream.plan(start, end)) == [("t", 0, 0, 10), ("t", 1, 14, 100)]


def test_what_is_left_of_a_replayed_batch_is_left_to_its_tasks() -> None:
    view = cluster(1000)
    view.logs[T0] = (900, 1000)
    end = planner(view, fail=False, max_offsets=50).next_end({T0: 0})
    assert planned(planner(view, fail=False, max_offsets=50).plan({T0: 0}, end)) == [("t", 0, 0, 950)]


def test_records_that_are_gone_end_a_query_in_its_task() -> None:
    view = cluster(1000)
    view.logs[T0] = (900, 1000)
    stream = planner(view, fail=True, max_offsets=50)
    end = stream.next_end({T0: 0})
    assert planned(stream.plan({T0: 0}, end)) == [("t", 0, 0, 50)]


def test_all_that_waited_is_gone() -> None:
    view = cluster(1000)
    stream, start = planner(view, fail=False, max_offsets=50), {T0: 10}
    stream.freeze()  # Trigger.AvailableNow
    view.logs[T0] = (1200, 1300)
    end = stream.next_end(start)
    assert end == {T0: 1000}
    assert planned(stream.plan(start, end)) == []
    assert "[10, 1000) of t-0" in view.warnings[0]


def test_a_minimum_does_not_count_records_that_are_gone() -> None:
    view, clock = cluster(100), Clock()
    stream = with_minimum(view, clock)
    start = stream.next_end(stream.initial())
    view.logs[T0] = (290, 300)
    clock.now += 1
    assert stream.next_end(start) == start
    assert view.warnings == [], "they are told of with the batch that passes over them"
    clock.now += 61
    end = stream.next_end(start)
    assert planned(stream.plan(start, end)) == [("t", 0, 290, 300)]
    assert len(view.warnings) == 1
