"""Streams that start at times before now or at the last offsets resolve such a start once, and record it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.planning.planner_cluster import NewCluster, planned

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.options.subscription import parse_subscribe_pattern

if TYPE_CHECKING:
    from tests.unit.planning.planner_cluster import PlannerCluster

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def brokers(cluster: NewCluster) -> PlannerCluster:
    """Partitions with records of 120, 60 and 5 minutes ago, of 90 and 120 minutes ago, and of 120 minutes ago."""
    brokers = cluster()
    brokers.cluster.create_topic("t", 2)
    brokers.cluster.create_topic("u", 1)
    for tp, ages in ((T0, (120, 60, 5)), (T1, (90, 120)), (U0, (120,))):
        for minutes in ages:
            brokers.cluster.append(
                tp, [b"value"], timestamp=int((brokers.pool.system.wall_time() - 60 * minutes) * 1000)
            )
    return brokers


def start(**options: str) -> StartingOffsetSpec:
    """Parse the options of a stream."""
    return parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options}).source.start


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "-61m"}, {T0: 1, T1: 2, U0: 1}),
        ({"startingTimestamp": "-61m"}, {T0: 1, T1: 2, U0: 1}),
        ({"startingOffsets": "-100M"}, {T0: 1, T1: 0, U0: 1}),
        ({"startingOffsets": "-3h"}, {T0: 0, T1: 0, U0: 0}),
        ({"startingOffsets": "-5000000d"}, {T0: 0, T1: 0, U0: 0}),
        ({"startingOffsets": "now"}, {T0: 3, T1: 2, U0: 1}),
        ({"startingOffsets": "last 2"}, {T0: 1, T1: 0, U0: 0}),
        ({"startingOffsets": '{"t":{"0":2,"*":"-100m"},"*":"now"}'}, {T0: 2, T1: 0, U0: 1}),
        ({"startingOffsets": '{"t":"last 1","u":{"0":"earliest"}}'}, {T0: 2, T1: 1, U0: 0}),
        ({"startingOffsetsByTimestamp": '{"t":{"0":0,"1":"-100m"},"*":"-10s"}'}, {T0: 0, T1: 0, U0: 1}),
    ],
)
def test_starts(brokers: PlannerCluster, options: dict[str, str], expected: dict[TopicPartition, int]) -> None:
    assert brokers.planner(start(**options)).initial_offsets() == expected


@pytest.mark.parametrize("text", ["-61m", "last 2", "now", '{"t":{"0":"now","*":"-61m"},"*":"earliest"}'])
def test_a_start_is_recorded_by_an_empty_batch_and_stays_when_time_passes(brokers: PlannerCluster, text: str) -> None:
    stream = brokers.planner(start(startingOffsets=text))
    first = stream.initial_offsets()
    assert stream.next_end_offsets(first) == first, "the empty first batch"
    brokers.sleep(3600)
    brokers.append_each(T0, 9)
    assert stream.initial_offsets() == first
    restarted = brokers.planner(start(startingOffsets=text))  # the query died in its first batch
    again = restarted.initial_offsets()
    assert again != first
    assert restarted.plan(again, first, first).ranges == ()
    end = restarted.next_end_offsets(first)
    assert planned(restarted.plan(first, end))[0] == ("t-0", first[T0], 12)
    assert brokers.warnings == [], "jobs often keep such a start"


@pytest.mark.parametrize("text", ["-61m", "last 2", '{"t":{"0":0,"*":"-61m"},"*":"earliest"}'])
def test_a_first_batch_of_another_source_has_no_known_start(brokers: PlannerCluster, text: str) -> None:
    stream = brokers.planner(start(startingOffsets=text))
    with pytest.raises(OptionError, match="Its start is not known"):
        stream.plan(stream.initial_offsets(), {T0: 3, T1: 2, U0: 1})


def test_a_single_batch_cannot_start_there(brokers: PlannerCluster) -> None:
    stream = brokers.planner(start(startingOffsets="-1h"))
    with pytest.raises(OptionError, match=r"startingOffsets=latest or committed, a time, or last N"):
        stream.next_end_offsets(stream.initial_offsets(), unlimited=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("last 2", {T0: 1, T1: 0, U0: 0}), ("-10s", {T0: 3, T1: 2, U0: 1}), ("now", {T0: 3, T1: 2, U0: 1})],
)
def test_available_now_starts_before_its_fixed_ends(
    brokers: PlannerCluster, text: str, expected: dict[TopicPartition, int]
) -> None:
    stream = brokers.planner(start(startingOffsets=text))
    stream.fix_end_offsets()
    for tp in (T0, T1, U0):
        brokers.append(tp, 4)  # later records, which are as old as the epoch
    assert stream.initial_offsets() == expected


def test_the_last_offsets_before_an_open_transaction(brokers: PlannerCluster) -> None:
    brokers.append(T0, 5, producer_id=7)
    brokers.selection = parse_subscribe_pattern("t")
    committed = brokers.planner(start(startingOffsets="last 2"), read_committed=True)
    assert committed.initial_offsets() == {T0: 1, T1: 0}
    assert brokers.planner(start(startingOffsets="last 2")).initial_offsets() == {T0: 6, T1: 0}


def test_all_partitions_have_the_same_time(brokers: PlannerCluster) -> None:
    brokers.planner(start(startingOffsets="-1h")).initial_offsets()
    times = {
        each.timestamp
        for request in brokers.received("ListOffsets")
        for topic in request.topics
        for each in topic.partitions
        if each.timestamp >= 0
    }
    assert len(times) == 1
    assert EARLIEST not in times
