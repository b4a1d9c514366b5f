"""Decisions on responses without records, many of which a real broker does not return on demand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.consumer.scripted_replica import response

from pyspark_kafka_direct.consumer.fetch_channel import EpochEndOffset
from pyspark_kafka_direct.consumer.fetch_response import (
    CheckLeaderLog,
    FetchContext,
    LogTruncated,
    OffsetGap,
    RetryFetch,
    UsePreferredReplica,
    decide_after_empty,
    decide_after_error,
    is_empty_at_end,
)
from pyspark_kafka_direct.errors import AuthorizationError, CorruptRecordError, ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

LEADER = FetchContext(TopicPartition("flights", 3), 20, "broker:9092", on_leader=True, read_committed=False)
FOLLOWER = replace(LEADER, on_leader=False)
COMMITTED = replace(LEADER, read_committed=True)

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
def test_retriable_codes(code: int) -> None:
    action = decide_after_error(LEADER, code)
    assert isinstance(action, RetryFetch)
    assert (action.refresh_metadata, action.without_backoff, action.throttled, action.error.offset) == (
        True,
        False,
        False,
        20,
    )


@pytest.mark.parametrize("code", NOT_RETRIED)
def test_fatal_codes(code: int) -> None:
    with pytest.raises(NOT_RETRIED[code]) as caught:
        decide_after_error(LEADER, code)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.broker) == ("flights", 3, 20, "broker:9092")


def test_only_the_leader_decides_on_an_offset_out_of_range() -> None:
    assert isinstance(decide_after_error(LEADER, ErrorCode.OFFSET_OUT_OF_RANGE), CheckLeaderLog)
    action = decide_after_error(FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(action, RetryFetch)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


def test_empty_follower_is_replaced_by_the_leader_at_once() -> None:
    action = decide_after_empty(FOLLOWER, response(high_watermark=15))
    assert isinstance(action, RetryFetch)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


def test_preferred_replica_is_used() -> None:
    assert decide_after_empty(LEADER, response(preferred_read_replica=7)) == UsePreferredReplica(7)


def test_throttled_response_needs_no_backoff() -> None:
    action = decide_after_empty(LEADER, response(high_watermark=-1, throttle_ms=100))
    assert isinstance(action, RetryFetch)
    assert (action.throttled, action.without_backoff, action.refresh_metadata) == (True, True, False)


def test_response_without_a_log_end_is_retried_after_backoff() -> None:
    """Without backoff it was fetched 40,000 times in half a second."""
    action = decide_after_empty(LEADER, response(high_watermark=-1))
    assert isinstance(action, RetryFetch)
    assert (action.throttled, action.without_backoff, action.error.offset) == (False, False, 20)


def test_bytes_without_a_complete_batch_are_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="17 bytes without a complete record batch") as caught:
        decide_after_empty(LEADER, response(records=memoryview(bytes(17))))
    assert caught.value.offset == 20


def test_empty_response_below_the_end_may_be_a_gap() -> None:
    action = decide_after_empty(LEADER, response(last_stable_offset=45))
    assert isinstance(action, OffsetGap)
    assert (action.end, action.error.offset) == (100, 20)


def test_gap_ends_at_the_last_stable_offset() -> None:
    action = decide_after_empty(COMMITTED, response(last_stable_offset=45))
    assert isinstance(action, OffsetGap)
    assert action.end == 45


def test_open_transaction_is_no_gap_and_no_loss() -> None:
    action = decide_after_empty(COMMITTED, response(last_stable_offset=20))
    assert isinstance(action, RetryFetch)
    assert "transaction is open there; end the range at 20" in action.error.message


def test_truncated_log_is_no_gap() -> None:
    diverging = response(diverging_epoch=EpochEndOffset(2, 15))
    assert decide_after_empty(replace(LEADER, sent_last_epoch=True), diverging) == LogTruncated(15, epoch=2)
    with pytest.raises(ProtocolError, match="named no epoch to compare"):
        decide_after_empty(LEADER, diverging)
    action = decide_after_empty(FOLLOWER, diverging)
    assert isinstance(action, RetryFetch)
    assert (action.refresh_metadata, action.without_backoff) == (True, True)


@pytest.mark.parametrize("context", [LEADER, COMMITTED])
@pytest.mark.parametrize("high_watermark", [20, 15])
def test_leader_decides_on_an_offset_at_the_end_of_the_log(context: FetchContext, high_watermark: int) -> None:
    action = decide_after_empty(context, response(high_watermark=high_watermark, last_stable_offset=high_watermark))
    assert isinstance(action, CheckLeaderLog)
    assert action.error.offset == 20


@pytest.mark.parametrize("broker", [0, 7])
def test_a_response_that_names_another_replica_is_more_than_empty(broker: int) -> None:
    assert is_empty_at_end(100, response(), read_committed=True)
    assert not is_empty_at_end(100, response(preferred_read_replica=broker), read_committed=True)
