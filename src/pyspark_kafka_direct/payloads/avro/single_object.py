"""Avro's single-object encoding: the fingerprint of the writer schema is in front of each datum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.payloads.avro.avro_column import AvroSettings
from pyspark_kafka_direct.payloads.avro.canonical_form import fingerprint
from pyspark_kafka_direct.payloads.framing import SingleObjectFraming, fingerprint_id
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema


@dataclass(frozen=True, slots=True)
class FingerprintedSchema:
    """A ``WriterSchemas`` with one schema; datums with another fingerprint are malformed."""

    schema: AvroSchema

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return the schema if it has the fingerprint."""
        if schema_id != fingerprint_id(fingerprint(self.schema.root)):
            raise WriterSchemaError(
                f"the schema of the query does not have the fingerprint {schema_id} of the value",
                f"Values with the fingerprint {schema_id} can be read by a query whose keySchema or valueSchema is the "
                "schema that they were written with",
            )
        return self.schema


def single_object(schema: AvroSchema) -> AvroSettings:
    """Return the settings of a column in single-object encoding."""
    return AvroSettings(schema, SingleObjectFraming(), FingerprintedSchema(schema))
