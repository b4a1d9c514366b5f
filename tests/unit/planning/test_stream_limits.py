"""maxOffsetsPerTrigger and minOffsetsPerTrigger, with the numbers of Spark's own tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning.stream_clusters import Clock

from pyspark_kafka_direct.offsets import MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.planning.limits import (
    Limits,
    MinimumGate,
    Sample,
    byte_limit,
    new_offsets,
    passed_log_starts,
    rate_limit,
    with_earlier,
)
from pyspark_kafka_direct.planning.stream_limits import BatchLimits

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def batches(limit: int, ends: dict[TopicPartition, int]) -> list[tuple[int, ...]]:
    """The sizes of all batches until nothing is left."""
    position = dict.fromkeys(ends, 0)
    sizes = []
    while position != ends:
        limited = rate_limit(limit, position, ends)
        sizes.append(tuple(limited[tp] - position[tp] for tp in sorted(ends)))
        position = limited
    return sizes


def test_sparks_example_of_101_11_and_1_records() -> None:
    sizes = batches(10, {T0: 101, T1: 11, T2: 1})
    assert sizes[:4] == [(8, 1, 1), (9, 1, 0), (9, 1, 0), (9, 1, 0)]
    assert [sum(column) for column in zip(*sizes, strict=True)] == [101, 11, 1]


def test_rounding_down_caps_the_batch_of_21_11_and_1_records_at_19() -> None:
    assert batches(20, {T0: 21, T1: 11, T2: 1})[0] == (12, 6, 1)


def test_more_than_there_is_takes_everything() -> None:
    assert rate_limit(100, {T0: 3, T1: 0}, {T0: 5, T1: 7}) == {T0: 5, T1: 7}


def test_the_largest_limit_does_not_overflow() -> None:
    assert rate_limit(MAX_OFFSET, {T0: 5}, {T0: 10}) == {T0: 10}  # SPARK-26718
    assert rate_limit(MAX_OFFSET, {T0: 0, T1: 0}, {T0: MAX_OFFSET, T1: MAX_OFFSET})[T0] == MAX_OFFSET // 2


def test_an_end_before_its_begin_is_left_to_the_rules_of_loss() -> None:
    assert rate_limit(2, {T0: 10, T1: 0}, {T0: 4, T1: 9}) == {T0: 4, T1: 2}


def test_nothing_new_changes_nothing() -> None:
    assert rate_limit(1, {T0: 4}, {T0: 4}) == {T0: 4}
    assert rate_limit(1, {}, {}) == {}


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, MAX_OFFSET // 2), st.integers(0, 10**6)), min_size=1, max_size=12),
)
def test_every_partition_moves_and_none_goes_too_far(limit: int, logs: list[tuple[int, int]]) -> None:
    begins = {TopicPartition("t", number): begin for number, (begin, _) in enumerate(logs)}
    ends = {TopicPartition("t", number): begin + size for number, (begin, size) in enumerate(logs)}
    limited = rate_limit(limit, begins, ends)
    for tp, end in ends.items():
        assert begins[tp] <= limited[tp] <= end
        assert limited[tp] > begins[tp] or end == begins[tp]
    taken = sum(limited[tp] - begins[tp] for tp in ends)
    assert taken <= limit + len(ends)
    total = sum(ends[tp] - begins[tp] for tp in ends)
    assert taken >= min(total, limit - len(ends))


def test_bytes_become_offsets() -> None:
    begins, ends = {T0: 0, T1: 5, T2: 9}, {T0: 10, T1: 15, T2: 3}
    assert byte_limit(200, begins, ends, {T0: 10.0, T1: 10.0}) is None
    assert byte_limit(100, begins, ends, {T0: 10.0, T1: 10.0}) == 10
    assert byte_limit(100, begins, ends, {T0: 10.0}) == 10, "the other is taken to be like it"
    assert byte_limit(100, begins, ends, {T2: 10.0}) == 10
    assert byte_limit(1, begins, ends, {T0: 10.0, T1: 30.0}) == 1


def test_a_huge_record_that_one_sample_has_met_counts_in_later_ones() -> None:
    tiny, huge = Sample(64_000, 640), Sample(1_000_000, 1)
    known = with_earlier(tiny, None)
    assert known == tiny
    known = with_earlier(huge, known)
    for _ in range(3):
        known = with_earlier(tiny, known)
        assert 300 < known.per_offset < 1000, "neither the 100 of tiny ones, nor the mean of the samples"
    for _ in range(50):
        known = with_earlier(tiny, known)
    assert 100 < known.per_offset < 101, "sizes that change are followed"


def test_a_sample_of_huge_records_counts_at_once() -> None:
    """However many tiny ones were there before: the batch is about to begin with them."""
    view = Sizes()
    limits = BatchLimits(Limits(max_bytes=10_000), view, Clock(), None)  # type: ignore[arg-type]
    taken = []
    for view.sample in [Sample(64_000, 640)] * 3 + [Sample(1_000_000, 100)] + [Sample(64_000, 640)]:
        taken.append(limits.cut({}, {T0: 0}, {T0: 10_000})[T0])
    assert taken[:4] == [100, 100, 100, 1]
    assert 10 < taken[4] < 50, "the next ones are taken for tiny only in part"


class Sizes:
    """Stands where a ``ClusterView`` does."""

    sample: Sample

    def samples(self, begins: dict[TopicPartition, int]) -> dict[TopicPartition, Sample]:
        return dict.fromkeys(begins, self.sample)


def test_the_gate_as_in_sparks_test_of_min_offsets() -> None:
    gate = MinimumGate(15, 5.0)
    assert gate.passes(3, 100.0)  # the first batch always goes
    assert not gate.passes(6, 101.0)
    assert gate.passes(18, 102.0)
    assert not gate.passes(10, 106.9)
    assert gate.passes(10, 107.0)
    assert not gate.passes(14, 108.0)


def test_the_gate_does_not_take_an_idle_look_for_the_first_batch() -> None:
    gate = MinimumGate(15, 5.0)
    assert gate.passes(0, 1.0)
    assert gate.passes(1, 2.0)
    assert gate.passes(0, 6.9)
    assert gate.passes(1, 7.0)


def test_partitions_that_are_not_known_yet_count_from_zero() -> None:
    assert new_offsets({T0: 5}, {T0: 9, T1: 100}) == 104
    assert new_offsets({T0: 9}, {T0: 5, T1: 2}) == 2


def test_limits_are_off_by_default() -> None:
    assert not Limits().active
    assert Limits(max_offsets=1).active
    assert Limits(min_offsets=1).active
    assert Limits(max_bytes=1).active


def test_log_starts_are_asked_where_something_waits_only() -> None:
    asked: list[list[TopicPartition]] = []

    def log_starts(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        asked.append(partitions)
        return dict.fromkeys(partitions, 3)

    begins = {T0: 5, T1: 0, T2: 4}
    assert passed_log_starts(begins, {T0: 5, T1: 2, T2: 9}, log_starts) == {T1: 2}
    assert asked == [[T1, T2]]
    assert passed_log_starts(begins, begins, log_starts) == {}
    assert len(asked) == 1, "an idle query asks nothing more"
