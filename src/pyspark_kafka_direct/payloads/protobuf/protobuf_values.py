"""Decoding of Protobuf by the native kernel: programs (tables of fields), and the reasons of malformed messages.

A program decodes the messages of one type into the columns of a struct, which are numbered as those of Avro
(payloads/avro/avro_values.py). It is a list of numbers:

    number of tables, tables, number of enums, enums
    table    number of fields, for each one: number, kind and flags, column or -1, table or enum, oneof or -1, default
    enum     1 if it is closed, prefix of unknown names, number of values, for each one: number, name

Names and prefixes are indexes of constants.

The first table is that of the whole value. A field without a column is only checked. The default of a missing field is
a constant, or ``NO_DEFAULT`` or ``EMPTY_MESSAGE``. Constants of numbers have eight bytes, the least significant first.
The column of a repeated field is that of its list or map.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.payloads.decoded_values import MAX_DECODED_BYTES, decoded_values
from pyspark_kafka_direct.records.native_kernel import native

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

REPEATED: Final = 64
IMPLICIT: Final = 128  # a value of zero is the same as none

NO_COLUMN: Final = -1
NO_ONEOF: Final = -1
NO_DEFAULT: Final = -1
EMPTY_MESSAGE: Final = -2

MAX_DEPTH: Final = 100
"""Levels of messages and groups in a message, as in Google's libraries."""


class Kind(IntEnum):
    """The way in which a field is read."""

    BOOL = 0
    INT32 = 1
    UINT32 = 2
    INT64 = 3
    UINT64 = 4
    SINT32 = 5
    SINT64 = 6
    FIXED32 = 7
    SFIXED32 = 8
    FIXED64 = 9
    SFIXED64 = 10
    FLOAT = 11
    DOUBLE = 12
    STRING = 13  # UTF-8
    TEXT = 14  # a string that may have other bytes
    BYTES = 15
    ENUM = 16
    MESSAGE = 17
    WRAPPED = 18  # a message whose fields are written to the column of the message itself
    SECONDS = 19  # of a timestamp or duration
    NANOS = 20
    ENTRY = 21  # of a map
    GROUP = 22  # which is only checked


class Reason(IntEnum):
    """The reason why a message is malformed; the index of its text in ``MESSAGES``."""

    TRUNCATED = 0
    VARINT = 1
    TAG = 2
    GROUP = 3
    DEPTH = 4
    UTF8 = 5
    RANGE = 6
    SIZE = 7


MESSAGES: Final = (
    "the message is incomplete",
    "a number has more bytes than a varint can have",
    "a field has no valid number or wire type",
    "a group ends that did not start",
    "messages are nested more than 100 levels deep",
    "a string is not valid UTF-8",
    "the value does not fit the type of its column",
    "the decoded value is too large",
)

CONVERSION_MESSAGES: Final = frozenset(MESSAGES[reason] for reason in (Reason.RANGE, Reason.SIZE))
"""Reasons why a message does not have the wanted type."""


class ProtobufProgram(NamedTuple):
    """Decodes the messages of one type."""

    numbers: tuple[int, ...]
    constants: tuple[bytes, ...]  # names of enums, and defaults


class ProtobufDecoder:
    """Decodes messages to structs of the wanted fields; a program that does not fit them is a ValueError."""

    def __init__(
        self,
        fields: pa.Schema,
        program: ProtobufProgram,
        # Of a batch. Also of the elements of a message's lists and maps, and its strings that are not in it, such as
        # names of enums.
        max_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        self._kernel = native.ProtobufDecoder(
            fields.__arrow_c_schema__(), list(program.numbers), list(program.constants), max_bytes
        )

    def decode(self, values: pa.BinaryArray, starts: pa.Int32Array | None = None) -> DecodedValues:
        """Decode the first messages of a column; the caller calls it again for the others.

        A struct is null if its value is null. If a message is malformed, all fields of its struct are null.

        Args:
            values: The messages, each one perhaps after a header.
            starts: For each row, the size of the header, 0 by default. If it is null, all fields are null.
        """
        return decoded_values(self._kernel, value=values, start=starts)
