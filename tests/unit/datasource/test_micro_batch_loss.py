"""Records, partitions and topics that are lost between two batches, for both values of failOnDataLoss."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import (
    FakeClock,
    FakeOffsetReader,
    cluster,
    without_ids,
)

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import Earliest, OffsetSpec, SpecificOffsets
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)


def planner(
    reader: FakeOffsetReader,
    *,
    fail: bool,
    start: OffsetSpec | None = None,
    max_offsets: int | None = None,
    min_offsets: int | None = None,
    clock: FakeClock | None = None,
) -> MicroBatchPlanner:
    limits = ReadLimits(max_offsets=max_offsets, min_offsets=min_offsets)
    options = read_settings(start or Earliest(), limits, fail_on_data_loss=fail)
    return MicroBatchPlanner(options, reader, clock or FakeClock())


def planned(plan: MicroBatchPlan) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def test_a_deleted_partition() -> None:
    reader = cluster(10, 10)
    del reader.logs[T1]
    start = {T0: 4, T1: 4}
    with pytest.raises(DataLossError, match=r"t-1 do not exist any more.*PARTITIONS_DELETED.*failOnDataLoss=false"):
        planner(reader, fail=True).next_end_offsets(start)
    stream = planner(reader, fail=False)
    end = stream.next_end_offsets(start)
    assert end == {T0: 10}
    assert planned(stream.plan(start, end)) == [("t", 0, 4, 10)]
    assert "t-1 do not exist any more" in reader.warnings[0]
    with pytest.raises(DataLossError, match="t-1 do not exist any more"):
        planner(reader, fail=True).plan(start, end)


@pytest.mark.parametrize("replayed", [False, True])
def test_an_existing_partition_that_is_not_selected_any_more(replayed: bool) -> None:
    """The subscription was changed between two runs: nothing is deleted."""
    reader = cluster(10, 10)
    reader.unselected = {T1}

    def run_batch(fail: bool) -> list[tuple[str, int, int, int]]:
        stream, start = planner(reader, fail=fail), {T0: 4, T1: 4}
        end = {T0: 10} if replayed else stream.next_end_offsets(start)
        assert end == {T0: 10}
        return planned(stream.plan(start, end))

    with pytest.raises(DataLossError, match=r"t-1 are not selected any more.*they exist.*Include them again") as caught:
        run_batch(True)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert "do not exist" not in str(caught.value)
    assert run_batch(False) == [("t", 0, 4, 10)]
    assert "read from their start" in reader.warnings[0]


def test_a_partition_that_is_selected_again_after_a_batch_without_it() -> None:
    """An earlier run planned the batch while the partition was not selected."""
    start, end = {T0: 4, T1: 4}, {T0: 10}
    with pytest.raises(DataLossError, match=r"t-1 are not part of this batch.*Now they exist and are selected"):
        planner(cluster(10, 10), fail=True).plan(start, end)
    reader = cluster(10, 10)
    stream = planner(reader, fail=False)
    assert planned(stream.plan(start, end)) == [("t", 0, 4, 10)]
    assert "do not exist" not in reader.warnings[0]
    assert "next batch reads them from their start" in reader.warnings[0]
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t", 1, 0, 10)]


def test_one_partition_may_be_deleted_and_another_not_selected() -> None:
    reader = cluster(10, 10)
    reader.unselected = {T1}
    assert planner(reader, fail=False).next_end_offsets({T0: 4, T1: 4, T2: 4}) == {T0: 10}
    assert "t-2 do not exist any more" in reader.warnings[0]
    assert "t-1 are not selected any more" in reader.warnings[1]


def test_if_all_partitions_are_deleted_the_end_keeps_their_offsets() -> None:
    reader = cluster(10)
    stream = planner(reader, fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.logs.clear()
    reader.ids.clear()
    assert stream.next_end_offsets(start) == start  # SPARK-41375
    reader.logs[U0] = (0, 3)
    assert stream.next_end_offsets(start) == {U0: 3}


def test_an_end_before_the_start_is_data_loss_after_retries() -> None:
    reader = without_ids(cluster(1))
    with pytest.raises(DataLossError, match=r"offset was changed from 2 to 1.*PARTITION_OFFSET_CHANGED"):
        planner(reader, fail=True).next_end_offsets({T0: 2})
    assert reader.waits == 2
    stream = planner(reader, fail=False)
    end = stream.next_end_offsets({T0: 2})
    assert end == {T0: 1}
    assert planned(stream.plan({T0: 2}, end)) == []
    assert "changed from 2 to 1" in reader.warnings[0]
    reader.logs[T0] = (0, 5)
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t", 0, 1, 5)]


@pytest.mark.parametrize("fail", [True, False])
def test_a_missing_partition_without_read_records_is_retried(fail: bool) -> None:
    def appear(reader: FakeOffsetReader) -> None:
        reader.logs[T1] = (0, 9)

    reader = cluster(9)
    reader.on_wait = appear
    assert planner(reader, fail=fail).next_end_offsets({T0: 9, T1: 0}) == {T0: 9, T1: 9}
    assert (reader.confirmations, reader.warnings) == (1, [])


@pytest.mark.parametrize("fail", [True, False])
def test_an_end_that_lagged_is_no_loss(fail: bool) -> None:
    def catch_up(reader: FakeOffsetReader) -> None:
        reader.logs = {T0: (0, 9), T1: (0, 9)}

    reader = cluster(1, 1)
    reader.on_wait = catch_up
    assert planner(reader, fail=fail).next_end_offsets({T0: 2, T1: 9}) == {T0: 9, T1: 9}
    assert (reader.waits, reader.floor_requests, reader.warnings) == (1, [{"t"}], [])


def test_a_recreated_topic_is_confirmed_once() -> None:
    """Each confirmation takes five seconds. A lower end of the new topic is no truncation, which is requested again."""
    reader = cluster(9)
    stream = planner(reader, fail=False)
    end = stream.next_end_offsets(stream.initial_offsets())
    reader.recreate("t", 2, [3])
    assert stream.next_end_offsets(end) == {T0: 0}
    assert (reader.confirmations, reader.floor_requests) == (1, [])


def test_a_topic_that_is_confirmed_as_missing_is_not_confirmed_again() -> None:
    """The other partition is only unknown to the broker that responded first."""
    reader = cluster(9, 9)
    stream = planner(reader, fail=False)
    end = stream.next_end_offsets(stream.initial_offsets())
    del reader.logs[T0], reader.logs[T1]
    confirmed: list[set[TopicPartition]] = []
    confirm_missing = reader.confirm_missing

    def confirm(suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
        confirmed.append(set(suspects))
        reader.logs[T1] = (0, 9)
        return confirm_missing(suspects)

    reader.confirm_missing = confirm  # type: ignore[method-assign]
    assert stream.next_end_offsets(end) == {T1: 9}
    assert confirmed == [{T0, T1}]


@pytest.mark.parametrize("fail", [True, False])
def test_several_brokers_are_asked_before_an_end_is_accepted_even_without_retries(fail: bool) -> None:
    """With fetchOffset.numRetries=1, the end of a deposed leader was accepted."""

    class DeposedLeader(FakeOffsetReader):
        def raise_epoch_floors(self, topics: Collection[str]) -> None:
            self.logs = {T0: (0, 9)}

    reader = DeposedLeader({T0: (0, 1)}, {"t": UUID(int=1)})
    options = read_settings(Earliest(), fail_on_data_loss=fail, max_attempts=1)
    assert MicroBatchPlanner(options, reader, FakeClock()).next_end_offsets({T0: 5}) == {T0: 9}
    assert reader.warnings == []


def test_several_brokers_are_asked_before_a_log_start_is_accepted() -> None:
    """Retention of a leader that was deposed may have deleted records that the current leader still has."""

    class DeposedLeader(FakeOffsetReader):
        def raise_epoch_floors(self, topics: Collection[str]) -> None:
            super().raise_epoch_floors(topics)
            self.logs[T0] = (4, 10)

    reader = DeposedLeader({T0: (8, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    stream = planner(reader, fail=False)
    start = {T0: 3, T1: 3}
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t", 0, 4, 10), ("t", 1, 3, 10)]
    assert reader.losses == [(DataLossCause.AGED_OUT, {T0: 1})]
    assert reader.floor_requests == [{"t"}]
    stream.next_end_offsets(end)
    assert reader.floor_requests == [{"t"}], "nothing seems to be lost"


def test_a_starting_offset_beyond_the_end() -> None:
    reader = cluster(5)
    stream = planner(reader, fail=True, start=SpecificOffsets({T0: 9}))
    with pytest.raises(DataLossError, match="the requested start lies beyond the end"):
        stream.next_end_offsets(stream.initial_offsets())
    stream = planner(reader, fail=False, start=SpecificOffsets({T0: 9}))
    end = stream.next_end_offsets(stream.initial_offsets())
    assert planned(stream.plan(stream.initial_offsets(), end)) == []


def test_an_added_partition_that_does_not_start_at_zero() -> None:
    reader = cluster(5)
    reader.logs[T1] = (3, 8)
    with pytest.raises(DataLossError, match="t-1 starts from offset 3 instead of 0"):
        planner(reader, fail=True).next_end_offsets({T0: 5})
    stream = planner(reader, fail=False)
    end = stream.next_end_offsets({T0: 5})
    assert planned(stream.plan({T0: 5}, end)) == [("t", 1, 3, 8)]
    assert "instead of 0" in reader.warnings[0]
    with pytest.raises(DataLossError, match="instead of 0"):
        planner(reader, fail=True).plan({T0: 5}, end)


@pytest.mark.parametrize("fail", [True, False])
def test_several_brokers_are_asked_before_an_added_partition_starts_after_zero(fail: bool) -> None:
    class DeposedLeader(FakeOffsetReader):
        def raise_epoch_floors(self, topics: Collection[str]) -> None:
            super().raise_epoch_floors(topics)
            self.logs[T1] = (0, 10)

    reader = DeposedLeader({T0: (0, 10), T1: (5, 10), T2: (0, 10)}, {"t": UUID(int=1)})
    stream, start = planner(reader, fail=fail), {T0: 3}
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t", 0, 3, 10), ("t", 1, 0, 10), ("t", 2, 0, 10)]
    assert (reader.losses, reader.floor_requests) == ([], [{"t"}])


def test_the_partitions_of_a_new_query_may_start_anywhere() -> None:
    reader = cluster(5)
    reader.logs[T0] = (3, 5)
    stream = planner(reader, fail=True)
    start = stream.initial_offsets()
    assert planned(stream.plan(start, stream.next_end_offsets(start))) == [("t", 0, 3, 5)]


@pytest.mark.parametrize("high_watermark", [6, 7])
def test_beyond_the_last_stable_offset_the_high_watermark_decides(high_watermark: int) -> None:
    reader = without_ids(cluster(high_watermark))
    reader.last_stable_offsets[T0] = 4
    stream = MicroBatchPlanner(
        read_settings(Earliest(), read_committed=True, fail_on_data_loss=False), reader, FakeClock()
    )
    end = stream.next_end_offsets({T0: 7})
    lost = high_watermark < 7
    assert (end, reader.waits) == (({T0: 4}, 2) if lost else ({T0: 7}, 0))
    assert ["changed from 7 to 4" in warning for warning in reader.warnings] == [True] * lost


def test_with_read_uncommitted_the_end_decides() -> None:
    reader = without_ids(cluster(9))
    reader.last_stable_offsets[T0] = 4  # the ListOffsets response; the high watermark is not requested
    with pytest.raises(DataLossError, match="changed from 7 to 4"):
        planner(reader, fail=True).next_end_offsets({T0: 7})


@pytest.mark.parametrize("replayed", [True, False])
def test_an_added_partition_without_remaining_records_has_an_empty_range(replayed: bool) -> None:
    """Retention has passed the end of the batch: its remaining range is empty, and not reported as another loss."""
    reader = cluster(5, 5)
    stream, start = planner(reader, fail=False), {T0: 2}
    end = {T0: 5, T1: 5} if replayed else stream.next_end_offsets(start)
    reader.logs[T1] = (7, 9)
    assert planned(stream.plan(start, end)) == [("t", 0, 2, 5)]
    assert len(reader.warnings) == 1
    assert "t-1 starts from offset 7 instead of 0" in reader.warnings[0]


def test_an_added_partition_that_was_deleted() -> None:
    reader = cluster(5)
    with pytest.raises(DataLossError, match=r"t-1 cannot be found.*INITIAL_OFFSET_NOT_FOUND"):
        planner(reader, fail=True).plan({T0: 2}, {T0: 5, T1: 5})
    assert planned(planner(reader, fail=False).plan({T0: 2}, {T0: 5, T1: 5})) == [("t", 0, 2, 5)]


@pytest.mark.parametrize("fail", [True, False])
def test_an_added_partition_missing_in_stale_metadata_is_not_lost(fail: bool) -> None:
    """The batch is planned again after a restart: partitions that it lacks are never read."""

    class Stale(FakeOffsetReader):
        def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            offsets_now = super().offsets(wanted)
            return (
                offsets_now
                if self.waits and self.refreshes > 1
                else {tp: end for tp, end in offsets_now.items() if tp != T1}
            )

    reader = Stale({T0: (0, 9), T1: (0, 9)})
    assert planned(planner(reader, fail=fail).plan({T0: 2}, {T0: 5, T1: 5})) == [("t", 0, 2, 5), ("t", 1, 0, 5)]
    assert (reader.waits, reader.warnings) == (1, [])


def test_a_recreated_topic_is_detected_by_its_id() -> None:
    reader = cluster(5, 5)
    stream = planner(reader, fail=True)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.recreate("t", 2, [9, 9])
    with pytest.raises(DataLossError, match=r"deleted and recreated, its id was 0.*1 and is 0.*2 now") as caught:
        stream.next_end_offsets(start)
    assert caught.value.topic == "t"
    assert reader.confirmations == 1, "the metadata may be stale"


@pytest.mark.parametrize("ends", [[9, 3], [5, 5], [5], [0, 0]])
@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_recreated_topic_is_read_from_its_start_if_loss_is_allowed(ends: list[int], limit: int | None) -> None:
    reader = cluster(5, 5)
    stream = planner(reader, fail=False, max_offsets=limit)
    start = stream.initial_offsets()
    while (end := stream.next_end_offsets(start)) != start:
        start = end
    reader.recreate("t", 2, ends)
    read = []
    for _ in range(30):
        end = stream.next_end_offsets(start)
        read += planned(stream.plan(start, end))
        start = end
    for partition, size in enumerate(ends):
        offsets = [offset for _, number, a, b in read if number == partition for offset in range(a, b)]
        assert offsets == list(range(size))
    assert sum("deleted and recreated" in warning for warning in reader.warnings) == 1


@pytest.mark.parametrize("size", [3, 5, 200])
def test_a_restart_within_the_batch_reads_a_recreated_topic_from_its_start(size: int) -> None:
    """The restarted planner does not have the old id: it starts at the end in the checkpoint."""
    reader = cluster(5)
    stream = planner(reader, fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.recreate("t", 2, [size])
    end = stream.next_end_offsets(start)
    restarted = planner(reader, fail=False)  # killed before the batch was committed
    assert planned(restarted.plan(start, end)) == planned(stream.plan(start, end)) == []
    assert planned(restarted.plan(end, restarted.next_end_offsets(end))) == [("t", 0, 0, size)]


def test_a_recreated_topic_without_read_records_needs_no_empty_batch() -> None:
    reader = cluster(0)
    stream = planner(reader, fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.recreate("t", 2, [7])
    assert planned(stream.plan(start, stream.next_end_offsets(start))) == [("t", 0, 0, 7)]


def test_stale_metadata_about_a_topic_is_no_recreation() -> None:
    reader = cluster(5)
    stream = planner(reader, fail=True)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.recreate("t", 2, [5])
    reader.on_wait = lambda reader: reader.recreate("t", 1, [7])
    assert stream.next_end_offsets(start) == {T0: 7}


def test_ids_are_unknown_after_a_restart() -> None:
    reader = cluster(9)
    reader.recreate("t", 2, [9])
    assert planner(reader, fail=True).next_end_offsets({T0: 5}) == {T0: 9}


def test_tasks_get_the_ids_as_of_planning() -> None:
    reader = cluster(5)
    stream = planner(reader, fail=True)
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    before = reader.ids["t"]
    reader.recreate("t", 2, [5])
    assert stream.plan(start, end).topic_ids == {"t": before}


def test_an_end_before_the_start_in_a_replayed_batch() -> None:
    reader = cluster(9)
    with pytest.raises(DataLossError, match="changed from 7 to 3"):
        planner(reader, fail=True).plan({T0: 7}, {T0: 3})
    assert planned(planner(reader, fail=False).plan({T0: 7}, {T0: 3})) == []


def with_minimum(reader: FakeOffsetReader, clock: FakeClock) -> MicroBatchPlanner:
    limits = ReadLimits(min_offsets=50, max_delay=60.0)
    return MicroBatchPlanner(read_settings(Earliest(), limits, fail_on_data_loss=False), reader, clock)


@pytest.mark.parametrize("sizes", [[200], [5, 200], [5, 60, 200], [100, 200], [0, 200], [99, 101, 300]])
def test_a_minimum_does_not_lose_records_of_a_recreated_topic(sizes: list[int]) -> None:
    reader, clock = cluster(100), FakeClock()
    stream = with_minimum(reader, clock)
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    assert end == {T0: 100}
    reader.recreate("t", 2, [0])
    read = []
    start = end
    for size in sizes:
        reader.logs[T0] = (0, size)
        for _ in range(61 if size == sizes[-1] else 3):
            clock.now += 1
            end = stream.next_end_offsets(start)
            read += [offset for r in stream.plan(start, end).ranges for offset in range(r.from_offset, r.until_offset)]
            start = end
    assert read == list(range(sizes[-1]))


@pytest.mark.parametrize("remaining", [(0, 5), None])
def test_a_minimum_does_not_delay_the_report_of_a_loss(remaining: tuple[int, int] | None) -> None:
    """Without ids only offsets show the loss; delayed by the minimum, they would be valid in the new log."""
    reader, clock = without_ids(cluster(100, 100)), FakeClock()
    stream = with_minimum(reader, clock)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.logs = {tp: log for tp, log in {T0: remaining, T1: (0, 110)}.items() if log is not None}
    clock.now += 1
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t", 1, 100, 110)], "ten are too few, but are not delayed"
    reader.logs = {T0: (0, 120), T1: (0, 110)}
    clock.now += 1
    begin = 0 if remaining is None else remaining[1]
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t", 0, begin, 120)]


def test_a_limit_does_not_count_deleted_records() -> None:
    """Otherwise batches without records would pass them, limit by limit."""
    reader = cluster(1000, 10)
    reader.logs[T0] = (900, 1000)
    stream, start = planner(reader, fail=False, max_offsets=55), {T0: 0, T1: 0}
    end = stream.next_end_offsets(start)
    assert end == {T0: 950, T1: 5}
    assert planned(stream.plan(start, end)) == [("t", 0, 900, 950), ("t", 1, 0, 5)]
    assert [warning for warning in reader.warnings if "[0, 900) of t-0 were removed by retention" in warning]
    last = stream.next_end_offsets(end)
    assert planned(stream.plan(end, last)) == [("t", 0, 950, 1000), ("t", 1, 5, 10)]
    assert len(reader.warnings) == 1, "the loss is reported once"


@pytest.mark.parametrize("limit", [None, 50])
def test_an_unlimited_batch_counts_expired_records_too(limit: int | None) -> None:
    """Its tasks would skip them, but the monitor reads only what planners count."""
    reader = cluster(1000)
    reader.logs[T0] = (900, 1000)
    stream = planner(reader, fail=False, max_offsets=limit)
    end = stream.next_end_offsets({T0: 0}, unlimited=limit is not None)
    assert planned(stream.plan({T0: 0}, end)) == [("t", 0, 900, 1000)]
    assert reader.losses == [(DataLossCause.AGED_OUT, {T0: 900})]


def test_a_loss_is_counted_with_the_batch_that_skips_it() -> None:
    """It was counted at each request for more records, as often as retention had moved the log start."""
    reader = cluster(100)
    clock = FakeClock()
    stream = planner(reader, fail=False, min_offsets=1000, clock=clock)
    start = stream.next_end_offsets({T0: 0})
    assert start == {T0: 100}
    for log_start in (3, 5):
        reader.logs[T1] = (log_start, 8)
        clock.now += 10
        assert stream.next_end_offsets(start) == start
        assert reader.losses == []
    reader.logs[T1] = (7, 2000)
    clock.now += 10
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t", 1, 7, 2000)]
    assert reader.losses == [(DataLossCause.AGED_OUT, {T1: 7})]


def test_each_loss_has_its_cause_and_the_offsets_that_are_known() -> None:
    reader = cluster(100, 100, 100)
    reader.logs.update({TopicPartition("u", 0): (0, 8), TopicPartition("v", 0): (3, 8)})
    reader.ids |= {"u": UUID(int=2)}
    stream = planner(reader, fail=False)
    start = stream.next_end_offsets({T0: 0, T1: 0, T2: 0, U0: 0})
    assert reader.losses[0] == (DataLossCause.AGED_OUT, {TopicPartition("v", 0): 3})
    reader.losses.clear()
    reader.recreate("u", 7, [4])
    del reader.logs[T0]
    reader.logs |= {T1: (0, 40), T2: (120, 150)}
    stream.next_end_offsets(start)
    assert reader.losses == [
        (DataLossCause.RECREATED, {U0: 0}),
        (DataLossCause.DELETED, {T0: 0}),
        (DataLossCause.BEYOND_END, {T1: 0}),
        (DataLossCause.AGED_OUT, {T2: 20}),
    ]


def test_a_new_partition_may_lose_records_between_two_requests() -> None:
    class Racing(FakeOffsetReader):
        def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            offsets_now = super().offsets(wanted)
            if wanted.get(T1) == EARLIEST:
                self.logs[T1] = (self.logs[T1][0] + 7, 100)
            return offsets_now

    reader = Racing({T0: (0, 10), T1: (0, 100)})
    stream, start = planner(reader, fail=False, max_offsets=1000), {T0: 0}
    end = stream.next_end_offsets(start)
    assert end == {T0: 10, T1: 100}
    assert "[0, 14) of t-1 were removed by retention" in reader.warnings[0]  # confirmed by a second request
    assert planned(stream.plan(start, end)) == [("t", 0, 0, 10), ("t", 1, 28, 100)]


def test_a_loss_in_a_replayed_batch_is_left_to_its_tasks() -> None:
    reader = cluster(1000)
    reader.logs[T0] = (900, 1000)
    end = planner(reader, fail=False, max_offsets=50).next_end_offsets({T0: 0})
    assert planned(planner(reader, fail=False, max_offsets=50).plan({T0: 0}, end)) == [("t", 0, 0, 950)]


def test_with_fail_on_data_loss_the_task_reports_deleted_records() -> None:
    reader = cluster(1000)
    reader.logs[T0] = (900, 1000)
    stream = planner(reader, fail=True, max_offsets=50)
    end = stream.next_end_offsets({T0: 0})
    assert planned(stream.plan({T0: 0}, end)) == [("t", 0, 0, 50)]


def test_all_unread_records_may_be_deleted() -> None:
    reader = cluster(1000)
    stream, start = planner(reader, fail=False, max_offsets=50), {T0: 10}
    stream.fix_end_offsets()  # Trigger.AvailableNow
    reader.logs[T0] = (1200, 1300)
    end = stream.next_end_offsets(start)
    assert end == {T0: 1000}
    assert planned(stream.plan(start, end)) == []
    assert "[10, 1000) of t-0" in reader.warnings[0]


def test_a_minimum_does_not_count_deleted_records() -> None:
    reader, clock = cluster(100), FakeClock()
    stream = with_minimum(reader, clock)
    start = stream.next_end_offsets(stream.initial_offsets())
    reader.logs[T0] = (290, 300)
    clock.now += 1
    assert stream.next_end_offsets(start) == start
    assert reader.warnings == [], "they are reported with the batch that skips them"
    clock.now += 61
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t", 0, 290, 300)]
    assert len(reader.warnings) == 1
