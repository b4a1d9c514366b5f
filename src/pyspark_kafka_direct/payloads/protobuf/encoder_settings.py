"""Settings with which tasks encode a column as Protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings, SchemaMismatchError
from pyspark_kafka_direct.payloads.encoded_values import ProtobufEncoder
from pyspark_kafka_direct.payloads.protobuf.encoder_program import compile_encoder
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, source_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram
    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding


@dataclass(frozen=True, slots=True)
class ProtobufEncoderSettings(EncoderSettings):
    """Settings of a message type."""

    schema: ProtobufSource = field(kw_only=True)

    format_name: ClassVar[str] = "Protobuf"

    @property
    def schema_name(self) -> str:
        """The message type, and where it is from, for errors."""
        name = source_schema(self.schema).message(self.schema.message).name
        return f"the message {name}" + (f" of {self.source}" if self.source else "")

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the program for a type."""
        schema = source_schema(self.schema)
        try:
            return compile_encoder(schema, schema.message(self.schema.message), data_type, column)
        except ProtobufSchemaError as error:
            raise SchemaMismatchError(str(error)) from None

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of a program."""
        return ProtobufEncoder(encoding)
