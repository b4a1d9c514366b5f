"""Each case of data loss has its own decision and message."""

from __future__ import annotations

import re
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, TruncatedError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import OffsetOrigin, ResolvedOffset
from pyspark_kafka_direct.planning.data_loss import (
    EpochFloors,
    LeaderLogState,
    LossDecision,
    clip_to_log,
    evaluate_loss,
    evaluate_truncation,
    reread_offset,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

PLANNED = OffsetRange("t", 3, 10, 50)
TP = TopicPartition("t", 3)
OLD, NEW = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("position", [10, 30, 49])
def test_an_offset_within_the_log_is_no_loss(position: int) -> None:
    assert evaluate_loss(PLANNED, position, LeaderLogState(0, 100)) == LossDecision(position)
    assert evaluate_loss(PLANNED, position, LeaderLogState(10, 50, OLD), planned_topic_id=OLD) == LossDecision(position)


def test_a_finished_range_is_never_lost() -> None:
    assert evaluate_loss(PLANNED, 50, None) == LossDecision(50)
    assert evaluate_loss(PLANNED, 50, LeaderLogState(90, 95, NEW), planned_topic_id=OLD) == LossDecision(50)


@pytest.mark.parametrize(
    ("position", "log", "cause", "next_offset", "words"),
    [
        (
            10,
            LeaderLogState(20, 100),
            DataLossCause.AGED_OUT,
            20,
            ["aged out", "[10, 20)", "removed by retention", "[20, 100)"],
        ),
        (
            10,
            LeaderLogState(70, 100),
            DataLossCause.AGED_OUT,
            50,
            ["aged out", "[10, 50)", "removed by retention", "[70, 100)"],
        ),
        (10, None, DataLossCause.DELETED, 50, ["deleted", "[10, 50)", "the topic or the partition was deleted"]),
        (
            10,
            LeaderLogState(0, 99, NEW),
            DataLossCause.RECREATED,
            50,
            ["recreated", "was deleted and recreated", str(OLD), str(NEW)],
        ),
        (
            40,
            LeaderLogState(0, 30),
            DataLossCause.BEYOND_END,
            50,
            ["beyond the end", "[40, 50)", "unclean leader", "[0, 30)"],
        ),
        (30, LeaderLogState(0, 30), DataLossCause.BEYOND_END, 50, ["beyond the end", "[30, 50)", "[0, 30)"]),
    ],
)
def test_each_loss_has_its_own_message(
    position: int, log: LeaderLogState | None, cause: DataLossCause, next_offset: int, words: list[str]
) -> None:
    with pytest.raises(DataLossError) as caught:
        evaluate_loss(PLANNED, position, log, planned_topic_id=OLD)
    text = str(caught.value)
    for word in [*words, "data loss", "t-3", "failOnDataLoss=false"]:
        assert word in text
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, position)

    decision = evaluate_loss(PLANNED, position, log, planned_topic_id=OLD, fail_on_data_loss=False)
    assert (decision.next_offset, decision.lost, decision.cause) == (next_offset, next_offset - position, cause)
    for word in [*words, "data loss", "t-3", "they are skipped"]:
        assert word in (decision.message or "")


def test_a_recreated_topic_is_loss_although_its_offsets_would_fit() -> None:
    with pytest.raises(DataLossError, match="deleted and recreated"):
        evaluate_loss(PLANNED, 10, LeaderLogState(0, 100, NEW), planned_topic_id=OLD)


def test_unknown_topic_ids_are_not_compared() -> None:
    assert evaluate_loss(PLANNED, 10, LeaderLogState(0, 100, NEW)) == LossDecision(10)
    assert evaluate_loss(PLANNED, 10, LeaderLogState(0, 100), planned_topic_id=OLD) == LossDecision(10)


def test_earliest_moves_with_the_log_until_a_record_is_read() -> None:
    assert evaluate_loss(PLANNED, 10, LeaderLogState(20, 100), from_earliest=True) == LossDecision(20)
    assert evaluate_loss(PLANNED, 10, LeaderLogState(70, 100), from_earliest=True) == LossDecision(50)
    with pytest.raises(DataLossError):
        evaluate_loss(PLANNED, 10, LeaderLogState(0, 10), from_earliest=True)
    with pytest.raises(DataLossError, match=r"aged out.*\[11, 20\)"):
        evaluate_loss(PLANNED, 11, LeaderLogState(20, 100), from_earliest=True)
    decision = evaluate_loss(PLANNED, 11, LeaderLogState(20, 100), from_earliest=True, fail_on_data_loss=False)
    assert (decision.next_offset, decision.lost, decision.cause) == (20, 9, DataLossCause.AGED_OUT)


