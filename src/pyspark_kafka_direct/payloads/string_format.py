"""Strings: the bytes as they are, without a check of UTF-8, as by a cast, or in a charset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn
from pyspark_kafka_direct.payloads.payload_format import UnexpectedTypeError, WritableFormat

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings


class StringColumn(PayloadColumn):
    """Returns bytes as strings, without a copy."""

    format_name = "string"

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Return the values with another type."""
        validity, offsets, data = values.buffers()
        strings = pa.StringArray.from_buffers(len(values), offsets, data, validity, values.null_count, values.offset)
        return DecodedValues(strings, None)


class StringFormat(WritableFormat):
    """The format ``string``."""

    column_types = "string"

    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return ``string``."""
        return "string"

    def check_type(self, payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:
        """Raise an error unless a column is a string."""
        if data_type != pa.string():
            raise UnexpectedTypeError

    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> PayloadColumn:
        """Return the column."""
        if payload.charset is None:
            return StringColumn(data_type)
        from pyspark_kafka_direct.payloads.charset_strings import CharsetColumn

        return CharsetColumn(payload.charset)

    def encoder_settings(self, payload: SidePayload) -> EncoderSettings:
        """Return how tasks encode a column."""
        from pyspark_kafka_direct.payloads.charset_strings import CharsetEncoderSettings

        assert payload.charset is not None, "without a charset, strings are written by their type"
        return CharsetEncoderSettings(charset=payload.charset)


FORMAT: Final = StringFormat()
