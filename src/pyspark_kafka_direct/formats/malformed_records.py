"""What is reported of records whose key or value is malformed: the column ``_error``, and the error of FAILFAST."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import MalformedPayloadError, RecordTooLargeError
from pyspark_kafka_direct.records.avro_values import CONVERSION_MESSAGES
from pyspark_kafka_direct.records.json_values import CONVERSION_REASONS
from pyspark_kafka_direct.records.protobuf_values import CONVERSION_MESSAGES as PROTOBUF_CONVERSION_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import MalformedValues


def is_malformed(sides: Mapping[str, MalformedValues]) -> pa.BooleanArray:
    """Return a mask of the rows of which a side is malformed; ``sides`` is not empty."""
    return reduce(pc.or_, (malformed.reasons.is_valid() for malformed in sides.values()))


def error_column(sides: Mapping[str, MalformedValues], rows: int, error_type: pa.StructType) -> pa.StructArray:
    """Return the error of each row, null if it is not malformed. If both sides are, it is that of the first one."""
    errors = pa.nulls(rows, error_type)
    for side, malformed in sides.items():
        errors = pc.if_else(errors.is_valid(), errors, _side_errors(side, malformed, error_type))
    return errors


def first_malformed(malformed: MalformedValues) -> tuple[int, str]:
    """Return the first row with a malformed value, and the reason with its position."""
    row = pc.index(malformed.reasons.is_valid(), True).as_py()
    return row, f"{malformed.reasons[row].as_py()}, at byte {malformed.positions[row].as_py()}"


def first_error(
    sides: Mapping[str, MalformedValues],
    format_names: Mapping[str, str],
    offsets: pa.Int64Array,
    topic_partition: TopicPartition,
) -> MalformedPayloadError:
    """Return the error of the first malformed record; ``sides`` is not empty."""
    row, reason, side = min((*first_malformed(malformed), side) for side, malformed in sides.items())
    return MalformedPayloadError(
        f"The {side} cannot be decoded as {format_names[side]}: {reason}. Set mode=PERMISSIVE to read what cannot be "
        "decoded as null, or mode=DROPMALFORMED to drop the record.",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        offset=offsets[row].as_py(),
    )


def memory_error(columns: Sequence[str], topic_partition: TopicPartition) -> RecordTooLargeError:
    """Return the error of a batch whose decoded keys and values do not fit into the memory of the worker."""
    return RecordTooLargeError(
        f"There is not enough memory to decode {' and '.join(columns)}. Give the Python workers more memory "
        "(spark.executor.pyspark.memory), read fewer fields, or run fewer tasks at a time (spark.executor.cores).",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
    )


def _side_errors(side: str, malformed: MalformedValues, error_type: pa.StructType) -> pa.StructArray:
    rows = len(malformed.reasons)
    reasons = malformed.reasons.dictionary_decode()
    fields = {
        "side": pa.repeat(side, rows),
        # A payload of another format fails in the first stage, a field with a value of another type in the second one.
        "stage": pc.if_else(pc.is_in(reasons, _conversion_reasons()), "convert", "parse"),
        "class": pa.repeat(MalformedPayloadError.__name__, rows),
        "message": pc.binary_join_element_wise(reasons, malformed.positions.cast(pa.string()), ", at byte "),
        "schema_id": pa.nulls(rows, pa.int32()) if malformed.schema_ids is None else malformed.schema_ids,
    }
    arrays = [fields[field.name] for field in error_type]
    return pa.StructArray.from_arrays(arrays, fields=list(error_type), mask=reasons.is_null())


def _conversion_reasons() -> pa.StringArray:
    return pa.array([*CONVERSION_REASONS, *CONVERSION_MESSAGES, *PROTOBUF_CONVERSION_MESSAGES])
