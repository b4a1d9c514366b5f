"""What the Python encoders of Avro and Protobuf have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.records.encoded_values import InvalidReason, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.records.encoded_values import PayloadEncoding


class InvalidNodeError(Exception):
    """The node and the reason of an invalid value, and perhaps another node."""


class ProgramReader:
    """The numbers of a program, while its nodes are bound to the columns of a batch."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        self._numbers: Iterator[int] = iter(encoding.numbers)
        self._constants = encoding.constants
        self._nodes = 0
        self._prefix = encoding.prefix
        self.bytes_left = encoding.max_bytes

    def encode_rows(self, values: pa.Array, write: Callable[[int, bytearray], None]) -> pa.BinaryArray:
        """Encode each value of a column with the function of the first node; a null value is null."""
        import pyarrow as pa

        encoded: list[bytes | None] = []
        for row, valid in enumerate(values.is_valid().to_pylist()):
            if not valid:
                encoded.append(None)
                continue
            out = bytearray(self._prefix)
            try:
                write(row, out)
                self.bytes_left -= len(out)
                if self.bytes_left < 0:
                    raise InvalidNodeError(0, InvalidReason.LIMIT)
            except InvalidNodeError as error:
                raise InvalidValueError(row, *error.args) from None
            encoded.append(bytes(out))
        return pa.array(encoded, pa.binary())

    def _next(self) -> int:
        return next(self._numbers)
