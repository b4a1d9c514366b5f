"""The errors of this package for what a decoder could not decode."""

from __future__ import annotations

from pyspark_kafka_direct.errors import (
    CorruptRecordError,
    RecordError,
    RecordTooLargeError,
    TimestampError,
    UnsupportedRecordError,
)

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
