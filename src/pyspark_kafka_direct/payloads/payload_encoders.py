"""Encodes the keys and values of a task's rows as Avro or Protobuf, if the options say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.payloads.column_encoder import ColumnEncoder, EncoderSettings


class PayloadEncoders:
    """The encoders of a task; columns without one are written by their types."""

    def __init__(self, settings: Mapping[str, EncoderSettings], topic: str | None) -> None:
        self._topic = topic
        self._settings = settings
        self._encoders: dict[str, ColumnEncoder] = {}
        if settings:  # most tasks do not need the module
            from pyspark_kafka_direct.payloads.column_encoder import ColumnEncoder

            self._encoders = {side: ColumnEncoder(side, each) for side, each in settings.items()}
        self.headers: Final = dict(each.header for each in settings.values() if each.header is not None)
        """Of each record, with the ids of its schemas."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that have an encoder."""
        return frozenset(self._encoders)

    def encode(self, side: str, column: pa.Array, topic_of: Callable[[int], str | None]) -> pa.BinaryArray:
        """Encode the keys or values of a batch; ``topic_of`` returns the topic of a row, for errors."""
        from pyspark_kafka_direct.payloads.column_encoder import InvalidRowError, SchemaMismatchError

        format_name, schema_name = self._settings[side].format_name, self._settings[side].schema_name
        try:
            return self._encoders[side].encode(column)
        except InvalidRowError as error:
            topic = self._topic or topic_of(error.row)
            raise ColumnError(
                f"A row for topic {topic} cannot be written as {format_name}: {error.reason}"
                f"{f' ({schema_name})' if schema_name else ''}. {error.advice}"
            ) from None
        except SchemaMismatchError as error:
            raise ColumnError(f"{side} attribute cannot be written as {format_name}: {error}") from None


NO_ENCODERS: Final = PayloadEncoders({}, None)


class FunctionEncoder:
    """The encoder of a function such as ``to_avro``."""

    def __init__(self, function: str, settings: EncoderSettings) -> None:
        from pyspark_kafka_direct.payloads.column_encoder import ColumnEncoder

        self._function = function
        self._format_name = settings.format_name
        self._encoder = ColumnEncoder("value", settings)

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode a column of a frame."""
        from pyspark_kafka_direct.payloads.column_encoder import InvalidRowError, encode_all

        try:
            return encode_all(self._encoder, values)
        except InvalidRowError as error:
            raise ColumnError(f"A value cannot be encoded as {self._format_name}: {error.reason}") from None
        except ValueError as error:  # also a schema that does not fit the type
            raise ColumnError(f"{self._function}: {error}") from None
