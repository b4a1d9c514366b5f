"""The common part of Avro and Protobuf encoders: their programs, and reasons why a value is not written."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyspark_kafka_direct.records.columns import strings_as_binary
from pyspark_kafka_direct.records.native_kernel import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

MAX_ENCODED_BYTES: Final = 128 << 20
"""Of the rows of a column. A schema can have a type of a fixed size that is much larger than the values."""


class InvalidReason(IntEnum):
    """The reason why a value is not written."""

    NULL = 0
    SYMBOL = 1
    SIZE = 2
    MEMBERS = 3
    KEY = 4
    LIMIT = 5
    RANGE = 6
    TEXT = 7
    CHARACTER = 8  # not of the kernel


_MESSAGES: Final = {
    InvalidReason.NULL: "is null, which the {format} schema does not allow",
    InvalidReason.SYMBOL: "is not a symbol of the enum",
    InvalidReason.SIZE: "does not have the size of the fixed type",
    InvalidReason.MEMBERS: "has values for several members of a union",
    InvalidReason.KEY: "has a null key",
    InvalidReason.LIMIT: "needs more than {limit} MiB of {format} together with the rows before it",
    InvalidReason.RANGE: "does not fit the type of the field",
    InvalidReason.TEXT: "is not valid UTF-8",
    InvalidReason.CHARACTER: "has a character that the charset does not have",
}


class PayloadEncoding(NamedTuple):
    """Writes the values of one Arrow type."""

    numbers: tuple[int, ...]
    constants: tuple[bytes, ...] = ()  # of enums and defaults
    prefix: bytes = b""  # written in front of each value
    max_bytes: int = MAX_ENCODED_BYTES  # of the rows of a column


class InvalidValueError(ValueError):
    """A value that the schema does not allow: its row, its node, and the reason."""

    def __init__(self, row: int, node: int, reason: InvalidReason, other: int | None = None) -> None:
        super().__init__(row, node, reason, other)
        self.row = row
        self.node = node
        self.reason = reason
        self.other = other  # the node of another value, which it excludes

    def message(self, paths: Sequence[str], format_name: str) -> str:
        """Return the text of the error; ``paths`` are those of the nodes."""
        if self.other is not None:
            return f"{paths[self.node]} and {paths[self.other]} both have values, but are in the same oneof"
        text = _MESSAGES[self.reason].format(format=format_name, limit=MAX_ENCODED_BYTES >> 20)
        return f"{paths[self.node]} {text}"


class PayloadEncoder(Protocol):
    """Encodes columns of one type as Avro datums or Protobuf messages."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column; a null value is null. Raises ``InvalidValueError``."""
        ...


class AvroEncoder:
    """Encodes columns of one type, which has the types that ``encodable`` returns, as Avro datums."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        self._kernel = native.AvroEncoder(
            list(encoding.numbers), list(encoding.constants), encoding.prefix, encoding.max_bytes
        )

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column."""
        return _encode(self._kernel, values)


class ProtobufEncoder:
    """Encodes columns of one type, which has the types that ``encodable`` returns, as Protobuf messages."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        self._kernel = native.ProtobufEncoder(
            list(encoding.numbers), list(encoding.constants), encoding.prefix, encoding.max_bytes
        )

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column."""
        return _encode(self._kernel, values)


def _encode(encoder: native.AvroEncoder | native.ProtobufEncoder, values: pa.Array) -> pa.BinaryArray:
    import pyarrow as pa

    batch = strings_as_binary(pa.RecordBatch.from_arrays([values], ["value"]))
    encoded, invalid = encoder.encode(batch.__arrow_c_array__())
    if invalid is not None:
        row, node, other, reason = invalid
        raise InvalidValueError(row, node, InvalidReason(reason), other)
    assert encoded is not None
    return pa.record_batch(encoded).column(0)
