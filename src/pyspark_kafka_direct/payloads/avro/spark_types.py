"""The Spark types of Avro schemas: those of Spark's Avro source."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.options.payload_settings import WANTED_FIELDS
from pyspark_kafka_direct.payloads.avro.avro_types import (
    MAX_PRECISION,
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
from pyspark_kafka_direct.payloads.decoded_values import MAX_COLUMN_TYPES

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


def spark_ddl(avro_type: AvroType, advice: str = WANTED_FIELDS) -> str:
    """Return the DDL of a schema. All fields of a record may be null, because a malformed datum has no values.

    If Spark has no type for a field, the AvroSchemaError names it, and ``advice`` is what to do.
    """
    value_type = without_null(avro_type).type
    # Such a column has nothing to read. Within another record, it is an empty struct, as in Spark.
    if isinstance(value_type, RecordType) and not value_type.fields:
        raise AvroSchemaError(f"the record {value_type.name} has no fields")
    return _Types(advice).ddl(value_type, "", ())


def logical_type(avro_type: AvroType) -> LogicalType | None:
    """Return the logical type, if the type can have one."""
    return avro_type.logical if isinstance(avro_type, PrimitiveType | FixedType) else None


def readable_decimals(logical: LogicalType) -> str:
    """Return the types that a decimal can be read as, for messages."""
    if logical.precision <= MAX_PRECISION:
        return f"{logical} or binary"
    fits = f"decimal({MAX_PRECISION},{logical.scale}), which reads the values that fit, or "
    return f"{fits if logical.scale <= MAX_PRECISION else ''}binary"


class _Types:
    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._count = 0

    def ddl(self, avro_type: AvroType | None, path: str, records: tuple[str, ...]) -> str:
        """Return the DDL of a type without null, which is in some records."""
        self._count += 1
        if self._count > MAX_COLUMN_TYPES:
            raise AvroSchemaError(
                f"the column would have more than {MAX_COLUMN_TYPES} types, in which a named type counts as often as "
                f"it is used; {self._advice}"
            )
        logical = None if avro_type is None else logical_type(avro_type)
        if logical and logical.name == "decimal":
            if logical.precision > MAX_PRECISION:
                why = f"Spark's decimals have at most {MAX_PRECISION} digits, and this is {logical}"
                raise self._no_type(path, why, f", or read it as {readable_decimals(logical)}")
            return str(logical)
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
                return f"array<{self._nullable(items, f'{path}.element', records)}>"
            case MapType(values):
                return f"map<string,{self._nullable(values, f'{path}.value', records)}>"
            case RecordType(name, _, fields):
                if name in records:
                    raise self._no_type(path, f"the record {name} contains itself, for which Spark has no type", "")
                records = (*records, name)
                members = [(field.name, field.type) for field in fields]
            case UnionType(branches):
                members = [(f"member{index}", branch) for index, branch in enumerate(branches)]
        shown = (f"`{name}`: {self._nullable(member, f'{path}.{name}', records)}" for name, member in members)
        return f"struct<{','.join(shown)}>"

    def _nullable(self, avro_type: AvroType, path: str, records: tuple[str, ...]) -> str:
        return self.ddl(without_null(avro_type).type, path, records)

    def _no_type(self, path: str, why: str, more: str) -> AvroSchemaError:
        what = f"field {path.removeprefix('.')!r}" if path else "the schema"
        return AvroSchemaError(f"{what}: {why}; {self._advice}{more}")