@pytest.mark.parametrize(
    ("truncated_to", "first"),
    [
        (25, 25),
        (10, 10),
        (4, 10),
        (30, 10),
        (99, 10),
    ],  # the last two: the logs diverged twice, nothing read is reliable
)
def test_a_log_truncated_during_a_read_is_data_loss_and_reading_continues(truncated_to: int, first: int) -> None:
    words = [
        "data loss (log truncated)",
        f"offsets [{first}, 30) of t-3",
        f"truncated to offset {truncated_to}",
        "unclean leader",
    ]
    with pytest.raises(DataLossError) as caught:
        evaluate_truncation(PLANNED, 30, truncated_to)
    for word in [*words, "read the range again", "failOnDataLoss=false"]:
        assert word in str(caught.value)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 30)
    decision = evaluate_truncation(PLANNED, 30, truncated_to, fail_on_data_loss=False)
    assert (decision.next_offset, decision.lost, decision.cause) == (30, 30 - first, DataLossCause.TRUNCATED)
    for word in [*words, "reading continues (failOnDataLoss=false)"]:
        assert word in (decision.message or "")


@given(st.lists(st.integers(0, 60), min_size=2, max_size=8), st.integers(0, 70), st.integers(0, 70))
def test_splits_of_a_range_never_read_an_offset_twice(split_points: list[int], start: int, size: int) -> None:
    """If the log start moves past split points, each range reads its own remaining part, or nothing."""
    split_points = sorted(set(split_points))
    log = LeaderLogState(start, start + size)
    read: list[int] = []
    for first, until in pairwise(split_points):
        position = first
        while position < until:
            decision = evaluate_loss(OffsetRange("t", 0, first, until), position, log, fail_on_data_loss=False)
            assert decision.next_offset <= until
            assert decision.lost == decision.next_offset - position
            if decision.cause is None:
                read.append(position)
                position += 1
            else:
                position = decision.next_offset
    assert read == [offset for offset in range(split_points[0], split_points[-1]) if log.start <= offset < log.end]


def clipped(
    start: tuple[int, OffsetOrigin], end: tuple[int, OffsetOrigin], log: tuple[int, int | None], *, fail: bool = False
) -> tuple[int, int, str]:
    clipped_range, warnings, losses = clip_to_log(
        TP, ResolvedOffset(*start), ResolvedOffset(*end), *log, fail_on_data_loss=fail
    )
    assert clipped_range.topic_partition == TP
    assert sum(skipped for loss in losses for skipped in loss.offsets.values()) == sum(
        int(until) - int(first) for loss in losses for first, until in re.findall(r"\[(\d+), (\d+)\)", loss.message)
    )
    messages = [*warnings, *(loss.message for loss in losses)]
    return clipped_range.from_offset, clipped_range.until_offset, "; ".join(messages)


@pytest.mark.parametrize(
    ("start", "end", "log"),
    [
        ((0, "earliest"), (9, "latest"), (0, 9)),
        ((0, "given"), (9, "given"), (0, 9)),
        ((3, "timestamp"), (5, "timestamp"), (0, 9)),
        ((9, "given"), (9, "latest"), (0, 9)),
        ((5, "given"), (5, "given"), (7, 9)),  # an empty range loses nothing
        ((50, "given"), (50, "given"), (7, 9)),
        ((3, "given"), (50, "given"), (0, None)),  # may just not be committed yet
    ],
)
def test_offsets_in_the_log_are_not_clipped(
    start: tuple[int, OffsetOrigin], end: tuple[int, OffsetOrigin], log: tuple[int, int | None]
) -> None:
    assert clipped(start, end, log, fail=True) == (start[0], end[0], "")


