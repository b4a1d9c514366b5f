"""What a broker's answer about a record batch means, and the errors for what cannot be helped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import AuthorizationError, KafkaDirectError, RecordRefusedError, RecordTooLargeError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import create_encoder
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.produce import ProducedPartition
from pyspark_kafka_direct.writing._verdicts import Verdict, failure, judge

NAME = TopicPartition("t", 3)
IDEMPOTENT: dict[str, bool] = {"numbered": True, "renewable": True}
TRANSACTIONAL: dict[str, bool] = {"numbered": True, "renewable": False}
PLAIN: dict[str, bool] = {"numbered": False, "renewable": True}


@pytest.mark.parametrize(
    ("code", "how", "first", "records", "verdict"),
    [
        (ErrorCode.NONE, PLAIN, True, 5, Verdict.WRITTEN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, IDEMPOTENT, True, 5, Verdict.WRITTEN),
        (ErrorCode.MESSAGE_TOO_LARGE, IDEMPOTENT, True, 5, Verdict.SPLIT),
        (ErrorCode.RECORD_LIST_TOO_LARGE, PLAIN, False, 2, Verdict.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, IDEMPOTENT, True, 1, Verdict.FAIL),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, IDEMPOTENT, True, 5, Verdict.MOVED),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IDEMPOTENT, True, 5, Verdict.MOVED),
        (ErrorCode.KAFKA_STORAGE_ERROR, PLAIN, True, 5, Verdict.MOVED),
        (ErrorCode.NOT_ENOUGH_REPLICAS, IDEMPOTENT, True, 5, Verdict.AGAIN),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, IDEMPOTENT, True, 5, Verdict.AGAIN),
        (ErrorCode.REQUEST_TIMED_OUT, PLAIN, True, 5, Verdict.AGAIN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, TRANSACTIONAL, True, 5, Verdict.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, IDEMPOTENT, False, 5, Verdict.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, IDEMPOTENT, True, 5, Verdict.RENEW),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTIONAL, False, 5, Verdict.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTIONAL, True, 5, Verdict.FAIL),
        (ErrorCode.UNKNOWN_PRODUCER_ID, IDEMPOTENT, True, 5, Verdict.RENEW),
        (ErrorCode.UNKNOWN_PRODUCER_ID, IDEMPOTENT, False, 5, Verdict.AGAIN),
        (ErrorCode.UNKNOWN_PRODUCER_ID, TRANSACTIONAL, False, 5, Verdict.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, IDEMPOTENT, True, 5, Verdict.RENEW),
        (ErrorCode.INVALID_PRODUCER_EPOCH, TRANSACTIONAL, False, 5, Verdict.FAIL),
        (ErrorCode.PRODUCER_FENCED, TRANSACTIONAL, True, 5, Verdict.FAIL),
        (ErrorCode.INVALID_TXN_STATE, TRANSACTIONAL, True, 5, Verdict.FAIL),
        (ErrorCode.TRANSACTION_ABORTABLE, TRANSACTIONAL, True, 5, Verdict.FAIL),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, IDEMPOTENT, True, 5, Verdict.FAIL),
        (ErrorCode.INVALID_RECORD, IDEMPOTENT, True, 5, Verdict.FAIL),
        (ErrorCode.INVALID_REQUIRED_ACKS, PLAIN, True, 5, Verdict.FAIL),
        (999, IDEMPOTENT, True, 5, Verdict.FAIL),
    ],
)
def test_verdict(code: int, how: dict[str, bool], first: bool, records: int, verdict: Verdict) -> None:
    assert judge(code, records=records, first=first, **how) is verdict


def said(code: int, rows: Any, **more: Any) -> KafkaDirectError:
    encoder = create_encoder(topic="t", partitions=1)
    columns = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "timestamp": pa.array([1_700_000_000_000] * len(rows), pa.int64()),
    }
    assert encoder.add(pa.record_batch(columns)) == []
    (batch,) = encoder.flush()
    answer = ProducedPartition(code, **more)
    found = failure(answer, NAME, "b:1", records=batch.records, data=batch.data)
    assert (found.topic, found.partition, found.broker) == ("t", 3, "b:1")
    return found


ROWS = [(b"a", b"1"), (None, b"2"), (bytes(100), b"3")]


def test_a_record_that_is_too_large() -> None:
    found = said(ErrorCode.MESSAGE_TOO_LARGE, [(b"a", bytes(1000))])
    assert isinstance(found, RecordTooLargeError)
    assert "A record, which has the key b'a', takes 1071 bytes" in found.message
    assert "max.message.bytes" in found.message


@pytest.mark.parametrize(
    ("index", "named"),
    [
        (0, "record 1 of a batch of 3, which has the key b'a':"),
        (1, "record 2 of a batch of 3, which has no key:"),
        (2, f"record 3 of a batch of 3, whose key begins with {bytes(40)!r}:"),
        (3, "record 4 of a batch of 3:"),
        (-5, "record -4 of a batch of 3:"),
    ],
)
def test_a_record_that_is_refused_is_named(index: int, named: str) -> None:
    found = said(ErrorCode.INVALID_TIMESTAMP, ROWS, record_errors=((index, "out of range."),), message="all")
    assert isinstance(found, RecordRefusedError)
    assert named in found.message
    assert "INVALID_TIMESTAMP: out of range. Correct the record, or raise the topic's" in found.message


def test_others_are_counted_and_the_batchs_message_serves() -> None:
    found = said(ErrorCode.INVALID_RECORD, ROWS, record_errors=((1, None), (2, "x")), message="no key")
    assert "record 2 of a batch of 3 (and 1 more), which has no key: INVALID_RECORD: no key." in found.message
    assert "a compacted topic takes none without a key" in found.message


def test_a_batch_that_is_refused_without_saying_which_record() -> None:
    found = said(ErrorCode.INVALID_RECORD, ROWS, message="why")
    assert isinstance(found, RecordRefusedError)
    assert "a batch of 3 records (INVALID_RECORD: why). Correct the records" in found.message


def test_who_may_not_write_is_told_what_to_grant() -> None:
    found = said(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ROWS)
    assert isinstance(found, AuthorizationError)
    assert "WRITE" in found.message
