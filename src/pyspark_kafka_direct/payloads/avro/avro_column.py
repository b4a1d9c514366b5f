"""A column of Avro that is decoded: a framing, writer schemas, and a reader schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.avro.avro_types import (
    AvroSchemaError,
    AvroType,
    RecordField,
    RecordType,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.avro_values import CONVERSION_MESSAGES, MESSAGES, AvroDecoder, Reason
from pyspark_kafka_direct.payloads.avro.resolution import resolve
from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn, WantedFields, wanted_fields
from pyspark_kafka_direct.payloads.writer_schemas import (
    NO_ID,
    FramedValues,
    WriterSchemaError,
    most_frequent_first,
    other_id,
    schema_label,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.avro.avro_values import AvroProgram
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.decoded_values import MalformedValues
    from pyspark_kafka_direct.payloads.writer_schemas import Framing

_CHANGES: Final = {
    Reason.NO_DEFAULT: "give the missing field a default",
    Reason.UNREADABLE: "use a type as which the field can be read, such as a union",
    Reason.SYMBOL: "add the symbol or a default to the enum",
}

_MAX_SHOWN: Final = 5  # parts of a schema that messages name

# A value that is no record, as most keys, is decoded as the only field of a record. Messages do not show its name.
_FIELD: Final = ""


class WriterSchemas(Protocol):
    """Returns the schemas that datums were written with. Pickled into tasks."""

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return a schema; a WriterSchemaError makes the datums with this id malformed."""
        ...


@dataclass(frozen=True, slots=True)
class AvroSettings:
    """Settings with which a task decodes a column. Pickled into tasks."""

    reader: AvroSchema
    framing: Framing
    writers: WriterSchemas
    source: str = ""  # where the reader schema is from, for errors


