"""Where a direct stream begins, decided without Kafka."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.direct_start import LogSpan, Reset, Starts, decide_starts, decide_starts_of_new

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogSpan(10, 20, 20)
STABLE = LogSpan(10, 15, 20)  # a transaction is under way from 15 on


def start(
    committed: int | None, reset: Reset, *, given: int | None = None, log: LogSpan = LOG
) -> tuple[int, tuple[str, ...]]:
    known = {} if committed is None else {TP: committed}
    starts = decide_starts({TP: given}, known, {TP: log}, reset=reset, group="g")
    return starts.offsets[TP], starts.warnings


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("offset", [10, 15, 20])
def test_a_committed_offset_in_the_log_decides(offset: int, reset: Reset) -> None:
    assert start(offset, reset) == (offset, ())
    assert start(offset, reset, log=STABLE) == (offset, ()), "also one that cannot be read yet"


@pytest.mark.parametrize("offset", [9, 21])
@pytest.mark.parametrize(("reset", "begins"), [("earliest", 10), ("latest", 20)])
def test_a_committed_offset_out_of_the_log_is_reset_and_told(offset: int, reset: Reset, begins: int) -> None:
    found, warnings = start(offset, reset)
    assert found == begins
    [warning] = warnings
    assert warning.startswith(f"the offset {offset} that the group 'g' has committed for t-0 is not in the log")
    assert warning.endswith(f"it begins at {begins} (auto.offset.reset={reset})")


@pytest.mark.parametrize(("offset", "why"), [(9, "retention has removed"), (21, "created anew, or its log was cut")])
def test_a_committed_offset_out_of_the_log_is_refused_without_a_reset(offset: int, why: str) -> None:
    with pytest.raises(OffsetPlanError, match=why) as failure:
        start(offset, "none")
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("t", 0, offset)
    assert "auto.offset.reset is none; commit an offset that is in the log" in str(failure.value)


@pytest.mark.parametrize(("reset", "begins"), [("earliest", 10), ("latest", 15)])
def test_the_reset_without_an_offset_is_no_warning(reset: Reset, begins: int) -> None:
    assert start(None, reset, log=STABLE) == (begins, ()), "latest is what can be read"


def test_a_given_offset_comes_before_a_committed_one() -> None:
    assert start(9, "none", given=12) == (12, ())
    assert start(12, "earliest", given=20, log=STABLE) == (20, ())
    for given in (9, 21):
        with pytest.raises(OffsetPlanError, match=f"the offset {given} to start at is not in the log, .* 10 to 20"):
            start(12, "earliest", given=given)


def test_nothing_to_begin_at_names_the_partitions() -> None:
    logs = {TP: LOG, OTHER: LOG}
    for group, why in (("g", "the group 'g' has committed no offset"), (None, r"there is no group\.id")):
        with pytest.raises(OffsetPlanError, match=rf"for t-1: none is given, {why}"):
            decide_starts({TP: 12, OTHER: None}, {}, logs, reset="none", group=group)


def test_each_partition_by_itself() -> None:
    logs = {TP: LOG, OTHER: LogSpan(0, 3, 3)}
    starts = decide_starts({OTHER: None, TP: None}, {TP: 5, OTHER: 2}, logs, reset="earliest", group="g")
    assert starts.offsets == {TP: 10, OTHER: 2}
    assert len(starts.warnings) == 1


class TestNew:
    """Partitions that appear under a stream."""

    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_from_a_committed_offset_else_from_the_log_start(self, reset: Reset) -> None:
        logs = {TP: LOG, OTHER: STABLE}
        assert decide_starts_of_new({TP: 20}, logs, reset=reset, group="g") == Starts({TP: 20, OTHER: 10})

    @pytest.mark.parametrize("offset", [9, 21])
    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_out_of_the_log_means_the_log_start(self, offset: int, reset: Reset) -> None:
        starts = decide_starts_of_new({TP: offset}, {TP: LOG}, reset=reset, group="g")
        assert starts.offsets == {TP: 10}, "with latest too: what is there was written under the stream"
        [warning] = starts.warnings
        assert f"the offset {offset} that the group 'g' has committed for t-0 is not in the log" in warning
        assert "it begins at 10" in warning

    def test_out_of_the_log_is_refused_without_a_reset(self) -> None:
        with pytest.raises(OffsetPlanError, match=r"not in the log.* and auto\.offset\.reset is none"):
            decide_starts_of_new({TP: 9}, {TP: LOG}, reset="none", group="g")
