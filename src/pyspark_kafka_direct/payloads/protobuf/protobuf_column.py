"""A column of Protobuf messages that is decoded to structs, with or without Confluent's header in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
from pyspark_kafka_direct.payloads.framing import NO_MESSAGE, ConfluentFraming, split_message_indexes
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn, wanted_fields
from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import CONVERSION_MESSAGES, ProtobufDecoder
from pyspark_kafka_direct.payloads.protobuf.schema import source_schema
from pyspark_kafka_direct.payloads.writer_schemas import FramedValues, WriterSchemaError, most_frequent_first

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.protobuf.given_message import GivenMessage
    from pyspark_kafka_direct.payloads.protobuf.registry_messages import WriterMessages
    from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource


class ProtobufColumn(PayloadColumn):
    """Decodes Protobuf. All values are messages of the same type, whose schemas may differ."""

    format_name = "Protobuf"
    conversion_reasons = CONVERSION_MESSAGES

    def __init__(
        self,
        data_type: pa.StructType,
        source: ProtobufSource,
        corrupt_record: str = "",  # the name of the field for the bytes of malformed records, which need not exist
        *,
        emits_defaults: bool = False,
        writers: GivenMessage | WriterMessages | None = None,  # of values with a header
    ) -> None:
        fields, bytes_index = wanted_fields(pa.schema(list(data_type)), corrupt_record)
        super().__init__(data_type, bytes_index)
        self.shows_malformed = bytes_index is not None
        schema = source_schema(source)
        program = make_program(schema, schema.message(source.message), fields, emits_defaults=emits_defaults)
        self._writers = writers
        self._fields = fields
        # Schema ids and message indexes for which no problem was found.
        self._readable: set[tuple[int | str, tuple[int, ...]]] = set()
        self._decoder = ProtobufDecoder(fields, program)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        if self._writers is None:
            return self._decoder.decode(values)
        framed = split_message_indexes(ConfluentFraming().split(values, headers=None))
        problems: list[WriterSchemaError | None] = [None] * len(framed.messages)
        for index in most_frequent_first(framed.writers, framed.messages, self._readable):
            problems[index] = self._problem(framed.messages[index])
        readable = [message in self._readable and message[1] != NO_MESSAGE for message in framed.messages]
        can_decode = pa.array(readable, pa.bool_()).take(framed.writers)
        # The decoder skips the values of other messages, whose start is null.
        starts = pc.if_else(can_decode, framed.starts.cast(pa.int32()), pa.scalar(None, pa.int32()))
        decoded = self._decoder.decode(values, starts)
        schema_ids = tuple(schema_id for schema_id, _ in framed.messages)
        framed_values = FramedValues(values, framed.starts, framed.writers, schema_ids, framed.malformed)
        part = framed_values.slice(0, len(decoded.values))  # the decoder may end before the last value
        return DecodedValues(decoded.values, part.merge_malformed(decoded.malformed, problems))

    def _problem(self, message: tuple[int | str, tuple[int, ...]]) -> WriterSchemaError | None:
        """Return why the messages with a schema id and indexes cannot be decoded.

        Problems are not stored: records can contain any number of ids and indexes, and a registry may have an id later.
        """
        if message in self._readable or self._writers is None:
            return None
        try:
            self._writers.check(*message, self._fields)
        except WriterSchemaError as error:
            return error
        self._readable.add(message)
        return None
