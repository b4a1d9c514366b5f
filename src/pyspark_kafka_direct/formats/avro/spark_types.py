"""The Spark types of Avro schemas: those of Spark's Avro source."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.formats.avro.avro_types import (
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    LogicalType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
    without_null,
)

_PRIMITIVES: Final = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}

_LOGICAL_TYPES: Final = {
    "date": "date",
    "timestamp-millis": "timestamp_ltz",  # regardless of spark.sql.timestampType
    "timestamp-micros": "timestamp_ltz",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}


def spark_ddl(avro_type: AvroType) -> str:
    """Return the DDL of a schema. All fields of a record may be null, because a malformed datum has no values."""
    value_type = without_null(avro_type).type
    if isinstance(value_type, RecordType) and not value_type.fields:
        raise AvroSchemaError(f"the record {value_type.name} has no fields")
    return _ddl(value_type)


def logical_type(avro_type: AvroType) -> LogicalType | None:
    """Return the logical type, if the type can have one."""
    return avro_type.logical if isinstance(avro_type, PrimitiveType | FixedType) else None


def _ddl(avro_type: AvroType | None) -> str:
    logical = None if avro_type is None else logical_type(avro_type)
    if logical and logical.name == "decimal":
        return f"decimal({logical.precision},{logical.scale})"
    if logical and logical.name in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[logical.name]
    match avro_type:
        case None:
            return "void"
        case PrimitiveType(name):
            return _PRIMITIVES[name]
        case FixedType():
            return "binary"
        case EnumType():
            return "string"
        case ArrayType(items):
            return f"array<{_ddl(without_null(items).type)}>"
        case MapType(values):
            return f"map<string,{_ddl(without_null(values).type)}>"
        case RecordType(_, _, fields):
            members = [(field.name, field.type) for field in fields]
        case UnionType():
            inner = without_null(avro_type).type
            if not isinstance(inner, UnionType):
                return _ddl(inner)
            members = [(f"member{index}", branch) for index, branch in enumerate(inner.branches)]
    return f"struct<{','.join(f'`{name}`: {_ddl(without_null(member).type)}' for name, member in members)}>"
