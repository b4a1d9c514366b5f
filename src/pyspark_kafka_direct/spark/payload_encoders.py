"""Encodes the keys and values of a task's rows as Avro, if the options say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.formats.avro.column_encoder import AvroColumnEncoder, AvroWriteSettings


class PayloadEncoders:
    """The encoders of a task; columns without one are written by their types."""

    def __init__(self, settings: Mapping[str, AvroWriteSettings], topic: str | None) -> None:
        self._topic = topic
        self._encoders: dict[str, AvroColumnEncoder] = {}
        if settings:  # most tasks do not need the module
            from pyspark_kafka_direct.formats.avro.column_encoder import AvroColumnEncoder

            self._encoders = {side: AvroColumnEncoder(side, each) for side, each in settings.items()}
        self.headers: Final = dict(each.header for each in settings.values() if each.header is not None)
        """Of each record, with the ids of its schemas."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that have an encoder."""
        return frozenset(self._encoders)

    def encode(self, side: str, column: pa.Array, topic_of: Callable[[int], str | None]) -> pa.BinaryArray:
        """Encode the keys or values of a batch; ``topic_of`` returns the topic of a row, for errors."""
        from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
        from pyspark_kafka_direct.formats.avro.column_encoder import InvalidRowError

        try:
            return self._encoders[side].encode(column)
        except InvalidRowError as error:
            topic = self._topic or topic_of(error.row)
            raise ColumnError(
                f"A row for topic {topic} cannot be written as Avro: {error.reason}. Filter out such rows, or write "
                "with a schema that allows the value."
            ) from None
        except AvroSchemaError as error:
            raise ColumnError(f"{side} attribute cannot be written as Avro: {error}") from None


NO_ENCODERS: Final = PayloadEncoders({}, None)
