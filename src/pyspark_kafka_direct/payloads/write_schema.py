"""The columns of a frame that are written, by the rules of Spark's ``org.apache.spark.sql.kafka010.KafkaWriter``.

======== ============================= =============================================================
column   type                          rule
======== ============================= =============================================================
value    string, binary, JSON          required
key      string, binary, JSON
topic    string                        required without the option ``topic``, ignored with it
headers  array<struct<string,binary>>  fields ``key`` and ``value``
partition int                          null: the key decides, or no partition is set
timestamp timestamp, double (seconds)  null: the time of the write
======== ============================= =============================================================

Structs, arrays and maps are written as JSON, which is this package's rule. With ``valueFormat=avro``, any type is
encoded as Avro if the schema has it.

Other columns are ignored, as in Spark: a frame that was read from Kafka also has an offset. Names are case-insensitive,
while Spark's sink ignores a ``Key``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.payloads.type_names import type_name, without_dictionary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("double", "timestamp"),
}
"""The names of the types that columns can have."""

_PAYLOADS: Final = ("key", "value")
_JSON_NAMES: Final = ("struct", "array", "map")
_JSON_KEYS: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp"),
    *("timestamp_ntz", "string"),
)
_JSON_SCALARS: Final = (*_JSON_KEYS, "binary", "void")


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """The positions of the written columns in a frame; ``None`` if there is no such column."""

    value: int
    key: int | None = None
    topic: int | None = None  # None too if the option topic is set
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def resolve_write_schema(
    schema: pa.Schema, topic: str | None, encoded: Collection[str] = frozenset(), *, takes_local_times: bool = True
) -> WriteSchema:
    """Return the positions of the written columns, or raise ``ColumnError``; types may be large, and of any time unit.

    The types of ``encoded`` columns are checked with their schemas. Timestamps without a time zone are in UTC.
    """
    positions = column_positions(schema.names, topic)
    for name, position in positions.items():
        if name not in encoded:
            _check_type(name, schema.field(position).type, takes_local_times=takes_local_times)
    return WriteSchema(**positions)


def column_positions(names: Sequence[str], topic: str | None) -> dict[str, int]:
    """Return the positions of written columns by name; ``topic`` is the option, which replaces its column."""
    candidates = [name for name in _TYPES if name != "topic" or topic is None]
    positions = {name: index for name in candidates if (index := column_position(names, name)) is not None}
    if "topic" in candidates and "topic" not in positions:
        raise ColumnError(
            "topic option required when no 'topic' attribute is present: set the option topic, or add a column named "
            "topic"
        )
    if "value" not in positions:
        raise ColumnError(
            f"Required attribute 'value' not found among the columns {listed(names)}: add it, for "
            "example with to_json(struct('*')) AS value"
        )
    return positions


def column_position(names: Sequence[str], name: str) -> int | None:
    """Return the position of a column, or None if there is none."""
    positions = [index for index, column in enumerate(names) if column == name]
    # Names that differ only in case count if no name is the same.
    positions = positions or [index for index, column in enumerate(names) if column.lower() == name]
    if len(positions) > 1:
        raise ColumnError(f"{name} attribute occurs {len(positions)} times: keep only one of the columns")
    return positions[0] if positions else None


def unsupported_type(name: str, shown: str) -> ColumnError:
    """Return the error of a column that cannot be written."""
    names = (*_TYPES[name], *(_JSON_NAMES if name in _PAYLOADS else ()))
    return ColumnError(
        f"{name} attribute unsupported type {shown}. {name} must be a(n) {' or '.join(names)}: cast it in the query"
    )


def unsupported_json_type(column: str, path: str, shown: str) -> ColumnError:
    """Return the error of a part of a column that cannot be written."""
    return ColumnError(
        f"{column} attribute: {path} is {shown}, which is not written as JSON: cast it to string in the query, or "
        "write to_json(...)"
    )


def _check_type(name: str, actual: pa.DataType, *, takes_local_times: bool) -> None:
    """Raise an error if a column cannot have a type; keys and values that are nested are written as JSON."""
    shown = type_name(actual)
    if name in _PAYLOADS and shown.startswith(tuple(f"{each}<" for each in _JSON_NAMES)):
        _check_json_type(name, name, actual)
        return
    is_local_time = name == "timestamp" and shown == "timestamp_ntz" and takes_local_times
    if shown not in _TYPES[name] and not is_local_time:
        raise unsupported_type(name, shown)


def _check_json_type(column: str, path: str, actual: pa.DataType) -> None:
    """Raise an error if a type cannot be encoded as JSON."""
    actual = without_dictionary(actual)
    shown = type_name(actual)
    if shown.startswith("struct<"):
        for field in actual:
            _check_json_type(column, f"{path}.{field.name}", field.type)
    elif shown.startswith("array<"):
        _check_json_type(column, f"{path}.element", actual.value_type)
    elif shown.startswith("map<"):
        key = type_name(without_dictionary(actual.key_type))
        if key.partition("(")[0] not in _JSON_KEYS:
            raise ColumnError(
                f"{column} attribute: the keys of the map {path} are {key}, which are no names of fields in JSON: cast "
                "them to string in the query"
            )
        _check_json_type(column, f"{path}.value", actual.item_type)
    elif shown.partition("(")[0] not in _JSON_SCALARS:
        raise unsupported_json_type(column, path, shown)
