"""A column of Avro that is decoded: a framing, writer schemas, and a reader schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.formats.avro.whole_values import column_fields, is_record, resolve_column
from pyspark_kafka_direct.formats.payload_column import add_original_bytes
from pyspark_kafka_direct.formats.writer_schemas import (
    NO_ID,
    FramedValues,
    WriterSchemaError,
    most_frequent_first,
    other_id,
)
from pyspark_kafka_direct.records import create_avro_decoder
from pyspark_kafka_direct.records.json_values import DecodedValues

if TYPE_CHECKING:
    from pyspark_kafka_direct.formats.avro.schema import AvroSchema
    from pyspark_kafka_direct.formats.writer_schemas import Framing


class WriterSchemas(Protocol):
    """Returns the schemas that datums were written with. Pickled into tasks."""

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return a schema; a WriterSchemaError makes the datums with this id malformed."""
        ...


@dataclass(frozen=True, slots=True)
class AvroSettings:
    """How a task decodes a column. Pickled into tasks."""

    reader: AvroSchema
    framing: Framing
    writers: WriterSchemas


@dataclass(frozen=True, slots=True)
class NoFraming:
    """A ``Framing`` without ids: each value is a datum of the same schema."""

    needs_headers: bool = False

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> FramedValues:
        """Return the values as they are."""
        return FramedValues(values, None, None, (NO_ID,), None)


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """A ``WriterSchemas`` with one schema; with an id, datums with another id are malformed."""

    schema: AvroSchema
    schema_id: int | str | None = None

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return the schema."""
        if self.schema_id not in (None, schema_id):
            raise WriterSchemaError(other_id(schema_id, self.schema_id))
        return self.schema


def given_schema(schema: AvroSchema) -> AvroSettings:
    """Return the settings of a column whose values are datums of one schema."""
    return AvroSettings(schema, NoFraming(), GivenSchema(schema))


class AvroColumn:
    """A ``PayloadColumn`` of Avro. Its values are structs if the reader schema is a record."""

    format_name = "Avro"

    def __init__(self, data_type: pa.DataType, settings: AvroSettings, corrupt_record: str = "") -> None:
        self._type = data_type
        self._settings = settings
        self._fields, self._bytes_index = column_fields(settings.reader.root, data_type, corrupt_record)
        self._has_structs = is_record(settings.reader.root)
        self.shows_malformed = self._bytes_index is not None
        self._decoder = create_avro_decoder(self._fields)
        self._programs: dict[int | str, int] = {}
        self.needs_headers = settings.framing.needs_headers

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        framed = self._settings.framing.split(values, headers)
        count = len(framed.schema_ids)
        programs: list[int | None] = [None] * count
        reasons: list[str | None] = [None] * count  # why the datums of a writer schema cannot be decoded
        for index in most_frequent_first(framed.writers, framed.schema_ids, self._programs):
            try:
                programs[index] = self._program(framed.schema_ids[index])
            except (WriterSchemaError, AvroSchemaError) as error:
                reasons[index] = str(error)
        if framed.writers is None and programs == [0]:
            numbers = None
        else:
            writers = pa.repeat(pa.scalar(0, pa.int32()), len(values)) if framed.writers is None else framed.writers
            numbers = pa.array(programs, pa.int32()).take(writers)
        decoded = self._decoder.decode(values, framed.starts, numbers)
        malformed = framed.slice(0, len(decoded.values)).all_malformed(reasons, decoded.malformed)
        return DecodedValues(decoded.values if self._has_structs else decoded.values.flatten()[0], malformed)

    def with_original_bytes(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.StructArray:
        """Add the field for original bytes, if the type has it."""
        if self._bytes_index is None:
            return structs
        return add_original_bytes(structs, self._type, self._bytes_index, values, malformed)

    def _program(self, schema_id: int | str) -> int:
        number = self._programs.get(schema_id)
        if number is None:
            writer = self._settings.writers.writer_schema(schema_id)
            program = resolve_column(writer.root, self._settings.reader.root, self._fields)
            number = self._programs[schema_id] = self._decoder.add_program(program)
        return number
