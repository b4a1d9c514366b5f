"""A column of Protobuf messages that is decoded to structs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafka_direct.formats.payload_column import add_original_bytes, wanted_fields
from pyspark_kafka_direct.formats.protobuf.program import make_program
from pyspark_kafka_direct.formats.protobuf.schema import parse_protobuf_schema
from pyspark_kafka_direct.records import create_protobuf_decoder

if TYPE_CHECKING:
    from pyspark_kafka_direct.config.payload_settings import ProtobufSource
    from pyspark_kafka_direct.formats.protobuf.proto_types import ProtobufSchema
    from pyspark_kafka_direct.records import DecodedValues


class ProtobufColumn:
    """A ``PayloadColumn`` of Protobuf. Each value is a message of the same type."""

    format_name = "Protobuf"
    needs_headers = False

    def __init__(
        self,
        data_type: pa.StructType,
        source: ProtobufSource,
        corrupt_record: str = "",
        *,
        emits_defaults: bool = False,
    ) -> None:
        self._type = data_type
        fields, self._bytes_index = wanted_fields(pa.schema(list(data_type)), corrupt_record)
        self.shows_malformed = self._bytes_index is not None
        schema = source_schema(source)
        program = make_program(schema, schema.message(source.message), fields, emits_defaults=emits_defaults)
        self._decoder = create_protobuf_decoder(fields, program)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        return self._decoder.decode(values)

    def with_original_bytes(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.StructArray:
        """Add the field for original bytes, if the type has it."""
        if self._bytes_index is None:
            return structs
        return add_original_bytes(structs, self._type, self._bytes_index, values, malformed)


@lru_cache(maxsize=64)
def source_schema(source: ProtobufSource) -> ProtobufSchema:
    """Parse a schema, which a process does once."""
    return parse_protobuf_schema(source.schema, source.imports)
