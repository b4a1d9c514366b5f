"""Settings with which tasks encode a column as Avro."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError, type_name
from pyspark_kafka_direct.payloads.avro.derived_schema import derived_schema
from pyspark_kafka_direct.payloads.avro.encoder_program import compile_encoder
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings, SchemaMismatchError, encodable_type
from pyspark_kafka_direct.payloads.encoded_values import AvroEncoder

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram
    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding


@dataclass(frozen=True, slots=True)
class AvroEncoderSettings(EncoderSettings):
    """Settings of an Avro schema."""

    schema: AvroSchema = field(kw_only=True)

    format_name: ClassVar[str] = "Avro"

    @property
    def schema_name(self) -> str:
        """The schema, or where it is from, for errors."""
        return self.source or f"the Avro schema {type_name(self.schema.root)}"

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the program for a type."""
        try:
            return compile_encoder(self.schema.root, data_type, column)
        except AvroSchemaError as error:
            raise SchemaMismatchError(str(error)) from None

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of a program."""
        return AvroEncoder(encoding)


def derived_encoder_settings(data_type: pa.DataType) -> AvroEncoderSettings:
    """Return the settings with the schema that Spark's ``to_avro`` gives a type."""
    plain = encodable_type(data_type, AvroEncoderSettings.format_name)
    return AvroEncoderSettings(schema=parse_avro_schema(derived_schema(plain, null_first=False)))
