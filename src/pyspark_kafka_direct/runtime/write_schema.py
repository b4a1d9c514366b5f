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
    wanted = [name for name in _TYPES if name != "topic" or topic is None]
    found = {name: at for name in wanted if (at := _position(schema.fields, name)) is not None}
    if "topic" in wanted and "topic" not in found:
        raise ColumnError(
            "topic option required when no 'topic' attribute is present: set the option topic, or add a column topic"
        )
    if "value" not in found:
        raise ColumnError(
            f"Required attribute 'value' not found among the columns {listed(schema.fieldNames())}: name one so, for "
            "example with to_json(struct('*')) AS value"
        )
    for name, at in found.items():
        _check_type(name, schema.fields[at].dataType)
    _check_others(schema.fieldNames())
    return WriteSchema(**found)


def _position(fields: Sequence[StructField], name: str) -> int | None:
    places = [at for at, field in enumerate(fields) if field.name == name]
    places = places or [at for at, field in enumerate(fields) if field.name.lower() == name]
    if len(places) > 1:
        raise ColumnError(f"{name} attribute is there {len(places)} times: leave one of the columns")
    return places[0] if places else None


def _check_type(name: str, given: DataType) -> None:
    allowed = _TYPES[name]
    if not any(_is_same(given, kind) for kind in allowed):
        raise ColumnError(
            f"{name} attribute unsupported type {given.simpleString()}. {name} must be a(n) "
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
