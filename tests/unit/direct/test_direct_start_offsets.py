"""Where a direct stream starts."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.direct.direct_stream_planner import (
    LogOffsets,
    OffsetResetStrategy,
    StartOffsets,
    decide_new_partition_offsets,
    decide_start_offsets,
)
from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogOffsets(10, 20, 20)
STABLE = LogOffsets(10, 15, 20)  # an open transaction starts at 15


def start(
    committed: int | None, reset: OffsetResetStrategy, *, explicit: int | None = None, log: LogOffsets = LOG
) -> tuple[int, tuple[str, ...]]:
    known = {} if committed is None else {TP: committed}
    starts = decide_start_offsets({TP: explicit}, known, {TP: log}, reset=reset, group="g")
    return starts.offsets[TP], starts.warnings


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("offset", [10, 15, 20])
def test_a_committed_offset_in_the_log_decides(offset: int, reset: OffsetResetStrategy) -> None:
    assert start(offset, reset) == (offset, ())
    assert start(offset, reset, log=STABLE) == (offset, ()), "also beyond the last stable offset"


@pytest.mark.parametrize("offset", [9, 21])
@pytest.mark.parametrize(("reset", "expected"), [("earliest", 10), ("latest", 20)])
def test_a_committed_offset_out_of_the_log_is_reset_with_a_warning(
    offset: int, reset: OffsetResetStrategy, expected: int
) -> None:
    found, warnings = start(offset, reset)
    assert found == expected
    [warning] = warnings
    assert warning.startswith(f"the committed offset {offset} of group 'g' for t-0 is not in the log")
    assert warning.endswith(f"it starts at {expected} (auto.offset.reset={reset})")


@pytest.mark.parametrize(("offset", "why"), [(9, "retention deleted"), (21, "recreated, or its log was truncated")])
def test_a_committed_offset_out_of_the_log_is_rejected_without_a_reset(offset: int, why: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=why) as failure:
        start(offset, "none")
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("t", 0, offset)
    assert "auto.offset.reset is none; commit an offset in the log" in str(failure.value)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 10), ("latest", 15)])
def test_the_reset_without_an_offset_is_no_warning(reset: OffsetResetStrategy, expected: int) -> None:
    assert start(None, reset, log=STABLE) == (expected, ()), "latest is the last stable offset"


def test_an_explicit_offset_overrides_a_committed_one() -> None:
    assert start(9, "none", explicit=12) == (12, ())
    assert start(12, "earliest", explicit=20, log=STABLE) == (20, ())
    for explicit in (9, 21):
        with pytest.raises(InvalidOffsetsError, match=f"the start offset {explicit} is not in the log, .* 10 to 20"):
            start(12, "earliest", explicit=explicit)


def test_without_a_start_offset_the_error_names_the_partitions() -> None:
    logs = {TP: LOG, OTHER: LOG}
    for group, why in (("g", "the group 'g' has not committed one"), (None, r"there is no group\.id")):
        with pytest.raises(InvalidOffsetsError, match=rf"for t-1: there is no explicit offset, {why}"):
            decide_start_offsets({TP: 12, OTHER: None}, {}, logs, reset="none", group=group)
    with pytest.raises(InvalidOffsetsError, match="for t-0, t-1: ") as raised:
        decide_start_offsets({OTHER: None, TP: None}, {}, logs, reset="none", group="g")
    assert (raised.value.topic, raised.value.partition) == TP, "the first one"


def test_each_partition_is_decided_separately() -> None:
    logs = {TP: LOG, OTHER: LogOffsets(0, 3, 3)}
    starts = decide_start_offsets({OTHER: None, TP: None}, {TP: 5, OTHER: 2}, logs, reset="earliest", group="g")
    assert starts.offsets == {TP: 10, OTHER: 2}
    assert len(starts.warnings) == 1


class TestNewPartitions:
    """Partitions created after the stream."""

    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_they_start_at_the_committed_offset_or_at_the_log_start(self, reset: OffsetResetStrategy) -> None:
        logs = {TP: LOG, OTHER: STABLE}
        starts = decide_new_partition_offsets({TP: 20}, logs, reset=reset, group="g")
        assert starts.offsets == {TP: 20, OTHER: 10}

    def test_records_that_were_removed_before_a_partition_was_found_are_reported(self) -> None:
        logs = {TP: LOG, OTHER: LogOffsets(0, 20, 20)}
        starts = decide_new_partition_offsets({}, logs, reset="latest", group=None)
        [warning] = starts.warnings
        assert warning == (
            "data loss: the new partition t-0 starts at offset 10, its records before that were removed before they "
            "were read"
        )
        assert decide_new_partition_offsets({TP: 12}, {TP: LOG}, reset="none", group="g") == StartOffsets({TP: 12})
        both = decide_new_partition_offsets({}, {TP: LOG, OTHER: STABLE}, reset="latest", group=None).warnings
        assert both == (warning, warning.replace("t-0", "t-1")), "one for each partition"

    @pytest.mark.parametrize("offset", [9, 21])
    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_a_committed_offset_out_of_the_log_means_the_log_start(
        self, offset: int, reset: OffsetResetStrategy
    ) -> None:
        starts = decide_new_partition_offsets({TP: offset}, {TP: LOG}, reset=reset, group="g")
        assert starts.offsets == {TP: 10}, "with latest too: its records were written after the stream started"
        [warning] = starts.warnings
        assert f"the committed offset {offset} of group 'g' for t-0 is not in the log" in warning
        assert "it starts at 10" in warning

    def test_a_committed_offset_out_of_the_log_is_an_error_without_a_reset(self) -> None:
        with pytest.raises(InvalidOffsetsError, match=r"not in the log.* and auto\.offset\.reset is none"):
            decide_new_partition_offsets({TP: 9}, {TP: LOG}, reset="none", group="g")
