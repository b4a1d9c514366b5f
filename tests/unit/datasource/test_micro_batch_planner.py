"""Starts and ends of micro-batches, mostly without data loss, planned on a simulated cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.positions import at_time, at_times
from tests.unit.planning.planner_cluster import NewCluster, planned

from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    CommittedStart,
    OffsetSpec,
    StartingOffsetSpec,
)
from pyspark_kafka_direct.options.subscription import SubscribeStrategy
from pyspark_kafka_direct.planning.offset_resolution import start_may_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def first_end(stream: MicroBatchPlanner) -> dict[TopicPartition, int]:
    """As Spark starts a new query: only these two calls come before its first batch is in the checkpoint."""
    return stream.next_end_offsets(stream.initial_offsets())


@pytest.mark.parametrize(
    ("spec", "may_change"),
    [
        (AT_EARLIEST, False),
        (AT_LATEST, True),
        (at_time(5), True),
        (at_times({T0: 5}), True),
        (OffsetSpec({T0: 5, T1: EARLIEST}), False),
        (OffsetSpec({T0: 5, T1: LATEST}), True),
        (OffsetSpec({}, {"t": LATEST}), True),
        (OffsetSpec({}, {"t": EARLIEST}), False),
        (CommittedStart(), True),
    ],
)
def test_which_starts_may_change(spec: StartingOffsetSpec, may_change: bool) -> None:
    assert start_may_change(spec) is may_change


def test_from_earliest_the_first_batch_has_everything(cluster: NewCluster) -> None:
    brokers = cluster(10, 5)
    brokers.delete_records(T1, 2)
    stream = brokers.planner()
    start = stream.initial_offsets()
    assert start == {T0: 0, T1: 2}
    end = stream.next_end_offsets(start)
    assert end == {T0: 10, T1: 5}
    assert planned(stream.plan(start, end)) == [("t-0", 0, 10), ("t-1", 2, 5)]
    assert stream.next_end_offsets(end) == end
    assert planned(stream.plan(end, end)) == []


def test_a_query_without_initial_offsets_is_resumed(cluster: NewCluster) -> None:
    stream = cluster(10).planner()
    assert stream.resumed
    assert stream.plan({T0: 4}, stream.next_end_offsets({T0: 4})).ranges
    assert stream.resumed
    stream.initial_offsets()
    assert not stream.resumed


def test_a_start_that_can_change_makes_an_empty_first_batch(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner(AT_LATEST)
    start = stream.initial_offsets()
    brokers.grow(T0, 14)
    assert stream.initial_offsets() == start == {T0: 10}, "resolved once"
    assert stream.next_end_offsets(start) == start
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-0", 10, 14)]


def test_a_replay_of_the_empty_first_batch_reads_nothing_and_loses_nothing(cluster: NewCluster) -> None:
    brokers = cluster(10)
    start = brokers.planner(AT_LATEST).initial_offsets()
    brokers.grow(T0, 14)
    brokers.grow(T1, 3)
    restarted = brokers.planner(AT_LATEST)  # the query died in its first batch: a new process
    later = restarted.initial_offsets()
    assert later == {T0: 14, T1: 3}
    assert planned(restarted.plan(later, start, recorded_start=start)) == []
    end = restarted.next_end_offsets(start)
    assert planned(restarted.plan(start, end)) == [("t-0", 10, 14), ("t-1", 0, 3)]
    assert brokers.warnings == []


def test_after_a_replay_of_the_empty_first_batch_nothing_is_delayed(cluster: NewCluster) -> None:
    brokers = cluster(10)
    spec = at_time(10, "latest")
    stream = brokers.planner(spec)
    stream.fix_end_offsets()
    brokers.grow(T0, 14)
    start = stream.initial_offsets()
    assert start == {T0: 10}
    restarted = brokers.planner(spec)
    restarted.fix_end_offsets()
    assert restarted.initial_offsets() == start, "resolved by its timestamp, which had no match before"
    assert planned(restarted.plan(start, start, recorded_start=start)) == []
    assert restarted.next_end_offsets(start) == {T0: 14}, "otherwise a query with Trigger.AvailableNow would end"


@pytest.mark.parametrize("spec", [AT_LATEST, CommittedStart(AT_LATEST), at_time(3, "latest")])
def test_a_first_batch_of_another_source_with_an_unknown_start_is_rejected(
    cluster: NewCluster, spec: StartingOffsetSpec
) -> None:
    brokers = cluster(10)
    restarted = brokers.planner(spec)
    start = restarted.initial_offsets()
    for end in ({T0: 8}, start):
        with pytest.raises(OptionError, match=r"Its start is not known.* last line of .*sources/NAME/0"):
            restarted.plan(start, end)
    assert brokers.planner(spec).plan(start, {T0: 8}, {T0: 8}).ranges == (), "our own one is not"


@pytest.mark.parametrize(("spec", "first_offset"), [(at_time(3), 3), (AT_EARLIEST, 0), (OffsetSpec({T0: 5}), 5)])
def test_a_first_batch_of_another_source_is_read_if_its_start_is_reproducible(
    cluster: NewCluster, spec: StartingOffsetSpec, first_offset: int
) -> None:
    restarted = cluster(10).planner(spec)
    assert planned(restarted.plan(restarted.initial_offsets(), {T0: 8})) == [("t-0", first_offset, 8)]
    assert planned(restarted.plan({T0: 8}, restarted.next_end_offsets({T0: 8}))) == [("t-0", 8, 10)]


def test_a_replayed_first_batch_from_earliest_reads_what_retention_left(cluster: NewCluster) -> None:
    brokers = cluster(10, 10, 10)
    end = first_end(brokers.planner())
    for partition, start in enumerate((4, 11, 6)):
        brokers.grow(TopicPartition("t", partition), 12, start=start)
    restarted = brokers.planner()
    assert planned(restarted.plan(restarted.initial_offsets(), end)) == [("t-0", 4, 10), ("t-2", 6, 10)]


def test_each_recreated_topic_is_read_from_its_start(cluster: NewCluster) -> None:
    brokers = cluster(5)
    brokers.grow(TopicPartition("u", 0), 5)
    stream = brokers.planner(fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    for topic in ("t", "u"):
        brokers.recreate(topic, 8)
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [], "the batch records the starts"
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t-0", 0, 8), ("u-0", 0, 8)]


def test_trigger_once_is_rejected_with_a_start_that_can_change_and_else_takes_everything(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner(AT_LATEST, max_offsets=2)
    with pytest.raises(OptionError, match=r"Trigger\.Once, and for .* use Trigger\.AvailableNow if all"):
        stream.next_end_offsets(stream.initial_offsets(), unlimited=True)
    stream = brokers.planner(max_offsets=2)
    assert stream.next_end_offsets(stream.initial_offsets(), unlimited=True) == {T0: 10}
    assert brokers.planner(AT_LATEST, max_offsets=2).next_end_offsets({T0: 4}, unlimited=True) == {T0: 10}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OffsetSpec({T0: 3, T1: LATEST, T2: EARLIEST}), {T0: 3, T1: 6, T2: 1}),
        (OffsetSpec({}, {"t": LATEST}), {T0: 9, T1: 6, T2: 4}),
        (at_time(5, "latest"), {T0: 5, T1: 5, T2: 4}),
        (at_times({T0: 0, T1: 2, T2: 0}), {T0: 0, T1: 2, T2: 1}),
    ],
)
def test_starting_offsets(cluster: NewCluster, spec: OffsetSpec, expected: Mapping[TopicPartition, int]) -> None:
    brokers = cluster(9, 6, 4)
    brokers.delete_records(T2, 1)
    assert brokers.planner(spec).initial_offsets() == expected


def test_a_start_by_whole_topics_ignores_topics_created_later(cluster: NewCluster) -> None:
    """SPARK-58774: the option names the topics of the start only, after a restart too."""
    spec = OffsetSpec({T1: 2}, {"t": EARLIEST})
    new = TopicPartition("u", 0)
    for restarts in (False, True):
        brokers = cluster(9, 6)
        stream = brokers.planner(spec)
        first = first_end(stream)
        assert planned(stream.plan(stream.initial_offsets(), first)) == [("t-0", 0, 9), ("t-1", 2, 6)]
        brokers.grow(new, 5)
        stream = brokers.planner(spec) if restarts else stream
        end = stream.next_end_offsets(first)
        assert end == {**first, new: 5}
        assert planned(stream.plan(first, end)) == [("u-0", 0, 5)]
        with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
            first_end(brokers.planner(spec))  # a new query that starts after the topic was created


def test_starting_offsets_that_do_not_fit_are_rejected(cluster: NewCluster) -> None:
    brokers = cluster(9, 6)
    with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        first_end(brokers.planner(OffsetSpec({T0: 3})))
    with pytest.raises(InvalidOffsetsError, match="no record has timestamp"):
        first_end(brokers.planner(at_time(7)))


def test_a_start_from_committed_offsets(cluster: NewCluster) -> None:
    brokers = cluster(9, 6, 4)
    brokers.commit({T0: 5, T2: 4})
    with pytest.raises(
        InvalidOffsetsError, match="no committed offset for t-1; set committedOffsetsFallback"
    ) as caught:
        first_end(brokers.planner(CommittedStart()))
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert brokers.planner(CommittedStart(AT_EARLIEST)).initial_offsets() == {T0: 5, T1: 0, T2: 4}
    assert brokers.planner(CommittedStart(AT_LATEST)).initial_offsets() == {T0: 5, T1: 6, T2: 4}
    brokers.commit({T1: 0})
    stream = brokers.planner(CommittedStart())
    start = stream.initial_offsets()
    assert start == {T0: 5, T1: 0, T2: 4}
    brokers.commit({T0: 9})
    assert stream.next_end_offsets(start) == start, "it can change, so the first batch is empty"


def test_missing_metadata_of_a_topic_is_retried(cluster: NewCluster) -> None:
    brokers = cluster()
    brokers.selection = SubscribeStrategy(("t",))
    with pytest.raises(TopicNotFoundError):
        first_end(brokers.planner(max_attempts=3))
    assert brokers.now == pytest.approx(1002, abs=0.5)
    brokers.after(1.5, lambda: brokers.cluster.create_topic("t", 1))
    assert brokers.planner(max_attempts=3).initial_offsets() == {T0: 0}


def test_new_partitions_are_read_from_their_start_within_a_limit(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner(AT_LATEST, max_offsets=10)
    start = first_end(stream)
    brokers.grow(T0, 15)
    brokers.grow(T1, 15)
    end = stream.next_end_offsets(start)
    assert end == {T0: 12, T1: 7}
    assert planned(stream.plan(start, end)) == [("t-0", 10, 12), ("t-1", 0, 7)]


def test_the_limit_as_in_sparks_test(cluster: NewCluster) -> None:
    brokers = cluster(101, 11, 1)
    stream = brokers.planner(max_offsets=10)
    end = first_end(stream)
    assert end == {T0: 8, T1: 1, T2: 1}
    assert stream.next_end_offsets(end) == {T0: 17, T1: 2, T2: 1}
    restarted = brokers.planner(max_offsets=10)
    assert restarted.next_end_offsets(end) == {T0: 17, T1: 2, T2: 1}
    assert restarted.next_end_offsets(end, unlimited=True) == {T0: 101, T1: 11, T2: 1}


def test_a_limit_in_bytes(cluster: NewCluster) -> None:
    brokers = cluster()
    brokers.cluster.create_topic("t", 2)
    for tp, size in ((T0, 100), (T1, 1000)):
        brokers.append_each(tp, 100, size=size)
    start = {T0: 0, T1: 0}
    stream = brokers.planner(max_bytes=13_000)
    end = stream.next_end_offsets(start)
    assert 8 <= end[T0] == end[T1] <= 12, "ten of each have 11,000 bytes and what a batch has besides"
    assert 10 < stream.next_end_offsets({T0: 100, T1: 0})[T1] < 14, "only the partition that is read counts"
    assert stream.next_end_offsets({T0: 0, T1: 100})[T0] > 60
    assert brokers.planner(max_bytes=1_000_000, max_offsets=3).next_end_offsets(start) == {T0: 1, T1: 1}
    assert brokers.planner(max_bytes=1_000_000).next_end_offsets(start) == {T0: 100, T1: 100}
    assert brokers.planner(max_bytes=1000).next_end_offsets(start, unlimited=True) == {T0: 100, T1: 100}
    assert brokers.warnings == []
    brokers.every("Fetch", "stall_request")
    following = stream.next_end_offsets(end)
    assert following[T0] - end[T0] == end[T0], "as large as earlier ones"
    assert brokers.warnings == []
    assert brokers.planner(max_bytes=10 * 1024).next_end_offsets(start) == {T0: 5, T1: 5}
    assert brokers.warnings == [
        "no record could be sampled for maxBytesPerTrigger; assuming 1024 bytes per record",
    ]


def test_the_record_sizes_of_deleted_topics_are_forgotten(cluster: NewCluster) -> None:
    brokers = cluster()
    brokers.cluster.create_topic("t", 1)
    brokers.append_each(T0, 3, size=100_000)
    stream = brokers.planner(fail=False, max_bytes=10 * 1024)
    start = first_end(stream)
    assert start == {T0: 1}
    new = TopicPartition("new", 0)
    brokers.event("delete_topic", topic="t")
    brokers.grow(new, 100)
    brokers.every("Fetch", "stall_request")
    assert stream.next_end_offsets(start) == {new: 10}, "1024 bytes each, because none could be sampled"
    assert "no record could be sampled" in brokers.warnings[-1]


def test_a_sample_of_huge_records_counts_immediately(cluster: NewCluster) -> None:
    """However many tiny ones came before: the next batch starts with them."""
    brokers = cluster()
    brokers.cluster.create_topic("t", 2)
    brokers.append_each(T0, 10, size=100)
    for size, count in ((100, 500), (1_000_000, 2), (100, 500)):
        brokers.append_each(T1, count, size=size)
    stream = brokers.planner(max_bytes=10_000)
    assert stream.next_end_offsets({T0: 0, T1: 1002}) == {T0: 10, T1: 1002}, "it has sampled another partition before"

    def next_count(start: int) -> int:
        return stream.next_end_offsets({T0: 10, T1: start})[T1] - start

    tiny = next_count(0)
    assert 50 < tiny < 70
    assert [next_count(start) for start in (10, 20, 500)] == [tiny, tiny, 1]
    assert 2 < next_count(502) < tiny / 2, "the next are only partly assumed to be tiny"


def test_only_the_partitions_with_the_most_to_read_are_sampled(cluster: NewCluster) -> None:
    brokers = cluster(*range(1, 41))
    almost_read = {TopicPartition("t", number): number for number in range(30, 40)}
    unread = {TopicPartition("t", number): 0 for number in range(30)}
    brokers.planner(max_bytes=1).next_end_offsets({**unread, **almost_read})
    assert sorted(brokers.fetched()) == [(TopicPartition("t", number), 0) for number in range(14, 30)]


def test_the_largest_limit_with_a_start_inside(cluster: NewCluster) -> None:
    assert first_end(cluster(10).planner(OffsetSpec({T0: 5}), max_offsets=MAX_OFFSET)) == {T0: 10}


def test_both_limits_as_in_sparks_test(cluster: NewCluster) -> None:
    brokers = cluster(21, 11, 1)
    stream = brokers.planner(min_offsets=15, max_offsets=20, max_delay=5.0)
    end = first_end(stream)
    assert end == {T0: 12, T1: 6, T2: 1}, "19 of 33"
    brokers.sleep(1)
    assert stream.next_end_offsets(end) == end, "14 remain: too few"
    brokers.grow(T0, 30)
    brokers.grow(T1, 21)
    brokers.sleep(1)
    capped = stream.next_end_offsets(end)
    assert sum(capped.values()) - sum(end.values()) <= 20
    brokers.sleep(4)
    assert stream.next_end_offsets(capped) == capped
    brokers.sleep(1)
    assert stream.next_end_offsets(capped) == {T0: 30, T1: 21, T2: 1}
    assert stream.next_end_offsets(capped, unlimited=True) == {T0: 30, T1: 21, T2: 1}


def test_the_minimum_delays_a_batch_but_not_with_trigger_once(cluster: NewCluster) -> None:
    brokers = cluster(3)
    stream = brokers.planner(min_offsets=15, max_delay=5.0)
    end = first_end(stream)
    assert end == {T0: 3}
    brokers.grow(T0, 9)
    assert stream.next_end_offsets(end) == end
    assert stream.next_end_offsets(end, unlimited=True) == {T0: 9}


@pytest.mark.parametrize(("log", "enough"), [((0, 49), True), ((0, 48), False), ((20, 49), True), ((40, 48), False)])
def test_the_minimum_counts_the_offsets_of_new_partitions_from_zero(
    cluster: NewCluster, log: tuple[int, int], enough: bool
) -> None:
    brokers = cluster(100)
    stream = brokers.planner(fail=False, min_offsets=50, max_delay=60.0)
    end = first_end(stream)
    brokers.grow(T0, 101)
    brokers.grow(T1, log[1], start=log[0])
    assert stream.next_end_offsets(end) == ({T0: 101, T1: log[1]} if enough else end)


@pytest.mark.parametrize("polling_seconds", [0.0, 0.01, 0.07, 0.5])
def test_an_idle_stream_refreshes_in_each_call_and_begins_ten_times_a_second(
    cluster: NewCluster, polling_seconds: float
) -> None:
    brokers = cluster(3)
    stream = brokers.planner()
    start = stream.next_end_offsets({T0: 0})
    assert stream.next_end_offsets(start) == start
    refresh_seconds = 0.05  # more than the requests of an idle call take
    for _ in range(30):
        brokers.sleep(polling_seconds)
        called_at = brokers.now
        assert stream.next_end_offsets(start) == start
        asked_at = brokers.environment.started_at + brokers.arrivals("ListOffsets")[-1].at
        assert called_at <= asked_at <= called_at + 0.1 + refresh_seconds, "the answer is not older than the question"
        assert brokers.now <= called_at + 0.1 + refresh_seconds, "other sources wait"
    asked = [each.at for each in brokers.arrivals("ListOffsets")][-30:]
    for earlier, later in pairwise(asked):
        assert later - earlier == pytest.approx(max(0.1, polling_seconds), abs=refresh_seconds)


def test_a_record_that_was_appended_before_the_call_is_in_the_answer(cluster: NewCluster) -> None:
    brokers = cluster(3)
    stream = brokers.planner()
    start = stream.next_end_offsets({T0: 0})
    for end in range(4, 30):
        assert stream.next_end_offsets(start) == start
        brokers.grow(T0, end)
        assert stream.next_end_offsets(start) == {T0: end}, "also right after an idle answer"
        start = {T0: end}


def test_there_is_a_pause_only_after_an_idle_answer_for_the_same_start(cluster: NewCluster) -> None:
    brokers = cluster(3)
    stream = brokers.planner()
    start = stream.next_end_offsets({T0: 0})
    began = brokers.now
    assert stream.next_end_offsets(start) == start, "the batch before was not idle"
    assert stream.next_end_offsets({T0: 2}) == {T0: 3}
    assert stream.next_end_offsets(start) == start
    assert stream.next_end_offsets(start, unlimited=True) == start
    assert brokers.now - began < 0.1
    assert stream.next_end_offsets(start) == start
    assert brokers.now - began > 0.1


@pytest.mark.parametrize(("partitions", "refreshes"), [(300, 30), (301, 3)])
def test_an_idle_stream_uses_metadata_of_many_partitions_for_a_second(
    cluster: NewCluster, partitions: int, refreshes: int
) -> None:
    brokers = cluster(*[0] * partitions)
    stream = brokers.planner()
    start = first_end(stream)
    assert stream.next_end_offsets(start) == start
    metadata, offsets = brokers.sent("Metadata"), brokers.sent("ListOffsets")
    for _ in range(30):
        assert stream.next_end_offsets(start) == start
    assert brokers.sent("Metadata") - metadata == refreshes
    assert brokers.sent("ListOffsets") - offsets == 30, "ends are requested each time"


def test_old_metadata_never_shows_more_than_that_there_is_nothing_to_read(cluster: NewCluster) -> None:
    """With any other end, the metadata is requested again: it may be a topic that was recreated."""
    brokers = cluster(3, 5, *[0] * 299)
    stream = brokers.planner()
    idle = first_end(stream)
    assert stream.next_end_offsets(idle) == idle
    brokers.grow(T1, 6)
    end = stream.next_end_offsets(idle)
    assert end == stream.known_latest == {**idle, T1: 6}
    assert stream.next_end_offsets(end) == end
    added = TopicPartition("t", len(end))
    brokers.grow(added, 1)
    assert stream.next_end_offsets(end) == end
    brokers.sleep(1)
    start = stream.next_end_offsets(end)
    assert start == {**end, added: 1}, "a new partition, after a second"
    assert stream.next_end_offsets(start) == start
    brokers.recreate("t", 9, 9)
    with pytest.raises(DataLossError, match="deleted and recreated"):
        stream.next_end_offsets(start)


def test_read_committed_waits_at_the_last_stable_offset(cluster: NewCluster) -> None:
    brokers = cluster(4)
    brokers.append(T0, 6, producer_id=7)
    stream = brokers.planner(OffsetSpec({T0: 7}), read_committed=True)
    start = stream.initial_offsets()
    began = brokers.now
    assert stream.next_end_offsets(start) == start, "beyond it, but in the log: not lost"
    assert brokers.now - began < 1
    brokers.end_transaction(T0, 7, commit=True)
    assert stream.next_end_offsets(start) == {T0: 11}


def test_there_may_be_more_tasks_than_partitions(cluster: NewCluster) -> None:
    stream = cluster(10, 10, 1).planner(min_partitions=6, max_records_per_partition=4)
    start = stream.initial_offsets()
    ranges = stream.plan(start, stream.next_end_offsets(start)).ranges
    assert len(ranges) >= 6
    assert max(each.count() for each in ranges) <= 4
    assert sum(each.count() for each in ranges) == 21


def test_the_progress_report_has_the_latest_offsets_beyond_a_limit(cluster: NewCluster) -> None:
    stream = cluster(10).planner(max_offsets=1)
    assert stream.known_latest is None
    first_end(stream)
    assert stream.known_latest == {T0: 10}


def test_a_replayed_batch_looks_up_the_starts_of_its_new_partitions(cluster: NewCluster) -> None:
    restarted = cluster(10, 10).planner()
    for _ in range(2):
        assert planned(restarted.plan({T0: 4}, {T0: 6, T1: 3})) == [("t-0", 4, 6), ("t-1", 0, 3)]


@pytest.mark.parametrize(
    ("measured", "max_offsets", "sizes"),
    [
        (40, None, (30, 10)),
        (40, 80, (30, 10)),
        (80, 40, (30, 10)),
        (None, 40, (30, 10)),
        (None, None, (300, 100)),
        (10_000, None, (300, 100)),
        (1, None, (1, 1)),
    ],
)
def test_backpressure_is_a_limit_that_is_divided_by_lag(
    cluster: NewCluster, measured: int | None, max_offsets: int | None, sizes: tuple[int, int]
) -> None:
    stream = cluster(300, 100).planner(backpressure=lambda _: measured, max_offsets=max_offsets)
    assert first_end(stream) == {T0: sizes[0], T1: sizes[1]}


def test_backpressure_is_requested_for_the_start_of_each_batch(cluster: NewCluster) -> None:
    starts: list[Mapping[TopicPartition, int]] = []

    def measured(start: Mapping[TopicPartition, int]) -> int:
        starts.append(start)
        return 40

    brokers = cluster(300, 100)
    stream = brokers.planner(backpressure=measured)
    stream.next_end_offsets(first_end(stream))
    assert starts == [{T0: 0, T1: 0}, {T0: 30, T1: 10}]
    assert stream.next_end_offsets(stream.initial_offsets(), unlimited=True) == {T0: 300, T1: 100}, "Trigger.Once"
    stream = brokers.planner(backpressure=measured)
    stream.fix_end_offsets()
    assert first_end(stream) == {T0: 30, T1: 10}, "fixed ends are limited, too"


def test_a_new_topic_that_is_deleted_between_two_requests_is_not_part_of_the_batch(cluster: NewCluster) -> None:
    """Its end would be in the checkpoint, and missing later."""
    brokers = cluster(10)
    new = TopicPartition("new", 0)
    brokers.grow(new, 5)
    stream = brokers.planner(fail=False)
    brokers.before("ListOffsets", lambda: None, lambda: brokers.event("delete_topic", topic="new"))
    end = stream.next_end_offsets({T0: 4})
    assert end == {T0: 10}
    assert planned(stream.plan({T0: 4}, end)) == [("t-0", 4, 10)]


@pytest.mark.parametrize("restarted", [False, True])
def test_partitions_of_a_recreated_topic_are_not_added(cluster: NewCluster, restarted: bool) -> None:
    """Only the loss of the old topic and the start of the third partition are reported."""
    brokers = cluster(9, 9)
    stream = brokers.planner(fail=False)
    start = first_end(stream)
    brokers.recreate("t", 5, 5, 5)
    for tp in (T0, T1, T2):
        brokers.delete_records(tp, 2)
    recreated = stream.next_end_offsets(start)
    assert planned(stream.plan(start, recreated)) == [("t-2", 2, 5)]
    if restarted:
        stream = brokers.planner(fail=False)
    end = stream.next_end_offsets(recreated)
    assert planned(stream.plan(recreated, end)) == [("t-0", 2, 5), ("t-1", 2, 5)]
    added = [warning for warning in brokers.warnings if "added partition" in warning]
    assert ["t-2 starts from offset 2" in warning for warning in added] == [True]
