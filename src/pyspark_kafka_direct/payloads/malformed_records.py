"""Reports of records whose key or value is malformed: the column ``_error``, and the error of FAILFAST.

If the schema of a value is at fault, the value may be valid. Then no message suggests a mode that discards it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import MalformedPayloadError, PayloadSchemaError, RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.payloads.decoded_values import MalformedValues
    from pyspark_kafka_direct.payloads.payload_column import PayloadColumn

_OTHER_MODES: Final = (
    "mode=PERMISSIVE to read what cannot be decoded as null, or mode=DROPMALFORMED to drop the record."
)


def is_malformed(sides: Mapping[str, MalformedValues]) -> pa.BooleanArray:
    """Return a mask of the rows of which a side is malformed; ``sides`` is not empty."""
    return reduce(pc.or_, (malformed.reasons.is_valid() for malformed in sides.values()))


def has_schema_error(sides: Mapping[str, MalformedValues]) -> pa.BooleanArray | None:
    """Return a mask of the rows of which a side has a schema that is at fault, or None if there are none."""
    if all(malformed.advice is None for malformed in sides.values()):
        return None
    return reduce(pc.or_, map(_schema_errors, sides.values()))


def error_column(
    sides: Mapping[str, MalformedValues], columns: Mapping[str, PayloadColumn], rows: int, error_type: pa.StructType
) -> pa.StructArray:
    """Return the error of each row, null if it is not malformed.

    If both sides are, it is that of the side whose schema is at fault, or else that of the first one.
    """
    if not sides:
        return pa.nulls(rows, error_type)
    errors = [_side_errors(side, malformed, columns[side], error_type) for side, malformed in sides.items()]
    if len(errors) == 1:
        return errors[0]
    at_fault = [_schema_errors(malformed) for malformed in sides.values()]
    use_second = pc.or_(errors[0].is_null(), pc.and_(at_fault[1], pc.invert(at_fault[0])))
    return pc.if_else(use_second, errors[1], errors[0])


class FirstMalformed(NamedTuple):
    """The first row with a malformed value, and what an error says of it."""

    row: int
    may_be_valid: bool  # because not the value, but its schema is at fault
    message: str

    def error_class(self) -> type[MalformedPayloadError]:
        """Return the class of the error."""
        return PayloadSchemaError if self.may_be_valid else MalformedPayloadError


def first_malformed(malformed: MalformedValues, *, is_schema_at_fault: bool = False) -> FirstMalformed | None:
    """Return the first malformed value, or the first one whose schema is at fault."""
    found = malformed.advice if is_schema_at_fault else malformed.reasons  # only values with schema errors have advice
    row = -1 if found is None else pc.index(found.is_valid(), True).as_py()
    if row < 0:
        return None
    has_advice = malformed.advice is not None and malformed.advice[row].is_valid
    return FirstMalformed(row, may_be_valid=has_advice, message=message_of_row(malformed, row))


def message_of_row(malformed: MalformedValues, row: int) -> str:
    """Return the message of a value that is malformed."""
    value = malformed.slice(row, 1)
    assert value is not None, "the value is malformed"
    return str(messages(value)[0].as_py())


def messages(malformed: MalformedValues) -> pa.StringArray:
    """Return the reason of each value with its position, or with what to change if the schema is at fault."""
    reasons = malformed.reasons.dictionary_decode()
    texts = pc.binary_join_element_wise(reasons, malformed.positions.cast(pa.string()), ", at byte ")
    if malformed.advice is None:
        return texts
    return pc.coalesce(pc.binary_join_element_wise(reasons, malformed.advice, ". "), texts)


def first_error(
    sides: Mapping[str, MalformedValues],
    values: Mapping[str, pa.BinaryArray],
    columns: Mapping[str, PayloadColumn],
    offsets: pa.Int64Array,
    topic_partition: TopicPartition,
) -> MalformedPayloadError:
    """Return the error of the first malformed record; ``sides`` is not empty."""
    found = [(first, side) for side, each in sides.items() if (first := first_malformed(each)) is not None]
    # If both sides of a record are malformed, the one whose schema is at fault counts, as in the column _error.
    first, side = min(found, key=lambda each: (each[0].row, not each[0].may_be_valid))
    advice = "" if first.may_be_valid else _advice(side, first.row, sides, values[side], columns[side].options)
    return first.error_class()(
        f"The {side} cannot be decoded as {columns[side].format_name}: {first.message}.{advice}",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        offset=offsets[first.row].as_py(),
    )


def _advice(
    side: str, row: int, sides: Mapping[str, MalformedValues], values: pa.BinaryArray, options: Sequence[str]
) -> str:
    """Return what to do about a malformed value; the mode may be changed if only single records are malformed.

    ``options`` are those of the format, without the side.
    """
    for other_side, malformed in sides.items():
        other = first_malformed(malformed, is_schema_at_fault=True)
        if other is not None:  # another mode would also discard these records, which may be valid
            return f" Records behind it have a {other_side} whose schema cannot be used: {other.message}."
    from pyspark_kafka_direct.payloads.framing import NO_FRAMING, begins_with_id  # their imports are for few formats

    hint = ""
    if sides[side].reasons[row].as_py() in NO_FRAMING:
        hint = f" If no {side} of the topic has a schema id, set {side}Framing=none."
    elif "Framing" in options and sides[side].schema_ids is None and begins_with_id(values[row].as_py()):
        hint = f" If the first bytes are a schema id, set {side}Framing=confluent."
    names = [f"{side}{option}" for option in options]
    advice = format_advice(sides[side], values, f"{', '.join(names[:-1])} and {names[-1]} fit the topic")
    if advice:
        return hint + advice
    return f"{hint} Otherwise, set {_OTHER_MODES}" if hint else f" Set {_OTHER_MODES}"


def format_advice(malformed: MalformedValues, values: pa.Array, condition: str) -> str:
    """Return what to check if no value of a batch can be decoded, or nothing."""
    count = len(values) - values.null_count
    malformed_count = len(values) - malformed.reasons.null_count
    if count < 2 or malformed_count < count:  # one value alone does not show that the format is wrong
        return ""
    return f" None of {count} values can be decoded, so check whether {condition}."


def memory_error(columns: Sequence[str], topic_partition: TopicPartition) -> RecordTooLargeError:
    """Return the error of a batch whose decoded keys and values do not fit into the memory of the worker."""
    return RecordTooLargeError(
        f"There is not enough memory to decode {' and '.join(columns)}. Give the Python workers more memory "
        "(spark.executor.pyspark.memory), read fewer fields, or run fewer tasks at a time (spark.executor.cores).",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
    )


def _side_errors(
    side: str, malformed: MalformedValues, column: PayloadColumn, error_type: pa.StructType
) -> pa.StructArray:
    rows = len(malformed.reasons)
    reasons, at_fault = malformed.reasons.dictionary_decode(), _schema_errors(malformed)
    # A payload of another format fails in the first stage, a field with a value of another type in the second one.
    stages = pc.if_else(pc.is_in(reasons, pa.array([*column.conversion_reasons], pa.string())), "convert", "parse")
    fields = {
        "side": pa.repeat(side, rows),
        "stage": pc.if_else(at_fault, "schema", stages),
        "class": pc.if_else(at_fault, PayloadSchemaError.__name__, MalformedPayloadError.__name__),
        "message": messages(malformed),
        "schema_id": pa.nulls(rows, pa.int32()) if malformed.schema_ids is None else malformed.schema_ids,
    }
    arrays = [fields[field.name] for field in error_type]
    return pa.StructArray.from_arrays(arrays, fields=list(error_type), mask=reasons.is_null())


def _schema_errors(malformed: MalformedValues) -> pa.BooleanArray:
    if malformed.advice is None:
        return pa.repeat(pa.scalar(False), len(malformed.reasons))
    return malformed.advice.is_valid()
