"""A column that is decoded by a function of the user, which ``keyFormat`` or ``valueFormat`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.user_factories import load_factory
from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn
from pyspark_kafka_direct.payloads.payload_format import PayloadFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload

_MAX_TYPE_CHARS: Final = 500


class UserColumn(PayloadColumn):
    """Calls the user's decoder for each batch, and checks what it returns: Spark would read other arrays wrongly."""

    def __init__(self, column: str, factory_name: str, data_type: pa.DataType) -> None:
        self._where = f"option {column}Format: {factory_name}"
        super().__init__(data_type)
        self.format_name = factory_name
        factory = load_factory(f"{column}Format", factory_name, result="a decoder", where="every executor")
        decoder = factory(data_type)
        if not callable(decoder):
            raise OptionError(
                f"{self._where}() must return a function that decodes an Arrow array, not {_type_name(decoder)}"
            )
        self._decode: Callable[[pa.BinaryArray], object] = decoder

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode the values of a batch."""
        decoded = self._decode(values)
        if not isinstance(decoded, pa.Array):
            hint = ", such as chunked_array.combine_chunks()" if isinstance(decoded, pa.ChunkedArray) else ""
            raise OptionError(
                f"{self._where}: the decoder must return a pyarrow.Array{hint}, not {_type_name(decoded)}"
            )
        if decoded.type != self._type:
            raise OptionError(
                f"{self._where}: the decoder must return an array of the type that the factory receives, "
                f"{_shortened(self._type)}, not {_shortened(decoded.type)}; return decoded.cast(data_type), or change "
                "the schema"
            )
        if len(decoded) != len(values):
            raise OptionError(
                f"{self._where}: the decoder must return one row for each value, got {len(decoded)} rows for "
                f"{len(values)} values; return null for a value that cannot be decoded"
            )
        return DecodedValues(decoded, None)


class UserFormat(PayloadFormat):
    """A decoder of the user, ``module:factory``."""

    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return the type that the option names."""
        from pyspark_kafka_direct.payloads.ddl import checked_type

        side, ddl = payload.side, payload.schema
        if not ddl or not ddl.strip():
            raise OptionError(
                f"{side}Format={payload.format} needs the type that its decoder returns: give the column {side} a "
                f"type with .schema(), or set {side}Schema, for example to 'id bigint, name string', or to binary"
            )
        return checked_type(ddl, payload.schema_option)

    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> UserColumn:
        """Return the column, and load the decoder."""
        return UserColumn(payload.side, payload.format, data_type)


FORMAT: Final = UserFormat()


def _type_name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shortened(data_type: pa.DataType) -> str:
    text = str(data_type)
    return text if len(text) <= _MAX_TYPE_CHARS else text[:_MAX_TYPE_CHARS] + "..."
