"""The interface of Avro decoders: programs, which are lists of numbers, and the reasons of malformed datums.

A program decodes the datums of one writer schema into the columns of a reader's struct. The columns are numbered in
the order of the type: a struct or list comes before its fields or elements, and a map before its keys and values. The
struct of a whole value has no number. A program is a list of operations: a number, then its arguments.

The number is that of an ``Op``, plus ``NULL_FIRST`` or ``NULL_LAST`` for the value in a union with null; after null,
the operation does nothing. A row that no operation writes is null. ``length`` is the length of an inner program that
follows, as a count of numbers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyspark_kafka_direct.payloads.decoded_values import MAX_DECODED_BYTES, MAX_SCHEMA_DEPTH, decoded_values
from pyspark_kafka_direct.records.native_kernel import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

NULL_FIRST: Final = 256  # the union is ["null", T]
NULL_LAST: Final = 512  # the union is [T, "null"]

MAX_PROGRAM_NUMBERS: Final = 1 << 20


class Op(IntEnum):
    """Operations, with their arguments."""

    SKIP_VARINT = 0
    SKIP_BYTES = 1  # size
    SKIP_LENGTH = 2  # bytes or a string
    SKIP_BOOLEAN = 3
    SKIP_ENUM = 4  # number of symbols
    SKIP_ITEMS = 5  # minimum size of an item, length
    BOOLEAN = 6  # column
    INT = 7  # column
    LONG = 8  # column
    INT_TO_LONG = 9  # column
    INT_TO_FLOAT = 10  # column
    INT_TO_DOUBLE = 11  # column
    LONG_TO_FLOAT = 12  # column
    LONG_TO_DOUBLE = 13  # column
    FLOAT = 14  # column
    FLOAT_TO_DOUBLE = 15  # column
    DOUBLE = 16  # column
    BYTES = 17  # column; also strings
    FIXED = 18  # column, size
    MILLIS_TO_MICROS = 19  # column
    DECIMAL = 20  # column; of bytes
    FIXED_DECIMAL = 21  # column, size
    ENUM = 22  # column, number of symbols, for each one its constant, or -1 if the reader has no such symbol
    ITEMS = 23  # column of a list or map, minimum size of an item, length
    GROUP = 24  # length; runs the inner program
    UNION = 25  # number of branches, for each one a length and its program
    PRESENT = 26  # column of a struct
    INTEGER_CONSTANT = 27  # column of booleans or integers, value
    DOUBLE_CONSTANT = 28  # column, constant: eight bytes, the least significant first
    BYTES_CONSTANT = 29  # column, constant
    ITEMS_CONSTANT = 30  # column of a list or map, number of items, for each one a length and its program
    FAIL = 31  # reason
    ROUTINE = 32  # length; runs the inner program, which is the next routine: 0, 1, ...
    CALL = 33  # the number of a routine, which may be one that contains the operation
    NULL_VALUE = 34  # the struct of the whole value is null


Operation: TypeAlias = list[int]  # an `Op` and its arguments


class Reason(IntEnum):
    """The reason why a datum is malformed; the index of its message."""

    TRUNCATED = 0
    TRAILING = 1
    VARINT = 2
    BOOLEAN = 3
    LENGTH = 4
    BRANCH = 5
    COUNT = 6
    SYMBOL = 7
    RANGE = 8
    UNREADABLE = 9
    NO_DEFAULT = 10
    SIZE = 11
    DEPTH = 12


MESSAGES: Final = (
    "the datum is incomplete",
    "bytes after the end of the datum",
    "an integer does not fit its type",
    "a boolean is neither 0 nor 1",
    "a length is negative",
    "a union does not have this branch",
    "an array or map claims more items than it can have",
    "an enum does not have this symbol",
    "the value does not fit the type of its column",
    "the value has a type that the reader schema does not have",
    "the writer schema lacks a field that has no default",
    "the decoded value is too large",
    "a record contains itself in too many levels",
)

CONVERSION_MESSAGES: Final = frozenset(
    MESSAGES[reason]
    for reason in (Reason.RANGE, Reason.UNREADABLE, Reason.NO_DEFAULT, Reason.SIZE, Reason.SYMBOL, Reason.DEPTH)
)
"""Reasons why a datum of the writer schema does not have the wanted type."""


class Incompatibility(NamedTuple):
    """A part of a writer schema that the reader schema does not allow: datums with this part are malformed."""

    reason: Reason  # that the decoder reports
    text: str  # names the field


class AvroProgram(NamedTuple):
    """Decodes the datums of one writer schema."""

    numbers: tuple[int, ...]
    constants: tuple[bytes, ...]  # of enums and defaults
    incompatibilities: tuple[Incompatibility, ...] = ()  # some of them, if there are many


class AvroDecoder:
    """Decodes datums of several writer schemas to structs of the wanted fields."""

    def __init__(
        self,
        fields: pa.Schema,
        # Of a batch. Also of the elements of a datum's arrays and maps, and its strings that are in the schema, such as
        # symbols of enums.
        max_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        check_avro_fields(fields)
        self._kernel = native.AvroDecoder(fields.__arrow_c_schema__(), max_bytes)

    def add_program(self, program: AvroProgram) -> int:
        """Add a program and return its number; one that is not valid for the columns is a ValueError."""
        return self._kernel.add_program(list(program.numbers), list(program.constants))

    def decode(
        self, values: pa.BinaryArray, starts: pa.Int32Array | None = None, programs: pa.Int32Array | None = None
    ) -> DecodedValues:
        """Decode a column.

        A struct is null if its value is null. If a datum is malformed, all fields of its struct are null.

        Args:
            values: The datums, each one perhaps after a header.
            starts: For each row, the size of the header, 0 by default.
            programs: For each row, the number of its program, 0 by default. If it is null, all fields are null.
        """
        return decoded_values(self._kernel, value=values, start=starts, program=programs)


def check_avro_fields(fields: pa.Schema) -> None:
    """Raise a ValueError if Avro cannot be decoded to the wanted fields."""
    for field in fields:
        _check_field(field, field.name, 0)
    _check_names(fields.names, "")


def column_types(fields: Sequence[pa.Field]) -> list[pa.DataType]:
    """Return the types of the columns, by their numbers."""
    types: list[pa.DataType] = []
    for field in fields:
        types.append(field.type)
        types += column_types(child_fields(field.type))
    return types


def child_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of the columns that come after that of a type."""
    import pyarrow as pa

    if pa.types.is_struct(data_type):
        return list(data_type)
    if pa.types.is_list(data_type):
        return [data_type.value_field]
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return []


