"""Whether a column, or its wanted fields, can be read with a reader schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.avro.avro_types import (
    MAX_PRECISION,
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordField,
    RecordType,
    UnionType,
    type_name,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type, readable_decimals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_TARGETS: Final = {
    "null": ("null",),
    "boolean": ("bool",),
    "int": ("int32", "int64", "float", "double"),
    "long": ("int64", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "bytes": ("binary", "string"),
    "string": ("string", "binary"),
    "fixed": ("binary",),
    "enum": ("string",),
}

_LOGICAL_TARGETS: Final = {
    "date": ("date32[day]",),
    "timestamp-millis": ("timestamp[us, tz=UTC]",),
    "timestamp-micros": ("timestamp[us, tz=UTC]",),
    "local-timestamp-millis": ("timestamp[us]",),
    "local-timestamp-micros": ("timestamp[us]",),
    "decimal": ("binary",),  # and decimals
}


def check_wanted(reader: AvroType, fields: Sequence[pa.Field]) -> None:
    """Raise an error if a wanted field has another type than the record; one that the record lacks is null."""
    record = without_null(reader).type
    if not isinstance(record, RecordType):
        raise AvroSchemaError(f"the Avro schema {type_name(reader)} is not a record, so it has no fields")
    _check_record(record, fields, "")


def check_wanted_type(reader: AvroType, data_type: pa.DataType) -> None:
    """Raise an error if a column has another type than the schema, which is not a record."""
    _check_type(reader, data_type, "")


def find_field(record: RecordType, name: str) -> RecordField | None:
    """Return the field of a reader's record that a writer's field is read as, by its name or an alias."""
    for field in record.fields:
        if field.name == name:
            return field
    for field in record.fields:
        if name in field.aliases:
            return field
    return None


def kind_of(avro_type: AvroType) -> str:
    """Return the name of a type in Avro, without names of records, enums and fixed types."""
    match avro_type:
        case PrimitiveType(name):
            return name
        case FixedType():
            return "fixed"
        case EnumType():
            return "enum"
        case RecordType():
            return "record"
        case ArrayType():
            return "array"
        case MapType():
            return "map"
        case UnionType():
            return "union"


def _check_record(record: RecordType, fields: Sequence[pa.Field], path: str) -> None:
    types = {field.name: field.type for field in record.fields}
    for field in fields:
        if field.name in types:
            _check_type(types[field.name], field.type, f"{path}{field.name}")


def _check_type(reader: AvroType, data_type: pa.DataType, path: str) -> None:
    import pyarrow as pa

    reader_type = without_null(reader).type
    match reader_type:
        case RecordType() if pa.types.is_struct(data_type):
            _check_record(reader_type, list(data_type), _joined(path, ""))
        case UnionType(branches) if pa.types.is_struct(data_type):
            members = {f"member{index}": branch for index, branch in enumerate(branches)}
            for field in data_type:
                if field.name in members:
                    _check_type(members[field.name], field.type, _joined(path, field.name))
        case ArrayType(items) if pa.types.is_list(data_type):
            _check_type(items, data_type.value_type, _joined(path, "element"))
        case MapType(values) if pa.types.is_map(data_type):
            _check_type(values, data_type.item_type, _joined(path, "value"))
        case None if pa.types.is_null(data_type):  # the schema is null only
            pass
        case PrimitiveType() | FixedType() | EnumType() if _fits(reader_type, data_type):
            pass
        case _:
            is_type = f"field {path!r} is {type_name(reader)} in the Avro schema"
            logical = None if reader_type is None else logical_type(reader_type)
            others = f", but as {readable_decimals(logical)}" if logical and logical.name == "decimal" else ""
            raise AvroSchemaError(
                f"{is_type if path else f'the Avro schema is {type_name(reader)}'}, which cannot be read as "
                f"{data_type}{others}"
            )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fits(reader: AvroType, data_type: pa.DataType) -> bool:
    import pyarrow as pa

    logical = logical_type(reader)
    if logical and logical.name == "decimal" and pa.types.is_decimal128(data_type):
        precision: int = data_type.precision
        return precision >= min(logical.precision, MAX_PRECISION) and bool(data_type.scale == logical.scale)
    return str(data_type) in _LOGICAL_TARGETS.get(logical.name if logical else "", _TARGETS[kind_of(reader)])
