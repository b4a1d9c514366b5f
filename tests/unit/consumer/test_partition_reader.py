"""Decisions on responses without records, many of which a real broker does not return on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH, EpochEndOffset, FetchResponsePartition
from pyspark_kafka_direct.consumer.partition_reader import (
    CheckGap,
    CheckLeaderLog,
    FetchContext,
    LogTruncated,
    PartitionReader,
    RetryFetch,
    UsePreferredReplica,
)
from pyspark_kafka_direct.errors import AuthorizationError, CorruptRecordError, ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS, STALE_ENDS_TO_CONFIRM, LeaderLogState
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

LEADER = FetchContext("broker:9092", sent_at=0.0, received_at=0.0)
FOLLOWER = LEADER._replace(on_leader=False)


def response(code: int = 0, **fields: Any) -> FetchResponsePartition:
    """Return a fetch response, by default the empty one of a log with the end offset 100."""
    defaults: dict[str, Any] = {
        "error_code": code,
        "high_watermark": 100 if code == 0 else -1,
        "last_stable_offset": 100 if code == 0 else -1,
        "log_start_offset": 0,
        "aborted": (),
        "preferred_read_replica": -1,
        "current_leader": None,
        "diverging_epoch": None,
        "throttle_ms": 0,
        "records": memoryview(b""),
    }
    return FetchResponsePartition(**(defaults | fields))


def reader(*, committed: bool = False, in_planned_range: bool = True) -> PartitionReader:
    tp = TopicPartition("flights", 3)
    return PartitionReader(tp, 20, read_committed=committed, in_planned_range=in_planned_range)


def decide(
    context: FetchContext, code: int = 0, *, committed: bool = False, in_planned_range: bool = True, **fields: Any
) -> Any:
    """Decide on a response to a fetch from offset 20."""
    return reader(committed=committed, in_planned_range=in_planned_range).decide(context, response(code, **fields))


def sent(at: float, seconds: float = 0.0, **fields: Any) -> FetchContext:
    """Return the context of a fetch that was sent at a time, and took some seconds."""
    return LEADER._replace(sent_at=at, received_at=at + seconds, **fields)


RETRIED = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
]

NOT_RETRIED = {
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedBrokerError,
    ErrorCode.INVALID_REQUEST: ProtocolError,
    4711: ProtocolError,
}


@pytest.mark.parametrize("code", RETRIED)
@pytest.mark.parametrize("in_planned_range", [True, False])
def test_retriable_codes(code: int, in_planned_range: bool) -> None:
    action = decide(LEADER, code, in_planned_range=in_planned_range)
    assert isinstance(action, RetryFetch)
    assert (action.refresh_metadata, action.without_backoff, action.throttled) == (True, False, False)
    assert action.error.offset == 20


@pytest.mark.parametrize("code", NOT_RETRIED)
def test_fatal_codes(code: int) -> None:
    with pytest.raises(NOT_RETRIED[code]) as caught:
        decide(LEADER, code)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.broker) == ("flights", 3, 20, "broker:9092")


def test_only_the_leader_decides_on_an_offset_out_of_range() -> None:
    assert isinstance(decide(LEADER, ErrorCode.OFFSET_OUT_OF_RANGE), CheckLeaderLog)
    action = decide(FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


def test_empty_follower_is_replaced_by_the_leader_at_once() -> None:
    action = decide(FOLLOWER, high_watermark=15)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


def test_preferred_replica_is_used_in_a_range_only() -> None:
    """Fetches of a read without an end have no rack. A follower that names another one could lead in circles."""
    assert decide(LEADER, preferred_read_replica=7) == UsePreferredReplica(7)
    for action in (
        decide(FOLLOWER, preferred_read_replica=7),
        decide(LEADER, preferred_read_replica=0, high_watermark=20, last_stable_offset=20, in_planned_range=False),
    ):
        assert (action.refresh_metadata, action.without_backoff) == (True, False)


@pytest.mark.parametrize("in_planned_range", [True, False])
def test_throttled_response_needs_no_backoff(in_planned_range: bool) -> None:
    action = decide(LEADER, high_watermark=-1, throttle_ms=100, in_planned_range=in_planned_range)
    assert (action.throttled, action.without_backoff, action.refresh_metadata) == (True, True, False)


def test_response_without_a_log_end_is_retried_after_backoff() -> None:
    """Without backoff it was fetched 40,000 times in half a second."""
    action = decide(LEADER, high_watermark=-1)
    assert (action.throttled, action.without_backoff, action.error.offset) == (False, False, 20)


def test_bytes_without_a_complete_batch_are_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="17 bytes without a complete record batch") as caught:
        decide(LEADER, records=memoryview(bytes(17)))
    assert caught.value.offset == 20


def test_open_transaction_is_no_gap_and_no_loss() -> None:
    action = decide(LEADER, last_stable_offset=20, committed=True)
    assert "transaction is open there; end the range at 20" in action.error.message
    assert decide(LEADER, last_stable_offset=20, committed=True, in_planned_range=False) is None


def test_truncated_log_is_no_gap() -> None:
    diverging: dict[str, Any] = {"diverging_epoch": EpochEndOffset(2, 15)}
    assert decide(LEADER._replace(sent_last_epoch=True), **diverging) == LogTruncated(15, epoch=2)
    with pytest.raises(ProtocolError, match="named no epoch to compare"):
        decide(LEADER, **diverging)
    action = decide(FOLLOWER, **diverging)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("end", [20, 15])
def test_leader_decides_on_an_offset_at_the_end_of_the_log(committed: bool, end: int) -> None:
    """A read without an end waits there."""
    ends: dict[str, Any] = {"high_watermark": end, "last_stable_offset": end, "committed": committed}
    action = decide(LEADER, **ends)
    assert isinstance(action, CheckLeaderLog)
    assert action.error.offset == 20
    assert decide(LEADER, **ends, in_planned_range=False) is None


@pytest.mark.parametrize("in_planned_range", [True, False])
@pytest.mark.parametrize(("committed", "end"), [(False, 100), (True, 45)])
def test_empty_responses_are_a_gap_after_some_seconds(in_planned_range: bool, committed: bool, end: int) -> None:
    """Meanwhile, brokers with slow storage respond without records, and so do those that throttle the client."""
    reading = reader(committed=committed, in_planned_range=in_planned_range)
    empty = response(last_stable_offset=45)
    for context in (sent(0.0, 3.0), sent(3.0, 6.0), sent(7.9)):  # a slow response proves nothing
        action = reading.decide(context, empty)
        assert isinstance(action, RetryFetch)
        assert (action.without_backoff, action.error.offset) == (False, 20)
        assert action.error.confirmation_seconds == CONFIRMATION_SECONDS
    throttled = reading.decide(sent(8.0, 30.0), response(throttle_ms=30_000))
    assert isinstance(throttled, RetryFetch)
    assert throttled.throttled
    assert isinstance(reading.decide(sent(37.9), empty), RetryFetch)
    gap = reading.decide(sent(38.0), empty)
    assert isinstance(gap, CheckGap)
    assert (gap.end, gap.no_data_seconds, gap.error.offset, gap.error.confirmation_seconds) == (end, 5.0, 20, 0.0)


def test_time_without_data_restarts_with_another_leader_or_offset() -> None:
    changes: list[Callable[[PartitionReader], object]] = [
        lambda reading: reading.should_fetch_again(LeaderLogState(0, 100), end_may_be_stale=False),
        PartitionReader.forget_empty_responses,
        PartitionReader.reset_evidence,
        lambda reading: reading.resume_at(21),
    ]
    for change in changes:
        reading = reader()
        reading.decide(sent(0.0), response())
        change(reading)
        assert isinstance(reading.decide(sent(50.0), response()), RetryFetch)
        assert isinstance(reading.decide(sent(55.0), response()), CheckGap)


def test_records_of_other_partitions_that_fill_a_response_prove_no_gap() -> None:
    reading = reader(in_planned_range=False)
    for at in (0.0, 10.0):
        assert reading.decide(sent(at, had_space=False), response()) is None
    assert isinstance(reading.decide(sent(20.0), response()), RetryFetch)


@given(st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_an_offset_in_the_log_is_fetched_again(start: int, size: int, in_planned_range: bool) -> None:
    """The record at the end of a log is not written yet, so a planned range cannot contain it."""
    log = LeaderLogState(start, start + size)
    found = reader(in_planned_range=in_planned_range).should_fetch_again(log, end_may_be_stale=False)
    assert found == (20 in range(log.start, log.end + (not in_planned_range)))


@pytest.mark.parametrize("in_planned_range", [True, False])
def test_lower_end_of_an_old_leader_is_requested_again(in_planned_range: bool) -> None:
    reading, log = reader(in_planned_range=in_planned_range), LeaderLogState(0, 19)
    assert not reading.should_fetch_again(log, end_may_be_stale=False)
    for _ in range(STALE_ENDS_TO_CONFIRM):
        assert reading.should_fetch_again(log, end_may_be_stale=True)
    assert not reading.should_fetch_again(log, end_may_be_stale=True)
    reading.reset_evidence()
    assert reading.should_fetch_again(log, end_may_be_stale=True)


def test_last_epoch_is_no_longer_sent_if_a_leader_keeps_rejecting_an_offset_that_it_has() -> None:
    """Kafka returns OFFSET_OUT_OF_RANGE if it has lost its epochs (``Partition.readRecords``)."""
    reading = reader()
    reading.resume_at(30, 3)
    epochs = []
    for _ in range(5):
        epochs.append(reading.last_fetched_epoch)
        assert reading.should_fetch_again(LeaderLogState(0, 100), end_may_be_stale=False)
    assert (epochs, reading.last_fetched_epoch) == ([3] * 5, UNKNOWN_EPOCH)
