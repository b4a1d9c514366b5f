"""The errors of records that cannot be decoded, and of rows that cannot be encoded."""

from __future__ import annotations

from pyspark_kafka_direct.errors import (
    ColumnError,
    CorruptRecordError,
    KafkaDirectError,
    RecordError,
    RecordTooLargeError,
    TimestampOverflowError,
    UnsupportedRecordError,
)

_ERRORS: dict[str, tuple[type[RecordError], str]] = {
    "corrupt": (
        CorruptRecordError,
        "Check the partition's log segment on the broker (kafka-dump-log.sh --deep-iteration). To skip the "
        "record batch, read other offsets.",
    ),
    "unsupported": (UnsupportedRecordError, "To skip the record batch, read other offsets."),
    "large": (
        RecordTooLargeError,
        "If records of this size are expected, raise the option maxRecordBatchBytes. To skip the record batch, read "
        "other offsets.",
    ),
    "memory": (
        RecordTooLargeError,
        "Give the Python workers more memory (spark.executor.pyspark.memory), or fetch less at a time "
        "(kafka.max.partition.fetch.bytes, fewer cores per executor).",
    ),
    "timestamp": (TimestampOverflowError, "To read the record, do not select the timestamp column."),
}


def record_error(kind: str, message: str, *, topic: str, partition: int, offset: int) -> RecordError:
    """Create the error of a ``kind`` (a key of ``_ERRORS``), with advice."""
    error_class, advice = _ERRORS[kind]
    return error_class(f"{message[:1].upper()}{message[1:]}. {advice}", topic=topic, partition=partition, offset=offset)


def encode_error(
    kind: str,  # that the kernel reports: partition, header, large, memory
    row: int,  # counted from 0 over all rows of the encoder; unused for memory
    partition_or_size: int,  # the partition for kind partition, the record's size in bytes for kind large
    *,
    topic: str,
    partitions: int,
    max_record_bytes: int,
) -> KafkaDirectError:
    """Create the error for a row that cannot be written."""
    if kind == "partition":
        return ColumnError(
            f"Row {row} names partition {partition_or_size}, but the topic has the partitions 0 to "
            f"{partitions - 1}. Use an existing partition, or null to have the key choose the partition.",
            topic=topic,
        )
    if kind == "header":
        return ColumnError(
            f"Row {row} has a header without a key. Give each header a key; only its value may be null.", topic=topic
        )
    if kind == "large":
        return RecordTooLargeError(
            f"Row {row} makes a record of {partition_or_size} bytes, more than kafka.max.request.size "
            f"({max_record_bytes}). If records of this size are expected, raise it, and the topic's "
            "max.message.bytes.",
            topic=topic,
        )
    return RecordTooLargeError(
        "There is not enough memory for the record batches. Give the Python workers more memory "
        "(spark.executor.pyspark.memory), or lower kafka.batch.size.",
        topic=topic,
    )
