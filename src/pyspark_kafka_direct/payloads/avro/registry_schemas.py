"""The Avro schemas of a registry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import SchemaError, SchemaRegistryError
from pyspark_kafka_direct.payloads.avro.avro_types import (
    NULL,
    ArrayType,
    AvroSchemaError,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
    type_name,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.resolution import PROMOTIONS, is_nanos, matching_branch, same_name
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type
from pyspark_kafka_direct.payloads.avro.wanted_fields import find_field
from pyspark_kafka_direct.payloads.registered_writers import check_new_parts, fetch_writer_schema
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroType
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_MAX_SHOWN_VERSIONS: Final = 5


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """A ``WriterSchemas``. With ``reader``, a writer schema that has what the reader's lacks fails the query."""

    settings: RegistrySettings
    reader: AvroSchema | None = None  # None: new fields and values do not matter
    source: str = ""  # where the reader is from, for errors

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return the schema with an id or GUID, which a process requests once."""
        schema = fetch_writer_schema(self.settings, schema_id, avro_schema)
        if self.reader is not None:
            self._check_evolution(schema_id, schema, self.reader)
        return schema

    def _check_evolution(self, schema_id: int | str, writer: AvroSchema, reader: AvroSchema) -> None:
        roots = writer.root, reader.root
        check_new_parts(
            lambda: f"schema id {schema_id}{self._versions(schema_id)}",
            self.source,
            new_fields(*roots),
            new_values(*roots),
        )

    def _versions(self, schema_id: int | str) -> str:
        """Return the subjects and versions of a schema for an error, or nothing if they are not available."""
        if not isinstance(schema_id, int):
            return ""
        try:
            versions = registry_client(self.settings).versions_of_id(schema_id)
        except SchemaRegistryError:
            return ""
        return "".join(f", version {version} of {subject}" for subject, version in versions[:_MAX_SHOWN_VERSIONS])


def avro_schema(resolved: ResolvedSchema, source: str) -> AvroSchema:
    """Return the parsed schema; a SchemaError if it is not Avro."""
    resolved.check_type("AVRO", "of Avro", source)
    try:
        return _parse(resolved.text, tuple(dependency.text for dependency in resolved.dependencies))
    except AvroSchemaError as error:
        raise SchemaError(f"{source} cannot be used: {error}") from None


@lru_cache(maxsize=64)
def _parse(text: str, references: tuple[str, ...]) -> AvroSchema:
    return parse_avro_schema(text, references)


def new_fields(writer: AvroType, reader: AvroType) -> Iterator[str]:
    """Yield the paths of fields that only the writer's schema has, such as ``address.street``.

    A field that has another name in the reader's schema is found by its aliases.
    """
    return (part.text for part in _Comparison().new_parts(writer, reader, "") if part.is_field)


def new_values(writer: AvroType, reader: AvroType) -> Iterator[str]:
    """Yield what a field of the writer can be that one of the reader cannot, such as ``color (symbol GREEN)``.

    Such a value would be read as a default, or make its datum malformed.
    """
    return (part.text for part in _Comparison().new_parts(writer, reader, "") if not part.is_field)


class _NewPart(NamedTuple):
    text: str  # the path of a field; of a value also what it is
    is_field: bool


class _Comparison:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()  # pairs of records, which may contain themselves

    def new_parts(self, writer: AvroType, reader: AvroType, path: str) -> Iterator[_NewPart]:
        """Yield what is new in the type of the field at ``path``, which is empty for the whole value."""
        if isinstance(writer, UnionType):
            for branch in writer.branches:
                yield from self.new_parts(branch, reader, path)
            return
        wanted = without_null(reader)
        target = _matching_type(writer, wanted.type)
        is_known = wanted.nullable if writer == NULL else target is not None and _is_readable(writer, target)
        if not is_known:
            if path:  # not for the whole value: with another root type, values are malformed
                instead = "" if writer == NULL or isinstance(wanted.type, UnionType) else f" instead of {_name(target)}"
                yield _NewPart(f"{path} ({_name(writer)}{instead})", is_field=False)
            return
        match writer, target:
            case ArrayType(items), ArrayType(reader_items):
                yield from self.new_parts(items, reader_items, path)
            case MapType(values), MapType(reader_values):
                yield from self.new_parts(values, reader_values, path)
            case EnumType(), EnumType():
                symbols = [symbol for symbol in writer.symbols if symbol not in target.symbols]
                yield from (_NewPart(f"{path} (symbol {symbol})", is_field=False) for symbol in symbols)
            case RecordType(), RecordType() if (writer.name, target.name) not in self._seen:
                self._seen.add((writer.name, target.name))
                yield from self._new_parts_of_record(writer, target, f"{path}." if path else "")

    def _new_parts_of_record(self, writer: RecordType, reader: RecordType, prefix: str) -> Iterator[_NewPart]:
        for field in writer.fields:
            found = find_field(reader, field.name)
            if found is None:
                yield _NewPart(f"{prefix}{field.name}", is_field=True)
            else:
                yield from self.new_parts(field.type, found.type, f"{prefix}{field.name}")


def _matching_type(writer: AvroType, reader: AvroType | None) -> AvroType | None:
    """Return the type that a value is read as: of a union, the branch that matches, or None if there is none."""
    if not isinstance(reader, UnionType):
        return reader
    index = matching_branch(writer, reader.branches)
    return None if index is None else reader.branches[index]


def _is_readable(writer: AvroType, target: AvroType) -> bool:
    """Return whether all values of a type can be read as the other one; what is in them is compared separately."""
    match writer, target:
        case PrimitiveType(name), PrimitiveType(other):
            is_same_or_wider = name == other or other in PROMOTIONS.get(name, ())
            # Nanoseconds are not converted: they are numbers, and no timestamps in another unit.
            has_unit = not is_nanos(writer) or is_nanos(target) or logical_type(target) is None
            return is_same_or_wider and has_unit and _has_digits_of(writer, target)
        case FixedType(), FixedType():
            return same_name(writer, target) and writer.size == target.size and _has_digits_of(writer, target)
        case EnumType(), EnumType():
            return same_name(writer, target)
    return type(writer) is type(target)


def _has_digits_of(writer: AvroType, target: AvroType) -> bool:
    """Return whether a decimal of the reader has the scale of the writer's, and no less digits."""
    written, read = logical_type(writer), logical_type(target)
    if written is None or read is None or not written.name == read.name == "decimal":
        return True
    return written.scale == read.scale and written.precision <= read.precision


def _name(avro_type: AvroType | None) -> str:
    if avro_type is None:
        return "null"
    logical = logical_type(avro_type)
    return str(logical) if logical is not None and logical.name == "decimal" else type_name(avro_type)
