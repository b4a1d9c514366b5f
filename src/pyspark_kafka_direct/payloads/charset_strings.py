"""Strings in a charset, as by Spark's ``decode`` and ``encode``."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram, EncoderSettings, SchemaMismatchError
from pyspark_kafka_direct.payloads.decoded_values import DecodedValues, MalformedValues
from pyspark_kafka_direct.payloads.encoded_values import InvalidReason, InvalidValueError
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding

_UTF_8: Final = "UTF-8"
_ASCII_COMPATIBLE: Final = ("US-ASCII", "ISO-8859-1", _UTF_8)

# As in Java, values without a byte order mark are big-endian, and only UTF-16 is written with one.
_BIG_ENDIAN: Final = {"UTF-16": "UTF-16BE", "UTF-32": "UTF-32BE"}
_BYTE_ORDER_MARKS: Final = {
    "UTF-16": (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE),
    "UTF-32": (codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE),
}
_WRITTEN_MARKS: Final = {"UTF-16": codecs.BOM_UTF16_BE}


class CharsetColumn(PayloadColumn):
    """Decodes strings in a charset. Those that are not valid in it are malformed, and null."""

    options = ("Format", "Charset")

    def __init__(self, charset: str) -> None:
        super().__init__(pa.string())
        self.format_name = charset

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values."""
        strings = self._as_utf8(values)
        return self._decode_each(values) if strings is None else DecodedValues(strings, None)

    def _as_utf8(self, values: pa.BinaryArray) -> pa.StringArray | None:
        """Return the bytes as strings if they mean the same in UTF-8 as in the charset, or else None."""
        if self.format_name not in _ASCII_COMPATIBLE:
            return None
        try:
            strings = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        # Other characters than those of ASCII have other bytes in UTF-8. The result is null if there are no values.
        is_same = self.format_name == _UTF_8 or pc.all(pc.string_is_ascii(strings)).as_py() is not False
        return strings if is_same else None

    def _decode_each(self, values: pa.BinaryArray) -> DecodedValues:
        marks = _BYTE_ORDER_MARKS.get(self.format_name, ())
        without_mark = _BIG_ENDIAN.get(self.format_name, self.format_name)
        strings: list[str | None] = []
        positions: dict[int, int] = {}  # of malformed values, by row
        for row, value in enumerate(values.to_pylist()):
            string = None
            if value is not None:
                try:
                    string = value.decode(self.format_name if value.startswith(marks) else without_mark)
                except UnicodeDecodeError as error:
                    positions[row] = error.start
            strings.append(string)
        if not positions:
            return DecodedValues(pa.array(strings, pa.string()), None)
        reason = f"the value is not valid {self.format_name}"
        rows = range(len(strings))
        malformed = MalformedValues(
            pa.array([reason if row in positions else None for row in rows], pa.string()).dictionary_encode(),
            pa.array([positions.get(row) for row in rows], pa.int32()),
        )
        return DecodedValues(pa.array(strings, pa.string()), malformed)


@dataclass(frozen=True, slots=True)
class CharsetEncoderSettings(EncoderSettings):
    """Settings of strings in a charset."""

    charset: str = field(kw_only=True)

    format_name: ClassVar[str] = "string"

    @property
    def schema_name(self) -> str:
        """The charset, for errors."""
        return self.charset

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the path of the column, if it is a string."""
        if data_type != pa.string():
            raise SchemaMismatchError(f"{column} is {data_type}, but a string is written in a charset")
        return EncoderProgram(numbers=(), constants=(), paths=(column,))

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of strings."""
        return _CharsetEncoder(self.charset)


class _CharsetEncoder:
    def __init__(self, charset: str) -> None:
        self._charset = _BIG_ENDIAN.get(charset, charset)
        self._mark = _WRITTEN_MARKS.get(charset, b"")

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each string of a column."""
        # As bytes, because an Arrow string need not be valid UTF-8, and the error has to name its row.
        rows = enumerate(values.cast(pa.binary()).to_pylist())
        return pa.array([self._encoded(row, value) for row, value in rows], pa.binary())

    def _encoded(self, row: int, value: bytes | None) -> bytes | None:
        if not value:
            return value  # null, or empty, which has no byte order mark
        try:
            return self._mark + value.decode().encode(self._charset)
        except UnicodeDecodeError:
            raise InvalidValueError(row, node=0, reason=InvalidReason.TEXT) from None
        except UnicodeEncodeError:
            raise InvalidValueError(row, node=0, reason=InvalidReason.CHARACTER) from None
