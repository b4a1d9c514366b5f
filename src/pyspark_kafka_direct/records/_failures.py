"""The errors of this package for what a decoder could not decode, and an encoder not encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import (
    ColumnError,
    CorruptRecordError,
    KafkaDirectError,
    RecordError,
    RecordTooLargeError,
    TimestampError,
    UnsupportedRecordError,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.records._encoding import EncodeRequest

_ADVICE: dict[str, tuple[type[RecordError], str]] = {
    "corrupt": (
        CorruptRecordError,
        "Check the partition's log segment on the broker (kafka-dump-log.sh --deep-iteration); a read with other "
        "offsets passes over the record batch.",
    ),
    "unsupported": (UnsupportedRecordError, "A read with other offsets passes over the record batch."),
    "large": (
        RecordTooLargeError,
        "If such records are meant to be there, raise the option maxRecordBatchBytes; a read with other offsets passes "
        "over the record batch.",
    ),
    "memory": (
        RecordTooLargeError,
        "Give the Python workers more (spark.executor.pyspark.memory), or ask for less at a time "
        "(kafka.max.partition.fetch.bytes, fewer cores per executor).",
    ),
    "timestamp": (TimestampError, "Leave the timestamp column out to read the record without it."),
}


def record_error(kind: str, message: str, *, topic: str, partition: int, offset: int) -> RecordError:
    """Make the error for a ``kind`` (corrupt, unsupported, large, memory, timestamp) with its place and what to do."""
    error, advice = _ADVICE[kind]
    return error(f"{message[:1].upper()}{message[1:]}. {advice}", topic=topic, partition=partition, offset=offset)


def encode_error(kind: str, row: int, number: int, request: EncodeRequest) -> KafkaDirectError:
    """Make the error for a row that cannot be written.

    Args:
        kind: What is wrong: partition, header, large, memory.
        row: The row, counted from 0 over all that the encoder was given; of no account where memory is short.
        number: The partition (of kind partition), or the record's size (large).
        request: What the encoder was made for.
    """
    topic = request.topic
    if kind == "partition":
        return ColumnError(
            f"Row {row} names partition {number}, but the topic has the partitions 0 to {request.partitions - 1}. "
            "Write a partition that exists, or null, which leaves the choice to the key.",
            topic=topic,
        )
    if kind == "header":
        return ColumnError(
            f"Row {row} has a header without a key. Give each header a key; only its value may be null.", topic=topic
        )
    if kind == "large":
        return RecordTooLargeError(
            f"Row {row} makes a record of {number} bytes, more than the {request.max_record_bytes} of "
            "kafka.max.request.size. If such records are meant to be written, raise it, and max.message.bytes of the "
            "topic.",
            topic=topic,
        )
    return RecordTooLargeError(
        "There is not enough memory for the record batches. Give the Python workers more "
        "(spark.executor.pyspark.memory), or lower kafka.batch.size.",
        topic=topic,
    )