@pytest.mark.parametrize(
    ("start", "end", "log", "expected", "words"),
    [
        ((3, "given"), (9, "latest"), (5, 9), (5, 9), "aged out): offsets [3, 5)"),
        ((3, "timestamp"), (9, "latest"), (5, 9), (5, 9), "aged out): offsets [3, 5)"),
        ((3, "given"), (4, "given"), (5, 9), (4, 4), "aged out): offsets [3, 4)"),
        ((3, "given"), (20, "given"), (0, 9), (3, 9), "beyond the end of the log): offsets [9, 20)"),
        ((15, "given"), (20, "given"), (0, 9), (15, 15), "beyond the end of the log): offsets [15, 20)"),
        ((15, "given"), (9, "latest"), (0, 9), (9, 9), "beyond the end of the log): offsets [9, 15)"),
        ((3, "given"), (20, "given"), (5, 9), (5, 9), "[3, 5)"),
        ((3, "given"), (20, "given"), (5, 9), (5, 9), "[9, 20)"),
    ],
)
def test_offsets_outside_the_log_are_loss(
    start: tuple[int, OffsetOrigin],
    end: tuple[int, OffsetOrigin],
    log: tuple[int, int],
    expected: tuple[int, int],
    words: str,
) -> None:
    first, until, warnings = clipped(start, end, log)
    assert (first, until) == expected
    assert words in warnings
    with pytest.raises(DataLossError, match=r"data loss .* of t-3 .*; set failOnDataLoss=false"):
        clipped(start, end, log, fail=True)


def test_data_loss_fails_by_default() -> None:
    with pytest.raises(DataLossError):
        clip_to_log(TP, ResolvedOffset(2, "given"), ResolvedOffset(9, "given"), 5, 9)


def test_a_start_after_a_requested_end_is_an_error() -> None:
    for end in [(1, "timestamp"), (1, "given")]:
        with pytest.raises(InvalidOffsetsError, match="greater than the resolved end offset 1"):
            clipped((3, "given"), end, (0, 9))  # type: ignore[arg-type]


def test_an_uncommitted_start_reads_nothing_and_warns() -> None:
    first, until, warnings = clipped((15, "given"), (9, "latest"), (0, None), fail=True)
    assert first == until
    assert "after the last stable offset 9" in warnings


def test_an_end_below_the_log_start_reads_nothing_from_earliest() -> None:
    first, until, warnings = clipped((5, "earliest"), (3, "given"), (5, 9), fail=True)
    assert first == until
    assert "nothing to read" in warnings


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_clipping_keeps_all_existing_offsets(first: int, size: int, log_start: int, log_size: int) -> None:
    until, log_end = first + size, log_start + log_size
    remaining_from, remaining_until, _ = clipped((first, "given"), (until, "given"), (log_start, log_end))
    remaining = [offset for offset in range(remaining_from, remaining_until) if log_start <= offset < log_end]
    assert remaining == [offset for offset in range(first, until) if log_start <= offset < log_end]
    assert remaining == list(range(remaining_from, remaining_until))


def test_epoch_floors_of_topics_that_are_no_longer_used_are_evicted() -> None:
    floors = EpochFloors(capacity=2)
    used, deleted, new = (TopicPartition(name, 0) for name in ("used", "deleted", "new"))
    topic_id = UUID(int=1)
    for tp in (used, deleted, used, new):
        floors.raise_to(tp, topic_id, 7)
    floors.raise_to(used, topic_id, 3)
    assert [floors.is_stale(tp, topic_id, 6) for tp in (used, deleted, new)] == [True, False, True]


@pytest.mark.parametrize(
    ("truncated_to", "end", "offset"),
    [(30, 100, 30), (50, 100, 3), (70, 100, 3), (None, 100, 3), (30, 20, 30)],
    ids=["truncated", "at the position", "diverged twice", "unknown", "truncated and short"],
)
def test_a_copy_of_a_log_rereads_what_may_have_been_replaced(truncated_to: int | None, end: int, offset: int) -> None:
    error = TruncatedError("truncated")
    error.truncated_to = truncated_to
    assert reread_offset(error, 50, 3, end) == offset


def test_a_copy_of_committed_records_rereads_all_because_transactions_may_end_otherwise() -> None:
    error = TruncatedError("truncated")
    error.truncated_to = 30
    assert reread_offset(error, 50, 3, 100, read_committed=True) == 3


def test_a_copy_of_a_log_rereads_nothing_that_still_exists() -> None:
    gap, expired = DataLossError("not returned"), DataLossError("expired")
    gap.resume_offset = 60
    assert reread_offset(gap, 50, 0, 100) is None
    assert reread_offset(expired, 50, 70, 100) is None
    assert reread_offset(expired, 50, 0, 40) == 0, "the log ends before the position"
