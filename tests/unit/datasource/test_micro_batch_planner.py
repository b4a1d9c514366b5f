"""Starts and ends of micro-batches without data loss."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    CommittedStart,
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    SpecificOffsets,
    SpecificTimestamps,
    StartingOffsetSpec,
)
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.planning.offset_resolution import start_may_change

if TYPE_CHECKING:
    from collections.abc import Mapping


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def planner(
    reader: FakeOffsetReader,
    start: StartingOffsetSpec | None = None,
    clock: FakeClock | None = None,
    **limits: float | None,
) -> MicroBatchPlanner:
    options = read_settings(start or Earliest(), ReadLimits(**limits))  # type: ignore[arg-type]
    return MicroBatchPlanner(options, reader, clock or FakeClock())


def first_end(stream: MicroBatchPlanner) -> dict[TopicPartition, int]:
    """As Spark starts a new query: only these two calls come before its first batch is in the checkpoint."""
    return stream.next_end_offsets(stream.initial_offsets())


def planned(plan: MicroBatchPlan) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


@pytest.mark.parametrize(
    ("spec", "may_change"),
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
def test_which_starts_may_change(spec: OffsetSpec, may_change: bool) -> None:
    assert start_may_change(spec) is may_change


def test_from_earliest_the_first_batch_has_everything() -> None:
    reader = cluster(10, 5)
    reader.logs[T1] = (2, 5)
    stream = planner(reader)
    start = stream.initial_offsets()
    assert start == {T0: 0, T1: 2}
    end = stream.next_end_offsets(start)
    assert end == {T0: 10, T1: 5}
    assert planned(stream.plan(start, end)) == [(0, 0, 10), (1, 2, 5)]
    assert stream.next_end_offsets(end) == end
    assert planned(stream.plan(end, end)) == []


def test_a_query_without_initial_offsets_is_resumed() -> None:
    stream = planner(cluster(10))
    assert stream.resumed
    assert stream.plan({T0: 4}, stream.next_end_offsets({T0: 4})).ranges
    assert stream.resumed
    stream.initial_offsets()
    assert not stream.resumed


def test_a_start_that_can_change_makes_an_empty_first_batch() -> None:
    reader = cluster(10)
    stream = planner(reader, Latest())
    start = stream.initial_offsets()
    reader.logs[T0] = (0, 14)
    assert stream.initial_offsets() == start == {T0: 10}, "resolved once"
    assert stream.next_end_offsets(start) == start
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [(0, 10, 14)]


def test_a_replay_of_the_empty_first_batch_reads_nothing_and_loses_nothing() -> None:
    reader = cluster(10)
    start = planner(reader, Latest()).initial_offsets()
    reader.logs[T0] = (0, 14)
    reader.logs[T1] = (0, 3)
    restarted_planner = planner(reader, Latest())  # the query died in its first batch: a new process
    later = restarted_planner.initial_offsets()
    assert later == {T0: 14, T1: 3}
    assert planned(restarted_planner.plan(later, start, recorded_start=start)) == []
    end = restarted_planner.next_end_offsets(start)
    assert planned(restarted_planner.plan(start, end)) == [(0, 10, 14), (1, 0, 3)]
    assert reader.warnings == []


def test_after_a_replay_of_the_empty_first_batch_nothing_is_delayed() -> None:
    reader = cluster(10)
    stream = planner(reader, GlobalTimestamp(10, "latest"))
    stream.fix_end_offsets()
    reader.logs[T0] = (0, 14)
    start = stream.initial_offsets()
    assert start == {T0: 10}
    restarted_planner = planner(reader, GlobalTimestamp(10, "latest"))
    restarted_planner.fix_end_offsets()
    assert restarted_planner.initial_offsets() == start, "resolved by its timestamp, which had no match before"
    assert planned(restarted_planner.plan(start, start, recorded_start=start)) == []
    assert restarted_planner.next_end_offsets(start) == {T0: 14}, (
        "otherwise a query with Trigger.AvailableNow would end"
    )


@pytest.mark.parametrize("spec", [Latest(), CommittedStart(Latest()), GlobalTimestamp(3, "latest")])
def test_a_first_batch_of_another_source_with_an_unknown_start_is_rejected(spec: StartingOffsetSpec) -> None:
    restarted_planner = planner(cluster(10), spec)
    start = restarted_planner.initial_offsets()
    for end in ({T0: 8}, start):
        with pytest.raises(OptionError, match=r"Its start is not known.* last line of .*sources/NAME/0"):
            restarted_planner.plan(start, end)
    assert planner(cluster(10), spec).plan(start, {T0: 8}, {T0: 8}).ranges == (), "our own one is not"


@pytest.mark.parametrize(
    ("spec", "first_offset"), [(GlobalTimestamp(3), 3), (Earliest(), 0), (SpecificOffsets({T0: 5}), 5)]
)
def test_a_first_batch_of_another_source_is_read_if_its_start_is_reproducible(
    spec: StartingOffsetSpec, first_offset: int
) -> None:
    restarted_planner = planner(cluster(10), spec)
    assert planned(restarted_planner.plan(restarted_planner.initial_offsets(), {T0: 8})) == [(0, first_offset, 8)]
    assert planned(restarted_planner.plan({T0: 8}, restarted_planner.next_end_offsets({T0: 8}))) == [(0, 8, 10)]


def test_a_replayed_first_batch_from_earliest_reads_what_retention_left() -> None:
    reader = cluster(10, 10)
    first = planner(reader)
    end = first.next_end_offsets(first.initial_offsets())
    reader.logs = {T0: (4, 12), T1: (11, 12)}
    restarted_planner = planner(reader)
    assert planned(restarted_planner.plan(restarted_planner.initial_offsets(), end)) == [(0, 4, 10)]


def test_trigger_once_is_rejected_with_a_start_that_can_change_and_else_takes_everything() -> None:
    stream = planner(cluster(10), Latest(), max_offsets=2)
    with pytest.raises(OptionError, match=r"Trigger\.Once, and for .* use Trigger\.AvailableNow if all"):
        stream.next_end_offsets(stream.initial_offsets(), unlimited=True)
    stream = planner(cluster(10), max_offsets=2)
    assert stream.next_end_offsets(stream.initial_offsets(), unlimited=True) == {T0: 10}
    restarted = planner(cluster(10), Latest(), max_offsets=2)
    assert restarted.next_end_offsets({T0: 4}, unlimited=True) == {T0: 10}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SpecificOffsets({T0: 3, T1: LATEST, T2: EARLIEST}), {T0: 3, T1: 6, T2: 1}),
        (SpecificOffsets({}, {"t": LATEST}), {T0: 9, T1: 6, T2: 4}),
        (GlobalTimestamp(5, "latest"), {T0: 5, T1: 5, T2: 4}),
        (SpecificTimestamps({T0: 0, T1: 2, T2: 0}), {T0: 0, T1: 2, T2: 1}),
    ],
)
def test_starting_offsets(spec: OffsetSpec, expected: Mapping[TopicPartition, int]) -> None:
    reader = cluster(9, 6, 4)
    reader.logs[T2] = (1, 4)
    assert planner(reader, spec).initial_offsets() == expected


def test_a_start_by_whole_topics_ignores_topics_created_later() -> None:
    """SPARK-58774: the option names the topics of the start only, after a restart too."""
    reader = cluster(9, 6)
    spec = SpecificOffsets({T1: 2}, {"t": EARLIEST})
    new = TopicPartition("u", 0)
    stream = planner(reader, spec)
    first = first_end(stream)
    assert planned(stream.plan(stream.initial_offsets(), first)) == [(0, 0, 9), (1, 2, 6)]
    for restarted in (False, True):
        reader = cluster(9, 6)
        stream = planner(reader, spec)
        assert first_end(stream) == first
        reader.logs[new], reader.ids["u"] = (0, 5), UUID(int=2)
        stream = planner(reader, spec) if restarted else stream
        end = stream.next_end_offsets(first)
        assert end == {**first, new: 5}
        assert [r for r in stream.plan(first, end).ranges if r.count()] == [OffsetRange("u", 0, 0, 5)]
    with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        first_end(planner(reader, spec))  # a new query that starts after the topic was created


def test_starting_offsets_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        first_end(planner(cluster(9, 6), SpecificOffsets({T0: 3})))
    with pytest.raises(InvalidOffsetsError, match="no record has timestamp"):
        first_end(planner(cluster(9, 6), GlobalTimestamp(7)))


def test_a_start_from_committed_offsets() -> None:
    reader = cluster(9, 6, 4)
    reader.group_offsets = {T0: 5, T1: 0, T2: 4}
    assert start_may_change(CommittedStart())
    stream = planner(reader, CommittedStart())
    start = stream.initial_offsets()
    assert start == {T0: 5, T1: 0, T2: 4}
    reader.group_offsets = {T0: 9}
    assert stream.next_end_offsets(start) == start, "it can change, so the first batch is empty"
    with pytest.raises(
        InvalidOffsetsError, match="no committed offset for t-1, t-2; set committedOffsetsFallback"
    ) as caught:
        first_end(planner(reader, CommittedStart()))
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert planner(reader, CommittedStart(Earliest())).initial_offsets() == {T0: 9, T1: 0, T2: 0}
    assert planner(reader, CommittedStart(Latest())).initial_offsets() == {T0: 9, T1: 6, T2: 4}


def test_missing_metadata_of_a_topic_is_retried() -> None:
    reader = FakeOffsetReader({})
    with pytest.raises(TopicNotFoundError):
        first_end(planner(reader))
    assert reader.waits == 2

    def appear(reader: FakeOffsetReader) -> None:
        reader.logs[T0] = (0, 7)

    reader = FakeOffsetReader({}, on_wait=appear)
    assert planner(reader).initial_offsets() == {T0: 0}


def test_new_partitions_are_read_from_their_start_within_a_limit() -> None:
    reader = cluster(10)
    stream = planner(reader, Latest(), max_offsets=10)
    start = stream.initial_offsets()
    stream.next_end_offsets(start)
    reader.logs |= {T0: (0, 15), T1: (0, 15)}
    end = stream.next_end_offsets(start)
    assert end == {T0: 12, T1: 7}
    assert planned(stream.plan(start, end)) == [(0, 10, 12), (1, 0, 7)]


def test_the_limit_as_in_sparks_test() -> None:
    stream = planner(cluster(101, 11, 1), max_offsets=10)
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    assert end == {T0: 8, T1: 1, T2: 1}
    assert stream.next_end_offsets(end) == {T0: 17, T1: 2, T2: 1}
    restarted = planner(cluster(101, 11, 1), max_offsets=10)
    assert restarted.next_end_offsets(end) == {T0: 17, T1: 2, T2: 1}
    assert restarted.next_end_offsets(end, unlimited=True) == {T0: 101, T1: 11, T2: 1}


def test_a_limit_in_bytes() -> None:
    reader = cluster(100, 100)
    reader.sizes = {T0: 10.0, T1: 30.0}
    stream = planner(reader, max_bytes=400)
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    assert end == {T0: 10, T1: 10}, "10 offsets of 10 bytes and 10 of 30"
    assert reader.sampled == [{T0, T1}]
    reader.sizes = {}
    assert stream.next_end_offsets(end) == {T0: 20, T1: 20}, "as large as earlier ones"
    assert planner(reader, max_bytes=10_000, max_offsets=3).next_end_offsets(start) == {T0: 1, T1: 1}
    assert len(reader.warnings) == 1, "no record could be sampled"
    reader.sizes = {T0: 1.0}
    assert planner(reader, max_bytes=10_000).next_end_offsets(start) == {T0: 100, T1: 100}
    assert planner(reader, max_bytes=10_000).next_end_offsets(start, unlimited=True) == {T0: 100, T1: 100}


def test_the_record_sizes_of_deleted_topics_are_forgotten() -> None:
    reader = cluster(100)
    reader.sizes = {T0: 1e6}
    options = read_settings(Earliest(), ReadLimits(max_bytes=10 * 1024), fail_on_data_loss=False)
    stream = MicroBatchPlanner(options, reader, FakeClock())
    start = first_end(stream)
    assert start == {T0: 1}
    new = TopicPartition("new", 0)
    reader.logs = {new: (0, 100)}
    reader.sizes = {}
    assert stream.next_end_offsets(start) == {new: 10}, "1024 bytes each, because none could be sampled"
    assert "no record could be sampled" in reader.warnings[-1]


def test_only_the_partitions_with_the_most_to_read_are_sampled() -> None:
    reader = cluster(*range(1, 101))
    stream = planner(reader, max_bytes=1)
    stream.next_end_offsets(stream.initial_offsets())
    assert reader.sampled == [{TopicPartition("t", number) for number in range(84, 100)}]


def test_the_largest_limit_with_a_start_inside() -> None:
    stream = planner(cluster(10), SpecificOffsets({T0: 5}), max_offsets=MAX_OFFSET)
    assert stream.next_end_offsets(stream.initial_offsets()) == {T0: 10}


def test_both_limits_as_in_sparks_test() -> None:
    reader, clock = cluster(21, 11, 1), FakeClock()
    stream = planner(reader, clock=clock, min_offsets=15, max_offsets=20, max_delay=5.0)
    end = stream.next_end_offsets(stream.initial_offsets())
    assert end == {T0: 12, T1: 6, T2: 1}, "19 of 33"
    clock.now += 1
    assert stream.next_end_offsets(end) == end, "14 remain: too few"
    reader.logs |= {T0: (0, 30), T1: (0, 21)}
    clock.now += 1
    capped = stream.next_end_offsets(end)
    assert sum(capped.values()) - sum(end.values()) <= 20
    clock.now += 4
    assert stream.next_end_offsets(capped) == capped
    clock.now += 1
    assert stream.next_end_offsets(capped) == {T0: 30, T1: 21, T2: 1}
    assert stream.next_end_offsets(capped, unlimited=True) == {T0: 30, T1: 21, T2: 1}


def test_the_minimum_delays_a_batch_but_not_with_trigger_once() -> None:
    reader, clock = cluster(3), FakeClock()
    stream = planner(reader, clock=clock, min_offsets=15, max_delay=5.0)
    end = stream.next_end_offsets(stream.initial_offsets())
    assert end == {T0: 3}
    reader.logs[T0] = (0, 9)
    assert stream.next_end_offsets(end) == end
    assert stream.next_end_offsets(end, unlimited=True) == {T0: 9}


@pytest.mark.parametrize(("log", "enough"), [((0, 49), True), ((0, 48), False), ((20, 49), True), ((40, 48), False)])
def test_the_minimum_counts_the_offsets_of_new_partitions_from_zero(log: tuple[int, int], enough: bool) -> None:
    reader, clock = cluster(100), FakeClock()
    limits = ReadLimits(min_offsets=50, max_delay=60.0)
    stream = MicroBatchPlanner(read_settings(Earliest(), limits, fail_on_data_loss=False), reader, clock)
    end = stream.next_end_offsets(stream.initial_offsets())
    reader.logs = {T0: (0, 101), T1: log}
    assert stream.next_end_offsets(end) == ({T0: 101, T1: log[1]} if enough else end)


@pytest.mark.parametrize("refresh_seconds", [0.0, 0.03, 0.1, 2.0])
@pytest.mark.parametrize("polling_seconds", [0.0, 0.01, 0.07, 0.5])
def test_an_idle_stream_refreshes_in_each_call_and_begins_ten_times_a_second(
    refresh_seconds: float, polling_seconds: float
) -> None:
    clock, refreshed_at = FakeClock(), list[float]()

    def refresh(reader: FakeOffsetReader) -> None:
        refreshed_at.append(clock.now)
        clock.now += refresh_seconds

    reader = cluster(3)
    stream = planner(reader, clock=clock)
    reader.on_offsets, reader.on_sleep = refresh, clock.sleep
    start = stream.next_end_offsets({T0: 0})
    for _ in range(30):
        called_at = clock.now
        assert stream.next_end_offsets(start) == start
        assert called_at <= refreshed_at[-1] <= called_at + 0.1 + 1e-6, "the answer is not older than the question"
        assert clock.now <= called_at + 0.1 + refresh_seconds + 1e-6, "other sources wait"
        clock.now += polling_seconds
    pauses = [later - earlier for earlier, later in pairwise(refreshed_at[1:])]
    assert pauses == pytest.approx([max(0.1, refresh_seconds + polling_seconds)] * 29)


def test_a_record_that_was_appended_before_the_call_is_in_the_answer() -> None:
    reader, clock = cluster(3), FakeClock()
    reader.on_sleep = clock.sleep
    stream = planner(reader, clock=clock)
    start = stream.next_end_offsets({T0: 0})
    for end in range(4, 30):
        assert stream.next_end_offsets(start) == start
        reader.logs[T0] = (0, end)
        assert stream.next_end_offsets(start) == {T0: end}, "also right after an idle answer"
        start = {T0: end}


def test_there_is_a_pause_only_after_an_idle_answer_for_the_same_start() -> None:
    reader = cluster(3)
    pauses: list[float] = []
    reader.on_sleep = pauses.append
    stream = planner(reader)
    start = stream.next_end_offsets({T0: 0})
    assert stream.next_end_offsets(start) == start
    assert pauses == [], "the batch before was not idle"
    assert stream.next_end_offsets({T0: 2}) == {T0: 3}
    assert stream.next_end_offsets(start) == start
    assert stream.next_end_offsets(start, unlimited=True) == start
    assert pauses == []
    assert stream.next_end_offsets(start) == start
    assert pauses == pytest.approx([0.1])


def idle_planner(described: int) -> tuple[MicroBatchPlanner, FakeOffsetReader, FakeClock]:
    reader, clock = cluster(3, 5), FakeClock()
    reader.described, reader.on_sleep = described, clock.sleep
    stream = planner(reader, clock=clock)
    assert stream.next_end_offsets({T0: 3, T1: 5}) == {T0: 3, T1: 5}
    return stream, reader, clock


@pytest.mark.parametrize(("described", "refreshes"), [(300, 31), (301, 4), (10_000, 4)])
def test_an_idle_stream_uses_metadata_of_many_partitions_for_a_second(described: int, refreshes: int) -> None:
    stream, reader, clock = idle_planner(described)
    requests: list[float] = []
    reader.on_offsets = lambda _: requests.append(clock.now)
    for _ in range(30):
        assert stream.next_end_offsets({T0: 3, T1: 5}) == {T0: 3, T1: 5}
    assert (len(requests), reader.refreshes) == (30, refreshes), "ends are requested each time"


def test_old_metadata_never_shows_more_than_that_there_is_nothing_to_read() -> None:
    """With any other end, the metadata is requested again: it may be a topic that was recreated."""
    start = {T0: 3, T1: 5}
    stream, reader, _ = idle_planner(1000)
    reader.logs[T1] = (0, 6)
    assert stream.next_end_offsets(start) == {T0: 3, T1: 6}
    assert (reader.refreshes, stream.known_latest) == (2, {T0: 3, T1: 6})
    for ends in ([3, 4], [9, 9], [3]):
        stream, reader, _ = idle_planner(1000)
        reader.recreate("t", 2, ends)
        with pytest.raises(DataLossError, match="deleted and recreated"):
            stream.next_end_offsets(start)
    stream, reader, clock = idle_planner(1000)
    reader.logs[T2] = (0, 1)
    clock.now += 1
    assert stream.next_end_offsets(start) == {**start, T2: 1}, "a new partition, after a second"


def test_read_committed_waits_at_the_last_stable_offset() -> None:
    reader = cluster(10)
    reader.last_stable_offsets[T0] = 4
    stream = MicroBatchPlanner(read_settings(SpecificOffsets({T0: 7}), read_committed=True), reader, FakeClock())
    start = stream.initial_offsets()
    assert stream.next_end_offsets(start) == start, "beyond it, but in the log: not lost"
    assert reader.waits == 0
    reader.last_stable_offsets[T0] = 9
    assert stream.next_end_offsets(start) == {T0: 9}


def test_there_may_be_more_tasks_than_partitions() -> None:
    reader = cluster(10, 10, 1)
    options = read_settings(Earliest(), min_partitions=6, max_records_per_partition=4)
    stream = MicroBatchPlanner(options, reader, FakeClock())
    start = stream.initial_offsets()
    ranges = stream.plan(start, stream.next_end_offsets(start)).ranges
    assert len(ranges) >= 6
    assert max(r.count() for r in ranges) <= 4
    assert sum(r.count() for r in ranges) == 21


def test_the_progress_report_has_the_latest_offsets_beyond_a_limit() -> None:
    stream = planner(cluster(10), max_offsets=1)
    assert stream.known_latest is None
    stream.next_end_offsets(stream.initial_offsets())
    assert stream.known_latest == {T0: 10}


def test_a_replayed_batch_looks_up_the_starts_of_its_new_partitions() -> None:
    reader = cluster(10, 10)
    restarted_planner = planner(reader)
    assert planned(restarted_planner.plan({T0: 4}, {T0: 6, T1: 3})) == [(0, 4, 6), (1, 0, 3)]
    assert planned(restarted_planner.plan({T0: 4}, {T0: 6, T1: 3})) == [(0, 4, 6), (1, 0, 3)]


@given(
    st.integers(1, 40),
    st.sampled_from([Earliest(), Latest()]),
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=8),
    st.sets(st.integers(0, 20)),
)
def test_every_offset_is_read_once_despite_changes_between_batches(
    limit: int, spec: OffsetSpec, growth: list[list[int]], restarts: set[int]
) -> None:
    """Logs grow, partitions are added, the query is restarted between any two batches."""
    reader, clock = cluster(*growth[0]), FakeClock()
    stream = planner(reader, spec, clock, max_offsets=limit)
    start = stream.initial_offsets()
    first = dict(start)
    read: dict[TopicPartition, int] = dict(start)
    steps = growth[1:]
    for step in range(500):
        if steps:
            for partition, more in enumerate(steps.pop(0)):
                tp = TopicPartition("t", partition)
                reader.logs[tp] = (0, reader.logs.get(tp, (0, 0))[1] + more)
        clock.now += 1
        end = stream.next_end_offsets(start)
        if step in restarts and step > 0:
            stream = planner(reader, spec, clock, max_offsets=limit)
        for r in stream.plan(start, end).ranges:
            assert r.from_offset == read.get(r.topic_partition, 0)
            read[r.topic_partition] = r.until_offset
        done = end == start and not steps and step > 0
        start = end
        if done:
            break
    assert read == {tp: log[1] for tp, log in reader.logs.items() if log[1] or tp in first}
