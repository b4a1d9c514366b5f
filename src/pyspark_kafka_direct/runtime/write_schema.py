"""Which columns of a frame are written, by the rules of Spark's sink (``org.apache.spark.sql.kafka010.KafkaWriter``).

======== ============================= =============================================================
column   type                          rule
======== ============================= =============================================================
value    string or binary              required
key      string or binary
topic    string                        required without the option ``topic``; not looked at with it
headers  array<struct<string,binary>>  fields ``key`` and ``value``
partition int                          null: the key decides, or nothing
timestamp timestamp, double (seconds)  null: the time of writing
======== ============================= =============================================================

Other columns are not written, as in Spark: a frame that was read from Kafka has an offset, too. A name may be spelled
in any letter case; Spark's sink passes over a ``Key``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """Where the columns to be written are in a frame; ``None``: it has none of that name.

    Attributes:
        value: Position of the column ``value``, and so on.
        key: Keys.
        topic: Topics; ``None`` too where the option ``topic`` is set.
        headers: Headers.
        partition: Partitions.
        timestamp: Timestamps.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def write_schema(schema: StructType, topic: str | None) -> WriteSchema:
    """Find the columns to be written.

    Args:
        schema: The frame's.
        topic: The option ``topic``.

    Raises:
        ColumnError: A column is missing, is there twice, or has the wrong type.
    """
    names = schema.fieldNames()
    found = _find(names, topic)
    for name, at in found.items():
        _check_type(name, schema.fields[at].dataType)
    _check_others(names)
    return WriteSchema(**found)


def arrow_write_schema(schema: pa.Schema, topic: str | None) -> WriteSchema:
    """Find the columns to be written of rows that never were a frame, by the same rules.

    Args:
        schema: The rows' schema. Strings, binaries and lists may have 64-bit offsets, timestamps any unit.
        topic: The option ``topic``.

    Raises:
        ColumnError: A column is missing, is there twice, or has the wrong type.
    """
    found = _find(schema.names, topic)
    for name, at in found.items():
        _check_type(name, _spark_type(schema.field(at).type))
    return WriteSchema(**found)


def _find(names: Sequence[str], topic: str | None) -> dict[str, int]:
    wanted = [name for name in _TYPES if name != "topic" or topic is None]
    found = {name: at for name in wanted if (at := _position(names, name)) is not None}
    if "topic" in wanted and "topic" not in found:
        raise ColumnError(
            "topic option required when no 'topic' attribute is present: set the option topic, or add a column topic"
        )
    if "value" not in found:
        raise ColumnError(
            f"Required attribute 'value' not found among the columns {listed(names)}: name one so, for "
            "example with to_json(struct('*')) AS value"
        )
    return found


def _position(names: Sequence[str], name: str) -> int | None:
    places = [at for at, each in enumerate(names) if each == name]
    places = places or [at for at, each in enumerate(names) if each.lower() == name]
    if len(places) > 1:
        raise ColumnError(f"{name} attribute is there {len(places)} times: leave one of the columns")
    return places[0] if places else None


def _spark_type(kind: pa.DataType) -> DataType | str:
    """Return the type of Spark that an Arrow type is; its name where it is none, or can't be written as it is."""
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_dictionary(kind):
        return str(kind)
    try:
        # A time without a zone is one in UTC here, as in Spark's session time zone there is none.
        return from_arrow_type(kind, prefer_timestamp_ntz=False)
    except PySparkTypeError:
        return str(kind)


def _check_type(name: str, given: DataType | str) -> None:
    allowed = _TYPES[name]
    if isinstance(given, str) or not any(_is_same(given, kind) for kind in allowed):
        called = given if isinstance(given, str) else given.simpleString()
        raise ColumnError(
            f"{name} attribute unsupported type {called}. {name} must be a(n) "
            f"{' or '.join(kind.simpleString() for kind in allowed)}: cast it in the query"
        )


def _check_others(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnError(
            f"Columns of the same name: {listed(twice)}. Spark cannot hand them to Python, even if they are not to be "
            "written: select the columns that are"
        )


def _is_same(given: DataType, wanted: DataType) -> bool:
    """Compare types, but for collations of strings and for nulls."""
    match given, wanted:
        case ArrayType(), ArrayType():
            return _is_same(given.elementType, wanted.elementType)
        case StructType(), StructType():
            return len(given.fields) == len(wanted.fields) and all(
                one.name == other.name and _is_same(one.dataType, other.dataType)
                for one, other in zip(given.fields, wanted.fields, strict=True)
            )
    return type(given) is type(wanted)
