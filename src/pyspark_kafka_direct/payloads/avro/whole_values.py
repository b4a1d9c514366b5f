"""Schemas that are not records, as those of most keys: a value is decoded as the only field of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.avro.avro_types import AvroType, RecordField, RecordType, without_null
from pyspark_kafka_direct.payloads.avro.resolution import resolve
from pyspark_kafka_direct.payloads.payload_column import WantedFields, wanted_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.avro_values import AvroProgram

_FIELD: Final = ""  # messages do not show it


def is_record(schema: AvroType) -> bool:
    """Return whether values are structs of named fields: the schema is a record, or a union of null and a record."""
    return isinstance(without_null(schema).type, RecordType)


def column_fields(reader: AvroType, data_type: pa.DataType, corrupt_record: str) -> WantedFields:
    """Return the fields that a decoder decodes for a column."""
    import pyarrow as pa

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
