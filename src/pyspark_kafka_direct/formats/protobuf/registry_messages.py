"""The Protobuf schemas of a registry: those of writers, by ids and message indexes, and those of readers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark_kafka_direct.config.payload_settings import ProtobufSource
from pyspark_kafka_direct.errors import SchemaError, SchemaNotFoundError
from pyspark_kafka_direct.formats.protobuf.given_message import named_message
from pyspark_kafka_direct.formats.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.formats.protobuf.schema import source_schema
from pyspark_kafka_direct.registry.registry_client import registry_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.config.registry_settings import RegistrySettings
    from pyspark_kafka_direct.formats.protobuf.proto_types import ProtobufSchema, ProtoMessage
    from pyspark_kafka_direct.registry.registered_schema import ResolvedSchema

_MAX_SHOWN_FIELDS: Final = 5

# Types with the same wire type that write a number in different ways.
_ZIGZAG: Final = ("sint32", "sint64")
_FLOATS: Final = ("float", "double")


@dataclass(frozen=True, slots=True)
class WriterMessages:
    """Finds out whether the messages of a writer can be read as those of the reader. Pickled into tasks."""

    settings: RegistrySettings
    reader: ProtobufSource
    source: str = ""  # where the reader's schema is from, for errors
    fails_at_new_fields: bool = False  # the query, if a writer has fields that the reader lacks
    wanted: Iterable[pa.Field] = ()  # the fields that the query reads

    def problem(self, schema_id: int | str, indexes: tuple[int, ...]) -> str | None:
        """Return why messages cannot be read, or None. A registry that is not available is an error."""
        client = registry_client(self.settings)
        try:
            if isinstance(schema_id, int):
                resolved = client.schema_by_id(schema_id)
            else:
                resolved = client.schema_by_guid(UUID(schema_id))
            schema = source_schema(message_source(resolved, f"schema id {schema_id}"))
        except (SchemaNotFoundError, SchemaError) as error:
            return error.message.rstrip(".")
        reader_schema = source_schema(self.reader)
        reader = reader_schema.message(self.reader.message)
        writer = named_message(schema, schema_id, indexes, reader.name)
        if isinstance(writer, str):
            return writer
        misread = next(_misread_fields(schema, writer, reader_schema, reader, self.wanted), None)
        if misread is not None:
            return f"schema id {schema_id}: {misread}"
        if self.fails_at_new_fields:
            self._check_new_fields(schema_id, _new_fields(schema, writer, reader_schema, reader))
        return None

    def _check_new_fields(self, schema_id: int | str, new_fields: Iterator[str]) -> None:
        fields = list(itertools.islice(new_fields, _MAX_SHOWN_FIELDS + 1))
        if fields:
            shown = ", ".join(fields[:_MAX_SHOWN_FIELDS]) + (", ..." if len(fields) > _MAX_SHOWN_FIELDS else "")
            raise SchemaError(
                f"The schema of the writer (schema id {schema_id}) has fields that the schema of the query "
                f"({self.source}) lacks: {shown}. To read them, start the query again with a new load(). To ignore "
                "them, set schemaEvolutionMode=none."
            )


def fetch_source(
    settings: RegistrySettings, subject: str, version: str, message: str | None
) -> tuple[ProtobufSource, str]:
    """Return the schema of a subject's version, which may be ``latest``, and where it is from."""
    resolved = registry_client(settings).schema_of_subject(subject, version)
    registered = resolved.registered
    source = message_source(resolved, f"subject {subject!r}", message)
    return source, f"version {registered.version} of {subject}, schema id {registered.schema_id}"


def fetch_source_by_id(settings: RegistrySettings, schema_id: int, message: str | None) -> ProtobufSource:
    """Return the schema with an id that was resolved before."""
    return message_source(registry_client(settings).schema_by_id(schema_id), f"schema id {schema_id}", message)


def message_source(resolved: ResolvedSchema, where: str, message: str | None = None) -> ProtobufSource:
    """Return the message type of a schema; a SchemaError if it is not Protobuf, or lacks the type."""
    resolved.check_type("PROTOBUF", "of Protobuf", where)
    imports = tuple((dependency.name, dependency.text) for dependency in resolved.dependencies)
    source = ProtobufSource(resolved.text, message, imports)
    try:
        source_schema(source).message(message)
    except ProtobufSchemaError as error:
        raise SchemaError(f"{where} cannot be used: {error}") from None
    return source


def _misread_fields(
    writer_schema: ProtobufSchema,
    writer: ProtoMessage,
    reader_schema: ProtobufSchema,
    reader: ProtoMessage,
    wanted: Iterable[pa.Field],
) -> Iterator[str]:
    """Yield the fields whose values would be other numbers; most of those with another wire type count as unknown."""
    columns = {field.name: field.type for field in wanted}
    targets = {field.number: field for field in reader.fields if field.name in columns}
    for field in writer.fields:
        target = targets.get(field.number)
        if target is None:
            continue
        if field.type == target.type == "message":
            inner, inner_target = writer_schema.messages[field.type_name], reader_schema.messages[target.type_name]
            members = _members(columns[target.name], inner_target)
            yield from _misread_fields(writer_schema, inner, reader_schema, inner_target, members)
        elif any((field.type in types) != (target.type in types) for types in (_ZIGZAG, _FLOATS)):
            yield (
                f"field {field.name} of {writer.name} is {field.type}, which cannot be read as the {target.type} of "
                "the schema of the query"
            )


def _members(data_type: pa.DataType, message: ProtoMessage) -> Iterable[pa.Field]:
    """Return the wanted fields of a message, or of the messages in a list or map."""
    import pyarrow as pa

    if message.is_map_entry:
        return (pa.field("key", data_type.key_type), pa.field("value", data_type.item_type))
    if pa.types.is_list(data_type):
        data_type = data_type.value_type
    if pa.types.is_struct(data_type):
        return list(data_type)
    return (pa.field(field.name, data_type) for field in message.fields)  # of a timestamp, duration or wrapper


def _new_fields(
    writer_schema: ProtobufSchema, writer: ProtoMessage, reader_schema: ProtobufSchema, reader: ProtoMessage
) -> Iterator[str]:
    """Yield the paths of fields that only the writer's schema has."""
    seen = {(writer.name, reader.name)}
    pending = [("", writer, reader)]
    while pending:  # a recursion would be as deep as the schemas
        prefix, message, reader_message = pending.pop()
        targets = {field.number: field for field in reader_message.fields}
        for field in message.fields:
            target = targets.get(field.number)
            if target is None:
                yield f"{prefix}{field.name}"
            elif field.type == target.type == "message":
                inner, inner_target = writer_schema.messages[field.type_name], reader_schema.messages[target.type_name]
                if (inner.name, inner_target.name) not in seen:
                    seen.add((inner.name, inner_target.name))
                    pending.append((f"{prefix}{field.name}.", inner, inner_target))
