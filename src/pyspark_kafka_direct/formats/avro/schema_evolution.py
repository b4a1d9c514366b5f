"""The fields of a writer schema that a reader schema lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.formats.avro.avro_types import ArrayType, MapType, RecordType, without_null
from pyspark_kafka_direct.formats.avro.wanted_fields import find_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.formats.avro.avro_types import AvroType


def new_fields(writer: AvroType, reader: AvroType) -> Iterator[str]:
    """Yield the paths of fields that only the writer's schema has, such as ``address.street``; unions are not compared.

    A field that has another name in the reader's schema is found by its aliases.
    """
    return _new_fields(writer, reader, set())


def _new_fields(writer: AvroType, reader: AvroType, recursive: set[tuple[str, str]]) -> Iterator[str]:
    writer_type, reader_type = without_null(writer).type, without_null(reader).type
    match writer_type, reader_type:
        case ArrayType(writer_items), ArrayType(reader_items):
            yield from _new_fields(writer_items, reader_items, recursive)
        case MapType(writer_values), MapType(reader_values):
            yield from _new_fields(writer_values, reader_values, recursive)
        case RecordType(), RecordType():
            records = (writer_type.name, reader_type.name)
            if records in recursive:
                return
            if writer_type.is_recursive or reader_type.is_recursive:
                recursive.add(records)
            for field in writer_type.fields:
                target = find_field(reader_type, field.name)
                if target is None:
                    yield field.name
                else:
                    yield from (f"{field.name}.{path}" for path in _new_fields(field.type, target.type, recursive))
