"""Each case of data loss has its own verdict and message."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import DataLossError, OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.loss import LogState, LossEvent, Verdict, clip, judge, judge_cut
from pyspark_kafka_direct.planning.resolve import Bound, Origin

WANTED = OffsetRange("t", 3, 10, 50)
TP = TopicPartition("t", 3)
OLD, NEW = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("position", [10, 30, 49])
def test_an_offset_within_the_log_is_no_loss(position: int) -> None:
    assert judge(WANTED, position, LogState(0, 100)) == Verdict(position)
    assert judge(WANTED, position, LogState(10, 50, OLD), planned_topic_id=OLD) == Verdict(position)


def test_a_finished_range_is_never_judged() -> None:
    assert judge(WANTED, 50, None) == Verdict(50)
    assert judge(WANTED, 50, LogState(90, 95, NEW), planned_topic_id=OLD) == Verdict(50)


@pytest.mark.parametrize(
    ("position", "log", "event", "next_offset", "words"),
    [
        (10, LogState(20, 100), LossEvent.AGED_OUT, 20, ["aged out", "[10, 20)", "removed by retention", "[20, 100)"]),
        (10, LogState(70, 100), LossEvent.AGED_OUT, 50, ["aged out", "[10, 50)", "removed by retention", "[70, 100)"]),
        (10, None, LossEvent.DELETED, 50, ["deleted", "[10, 50)", "the topic or the partition was deleted"]),
        (10, LogState(0, 99, NEW), LossEvent.RECREATED, 50, ["recreated", "created again", str(OLD), str(NEW)]),
        (40, LogState(0, 30), LossEvent.BEYOND_END, 50, ["beyond the end", "[40, 50)", "unclean leader", "[0, 30)"]),
        (30, LogState(0, 30), LossEvent.BEYOND_END, 50, ["beyond the end", "[30, 50)", "[0, 30)"]),
    ],
)
def test_each_loss_has_its_own_message(
    position: int, log: LogState | None, event: LossEvent, next_offset: int, words: list[str]
) -> None:
    with pytest.raises(DataLossError) as caught:
        judge(WANTED, position, log, planned_topic_id=OLD)
    text = str(caught.value)
    for word in [*words, "data loss", "t-3", "failOnDataLoss=false"]:
        assert word in text
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, position)

    verdict = judge(WANTED, position, log, planned_topic_id=OLD, fail_on_data_loss=False)
    assert (verdict.next_offset, verdict.lost, verdict.event) == (next_offset, next_offset - position, event)
    for word in [*words, "data loss", "t-3", "they are skipped"]:
        assert word in (verdict.message or "")


def test_a_recreated_topic_is_loss_although_its_offsets_would_fit() -> None:
    with pytest.raises(DataLossError, match="created again"):
        judge(WANTED, 10, LogState(0, 100, NEW), planned_topic_id=OLD)


def test_unknown_topic_ids_are_not_compared() -> None:
    assert judge(WANTED, 10, LogState(0, 100, NEW)) == Verdict(10)
    assert judge(WANTED, 10, LogState(0, 100), planned_topic_id=OLD) == Verdict(10)


def test_earliest_moves_with_the_log_until_a_record_is_read() -> None:
    assert judge(WANTED, 10, LogState(20, 100), from_earliest=True) == Verdict(20)
    assert judge(WANTED, 10, LogState(70, 100), from_earliest=True) == Verdict(50)
    with pytest.raises(DataLossError):
        judge(WANTED, 10, LogState(0, 10), from_earliest=True)
    with pytest.raises(DataLossError, match=r"aged out.*\[11, 20\)"):
        judge(WANTED, 11, LogState(20, 100), from_earliest=True)
    verdict = judge(WANTED, 11, LogState(20, 100), from_earliest=True, fail_on_data_loss=False)
    assert (verdict.next_offset, verdict.lost, verdict.event) == (20, 9, LossEvent.AGED_OUT)


@pytest.mark.parametrize(
    ("cut_at", "first"),
    [(25, 25), (10, 10), (4, 10), (30, 10), (99, 10)],  # the last two: the logs parted twice, all is in doubt
)
def test_a_log_that_was_cut_under_a_read_is_loss_and_is_read_on(cut_at: int, first: int) -> None:
    words = ["data loss (log cut back)", f"offsets [{first}, 30) of t-3", f"cut at offset {cut_at}", "unclean leader"]
    with pytest.raises(DataLossError) as caught:
        judge_cut(WANTED, 30, cut_at)
    for word in [*words, "read the range again", "failOnDataLoss=false"]:
        assert word in str(caught.value)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 30)
    verdict = judge_cut(WANTED, 30, cut_at, fail_on_data_loss=False)
    assert (verdict.next_offset, verdict.lost, verdict.event) == (30, 30 - first, LossEvent.CUT)
    for word in [*words, "reading goes on (failOnDataLoss=false)"]:
        assert word in (verdict.message or "")


@given(st.lists(st.integers(0, 60), min_size=2, max_size=8), st.integers(0, 70), st.integers(0, 70))
def test_pieces_of_a_range_never_read_an_offset_twice(cuts: list[int], start: int, size: int) -> None:
    """When the log start moves past piece boundaries, each piece reads its own part of what is left, or nothing."""
    cuts = sorted(set(cuts))
    log = LogState(start, start + size)
    read: list[int] = []
    for first, until in pairwise(cuts):
        position = first
        while position < until:
            verdict = judge(OffsetRange("t", 0, first, until), position, log, fail_on_data_loss=False)
            assert verdict.next_offset <= until
            assert verdict.lost == verdict.next_offset - position
            if verdict.event is None:
                read.append(position)
                position += 1
            else:
                position = verdict.next_offset
    assert read == [offset for offset in range(cuts[0], cuts[-1]) if log.start <= offset < log.end]


def clipped(
    start: tuple[int, Origin], end: tuple[int, Origin], log: tuple[int, int | None], *, fail: bool = False
) -> tuple[int, int, str]:
    fitted, warnings = clip(TP, Bound(*start), Bound(*end), *log, fail_on_data_loss=fail)
    assert fitted.topic_partition == TP
    return fitted.from_offset, fitted.until_offset, "; ".join(warnings)


@pytest.mark.parametrize(
    ("start", "end", "log"),
    [
        ((0, "earliest"), (9, "latest"), (0, 9)),
        ((0, "given"), (9, "given"), (0, 9)),
        ((3, "timestamp"), (5, "timestamp"), (0, 9)),
        ((9, "given"), (9, "latest"), (0, 9)),
        ((5, "given"), (5, "given"), (7, 9)),  # nothing was asked for, so nothing is lost
        ((50, "given"), (50, "given"), (7, 9)),
        ((3, "given"), (50, "given"), (0, None)),  # may just not be committed yet
    ],
)
def test_what_fits_stays_as_it_is(
    start: tuple[int, Origin], end: tuple[int, Origin], log: tuple[int, int | None]
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
    start: tuple[int, Origin], end: tuple[int, Origin], log: tuple[int, int], expected: tuple[int, int], words: str
) -> None:
    first, until, warnings = clipped(start, end, log)
    assert (first, until) == expected
    assert words in warnings
    with pytest.raises(DataLossError, match=r"data loss .* of t-3 .*; set failOnDataLoss=false"):
        clipped(start, end, log, fail=True)


def test_loss_fails_unless_something_else_is_said() -> None:
    with pytest.raises(DataLossError):
        clip(TP, Bound(2, "given"), Bound(9, "given"), 5, 9)


def test_a_start_after_an_end_that_was_asked_for_is_a_mistake() -> None:
    for end in [(1, "timestamp"), (1, "given")]:
        with pytest.raises(OffsetPlanError, match="greater than the resolved end offset 1"):
            clipped((3, "given"), end, (0, 9))  # type: ignore[arg-type]


def test_a_start_that_is_not_committed_yet_reads_nothing_and_says_so() -> None:
    first, until, warnings = clipped((15, "given"), (9, "latest"), (0, None), fail=True)
    assert first == until
    assert "after the last stable offset 9" in warnings


def test_an_end_below_the_log_start_reads_nothing_from_earliest_on() -> None:
    first, until, warnings = clipped((5, "earliest"), (3, "given"), (5, 9), fail=True)
    assert first == until
    assert "nothing to read" in warnings


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_clipping_keeps_all_that_is_there(first: int, size: int, log_start: int, log_size: int) -> None:
    until, log_end = first + size, log_start + log_size
    kept_from, kept_until, _ = clipped((first, "given"), (until, "given"), (log_start, log_end))
    kept = [offset for offset in range(kept_from, kept_until) if log_start <= offset < log_end]
    assert kept == [offset for offset in range(first, until) if log_start <= offset < log_end]
    assert kept == list(range(kept_from, kept_until))
