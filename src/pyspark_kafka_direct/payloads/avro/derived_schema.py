"""The Avro schema of an Arrow type, with the names of Spark's ``SchemaConverters``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

_RECORD_NAME: Final = "topLevelRecord"

_TYPES: Final[dict[str, Any]] = {
    "null": "null",
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date32[day]": {"type": "int", "logicalType": "date"},
    "timestamp[us]": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_TIMESTAMP: Final = {"type": "long", "logicalType": "timestamp-micros"}


def derived_schema(data_type: pa.DataType, *, null_first: bool) -> str:
    """Return the JSON of the schema of a type.

    A field that may be null is ``["null", T]`` with the default null if ``null_first``, so that a registry accepts new
    versions with more fields, or else ``[T, "null"]`` as in Spark.
    """
    return json.dumps(_schema(data_type, _RECORD_NAME, "", null_first))


def _schema(data_type: pa.DataType, name: str, namespace: str, null_first: bool) -> Any:
    """Return the JSON of a type; the name and namespace of its field are those of a record or fixed type."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(data_type):
        inner = f"{namespace}.{name}" if namespace else name
        record = {"type": "record", "name": name, "fields": [_field(field, inner, null_first) for field in data_type]}
        return {**record, "namespace": namespace} if namespace else record
    if types.is_list(data_type):
        return {"type": "array", "items": _nullable(data_type.value_field, name, namespace, null_first)}
    if types.is_map(data_type) and types.is_string(data_type.key_type):
        return {"type": "map", "values": _nullable(data_type.item_field, name, namespace, null_first)}
    if types.is_decimal128(data_type):
        full_name = ".".join(part for part in (namespace, name, "fixed") if part)
        size = _decimal_bytes(data_type.precision)
        logical = {"logicalType": "decimal", "precision": data_type.precision, "scale": data_type.scale}
        return {"type": "fixed", "name": full_name, "size": size, **logical}
    if types.is_timestamp(data_type) and data_type.tz is not None:
        return _TIMESTAMP
    if str(data_type) not in _TYPES:
        raise AvroSchemaError(f"{namespace or name} has the type {data_type}, which has no Avro type")
    return _TYPES[str(data_type)]


def _field(field: pa.Field, namespace: str, null_first: bool) -> dict[str, Any]:
    member = {"name": field.name, "type": _nullable(field, field.name, namespace, null_first)}
    return {**member, "default": None} if isinstance(member["type"], list) and null_first else member


def _nullable(field: pa.Field, name: str, namespace: str, null_first: bool) -> Any:
    import pyarrow as pa

    schema = _schema(field.type, name, namespace, null_first)
    if not field.nullable or pa.types.is_null(field.type):
        return schema
    return ["null", schema] if null_first else [schema, "null"]


def _decimal_bytes(precision: int) -> int:
    """Return how many bytes any number with this many digits fits into."""
    return (int(10**precision - 1).bit_length() + 8) // 8
