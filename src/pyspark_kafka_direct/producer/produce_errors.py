"""Decides from a broker's response what to do with a record batch, and creates the errors for failed ones."""

from __future__ import annotations

import copy
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import InvalidRecordError, KafkaDirectError, RecordTooLargeError, printable
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.producer.produce_channel import PartitionProduceResponse
    from pyspark_kafka_direct.records import WritableBytes

WRITING: Final = "writing records"  # the action in error messages
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_REJECTED: Final = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})

# The broker's state of the producer id does not match the batch, or is missing.
_UNKNOWN_PRODUCER: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# The broker may have appended the records. A leader that is deposed while it waits for replicas returns
# NOT_LEADER_OR_FOLLOWER, although the next leader may have the records (DelayedProduce).
_OUTCOME_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# For milliseconds after the end of a transaction, a broker may return CONCURRENT_TRANSACTIONS to the next one; with
# transaction.version below 2 it returns NOT_ENOUGH_REPLICAS instead (ReplicaManager).
SHORT_BACKOFF_ERRORS: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})

_ADVICE: Final = {
    "INVALID_TIMESTAMP": ", or raise the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    "INVALID_RECORD": "; a compacted topic requires keys",
}
_MAX_KEY_BYTES_SHOWN: Final = 40


class BatchDecision(Enum):
    """The decision on a record batch."""

    COMPLETE = auto()
    RETRY = auto()
    RETRY_WITH_NEW_LEADER = auto()
    RETRY_WITH_NEXT_EPOCH = auto()
    SPLIT = auto()  # retry as two batches
    FAIL = auto()


def decide_for_error_code(
    code: int,
    *,
    record_count: int,
    is_oldest: bool,  # whether all earlier batches of its partition are acknowledged
    idempotent: bool,
    can_change_epoch: bool,  # False within a transaction
    copy_may_exist: bool = False,  # whether this batch or a later one is a duplicate if it is sent in the next epoch
) -> BatchDecision:
    """Decide what to do with a batch for which a broker returned an error code."""
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return BatchDecision.COMPLETE
    if code in _TOO_LARGE:
        return BatchDecision.SPLIT if record_count > 1 else BatchDecision.FAIL
    if code in _UNKNOWN_PRODUCER and idempotent:
        can_change_epoch = can_change_epoch and not copy_may_exist
        return _decide_for_unknown_producer(code, is_oldest=is_oldest, can_change_epoch=can_change_epoch)
    info = error_code_info(code)
    if info.refresh_metadata:
        return BatchDecision.RETRY_WITH_NEW_LEADER
    return BatchDecision.RETRY if info.retriable else BatchDecision.FAIL


def may_have_been_written(code: int) -> bool:
    """Return whether records may have been written although the broker returned this error code."""
    return code in _OUTCOME_UNKNOWN


def with_outcome(error: BaseException, *, outcome_unknown: bool) -> BaseException:
    """Return a copy of the error which states whether the records may have been written."""
    if not isinstance(error, KafkaDirectError):  # a bug, or an interrupt: others' messages are not changed
        return error
    error_copy = copy.copy(error)
    error_copy.message += " The records may have been written." if outcome_unknown else " The records were not written."
    error_copy.__cause__ = error.__cause__
    return error_copy


def error_for_response(
    response: PartitionProduceResponse,
    partition: TopicPartition,
    broker: str,
    *,
    record_count: int,
    data: WritableBytes,
    operation: str = WRITING,
) -> KafkaDirectError:
    """Return the error for a batch that the broker has not acknowledged."""
    topic, partition_id = partition
    code = response.error_code
    if code in _TOO_LARGE and record_count == 1:
        key_text = _describe_key(data, 0, suffix=",")
        return RecordTooLargeError(
            f"A record{key_text} has {len(data)} bytes as it is sent, more than the topic allows. "
            "Raise the topic's max.message.bytes or the brokers' message.max.bytes.",
            topic=topic,
            partition=partition_id,
            broker=broker,
        )
    if code in _REJECTED:
        return InvalidRecordError(
            _rejection_message(response, record_count, data), topic=topic, partition=partition_id, broker=broker
        )
    return error_for(code, operation, topic=topic, partition=partition_id, broker=broker, detail=response.message)


def _decide_for_unknown_producer(code: int, *, is_oldest: bool, can_change_epoch: bool) -> BatchDecision:
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_oldest:
        return BatchDecision.RETRY  # an earlier batch failed, and the broker expects that one first
    if not can_change_epoch:
        return BatchDecision.FAIL
    if not is_oldest:
        return BatchDecision.RETRY  # earlier batches may have been written, so this is decided once it is the oldest
    # All earlier batches were acknowledged, so the broker has lost records or the producer's state. The unacknowledged
    # batches can be sent in order with the next epoch (KIP-360).
    return BatchDecision.RETRY_WITH_NEXT_EPOCH


def _rejection_message(response: PartitionProduceResponse, record_count: int, data: WritableBytes) -> str:
    name = error_code_info(response.error_code).name
    if not response.record_errors:
        detail = f": {printable(response.message)}" if response.message else ""
        return (
            f"The broker rejected a batch of {record_count} records ({name}{detail}). "
            f"Correct the records{_ADVICE[name]}."
        )
    index, record_message = response.record_errors[0]
    other_errors = len(response.record_errors) - 1
    others_text = f" (and {other_errors} more)" if other_errors else ""
    detail = printable(record_message or response.message or name)
    key_text = _describe_key(data, index)
    return (
        f"The broker rejected record {index + 1} of a batch of {record_count}{others_text}{key_text}: "
        f"{name}: {detail.rstrip('.')}. Correct the record{_ADVICE[name]}."
    )


def _describe_key(data: WritableBytes, index: int, *, suffix: str = "") -> str:
    """Describe a record by its key, to continue a sentence; empty if the batch has no such record."""
    from pyspark_kafka_direct.records import RecordDecoder

    if index < 0:
        return ""
    try:
        # The topic and the partition are for errors of the decoder only.
        decoder = RecordDecoder(topic="t", partition=0, from_offset=index, until_offset=index + 1, columns=("key",))
        decoder.feed(memoryview(data))
        decoded = decoder.read()
    except KafkaDirectError:  # the broker's index may be wrong
        return ""
    if decoded is None or decoded.num_rows == 0:
        return ""
    key: bytes | None = decoded.column(0)[0].as_py()
    if key is None:
        return f", which has no key{suffix}"
    if len(key) > _MAX_KEY_BYTES_SHOWN:
        return f", whose key begins with {key[:_MAX_KEY_BYTES_SHOWN]!r}{suffix}"
    return f", which has the key {key!r}{suffix}"
