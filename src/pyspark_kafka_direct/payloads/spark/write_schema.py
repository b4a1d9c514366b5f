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

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FractionalType,
    IntegerType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (DoubleType(), TimestampType()),
}

_PAYLOADS: Final = ("key", "value")
_JSON_NAMES: Final = ["struct", "array", "map"]
_JSON_SCALARS: Final = (
    BooleanType,
    IntegralType,
    FractionalType,  # float, double and decimal
    DateType,
    TimestampType,
    TimestampNTZType,
)


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """The positions of the written columns in a frame; ``None`` if there is no such column."""

    value: int
    key: int | None = None
    topic: int | None = None  # None too if the option topic is set
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def resolve_write_schema(schema: StructType, topic: str | None, encoded: Collection[str] = frozenset()) -> WriteSchema:
    """Return the positions of the written columns of a frame, or raise ``ColumnError``.

    The types of ``encoded`` columns are checked with their schemas.
    """
    names = schema.fieldNames()
    positions = _column_positions(names, topic)
    for name, position in positions.items():
        if name not in encoded:
            _check_type(name, schema.fields[position].dataType)
    _check_unique_names(names)
    return WriteSchema(**positions)


def resolve_arrow_write_schema(
    schema: pa.Schema, topic: str | None, encoded: Collection[str] = frozenset()
) -> WriteSchema:
    """Return the positions of the written columns of Arrow rows, which may have large types and any time unit."""
    positions = _column_positions(schema.names, topic)
    for name, position in positions.items():
        if name not in encoded:
            _check_type(name, _spark_type(schema.field(position).type))
    return WriteSchema(**positions)


def _column_positions(names: Sequence[str], topic: str | None) -> dict[str, int]:
    """Return the positions of written columns by name; ``topic`` is the option, which replaces its column."""
    candidates = [name for name in _TYPES if name != "topic" or topic is None]
    positions = {name: index for name in candidates if (index := _column_position(names, name)) is not None}
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


def _column_position(names: Sequence[str], name: str) -> int | None:
    positions = [index for index, column in enumerate(names) if column == name]
    # Names that differ only in case count if no name is the same.
    positions = positions or [index for index, column in enumerate(names) if column.lower() == name]
    if len(positions) > 1:
        raise ColumnError(f"{name} attribute occurs {len(positions)} times: keep only one of the columns")
    return positions[0] if positions else None


def _spark_type(arrow_type: pa.DataType) -> DataType | str:
    """Return the Spark type of an Arrow type, or its name if it has none or is a dictionary."""
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    # PySpark would return the type of the values, but write_rows.py does not decode dictionaries.
    if pa.types.is_dictionary(arrow_type):
        return str(arrow_type)
    try:
        # A task of a continuous query has no session with a time zone, so times without one are in UTC.
        return from_arrow_type(arrow_type, prefer_timestamp_ntz=False)
    except PySparkTypeError:
        return str(arrow_type)


def _check_type(name: str, actual: DataType | str) -> None:
    """Raise an error if a column cannot have a type; keys and values that are nested are written as JSON."""
    allowed = _TYPES[name]
    if name in _PAYLOADS and isinstance(actual, StructType | ArrayType | MapType):
        _check_json_type(name, name, actual)
        return
    if isinstance(actual, str) or not any(_is_same_type(actual, expected) for expected in allowed):
        type_name = actual if isinstance(actual, str) else actual.simpleString()
        names = [expected.simpleString() for expected in allowed] + _JSON_NAMES * (name in _PAYLOADS)
        raise ColumnError(
            f"{name} attribute unsupported type {type_name}. {name} must be a(n) "
            f"{' or '.join(names)}: cast it in the query"
        )


def _check_json_type(column: str, path: str, actual: DataType) -> None:
    """Raise an error if a type cannot be encoded as JSON."""
    match actual:
        case StructType():
            for field in actual.fields:
                _check_json_type(column, f"{path}.{field.name}", field.dataType)
        case ArrayType():
            _check_json_type(column, f"{path}.element", actual.elementType)
        case MapType(keyType=key_type):
            if not isinstance(key_type, StringType) and not _is_json_scalar(key_type):
                raise ColumnError(
                    f"{column} attribute: the keys of the map {path} are {key_type.simpleString()}, which are no names "
                    "of fields in JSON: cast them to string in the query"
                )
            _check_json_type(column, f"{path}.value", actual.valueType)
        case _ if not isinstance(actual, StringType | BinaryType | NullType) and not _is_json_scalar(actual):
            raise ColumnError(
                f"{column} attribute: {path} is {actual.simpleString()}, which is not written as JSON: cast it to "
                "string in the query, or write to_json(...)"
            )


def _is_json_scalar(data_type: DataType) -> bool:
    return isinstance(data_type, _JSON_SCALARS)


def _check_unique_names(names: Sequence[str]) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ColumnError(
            f"Columns of the same name: {listed(duplicates)}. Spark cannot pass them to Python, even if they are not "
            "written: select only the columns to write"
        )


def _is_same_type(actual: DataType, expected: DataType) -> bool:
    """Compare types without collations and nullability."""
    match actual, expected:
        case ArrayType(), ArrayType():
            return _is_same_type(actual.elementType, expected.elementType)
        case StructType(), StructType():
            return len(actual.fields) == len(expected.fields) and all(
                one.name == other.name and _is_same_type(one.dataType, other.dataType)
                for one, other in zip(actual.fields, expected.fields, strict=True)
            )
    return type(actual) is type(expected)
