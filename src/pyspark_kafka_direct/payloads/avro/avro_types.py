"""The types of Avro as frozen dataclasses, in which names are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from pyspark_kafka_direct.payloads.decoded_values import MAX_COLUMN_TYPES

MAX_SCHEMA_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 58
"""Levels of a schema. PyArrow exports at most 64, in which a map has two."""

MAX_SCHEMA_TYPES: Final = 10 * MAX_COLUMN_TYPES
"""Types of a schema, most of which a query does not read. A named type counts as often as it is used."""

MAX_NAME_CHARACTERS: Final = 1000

MAX_PRECISION: Final = 38  # of Spark's decimals

NO_DEFAULT: Final = object()

PrimitiveName: TypeAlias = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class AvroSchemaError(ValueError):
    """A text is not an Avro schema, or Spark has no types for the schema."""


class LogicalType(NamedTuple):
    """A logical type that fits its type."""

    name: str
    precision: int = 0  # of a decimal
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without a name of its own."""

    name: PrimitiveName
    logical: LogicalType | None = None


@dataclass(frozen=True, slots=True)
class FixedType:
    """A number of bytes."""

    name: str  # with its namespace
    aliases: tuple[str, ...]
    size: int
    logical: LogicalType | None = None


@dataclass(frozen=True, slots=True)
class EnumType:
    """One of several symbols."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Values of one type."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class MapType:
    """Values with strings as keys."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class UnionType:
    """A value of one of several types."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: object = NO_DEFAULT  # a value of JSON


@dataclass(frozen=True, slots=True)
class RecordType:
    """Named fields."""

    name: str
    aliases: tuple[str, ...]
    fields: tuple[RecordField, ...] = field(compare=False, repr=False)
    is_recursive: bool = field(default=False, compare=False)  # it contains itself


AvroType: TypeAlias = PrimitiveType | FixedType | EnumType | ArrayType | MapType | UnionType | RecordType

NULL: Final = PrimitiveType("null")


def unqualified(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(".")[2]


def type_name(avro_type: AvroType) -> str:
    """Return a short name of a type, for messages."""
    match avro_type:
        case PrimitiveType(name, logical):
            return f"{name} ({logical.name})" if logical else name
        case RecordType(name) | EnumType(name) | FixedType(name):
            return name
        case ArrayType(items):
            return f"array<{type_name(items)}>"
        case MapType(values):
            return f"map<{type_name(values)}>"
        case UnionType(branches):
            return f"[{', '.join(type_name(branch) for branch in branches[:5])}{', ...' if len(branches) > 5 else ''}]"


class NonNull(NamedTuple):
    """A type without null."""

    type: AvroType | None  # None: the type is null only
    nullable: bool


def without_null(avro_type: AvroType) -> NonNull:
    """Return what Spark reads from a type: unions of int and long, or of float and double, are the wider type."""
    if avro_type == NULL:
        return NonNull(None, nullable=True)
    if not isinstance(avro_type, UnionType):
        return NonNull(avro_type, nullable=False)
    others = tuple(branch for branch in avro_type.branches if branch != NULL)
    nullable = len(others) < len(avro_type.branches)
    if len(others) < 2:
        return NonNull(others[0] if others else None, nullable)
    kinds = [branch.name for branch in others if isinstance(branch, PrimitiveType)]
    for wide, narrow in (("long", "int"), ("double", "float")):
        if len(others) == 2 and set(kinds) == {wide, narrow}:
            return NonNull(PrimitiveType("long" if wide == "long" else "double"), nullable)
    return NonNull(UnionType(others), nullable)
