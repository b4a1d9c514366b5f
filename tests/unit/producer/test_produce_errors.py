"""The decision for each error code of a Produce response, and the errors for failed batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import AuthorizationError, InvalidRecordError, KafkaDirectError, RecordTooLargeError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.produce_channel import PartitionProduceResponse
from pyspark_kafka_direct.producer.produce_errors import BatchDecision, decide_for_error_code, error_for_response
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import RecordEncoder

PARTITION = TopicPartition("t", 3)
IDEMPOTENT: dict[str, bool] = {"idempotent": True, "can_change_epoch": True}
TRANSACTIONAL: dict[str, bool] = {"idempotent": True, "can_change_epoch": False}
COPY_MAY_EXIST = {**IDEMPOTENT, "copy_may_exist": True}
PLAIN: dict[str, bool] = {"idempotent": False, "can_change_epoch": True}


@pytest.mark.parametrize(
    ("code", "flags", "is_oldest", "record_count", "decision"),
    [
        (ErrorCode.NONE, PLAIN, True, 5, BatchDecision.COMPLETE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, IDEMPOTENT, True, 5, BatchDecision.COMPLETE),
        (ErrorCode.MESSAGE_TOO_LARGE, IDEMPOTENT, True, 5, BatchDecision.SPLIT),
        (ErrorCode.RECORD_LIST_TOO_LARGE, PLAIN, False, 2, BatchDecision.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, IDEMPOTENT, True, 1, BatchDecision.FAIL),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, IDEMPOTENT, True, 5, BatchDecision.RETRY_WITH_NEW_LEADER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IDEMPOTENT, True, 5, BatchDecision.RETRY_WITH_NEW_LEADER),
        (ErrorCode.KAFKA_STORAGE_ERROR, PLAIN, True, 5, BatchDecision.RETRY_WITH_NEW_LEADER),
        (ErrorCode.NOT_ENOUGH_REPLICAS, IDEMPOTENT, True, 5, BatchDecision.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, IDEMPOTENT, True, 5, BatchDecision.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, PLAIN, True, 5, BatchDecision.RETRY),
        (ErrorCode.CONCURRENT_TRANSACTIONS, TRANSACTIONAL, True, 5, BatchDecision.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, IDEMPOTENT, False, 5, BatchDecision.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, IDEMPOTENT, True, 5, BatchDecision.RETRY_WITH_NEXT_EPOCH),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, COPY_MAY_EXIST, False, 5, BatchDecision.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, COPY_MAY_EXIST, True, 5, BatchDecision.FAIL),
        (ErrorCode.UNKNOWN_PRODUCER_ID, COPY_MAY_EXIST, True, 5, BatchDecision.FAIL),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTIONAL, False, 5, BatchDecision.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTIONAL, True, 5, BatchDecision.FAIL),
        (ErrorCode.UNKNOWN_PRODUCER_ID, IDEMPOTENT, True, 5, BatchDecision.RETRY_WITH_NEXT_EPOCH),
        (ErrorCode.UNKNOWN_PRODUCER_ID, IDEMPOTENT, False, 5, BatchDecision.RETRY),
        (ErrorCode.UNKNOWN_PRODUCER_ID, TRANSACTIONAL, False, 5, BatchDecision.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, IDEMPOTENT, True, 5, BatchDecision.RETRY_WITH_NEXT_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, TRANSACTIONAL, False, 5, BatchDecision.FAIL),
        (ErrorCode.PRODUCER_FENCED, TRANSACTIONAL, True, 5, BatchDecision.FAIL),
        (ErrorCode.INVALID_TXN_STATE, TRANSACTIONAL, True, 5, BatchDecision.FAIL),
        (ErrorCode.TRANSACTION_ABORTABLE, TRANSACTIONAL, True, 5, BatchDecision.FAIL),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, IDEMPOTENT, True, 5, BatchDecision.FAIL),
        (ErrorCode.INVALID_RECORD, IDEMPOTENT, True, 5, BatchDecision.FAIL),
        (ErrorCode.INVALID_REQUIRED_ACKS, PLAIN, True, 5, BatchDecision.FAIL),
        (999, IDEMPOTENT, True, 5, BatchDecision.FAIL),
    ],
)
def test_decision(
    code: int, flags: dict[str, bool], is_oldest: bool, record_count: int, decision: BatchDecision
) -> None:
    assert decide_for_error_code(code, record_count=record_count, is_oldest=is_oldest, **flags) is decision


def error_for_code(code: int, rows: Any, **more: Any) -> KafkaDirectError:
    encoder = RecordEncoder(topic="t", partitions=1)
    columns = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "timestamp": pa.array([1_700_000_000_000] * len(rows), pa.int64()),
    }
    assert encoder.add(pa.record_batch(columns)) == []
    (batch,) = encoder.flush()
    response = PartitionProduceResponse(code, **more)
    error = error_for_response(response, PARTITION, "b:1", record_count=batch.records, data=batch.data)
    assert (error.topic, error.partition, error.broker) == ("t", 3, "b:1")
    return error


ROWS = [(b"a", b"1"), (None, b"2"), (bytes(100), b"3")]


def test_a_record_that_is_too_large() -> None:
    error = error_for_code(ErrorCode.MESSAGE_TOO_LARGE, [(b"a", bytes(1000))])
    assert isinstance(error, RecordTooLargeError)
    assert "A record, which has the key b'a', has 1071 bytes" in error.message
    assert "max.message.bytes" in error.message


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, "record 1 of a batch of 3, which has the key b'a':"),
        (1, "record 2 of a batch of 3, which has no key:"),
        (2, f"record 3 of a batch of 3, whose key begins with {bytes(40)!r}:"),
        (3, "record 4 of a batch of 3:"),
        (-1, "record 0 of a batch of 3:"),
        (-5, "record -4 of a batch of 3:"),
    ],
)
def test_the_error_describes_a_rejected_record(index: int, expected: str) -> None:
    error = error_for_code(ErrorCode.INVALID_TIMESTAMP, ROWS, record_errors=((index, "out of range."),), message="all")
    assert isinstance(error, InvalidRecordError)
    assert expected in error.message
    assert "INVALID_TIMESTAMP: out of range. Correct the record, or raise the topic's" in error.message


def test_other_rejected_records_are_counted_and_the_batch_message_is_used() -> None:
    error = error_for_code(ErrorCode.INVALID_RECORD, ROWS, record_errors=((1, None), (2, "x")), message="no key")
    assert "record 2 of a batch of 3 (and 1 more), which has no key: INVALID_RECORD: no key." in error.message
    assert "a compacted topic requires keys" in error.message


def test_a_rejected_batch_without_record_errors() -> None:
    error = error_for_code(ErrorCode.INVALID_RECORD, ROWS, message="why")
    assert isinstance(error, InvalidRecordError)
    assert "a batch of 3 records (INVALID_RECORD: why). Correct the records" in error.message


@pytest.mark.parametrize("record_errors", [(), ((1, None),), ((1, "a\nERROR b\x1b[31m"),)])
def test_a_message_of_a_broker_cannot_add_lines_to_a_log(record_errors: tuple[tuple[int, str | None], ...]) -> None:
    error = error_for_code(ErrorCode.INVALID_RECORD, ROWS, record_errors=record_errors, message="a\nERROR b\x1b[31m")
    assert "a\\nERROR b\\x1b[31m" in error.message
    assert error.message.isprintable()


def test_a_missing_permission_is_named() -> None:
    error = error_for_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ROWS)
    assert isinstance(error, AuthorizationError)
    assert "WRITE" in error.message