def _check_names(names: Sequence[str], path: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"field {f'{path}{name}'!r} is named twice")


def _check_field(field: pa.Field, path: str, depth: int) -> None:
    import pyarrow as pa

    if depth > MAX_SCHEMA_DEPTH:
        raise ValueError(f"field {path!r} has more than {MAX_SCHEMA_DEPTH} levels")
    if not field.nullable:
        raise ValueError(f"field {path!r} may be null, so it must be nullable")
    data_type = field.type
    if pa.types.is_map(data_type):
        if data_type.key_type != pa.string():
            raise ValueError(f"field {path!r} is a map whose keys are not strings")
        _check_field(data_type.item_field, f"{path}.{data_type.item_field.name}", depth + 2)  # two levels in Arrow
    elif pa.types.is_list(data_type):
        _check_field(data_type.value_field, f"{path}.{data_type.value_field.name}", depth + 1)
    elif pa.types.is_struct(data_type):
        _check_names([child.name for child in data_type], f"{path}.")
        for child in data_type:
            _check_field(child, f"{path}.{child.name}", depth + 1)
    elif not _is_scalar(data_type):
        raise ValueError(f"field {path!r} has the type {data_type}, which is not decoded from Avro")


def _is_scalar(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_decimal128(data_type):
        return True
    if pa.types.is_timestamp(data_type):
        return str(data_type.unit) == "us"
    scalars = (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
    return data_type in (*scalars, pa.null())
