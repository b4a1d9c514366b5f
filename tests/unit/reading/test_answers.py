"""What answers without records mean; many are such as a real broker does not give on demand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reading.scripted import answer

from pyspark_kafka_direct.errors import AuthorizationError, CorruptRecordError, ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.reading._answers import (
    Asked,
    AskLeader,
    Cut,
    GoTo,
    Hole,
    TryAgain,
    after_error,
    after_nothing,
)
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.fetch import EpochEnd

LEADER = Asked(TopicPartition("flights", 3), 20, "broker:9092", on_leader=True, read_committed=False)
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
def test_codes_that_another_try_may_cure(code: int) -> None:
    step = after_error(LEADER, code)
    assert isinstance(step, TryAgain)
    assert (step.look_up, step.at_once, step.throttled, step.error.offset) == (True, False, False, 20)


@pytest.mark.parametrize("code", NOT_RETRIED)
def test_codes_that_are_final(code: int) -> None:
    with pytest.raises(NOT_RETRIED[code]) as caught:
        after_error(LEADER, code)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.broker) == ("flights", 3, 20, "broker:9092")


def test_the_leader_tells_what_is_out_of_range_a_follower_does_not() -> None:
    assert isinstance(after_error(LEADER, ErrorCode.OFFSET_OUT_OF_RANGE), AskLeader)
    step = after_error(FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(step, TryAgain)
    assert (step.look_up, step.at_once) == (True, True)


def test_an_empty_follower_is_left_for_the_leader_at_once() -> None:
    step = after_nothing(FOLLOWER, answer(high_watermark=15))
    assert isinstance(step, TryAgain)
    assert (step.look_up, step.at_once) == (True, True)


def test_a_preferred_replica_is_gone_to() -> None:
    assert after_nothing(LEADER, answer(preferred_read_replica=7)) == GoTo(7)


def test_a_throttled_broker_makes_us_wait_itself() -> None:
    step = after_nothing(LEADER, answer(high_watermark=-1, throttle_ms=100))
    assert isinstance(step, TryAgain)
    assert (step.throttled, step.at_once, step.look_up) == (True, True, False)


def test_a_broker_that_does_not_know_its_end_is_asked_again_after_a_pause() -> None:
    """Asked at once, it was asked 40,000 times in half a second."""
    step = after_nothing(LEADER, answer(high_watermark=-1))
    assert isinstance(step, TryAgain)
    assert (step.throttled, step.at_once, step.error.offset) == (False, False, 20)


def test_bytes_without_a_whole_batch_are_malformed() -> None:
    with pytest.raises(CorruptRecordError, match="17 bytes that hold no complete record batch") as caught:
        after_nothing(LEADER, answer(records=memoryview(bytes(17))))
    assert caught.value.offset == 20


def test_nothing_below_the_end_may_be_a_hole() -> None:
    step = after_nothing(LEADER, answer(last_stable_offset=45))
    assert isinstance(step, Hole)
    assert (step.end, step.error.offset) == (100, 20)


def test_a_hole_ends_where_read_committed_has_to_stop() -> None:
    step = after_nothing(COMMITTED, answer(last_stable_offset=45))
    assert isinstance(step, Hole)
    assert step.end == 45


def test_an_open_transaction_is_no_hole_and_no_loss() -> None:
    step = after_nothing(COMMITTED, answer(last_stable_offset=20))
    assert isinstance(step, TryAgain)
    assert "transaction is open there; end the range at 20" in step.error.message


def test_a_log_that_was_cut_is_no_hole() -> None:
    cut = answer(diverging_epoch=EpochEnd(2, 15))
    assert after_nothing(replace(LEADER, compared=True), cut) == Cut(15)
    with pytest.raises(ProtocolError, match="was not told what that is"):
        after_nothing(LEADER, cut)
    step = after_nothing(FOLLOWER, cut)
    assert isinstance(step, TryAgain)
    assert (step.look_up, step.at_once) == (True, True)


@pytest.mark.parametrize("asked", [LEADER, COMMITTED])
@pytest.mark.parametrize("high_watermark", [20, 15])
def test_an_offset_at_the_end_of_the_log_is_for_the_leader_to_judge(asked: Asked, high_watermark: int) -> None:
    step = after_nothing(asked, answer(high_watermark=high_watermark, last_stable_offset=high_watermark))
    assert isinstance(step, AskLeader)
    assert step.error.offset == 20
