"""What a broker's answer about one record batch means: a pure function, and the error for what cannot be helped."""

from __future__ import annotations

import copy
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import KafkaDirectError, RecordRefusedError, RecordTooLargeError
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.produce import ProducedPartition

_DOING: Final = "writing records"
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_REFUSED: Final = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})

# What a broker says when it does not know the producer, or knows it differently.
_LOST_PRODUCER: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# What a broker says of records that it has appended, or may have.
_IN_DOUBT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_KEY_SHOWN: Final = 40


class Verdict(Enum):
    """What to do with a record batch."""

    WRITTEN = auto()
    AGAIN = auto()
    """Send it again."""
    MOVED = auto()
    """Send it again, to whoever leads the partition now."""
    RENEW = auto()
    """Send it again with another producer id."""
    SPLIT = auto()
    """Send it again as two."""
    FAIL = auto()


def judge(code: int, *, records: int, first: bool, numbered: bool, renewable: bool) -> Verdict:
    """Decide what an error code means for a batch.

    Args:
        code: The code.
        records: How many records are in the batch.
        first: Whether it is the oldest of its partition that is not acknowledged.
        numbered: Whether it has a sequence number.
        renewable: Whether another producer id can be had: not within a transaction.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.WRITTEN
    if code in _TOO_LARGE:
        return Verdict.SPLIT if records > 1 else Verdict.FAIL
    if code in _LOST_PRODUCER and numbered:
        if not first and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return Verdict.AGAIN  # as the one before it failed
        if not renewable:
            return Verdict.FAIL
        # Everything before it was acknowledged, so the broker has lost records or forgotten us. Whatever it knows, what
        # is still to be written is in our hands, in order (KIP-360).
        return Verdict.RENEW if first else Verdict.AGAIN
    info = lookup(code)
    if info.refresh_metadata:
        return Verdict.MOVED
    return Verdict.AGAIN if info.retriable else Verdict.FAIL


def may_be_written(code: int) -> bool:
    """Tell whether records may have been written of which a broker says this."""
    return code in _IN_DOUBT


def outcome(error: BaseException, *, in_doubt: bool) -> BaseException:
    """Return an error as it is told of one record batch: with whether that may have been written.

    Args:
        error: What went wrong, perhaps for others too.
        in_doubt: Whether the batch may have been written.
    """
    if not isinstance(error, KafkaDirectError):
        return error
    told = copy.copy(error)
    told.message += " The records may have been written." if in_doubt else " The records were not written."
    told.__cause__ = error.__cause__
    return told


def failure(
    answer: ProducedPartition, partition: TopicPartition, broker: str, *, records: int, data: bytes | bytearray
) -> KafkaDirectError:
    """Return the error for an answer.

    Args:
        answer: What the broker said.
        partition: The topic-partition.
        broker: Who said it.
        records: How many records are in the batch.
        data: The batch.
    """
    topic, number = partition
    code = answer.error_code
    if code in _TOO_LARGE and records == 1:
        return RecordTooLargeError(
            f"A record{_key(data, 0, ',')} takes {len(data)} bytes as it is sent, and the topic allows less: raise the "
            "topic's max.message.bytes (or the brokers' message.max.bytes).",
            topic=topic,
            partition=number,
            broker=broker,
        )
    if code in _REFUSED:
        return RecordRefusedError(_refusal(answer, records, data), topic=topic, partition=number, broker=broker)
    return error_for(code, _DOING, topic=topic, partition=number, broker=broker, detail=answer.message)


def _refusal(answer: ProducedPartition, records: int, data: bytes | bytearray) -> str:
    name = lookup(answer.error_code).name
    if not answer.record_errors:
        said = f": {answer.message}" if answer.message else ""
        return f"The broker refuses a batch of {records} records ({name}{said}). Correct the records{_ADVICE[name]}."
    index, said_of_one = answer.record_errors[0]
    others = len(answer.record_errors) - 1
    more = f" (and {others} more)" if others else ""
    said = said_of_one or answer.message or name
    return (
        f"The broker refuses record {index + 1} of a batch of {records}{more}{_key(data, index)}: {name}: "
        f"{said.rstrip('.')}. Correct the record{_ADVICE[name]}."
    )


_ADVICE: Final = {
    "INVALID_TIMESTAMP": ", or raise the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    "INVALID_RECORD": "; a compacted topic takes none without a key",
}


def _key(data: bytes | bytearray, index: int, after: str = "") -> str:
    """Return what tells one record of a batch from others, by its key; nothing if there is no such record."""
    from pyspark_kafka_direct.records import create_decoder

    if index < 0:
        return ""
    try:
        decoder = create_decoder(topic="t", partition=0, from_offset=index, until_offset=index + 1, columns=("key",))
        decoder.feed(memoryview(data))
        found = decoder.read()
    except KafkaDirectError:  # the answer's index is the broker's word
        return ""
    if found is None or found.num_rows == 0:
        return ""
    key: bytes | None = found.column(0)[0].as_py()
    if key is None:
        return f", which has no key{after}"
    if len(key) > _KEY_SHOWN:
        return f", whose key begins with {key[:_KEY_SHOWN]!r}{after}"
    return f", which has the key {key!r}{after}"
