"""What Spark's KafkaOffsetReaderSuite and KafkaOffsetRangeLimitSuite test, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.positions import at_time, at_times
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    CommittedStart,
    OffsetSpec,
    ResolvedOffset,
)
from pyspark_kafka_direct.options.positions import AtTime, BeforeNow, LastOffsets
from pyspark_kafka_direct.planning.offset_resolution import (
    NO_RECORD,
    RangeSide,
    positions_at,
    required_ends,
    required_lookups,
    resolve_known_start_offsets,
    resolve_positions,
    resolve_start_offsets,
    start_is_reproducible,
    start_may_change,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.options.positions import NoMatchStrategy, Position
    from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = [A0, A1, B0]
NOW = 10_000


def resolve(
    spec: OffsetSpec,
    found: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    *,
    side: RangeSide = "start",
    partitions: Sequence[TopicPartition] = PARTITIONS,
) -> dict[TopicPartition, ResolvedOffset]:
    return resolve_positions(positions_at(spec, partitions, side, NOW), found, latest, side=side, option=spec.option)


@pytest.mark.parametrize(
    ("position", "expected", "ends"),
    [
        (AT_EARLIEST, {A0: EARLIEST, A1: EARLIEST, B0: EARLIEST}, set()),
        (AT_LATEST, {}, {A0, A1, B0}),
        (OffsetSpec({A0: 5, A1: EARLIEST, B0: LATEST}), {A1: EARLIEST}, {B0}),
        (OffsetSpec({A0: 5, A1: 0, B0: 7}), {}, set()),
        (OffsetSpec({B0: 5}, {"a": LATEST}), {}, {A0, A1}),
        (at_times({A0: 5, A1: 6, B0: 7}), {A0: 5, A1: 6, B0: 7}, {B0}),
        (at_time(5), {A0: 5, A1: 5, B0: 5}, {B0}),
        (OffsetSpec({A0: BeforeNow(NOW - 5)}, {"b": BeforeNow(NOW + 5)}, AtTime(7)), {A0: 5, A1: 7, B0: 0}, {B0}),
        (OffsetSpec({A0: LastOffsets(3)}, others=5), {A0: EARLIEST}, {A0}),
    ],
)
def test_required_lookups(position: OffsetSpec, expected: dict[TopicPartition, int], ends: set[TopicPartition]) -> None:
    positions = positions_at(position, PARTITIONS, "start", NOW)
    assert required_lookups(positions) == expected
    assert required_ends(positions, {A0: 5, A1: 6, B0: NO_RECORD}) == ends


def test_resolved_offsets_have_their_origin() -> None:
    assert resolve(OffsetSpec({A0: 5, A1: EARLIEST, B0: LATEST}), {A1: 3}, {B0: 90}) == {
        A0: ResolvedOffset(5, "given"),
        A1: ResolvedOffset(3, "earliest"),
        B0: ResolvedOffset(90, "latest"),
    }
    assert resolve(AT_EARLIEST, {A0: 3}, {}, partitions=[A0]) == {A0: ResolvedOffset(3, "earliest")}
    assert resolve(AT_LATEST, {}, {A0: 9}, side="end", partitions=[A0]) == {A0: ResolvedOffset(9, "latest")}


def test_whole_topics_resolve_to_their_partitions() -> None:
    assert resolve(OffsetSpec({B0: 5}, {"a": EARLIEST}), {A0: 1, A1: 2}, {}) == {
        A0: ResolvedOffset(1, "earliest"),
        A1: ResolvedOffset(2, "earliest"),
        B0: ResolvedOffset(5, "given"),
    }


def test_a_partition_has_priority_over_its_topic_and_that_over_the_rest() -> None:
    assert resolve(OffsetSpec({A0: 5}, {"a": EARLIEST}, LATEST), {A1: 2}, {B0: 9}) == {
        A0: ResolvedOffset(5, "given"),
        A1: ResolvedOffset(2, "earliest"),
        B0: ResolvedOffset(9, "latest"),
    }


def test_the_last_offsets_begin_at_the_log_start_at_the_earliest() -> None:
    last = OffsetSpec(others=LastOffsets(10))
    assert resolve(last, {A0: 0, A1: 80, B0: 95}, {A0: 100, A1: 90, B0: 100}) == {
        A0: ResolvedOffset(90, "last"),
        A1: ResolvedOffset(80, "earliest"),
        B0: ResolvedOffset(95, "earliest"),
    }


@pytest.mark.parametrize("side", ["start", "end"])
def test_a_time_before_now_is_the_end_of_a_partition_without_a_record_that_new(side: RangeSide) -> None:
    assert resolve(OffsetSpec(others=BeforeNow(5)), {A0: 3, A1: 0, B0: NO_RECORD}, {B0: 9}, side=side) == {
        A0: ResolvedOffset(3, "timestamp"),
        A1: ResolvedOffset(0, "timestamp"),
        B0: ResolvedOffset(9, "latest"),
    }


@pytest.mark.parametrize(
    ("position", "may_change", "is_reproducible"),
    [
        (5, False, True),
        (EARLIEST, False, True),
        (LATEST, True, False),
        (AtTime(5, "error"), True, True),
        (AtTime(5, "latest"), True, False),
        (BeforeNow(5, "latest"), True, False),
        (BeforeNow(5, "error"), True, False),
        (LastOffsets(5), True, False),
    ],
)
def test_which_starts_may_change_when_they_are_resolved_again(
    position: Position, may_change: bool, is_reproducible: bool
) -> None:
    for spec in (OffsetSpec({A0: 5, A1: position}), OffsetSpec({A0: 5}, {"a": position}), OffsetSpec(others=position)):
        assert (start_may_change(spec), start_is_reproducible(spec)) == (may_change, is_reproducible)


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("named", [{A0: 0, A1: 0}, {A0: 0, A1: 0, B0: 0, TopicPartition("c", 3): 0}])
def test_offsets_must_name_exactly_the_assigned_partitions(named: dict[TopicPartition, int], side: RangeSide) -> None:
    with pytest.raises(InvalidOffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED") as caught:
        positions_at(OffsetSpec(named, option="startingOffsets"), PARTITIONS, side, NOW)
    text = str(caught.value)
    assert '"*":"earliest" for the others' in text
    assert text.startswith("startingOffsets must name exactly the assigned topic-partitions")
    assert ("missing: b-0; not assigned: none" in text) == (B0 not in named)
    assert ("missing: none; not assigned: c-3" in text) == (B0 in named)


@pytest.mark.parametrize("named", [{A0: 0, A1: 0}, {A0: 0, A1: 0, B0: 0, TopicPartition("c", 3): 0}])
def test_timestamps_must_name_exactly_the_assigned_partitions(named: dict[TopicPartition, int]) -> None:
    with pytest.raises(InvalidOffsetsError, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        positions_at(at_times(named, "error", "endingOffsetsByTimestamp"), PARTITIONS, "end", NOW)


def test_a_topic_with_a_keyword_must_be_assigned() -> None:
    with pytest.raises(InvalidOffsetsError, match="not assigned: c; assigned are a, b") as caught:
        positions_at(OffsetSpec({A0: 0, A1: 0, B0: 0}, {"c": LATEST}), PARTITIONS, "start", NOW)
    assert "KAFKA_TOPIC_OFFSET_DOES_NOT_MATCH_ASSIGNED" in str(caught.value)


@pytest.mark.parametrize("position", [at_time(50), at_times({A0: 50, A1: 50, B0: 50})])
def test_a_start_without_a_match_is_an_error(position: OffsetSpec) -> None:
    with pytest.raises(InvalidOffsetsError, match="no record has timestamp 50 or a later one in a-1, b-0") as caught:
        resolve(position, {A0: 5, A1: NO_RECORD, B0: NO_RECORD}, {})
    assert (caught.value.topic, caught.value.partition) == ("a", 1)


@pytest.mark.parametrize(
    ("position", "side"),
    [
        (at_time(50, "latest"), "start"),
        (at_times({A0: 50, A1: 50, B0: 50}, "latest"), "start"),
        (at_time(50, "error"), "end"),
        (at_time(50, "latest"), "end"),
    ],
)
def test_otherwise_no_match_means_the_latest_offset(position: OffsetSpec, side: RangeSide) -> None:
    latest = {A0: 10, A1: 20, B0: 30}
    assert resolve(position, {A0: 5, A1: NO_RECORD, B0: 0}, latest, side=side) == {
        A0: ResolvedOffset(5, "timestamp"),
        A1: ResolvedOffset(20, "latest"),
        B0: ResolvedOffset(0, "timestamp"),
    }


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("position", [at_time(50), at_time(50, "latest"), OffsetSpec(others=BeforeNow(5))])
def test_a_record_at_or_behind_the_requested_end_has_arrived_after_it(position: OffsetSpec, side: RangeSide) -> None:
    latest = {A0: 10, A1: 20, B0: 30}
    assert resolve(position, {A0: 9, A1: 20, B0: 31}, latest, side=side) == {
        A0: ResolvedOffset(9, "timestamp"),
        A1: ResolvedOffset(20, "latest"),
        B0: ResolvedOffset(30, "latest"),
    }


def test_the_start_of_an_earlier_run_may_name_partitions_that_are_missing_now() -> None:
    a2 = TopicPartition("a", 2)
    with PlannerCluster(9, 9, 9, topic="a") as brokers:
        brokers.delete_records(A1, 3)
        brokers.delete_records(a2, 4)
        start = OffsetSpec({A0: 0, B0: 5, TopicPartition("c", 0): LATEST}, {"a": EARLIEST})
        assert resolve_known_start_offsets(start, [A0, A1, a2], brokers.reader()) == {A0: 0, A1: 3, a2: 4, B0: 5}
        assert resolve_known_start_offsets(at_time(10), [A0, A1], brokers.reader()) == {}
        assert resolve_known_start_offsets(AT_LATEST, [A0, A1], brokers.reader()) == {A0: 9, A1: 9}


@pytest.mark.parametrize("on_no_match", ["error", "latest"])
def test_a_stream_does_not_skip_a_record_that_arrives_while_its_start_is_resolved(on_no_match: NoMatchStrategy) -> None:
    with PlannerCluster(3, topic="a") as brokers:
        reader = brokers.reader()
        append_at_each_end(brokers, reader, 60, 70)
        assert resolve_start_offsets(at_time(50, on_no_match), [A0], reader) == {A0: 3}
        assert resolve_start_offsets(at_time(90, "latest"), [A0], reader) == {A0: 7}
        # With Trigger.AvailableNow, the record is left for the next run.
        assert resolve_start_offsets(at_time(50), [A0], reader, {A0: 2}) == {A0: 2}


@pytest.mark.parametrize("on_no_match", ["error", "latest"])
@pytest.mark.parametrize("times", [(60,), (40, 60), (40, 45, 60, 40)])
def test_a_stream_starts_at_its_end_if_records_arrive_after_it_is_requested(
    times: tuple[int, ...], on_no_match: NoMatchStrategy
) -> None:
    """Of these, the first record that is new enough may lie behind older ones."""
    with PlannerCluster(3, topic="a") as brokers:
        reader = brokers.reader()
        append_at_each_end(brokers, reader, *times, is_after=True)
        assert resolve_start_offsets(at_time(50, on_no_match), [A0], reader) == {A0: 3}
        assert brokers.log(A0).end == 3 + len(times)


def append_at_each_end(brokers: PlannerCluster, reader: KafkaOffsetReader, *times: int, is_after: bool = False) -> None:
    """Append records with these timestamps before, or just after, each request of ends."""
    fetch_offsets = reader.offsets

    def append() -> None:
        for time in times:
            brokers.cluster.append(A0, [b"value"], timestamp=time)

    def offsets(requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        is_end = LATEST in requested.values()
        if is_end and not is_after:
            append()
        found = fetch_offsets(requested)
        if is_end and is_after:
            append()
        return found

    reader.offsets = offsets  # type: ignore[method-assign]


def test_the_fallback_of_committed_offsets_ends_where_the_query_ends() -> None:
    """With Trigger.AvailableNow; committed offsets themselves are not limited."""
    with PlannerCluster(9, 9, topic="a") as brokers:
        brokers.commit({A0: 8})
        reader, ends = brokers.reader(), {A0: 4, A1: 4}
        for fallback, first in ((AT_LATEST, 4), (AT_EARLIEST, 0), (at_time(6), 4), (at_time(2), 2)):
            assert resolve_start_offsets(CommittedStart(fallback), [A0, A1], reader, ends) == {A0: 8, A1: first}
        assert resolve_start_offsets(CommittedStart(AT_LATEST), [A0, A1], reader) == {A0: 8, A1: 9}
