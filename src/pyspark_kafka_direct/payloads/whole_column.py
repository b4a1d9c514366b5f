"""Decodes all values of an Arrow batch, for functions that return a row for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from pyspark_kafka_direct.errors import ColumnError, RecordTooLargeError
from pyspark_kafka_direct.payloads.malformed_records import first_malformed, format_advice
from pyspark_kafka_direct.payloads.schema_errors import SchemaErrors

if TYPE_CHECKING:
    from pyspark_kafka_direct.errors import MalformedPayloadError
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues, MalformedValues

_SCHEMA_ERRORS: Final = SchemaErrors()  # of this process: functions do not see where a task ends
_MAX_BATCH_BYTES: Final = 1 << 30  # below the 31 bits of Arrow's offsets


class _Decoder(Protocol):
    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode as many of the first values as the decoder's memory limit allows, at least one."""
        ...


def decode_all(decoder: _Decoder, values: pa.Array, format_name: str, *, failing: bool) -> pa.Array:
    """Decode strings or bytes; ``failing`` is mode FAILFAST."""
    try:
        values = values.cast(pa.binary())
    except pa.ArrowNotImplementedError:
        raise ColumnError(
            f"the column is {values.type}, which is not decoded as {format_name}: select a string or binary column. If "
            "valueFormat or keyFormat has decoded it, use its fields"
        ) from None
    arrays: list[pa.Array] = []
    start = size = 0
    while not arrays or start < len(values):  # also once without values, for the type
        decoded = decoder.decode(values.slice(start))
        if failing and decoded.malformed is not None:
            raise _first_error(decoded.malformed, values.slice(start, len(decoded.values)), format_name)
        if decoded.malformed is not None:
            _SCHEMA_ERRORS.add(f"{format_name} values of a column", decoded.malformed)
        arrays.append(decoded.values)
        start += len(decoded.values)
        size += decoded.values.nbytes
        if size > _MAX_BATCH_BYTES and len(arrays) > 1:  # a single array may have any size
            raise RecordTooLargeError(
                f"{len(values)} values need more than 1 GiB when they are decoded as {format_name}. Set "
                "spark.sql.execution.arrow.maxRecordsPerBatch to a lower number, or read fewer fields."
            )
    _SCHEMA_ERRORS.log_growth("were read as null (mode=PERMISSIVE)")
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _first_error(malformed: MalformedValues, values: pa.BinaryArray, format_name: str) -> MalformedPayloadError:
    first = first_malformed(malformed)
    assert first is not None
    advice = ""
    if not first.may_be_valid:
        other = first_malformed(malformed, is_schema_at_fault=True)
        if other is not None:  # mode=PERMISSIVE would also read these values as null, which may be valid
            advice = f" Values behind it have a schema that cannot be used: {other.message}."
        else:
            advice = format_advice(malformed, values, "the format and the schema fit the column") or (
                " Set mode=PERMISSIVE to read what cannot be decoded as null."
            )
    return first.error_class()(f"A value cannot be decoded as {format_name}: {first.message}.{advice}")
