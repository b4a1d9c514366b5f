"""Decoding of JSON by the native kernel: from a column of values to a column of structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.decoded_values import MAX_DECODED_BYTES, MAX_SCHEMA_DEPTH, decoded_values
from pyspark_kafka_direct.records.native_kernel import native

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


DEFAULT_TIME_ZONE: Final = "UTC"

TYPE: Final = "the value does not have the type of its column"
RANGE: Final = "the number does not fit the type of its column"
HALF_PAIR: Final = "half of a surrogate pair"
DUPLICATE_KEY: Final = "an object has a key twice"
SIZE: Final = "the decoded value is larger than 128 MiB"


CONVERSION_REASONS: Final = (TYPE, RANGE, HALF_PAIR, DUPLICATE_KEY, SIZE)
"""Reasons why JSON does not have the wanted type."""


class JsonDecoder:
    """Decodes the wanted fields of JSON objects, with the results of Spark's ``from_json`` in mode PERMISSIVE.

    Or decodes JSON to VARIANTs, with those of ``parse_json``. A type that JSON cannot be decoded to is a ValueError.
    """

    def __init__(
        self,
        fields: pa.Schema | None,  # of the structs; None: VARIANT
        # The field with the text of malformed values, a string. It is not read from the JSON, and need not exist. A
        # binary field with their bytes is none of the fields here (payloads/payload_column.py).
        corrupt_record: str = "",
        time_zone: str = DEFAULT_TIME_ZONE,  # of timestamps without an offset
        max_bytes: int = MAX_DECODED_BYTES,  # of a batch
    ) -> None:
        self._kernel: native.JsonDecoder | native.VariantDecoder
        if fields is None:
            self._kernel = native.VariantDecoder(max_bytes)
            return
        check_json_fields(fields, corrupt_record)
        needs_zone = any(has_timestamps(field.type) for field in fields)  # a table of a zone takes time to compute
        from pyspark_kafka_direct.payloads.json.utc_offsets import utc_offsets  # few tasks need it

        offsets = utc_offsets(time_zone if needs_zone else DEFAULT_TIME_ZONE)
        self._kernel = native.JsonDecoder(fields.__arrow_c_schema__(), corrupt_record, list(offsets), max_bytes)

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the first values; the caller calls it again for the others."""
        return decoded_values(self._kernel, value=values)


def check_json_fields(fields: pa.Schema, corrupt_record: str) -> None:
    """Raise a ValueError if JSON cannot be decoded to the wanted fields."""
    _check_fields(fields)
    if corrupt_record in fields.names:
        import pyarrow as pa

        data_type = fields.field(corrupt_record).type
        if data_type != pa.string():
            raise ValueError(
                f"field {corrupt_record!r} has the text of malformed values, so it must be a string, not "
                f"{data_type}; with valueFormat=json or keyFormat=json, it may also be binary"
            )


def variant_type() -> pa.StructType:
    """Return the Arrow type of Spark's VARIANT; Spark recognizes it by the metadata."""
    import pyarrow as pa

    return pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    )


def is_variant(data_type: pa.DataType) -> bool:
    """Return whether a type is that of Spark's VARIANT, whose metadata is not part of the equality of types."""
    return bool(data_type == variant_type()) and data_type.field(1).metadata == {b"variant": b"true"}


def has_timestamps(data_type: pa.DataType) -> bool:
    """Return whether a type has timestamps with a time zone."""
    import pyarrow as pa

    if pa.types.is_timestamp(data_type):
        return data_type.tz is not None
    return any(has_timestamps(data_type.field(index).type) for index in range(data_type.num_fields))


def _check_fields(fields: pa.Schema | pa.StructType, path: str = "", depth: int = 0) -> None:
    names = [field.name for field in fields]
    for field in fields:
        name = f"{path}{field.name}"
        if names.count(field.name) > 1:
            raise ValueError(f"field {name!r} is named twice")
        _check_field(field, name, depth)


def _check_field(field: pa.Field, path: str, depth: int) -> None:
    import pyarrow as pa

    if not field.nullable:
        raise ValueError(f"field {path!r} may be missing in an object, so it must be nullable")
    if depth > MAX_SCHEMA_DEPTH:
        raise ValueError(f"field {path!r} has more than {MAX_SCHEMA_DEPTH} levels")
    if is_variant(field.type):
        return
    if pa.types.is_struct(field.type):
        _check_fields(field.type, f"{path}.", depth + 1)
    elif pa.types.is_list(field.type):
        _check_field(field.type.value_field, f"{path}.{field.type.value_field.name}", depth + 1)
    elif pa.types.is_map(field.type) and field.type.key_type == pa.string():
        _check_field(field.type.item_field, f"{path}.{field.type.item_field.name}", depth + 2)  # two levels in Arrow
    elif not _is_scalar(field.type):
        raise ValueError(f"field {path!r} has the type {field.type}, which is not decoded from JSON")


def _is_scalar(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_timestamp(data_type):
        return bool(data_type.unit == "us")
    if pa.types.is_decimal128(data_type):
        return bool(data_type.scale >= 0)
    integers_and_bits = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64())
    return data_type in (*integers_and_bits, pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
