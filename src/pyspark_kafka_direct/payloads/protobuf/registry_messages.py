"""The Protobuf schemas of a registry: those of writers, by ids and message indexes, and those of readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import SchemaError
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.payloads.framing import NO_MESSAGE
from pyspark_kafka_direct.payloads.protobuf.given_message import named_message
from pyspark_kafka_direct.payloads.protobuf.proto_types import UNKNOWN, ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, source_schema
from pyspark_kafka_direct.payloads.registered_writers import check_new_parts, fetch_writer_schema
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError, schema_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoField, ProtoMessage
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

# Types with the same wire type that write a number in different ways.
_ZIGZAG: Final = ("sint32", "sint64")
_FLOATS: Final = ("float", "double")

# Other types that all values of a type can be read as.
_WIDER: Final = {
    "bool": ("int32", "int64", "uint32", "uint64"),
    "int32": ("int64",),
    "uint32": ("int64", "uint64"),
    "sint32": ("sint64",),
    "enum": ("int32", "int64"),
    "string": ("bytes",),
}


@dataclass(frozen=True, slots=True)
class WriterMessages:
    """Finds out whether the messages of a writer can be read as those of the reader. Pickled into tasks."""

    settings: RegistrySettings
    reader: ProtobufSource
    source: str = ""  # where the reader's schema is from, for errors
    fails_at_new_fields: bool = False  # the query, if a writer has fields or values that the reader lacks
    is_given: bool = False  # whether an option has the reader's schema, so that it is not one of the registry

    def check(self, schema_id: int | str, indexes: tuple[int, ...], wanted: Iterable[pa.Field]) -> None:
        """Raise a WriterSchemaError if the wanted fields cannot be read; another error without a registry."""
        schema = fetch_writer_schema(self.settings, schema_id, self._writer_schema)
        if indexes == NO_MESSAGE:  # the framing has made the values malformed, but an unknown id is the better reason
            return
        reader_schema = source_schema(self.reader)
        reader = reader_schema.message(self.reader.message)
        writer = named_message(schema, schema_id, indexes, reader.name)
        schemas = schema, writer, reader_schema, reader
        if self.fails_at_new_fields:
            check_new_parts(lambda: f"schema id {schema_id}", self.source, _new_fields(*schemas), _new_values(*schemas))
        misread = next(_misread_fields(*schemas, wanted), None)
        if misread is not None:
            query = f"the schema of the query{f' ({self.source})' if self.source else ''}"
            raise WriterSchemaError(
                f"schema id {schema_id}: {misread}",
                f"{schema_label(schema_id)} does not fit {query}: change the type of the field in one of them, or read "
                "with the other one in a separate query",
            )

    def _writer_schema(self, resolved: ResolvedSchema, where: str) -> ProtobufSchema:
        """Return the schema of a writer; if it cannot be parsed, the one that an option has for the reader.

        A reader's schema of the registry cannot replace it: it may be another version, whose fields have other types.
        """
        source = _source(resolved, where)
        try:
            return source_schema(source)
        except ProtobufSchemaError as error:
            if not self.is_given:
                raise _unusable(where, error) from None
            warn_once(f"{where} cannot be parsed: {error}. Its values are read with {self.source}.")
            return source_schema(self.reader)


def message_source(resolved: ResolvedSchema, where: str, message: str | None = None) -> ProtobufSource:
    """Return the message type of a schema; a SchemaError if it is not Protobuf, or lacks the type."""
    source = _source(resolved, where, message)
    try:
        source_schema(source).message(message)
    except ProtobufSchemaError as error:
        raise _unusable(where, error) from None
    return source


def _unusable(where: str, error: ProtobufSchemaError) -> SchemaError:
    return SchemaError(
        f"{where} cannot be used: {error}; to read it nevertheless, set keySchema or valueSchema to the set of "
        "descriptors of protoc --include_imports --descriptor_set_out"
    )


def _source(resolved: ResolvedSchema, where: str, message: str | None = None) -> ProtobufSource:
    resolved.check_type("PROTOBUF", "of Protobuf", where)
    imports = tuple((dependency.name, dependency.text) for dependency in resolved.dependencies)
    return ProtobufSource(resolved.text, message, imports)


def _misread_fields(
    writer_schema: ProtobufSchema,
    writer: ProtoMessage,
    reader_schema: ProtobufSchema,
    reader: ProtoMessage,
    wanted: Iterable[pa.Field],
) -> Iterator[str]:
    """Yield the fields whose values would be other numbers; most of those with another wire type count as unknown."""
    columns = {field.name: field.type for field in wanted}
    # Protobuf reads fields by their numbers, and columns have the names of the reader.
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
    fields = _fields(writer_schema, writer, reader_schema, reader)
    return (path for path, _, target in fields if target is None)


def _new_values(
    writer_schema: ProtobufSchema, writer: ProtoMessage, reader_schema: ProtobufSchema, reader: ProtoMessage
) -> Iterator[str]:
    """Yield what a field of the writer can be that one of the reader cannot, such as ``color (symbol GREEN)``.

    Such a value would be another one, such as a number without its upper bits, or no value.
    """
    for path, field, target in _fields(writer_schema, writer, reader_schema, reader):
        if target is None or UNKNOWN in (field.type, target.type):
            continue
        if field.type == target.type == "enum":
            known = {number for _, number in reader_schema.enums[target.type_name].values}
            names = writer_schema.enums[field.type_name].values
            yield from (f"{path} (symbol {name})" for name, number in names if number not in known)
        elif field.type != target.type and target.type not in _WIDER.get(field.type, ()):
            yield f"{path} ({field.type} instead of {target.type})"
        if field.repeated and not target.repeated:
            yield f"{path} (repeated)"


def _fields(
    writer_schema: ProtobufSchema, writer: ProtoMessage, reader_schema: ProtobufSchema, reader: ProtoMessage
) -> Iterator[tuple[str, ProtoField, ProtoField | None]]:
    """Yield the paths of the writer's fields, themselves and those of the reader; messages once."""
    seen = {(writer.name, reader.name)}
    pending = [("", writer, reader)]
    while pending:  # a recursion would be as deep as the schemas
        prefix, message, reader_message = pending.pop()
        targets = {field.number: field for field in reader_message.fields}
        for field in message.fields:
            target = targets.get(field.number)
            yield f"{prefix}{field.name}", field, target
            if target is not None and field.type == target.type == "message":
                inner, inner_target = writer_schema.messages[field.type_name], reader_schema.messages[target.type_name]
                if (inner.name, inner_target.name) not in seen:
                    seen.add((inner.name, inner_target.name))
                    pending.append((f"{prefix}{field.name}.", inner, inner_target))
