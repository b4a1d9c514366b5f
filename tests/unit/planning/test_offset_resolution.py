"""What Spark's KafkaOffsetReaderSuite and KafkaOffsetRangeLimitSuite test, without a broker."""

from __future__ import annotations

import pytest
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    ResolvedOffset,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.offset_resolution import (
    NO_RECORD,
    RangeSide,
    required_lookups,
    resolve_known_start_offsets,
    resolve_offsets,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = [A0, A1, B0]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Earliest(), {A0: EARLIEST, A1: EARLIEST, B0: EARLIEST}),
        (Latest(), {A0: LATEST, A1: LATEST, B0: LATEST}),
        (SpecificOffsets({A0: 5, A1: EARLIEST, B0: LATEST}), {A1: EARLIEST, B0: LATEST}),
        (SpecificOffsets({A0: 5, A1: 0, B0: 7}), {}),
        (SpecificOffsets({B0: 5}, {"a": LATEST}), {A0: LATEST, A1: LATEST}),
        (SpecificTimestamps({A0: 5, A1: 6, B0: 7}), {A0: 5, A1: 6, B0: 7}),
        (GlobalTimestamp(5), {A0: 5, A1: 5, B0: 5}),
    ],
)
def test_required_lookups(position: OffsetSpec, expected: dict[TopicPartition, int]) -> None:
    assert required_lookups(position, PARTITIONS, "start") == expected


def test_resolved_offsets_have_their_origin() -> None:
    found = {A1: 3, B0: 90}
    assert resolve_offsets(SpecificOffsets({A0: 5, A1: EARLIEST, B0: LATEST}), PARTITIONS, found, {}, "start") == {
        A0: ResolvedOffset(5, "given"),
        A1: ResolvedOffset(3, "earliest"),
        B0: ResolvedOffset(90, "latest"),
    }
    assert resolve_offsets(Earliest(), [A0], {A0: 3}, {}, "start") == {A0: ResolvedOffset(3, "earliest")}
    assert resolve_offsets(Latest(), [A0], {A0: 9}, {}, "end") == {A0: ResolvedOffset(9, "latest")}


def test_whole_topics_resolve_to_their_partitions() -> None:
    position = SpecificOffsets({B0: 5}, {"a": EARLIEST})
    assert resolve_offsets(position, PARTITIONS, {A0: 1, A1: 2}, {}, "start") == {
        A0: ResolvedOffset(1, "earliest"),
        A1: ResolvedOffset(2, "earliest"),
        B0: ResolvedOffset(5, "given"),
    }


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("named", [{A0: 0, A1: 0}, {A0: 0, A1: 0, B0: 0, TopicPartition("c", 3): 0}])
def test_offsets_must_name_exactly_the_assigned_partitions(named: dict[TopicPartition, int], side: RangeSide) -> None:
    with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED") as caught:
        required_lookups(SpecificOffsets(named, {}, "startingOffsets"), PARTITIONS, side)
    text = str(caught.value)
    assert text.startswith("startingOffsets must name exactly the assigned topic-partitions")
    assert ("missing: b-0; not assigned: none" in text) == (B0 not in named)
    assert ("missing: none; not assigned: c-3" in text) == (B0 in named)


@pytest.mark.parametrize("named", [{A0: 0, A1: 0}, {A0: 0, A1: 0, B0: 0, TopicPartition("c", 3): 0}])
def test_timestamps_must_name_exactly_the_assigned_partitions(named: dict[TopicPartition, int]) -> None:
    with pytest.raises(InvalidOffsetsError, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        required_lookups(SpecificTimestamps(named, "error", "endingOffsetsByTimestamp"), PARTITIONS, "end")


def test_a_topic_with_a_keyword_must_be_assigned() -> None:
    with pytest.raises(InvalidOffsetsError, match="not assigned: c; assigned are a, b") as caught:
        required_lookups(SpecificOffsets({A0: 0, A1: 0, B0: 0}, {"c": LATEST}), PARTITIONS, "start")
    assert "KAFKA_TOPIC_OFFSET_DOES_NOT_MATCH_ASSIGNED" in str(caught.value)


@pytest.mark.parametrize("position", [GlobalTimestamp(50), SpecificTimestamps({A0: 50, A1: 50, B0: 50})])
def test_a_start_without_a_match_is_an_error(position: OffsetSpec) -> None:
    with pytest.raises(InvalidOffsetsError, match="no record has timestamp 50 or a later one in a-1, b-0") as caught:
        resolve_offsets(position, PARTITIONS, {A0: 5, A1: NO_RECORD, B0: NO_RECORD}, {}, "start")
    assert (caught.value.topic, caught.value.partition) == ("a", 1)


@pytest.mark.parametrize(
    ("position", "side"),
    [
        (GlobalTimestamp(50, "latest"), "start"),
        (SpecificTimestamps({A0: 50, A1: 50, B0: 50}, "latest"), "start"),
        (GlobalTimestamp(50, "error"), "end"),
        (GlobalTimestamp(50, "latest"), "end"),
    ],
)
def test_otherwise_no_match_means_the_latest_offset(position: OffsetSpec, side: RangeSide) -> None:
    latest = {A0: 10, A1: 20, B0: 30}
    assert resolve_offsets(position, PARTITIONS, {A0: 5, A1: NO_RECORD, B0: 0}, latest, side) == {
        A0: ResolvedOffset(5, "timestamp"),
        A1: ResolvedOffset(20, "latest"),
        B0: ResolvedOffset(0, "timestamp"),
    }


def test_the_start_of_an_earlier_run_may_name_partitions_that_are_missing_now() -> None:
    with PlannerCluster(9, 9, topic="a") as brokers:
        brokers.delete_records(A1, 3)
        start = SpecificOffsets({A0: 0, B0: 5, TopicPartition("c", 0): LATEST}, {"a": EARLIEST})
        assert resolve_known_start_offsets(start, [A0, A1], brokers.reader()) == {A0: 0, A1: 3, B0: 5}
        assert resolve_known_start_offsets(GlobalTimestamp(10), [A0, A1], brokers.reader()) == {}
