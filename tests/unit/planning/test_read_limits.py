"""maxOffsetsPerTrigger and minOffsetsPerTrigger, with the numbers of Spark's own tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.offsets import MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.planning.read_limits import (
    MinOffsetsGate,
    RecordSizeSample,
    byte_limit,
    count_new_offsets,
    expired_log_starts,
    merge_samples,
    rate_limit,
)

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def batches(limit: int, end_offsets: dict[TopicPartition, int]) -> list[tuple[int, ...]]:
    """The sizes of all batches until everything was read."""
    position = dict.fromkeys(end_offsets, 0)
    sizes = []
    while position != end_offsets:
        limited = rate_limit(limit, position, end_offsets)
        sizes.append(tuple(limited[tp] - position[tp] for tp in sorted(end_offsets)))
        position = limited
    return sizes


def test_sparks_example_of_101_11_and_1_records() -> None:
    sizes = batches(10, {T0: 101, T1: 11, T2: 1})
    assert sizes[:4] == [(8, 1, 1), (9, 1, 0), (9, 1, 0), (9, 1, 0)]
    assert [sum(column) for column in zip(*sizes, strict=True)] == [101, 11, 1]


def test_rounding_down_caps_the_batch_of_21_11_and_1_records_at_19() -> None:
    assert batches(20, {T0: 21, T1: 11, T2: 1})[0] == (12, 6, 1)


def test_a_limit_above_the_lag_takes_everything() -> None:
    assert rate_limit(100, {T0: 3, T1: 0}, {T0: 5, T1: 7}) == {T0: 5, T1: 7}


def test_the_largest_limit_does_not_overflow() -> None:
    assert rate_limit(MAX_OFFSET, {T0: 5}, {T0: 10}) == {T0: 10}  # SPARK-26718
    assert rate_limit(MAX_OFFSET, {T0: 0, T1: 0}, {T0: MAX_OFFSET, T1: MAX_OFFSET})[T0] == MAX_OFFSET // 2


def test_an_end_before_its_start_is_not_limited() -> None:
    assert rate_limit(2, {T0: 10, T1: 0}, {T0: 4, T1: 9}) == {T0: 4, T1: 2}


def test_without_new_records_nothing_changes() -> None:
    assert rate_limit(1, {T0: 4}, {T0: 4}) == {T0: 4}
    assert rate_limit(1, {}, {}) == {}


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, MAX_OFFSET // 2), st.integers(0, 10**6)), min_size=1, max_size=12),
)
def test_every_partition_moves_and_none_goes_too_far(limit: int, logs: list[tuple[int, int]]) -> None:
    from_offsets = {TopicPartition("t", number): begin for number, (begin, _) in enumerate(logs)}
    end_offsets = {TopicPartition("t", number): begin + size for number, (begin, size) in enumerate(logs)}
    limited = rate_limit(limit, from_offsets, end_offsets)
    for tp, end in end_offsets.items():
        assert from_offsets[tp] <= limited[tp] <= end
        assert limited[tp] > from_offsets[tp] or end == from_offsets[tp]
    taken = sum(limited[tp] - from_offsets[tp] for tp in end_offsets)
    assert taken <= limit + len(end_offsets)
    total = sum(end_offsets[tp] - from_offsets[tp] for tp in end_offsets)
    assert taken >= min(total, limit - len(end_offsets))


def test_bytes_become_offsets() -> None:
    from_offsets, end_offsets = {T0: 0, T1: 5, T2: 9}, {T0: 10, T1: 15, T2: 3}
    assert byte_limit(200, from_offsets, end_offsets, {T0: 10.0, T1: 10.0}) is None
    assert byte_limit(100, from_offsets, end_offsets, {T0: 10.0, T1: 10.0}) == 10
    assert byte_limit(100, from_offsets, end_offsets, {T0: 10.0}) == 10, "the other is assumed to be like it"
    assert byte_limit(100, from_offsets, end_offsets, {T2: 10.0}) == 10
    assert byte_limit(1, from_offsets, end_offsets, {T0: 10.0, T1: 30.0}) == 1


def test_a_huge_record_in_one_sample_counts_in_later_ones() -> None:
    tiny, huge = RecordSizeSample(64_000, 640), RecordSizeSample(1_000_000, 1)
    known = merge_samples(tiny, None)
    assert known == tiny
    known = merge_samples(huge, known)
    for _ in range(3):
        known = merge_samples(tiny, known)
        assert 300 < known.bytes_per_offset < 1000, "neither the 100 of tiny ones, nor the mean of the samples"
    for _ in range(50):
        known = merge_samples(tiny, known)
    assert 100 < known.bytes_per_offset < 101, "the estimate follows changing sizes"


def test_the_gate_as_in_sparks_test_of_min_offsets() -> None:
    gate = MinOffsetsGate(15, 5.0)
    assert gate.admit(3, 100.0)  # the first batch always passes
    assert not gate.admit(6, 101.0)
    assert gate.admit(18, 102.0)
    assert not gate.admit(10, 106.9)
    assert gate.admit(10, 107.0)
    assert not gate.admit(14, 108.0)


def test_an_idle_poll_is_not_the_first_batch_for_the_gate() -> None:
    gate = MinOffsetsGate(15, 5.0)
    assert gate.admit(0, 1.0)
    assert gate.admit(1, 2.0)
    assert gate.admit(0, 6.9)
    assert gate.admit(1, 7.0)


def test_each_batch_that_is_admitted_begins_the_next_delay() -> None:
    gate = MinOffsetsGate(15, 5.0)
    assert gate.admit(1, 100.0, immediately=True)
    for began in (103.0, 106.0):
        assert gate.admit(1, began, immediately=True)
        assert not gate.admit(1, began + 2.9)
    assert not gate.admit(1, 110.9)
    assert gate.admit(1, 111.0)


def test_unknown_partitions_count_from_zero() -> None:
    assert count_new_offsets({T0: 5}, {T0: 9, T1: 100}) == 104
    assert count_new_offsets({T0: 9}, {T0: 5, T1: 2}) == 2


def test_limits_are_off_by_default() -> None:
    assert not ReadLimits().active
    assert ReadLimits(max_offsets=1).active
    assert ReadLimits(min_offsets=1).active
    assert ReadLimits(max_bytes=1).active


def test_log_starts_are_requested_only_for_partitions_with_unread_records() -> None:
    requested: list[list[TopicPartition]] = []

    def log_starts(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        requested.append(partitions)
        return dict.fromkeys(partitions, 3)

    from_offsets = {T0: 5, T1: 0, T2: 4}
    assert expired_log_starts(from_offsets, {T0: 5, T1: 2, T2: 9}, log_starts) == {T1: 2}
    assert requested == [[T1, T2]]
    assert expired_log_starts(from_offsets, from_offsets, log_starts) == {}
    assert len(requested) == 1, "an idle query requests nothing more"