@dataclass(frozen=True, slots=True)
class NoFraming:
    """A ``Framing`` without ids: each value is a datum of the same schema."""

    needs_headers: bool = False

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> FramedValues:
        """Return the values as they are."""
        return FramedValues(values, starts=None, writers=None, schema_ids=(NO_ID,), malformed=None)


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """A ``WriterSchemas`` with one schema; with an id, datums with another id are malformed."""

    schema: AvroSchema
    schema_id: int | str | None = None

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return the schema."""
        if self.schema_id not in (None, schema_id):
            raise other_id(schema_id, self.schema_id)
        return self.schema


def given_schema(schema: AvroSchema) -> AvroSettings:
    """Return the settings of a column whose values are datums of one schema."""
    return AvroSettings(schema, NoFraming(), GivenSchema(schema))


class _IncompatibleSchema(NamedTuple):
    reasons: frozenset[str]  # that the decoder reports for datums with the parts that cannot be read
    advice: str


class AvroColumn(PayloadColumn):
    """Decodes Avro. Its values are structs if the reader schema is a record."""

    format_name = "Avro"
    conversion_reasons = CONVERSION_MESSAGES

    def __init__(self, data_type: pa.DataType, settings: AvroSettings, corrupt_record: str = "") -> None:
        self._settings = settings
        self._fields, bytes_index = column_fields(settings.reader.root, data_type, corrupt_record)
        super().__init__(data_type, bytes_index)
        self._has_structs = is_record(settings.reader.root)
        self.shows_malformed = bytes_index is not None
        self._decoder = AvroDecoder(self._fields)  # to structs, also of values that are not records
        self._programs: dict[int | str, int] = {}  # the decoder's number of the program, by writer schema id
        self._incompatible: dict[int | str, _IncompatibleSchema] = {}  # by writer schema id
        self.needs_headers = settings.framing.needs_headers

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        framed = self._settings.framing.split(values, headers)
        programs, problems = self._find_programs(framed)
        if framed.writers is None and programs == [0]:
            programs_of_rows = None  # the default of the decoder is program 0
        else:
            programs_of_rows = pa.array(programs, pa.int32()).take(framed.writer_indexes())
        decoded = self._decoder.decode(values, framed.starts, programs_of_rows)
        part = framed.slice(0, len(decoded.values))  # the decoder ends early at its memory limit
        malformed = decoded.malformed
        if malformed is not None and self._incompatible:
            malformed = malformed._replace(advice=self._advice(part, malformed))
        malformed = part.merge_malformed(malformed, problems)
        return DecodedValues(decoded.values if self._has_structs else decoded.values.flatten()[0], malformed)

    def _find_programs(self, framed: FramedValues) -> tuple[list[int | None], list[WriterSchemaError | None]]:
        """Return for each of the ``schema_ids`` the number of its program, or why it cannot be decoded."""
        programs: list[int | None] = [None] * len(framed.schema_ids)
        problems: list[WriterSchemaError | None] = [None] * len(framed.schema_ids)
        for index in most_frequent_first(framed.writers, framed.schema_ids, self._programs):
            try:
                programs[index] = self._program(framed.schema_ids[index])
            except WriterSchemaError as error:
                problems[index] = error
        return programs, problems

    def _program(self, schema_id: int | str) -> int:
        """Return the number of a program, which is made for the first value with this schema."""
        number = self._programs.get(schema_id)
        if number is not None:
            return number
        writer = self._settings.writers.writer_schema(schema_id)
        try:
            program = resolve_column(writer.root, self._settings.reader.root, self._fields)
        except AvroSchemaError as error:
            advice = f"{self._misfit(schema_id)}: change the schema of the query, or read fewer fields"
            raise WriterSchemaError(str(error), advice) from None
        if program.incompatibilities:  # with which only some datums are malformed
            texts = [each.text for each in program.incompatibilities]
            shown = "; ".join(texts[:_MAX_SHOWN]) + ("; ..." if len(texts) > _MAX_SHOWN else "")
            reasons = dict.fromkeys(each.reason for each in program.incompatibilities)
            changes = ", ".join(_CHANGES[reason] for reason in reasons)
            self._incompatible[schema_id] = _IncompatibleSchema(
                frozenset(MESSAGES[reason] for reason in reasons),
                f"{self._misfit(schema_id)}: {shown}. In the schema of the query, {changes}, or do not read the field",
            )
        number = self._programs[schema_id] = self._decoder.add_program(program)
        return number

    def _misfit(self, schema_id: int | str) -> str:
        source = f" ({self._settings.source})" if self._settings.source else ""
        return f"{schema_label(schema_id)} does not fit the schema of the query{source}"

    def _advice(self, framed: FramedValues, malformed: MalformedValues) -> pa.StringArray:
        """Return what to change for those datums that a part of their schema makes malformed."""
        schemas = [self._incompatible.get(schema_id) for schema_id in framed.schema_ids]
        writers = framed.known_writers()
        advice: pa.Array = pa.nulls(len(framed.values), pa.string())
        for reason in set().union(*(schema.reasons for schema in schemas if schema)):
            texts = [schema.advice if schema and reason in schema.reasons else None for schema in schemas]
            has_reason = pc.equal(malformed.reasons.dictionary_decode(), reason)
            advice = pc.if_else(has_reason, pa.array(texts, pa.string()).take(writers), advice)
        return advice


def is_record(schema: AvroType) -> bool:
    """Return whether values are structs of named fields: the schema is a record, or a union of null and a record."""
    return isinstance(without_null(schema).type, RecordType)


def column_fields(reader: AvroType, data_type: pa.DataType, corrupt_record: str) -> WantedFields:
    """Return the fields that a decoder decodes for a column."""
    if is_record(reader):
        return wanted_fields(pa.schema(list(data_type)), corrupt_record)
    return WantedFields(pa.schema([pa.field(_FIELD, data_type)]), None)


def resolve_column(writer: AvroType, reader: AvroType, fields: pa.Schema) -> AvroProgram:
    """Return the program for the datums of a writer schema; ``fields`` are those of ``column_fields``."""
    if is_record(reader):
        return resolve(writer, reader, fields)
    return resolve(_in_record(writer), _in_record(reader), fields)


def _in_record(schema: AvroType) -> RecordType:
    """Return a record whose datums have the same bytes."""
    return RecordType(_FIELD, (), (RecordField(_FIELD, (), schema),))
