"""A column that is decoded by a function of the user, which ``keyFormat`` or ``valueFormat`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.config.user_factories import load_factory
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_TYPE_CHARS: Final = 500


class UserDecoder:
    """Calls the user's decoder for each batch, and checks what it returns: Spark would read other arrays wrongly."""

    def __init__(self, column: str, factory_name: str, data_type: pa.DataType) -> None:
        self._where = f"option {column}Format: {factory_name}"
        self._type = data_type
        factory = load_factory(f"{column}Format", factory_name, "a decoder", "every executor")
        decoder = factory(data_type)
        if not callable(decoder):
            raise OptionError(
                f"{self._where}() must return a function that decodes an Arrow array, not {_type_name(decoder)}"
            )
        self._decode: Callable[[pa.BinaryArray], object] = decoder

    def decode(self, values: pa.BinaryArray) -> pa.Array:
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
        return decoded


def _type_name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shortened(data_type: pa.DataType) -> str:
    text = str(data_type)
    return text if len(text) <= _MAX_TYPE_CHARS else text[:_MAX_TYPE_CHARS] + "..."
