"""Finds the schemas that a query writes with, on the driver: given ones, those of a subject, or of the columns."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark_kafka_direct.config.registry_settings import LATEST_VERSION
from pyspark_kafka_direct.config.subject_names import is_short_subject, short_subject_advice, subject_name
from pyspark_kafka_direct.errors import (
    ColumnError,
    OptionError,
    SchemaNotFoundError,
    with_advice,
)
from pyspark_kafka_direct.payloads.spark.latest_schemas import FoundSchema, fetch_or_load

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.config.registry_settings import RegistrySettings
    from pyspark_kafka_direct.config.sink_payloads import SinkColumn, SinkFormat, SinkPayloads
    from pyspark_kafka_direct.payloads.avro.write_settings import AvroWriteSettings
    from pyspark_kafka_direct.payloads.column_encoder import WriteSettings
    from pyspark_kafka_direct.payloads.protobuf.write_settings import ProtobufWriteSettings

_NO_ENCODERS: Final[Mapping[str, WriteSettings]] = {}


def resolve_writer_schemas(
    payloads: SinkPayloads, columns: StructType | None, topic: str | None
) -> Mapping[str, WriteSettings]:
    """Return how keys and values are encoded, by column; ``columns`` are those of the frame, if known."""
    if not payloads.columns:
        return _NO_ENCODERS
    settings: dict[str, WriteSettings] = {}
    for column in payloads.columns:
        data_type = None if columns is None else _arrow_type(columns, column.side)
        if columns is not None and data_type is None:
            if column.side == "value":
                continue  # an error that names all columns follows
            raise ColumnError(
                f"keyFormat={column.payload_format} needs a column named key: add it, or remove keyFormat"
            )
        settings[column.side] = _write_settings(payloads, column, data_type, topic)
    return settings


def _write_settings(
    payloads: SinkPayloads, column: SinkColumn, data_type: pa.DataType | None, topic: str | None
) -> WriteSettings:
    from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError, check_encodable

    found = _find_schema(payloads, column, data_type, topic)
    settings = _settings(column, found)
    if data_type is not None:
        try:
            check_encodable(column.side, settings, data_type)
        except (SchemaMismatchError, ValueError) as error:
            raise ColumnError(f"{column.side} attribute cannot be written as {settings.format_name}: {error}") from None
    return settings


def _settings(column: SinkColumn, found: FoundSchema) -> WriteSettings:
    match column.payload_format:
        case "avro":
            return _avro_settings(column, found)
        case "protobuf":
            return _protobuf_settings(column, found)
    from pyspark_kafka_direct.payloads.json.write_settings import JsonWriteSettings

    return JsonWriteSettings(*_id_framing(column, found), found.source, found.text, found.references)


def _id_framing(column: SinkColumn, found: FoundSchema) -> tuple[bytes, tuple[str, bytes] | None]:
    """Return what is in front of values, and the header of records, for the id of a schema."""
    from pyspark_kafka_direct.payloads.framing import HEADER_NAMES, schema_id_prefix

    if found.schema_id is None or column.subject.framing not in ("confluent", "header"):
        return b"", None
    if column.subject.framing == "confluent":
        return schema_id_prefix(found.schema_id), None
    guid = None if found.guid is None else UUID(found.guid)
    return b"", (HEADER_NAMES[column.side], schema_id_prefix(guid or found.schema_id))


def _avro_settings(column: SinkColumn, found: FoundSchema) -> AvroWriteSettings:
    from pyspark_kafka_direct.payloads.avro.canonical_form import fingerprint
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.avro.write_settings import AvroWriteSettings
    from pyspark_kafka_direct.payloads.framing import single_object_prefix

    schema = parse_avro_schema(found.text, [text for _, text in found.references])
    prefix, header = _id_framing(column, found)
    if column.subject.framing == "single-object":
        prefix = single_object_prefix(fingerprint(schema.root))
    return AvroWriteSettings(prefix, header, found.source, schema=schema)


def _protobuf_settings(column: SinkColumn, found: FoundSchema) -> ProtobufWriteSettings:
    from pyspark_kafka_direct.config.payload_settings import ProtobufSource
    from pyspark_kafka_direct.payloads.framing import message_indexes_prefix, schema_id_prefix
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.schema import source_schema
    from pyspark_kafka_direct.payloads.protobuf.write_settings import ProtobufWriteSettings

    source = ProtobufSource(found.text, column.message, found.references)
    schema = source_schema(source)
    try:
        name = schema.message(column.message).name
    except ProtobufSchemaError as error:
        raise OptionError(f"{column.side}Message: {error}") from None
    prefix = b""
    if column.subject.framing == "confluent" and found.schema_id is not None:
        indexes = schema.message_indexes(name)
        if indexes is None:
            raise OptionError(
                f"{column.side}Message: {name} is a group, or in a file that the schema imports, so it has no message "
                "indexes; write with the schema that defines it as a message"
            )
        prefix = schema_id_prefix(found.schema_id) + message_indexes_prefix(indexes)
    return ProtobufWriteSettings(prefix, None, found.source, schema=source)


def _find_schema(
    payloads: SinkPayloads, column: SinkColumn, data_type: pa.DataType | None, topic: str | None
) -> FoundSchema:
    schema = column.schema
    if schema is None and not payloads.use_latest:
        if data_type is None:
            raise OptionError(
                f"{column.side}Schema is missing: the types of the columns are not known before the query starts, so "
                "they do not define a schema. Set it to an Avro schema, or write with the latest one of the subject"
            )
        schema = _derived(column.side, data_type)
    registry = payloads.registry
    if registry is None:
        assert schema is not None, "the parser of the options requires it"
        _type_name(column, schema)
        return FoundSchema(schema, source=f"{column.side}Schema")
    if schema is not None:
        subject = _subject(column, topic, _type_name(column, schema))
        _check_registrable(column, schema)
        return _registered(registry, subject, schema, payloads.auto_register, column.payload_format)
    subject, version = _subject(column, topic, column.message or ""), column.subject.version
    key = json.dumps([column.payload_format, subject])
    try:
        if version != LATEST_VERSION:
            return _fetch_version(registry, subject, version, column.payload_format)
        return fetch_or_load(registry, key, lambda: _fetch(registry, subject, version, column.payload_format))
    except SchemaNotFoundError as error:
        raise with_advice(error, _advice(column, has_type=data_type is not None)) from None


def _advice(column: SinkColumn, *, has_type: bool) -> str:
    """Return what to do if the registry does not have the version of a subject."""
    side, subject = column.side, column.subject
    if is_short_subject(subject, column.message):
        return short_subject_advice(side, subject)
    if subject.version != LATEST_VERSION:
        return f"Set {side}Subject and {side}SchemaVersion to those of a schema."
    if column.payload_format == "avro" and has_type:
        return "Register a schema, or set auto.register.schemas=true to register that of the column."
    return f"Register a schema, or set {column.schema_option} and auto.register.schemas=true to register it."


def _unnamed(column: SinkColumn) -> OptionError:
    kind, option = {
        "avro": ("name of the record", "Schema to an Avro schema that has one"),
        "protobuf": ("name of the message", "Message"),
        "json": ("title of the JSON Schema", "Schema to a JSON Schema that has one"),
    }[column.payload_format]
    return OptionError(
        f"{column.side}SubjectNameStrategy={column.subject.strategy} needs the {kind}; set {column.side}Subject, or "
        f"{column.side}{option}"
    )


def _subject(column: SinkColumn, topic: str | None, record_name: str) -> str:
    settings = column.subject
    if settings.subject is not None:
        return settings.subject
    if settings.strategy != "topic" and not record_name:
        raise _unnamed(column)
    if topic is None and settings.strategy != "record":
        raise OptionError(
            f"{column.side}Format={column.payload_format}: the subject follows from the option topic, but rows name "
            f"their topics; set {column.side}Subject"
        )
    return subject_name(settings.strategy, topic or "", column.side, record_name)


def _fetch(registry: RegistrySettings, subject: str, version: str, payload_format: SinkFormat) -> FoundSchema:
    from pyspark_kafka_direct.payloads.registry.registered_schema import invalid_response
    from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

    resolved = registry_client(registry).schema_of_subject(subject, version)
    registered = resolved.registered
    if registered.schema_id is None:
        raise invalid_response(f"Subject {subject!r}", "without an id")
    source = f"version {registered.version} of {subject}, schema id {registered.schema_id}"
    if payload_format == "avro":
        from pyspark_kafka_direct.payloads.avro.registry_schemas import avro_schema

        avro_schema(resolved, source)
    elif payload_format == "json":
        resolved.check_type("JSON", "a JSON Schema", source)
    else:
        from pyspark_kafka_direct.payloads.protobuf.registry_messages import message_source

        message_source(resolved, source)
    references = tuple((dependency.name, dependency.text) for dependency in resolved.dependencies)
    return FoundSchema(resolved.text, references, registered.schema_id, _text(registered.guid), source)


@functools.lru_cache(maxsize=64)  # a version does not change
def _fetch_version(registry: RegistrySettings, subject: str, version: str, payload_format: SinkFormat) -> FoundSchema:
    key = json.dumps([payload_format, subject, version])
    return fetch_or_load(registry, key, lambda: _fetch(registry, subject, version, payload_format))


@functools.lru_cache(maxsize=64)  # the id of a schema does not change
def _registered(
    registry: RegistrySettings, subject: str, text: str, auto_register: bool, payload_format: SinkFormat
) -> FoundSchema:
    """Look a schema up in a subject, or register it."""
    key = json.dumps([payload_format, subject, "schema", text])
    return fetch_or_load(registry, key, lambda: _identify(registry, subject, text, auto_register, payload_format))


def _identify(
    registry: RegistrySettings, subject: str, text: str, auto_register: bool, payload_format: SinkFormat
) -> FoundSchema:
    from pyspark_kafka_direct.payloads.registry.registered_schema import Schema, check_encryption, invalid_response
    from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

    client, schema = registry_client(registry), Schema(text, payload_format.upper())
    if auto_register:
        schema_id = client.register(subject, schema)
        guid = client.schema_by_id(schema_id).registered.guid  # raises SchemaError if the subject encrypts fields
        return FoundSchema(text, (), schema_id, _text(guid), f"schema id {schema_id} of {subject}")
    try:
        found = client.look_up(subject, schema)
    except SchemaNotFoundError as error:
        advice = "register it, or set auto.register.schemas=true."
        raise with_advice(
            error, f"The schema has to be registered in the subject before it is written with: {advice}"
        ) from None
    if found.schema_id is None:
        raise invalid_response(f"Subject {subject!r}", "without an id")
    check_encryption(found.encryption_rules, f"Subject {subject!r}")
    return FoundSchema(text, (), found.schema_id, _text(found.guid), f"schema id {found.schema_id} of {subject}")


def _text(guid: UUID | None) -> str | None:
    return None if guid is None else str(guid)


def _type_name(column: SinkColumn, text: str) -> str:
    """Return the name of the record or message, or the title, of a given schema; an error if it is not valid."""
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.json.write_settings import JsonSchemaError, json_schema_title
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema

    try:
        if column.payload_format == "json":
            return json_schema_title(text)
        if column.payload_format == "avro":
            return getattr(parse_avro_schema(text).root, "name", "")
        schema = parse_protobuf_schema(text)
    except (AvroSchemaError, ProtobufSchemaError, JsonSchemaError) as error:
        raise OptionError(f"{column.side}Schema: {error}") from None
    try:
        return schema.message(column.message).name
    except ProtobufSchemaError as error:
        raise OptionError(f"{column.side}Message: {error}") from None


def _check_registrable(column: SinkColumn, text: str) -> None:
    """Raise an error if a registry does not take a given schema that is valid."""
    from pyspark_kafka_direct.payloads.protobuf.schema import is_descriptor_set

    if column.payload_format == "protobuf" and is_descriptor_set(text):
        raise OptionError(
            f"{column.side}Schema is a set of descriptors, but a schema registry has files one by one. Set it to the "
            f"text of a .proto file, or register the files and write with the schema of the subject, without "
            f"{column.side}Schema"
        )


def _derived(side: str, data_type: pa.DataType) -> str:
    from pyspark_kafka_direct.payloads.avro.derived_schema import derived_schema
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.avro.write_settings import AvroWriteSettings
    from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError, encodable_type

    try:
        schema = derived_schema(encodable_type(data_type, AvroWriteSettings.format_name, side), null_first=True)
        parse_avro_schema(schema)  # names of columns need not be those that Avro allows
    except SchemaMismatchError as error:
        raise ColumnError(f"{side} attribute cannot be written as Avro: {error}") from None
    except ValueError as error:  # also AvroSchemaError
        raise ColumnError(
            f"{side} attribute cannot be written as Avro: {error}: rename or cast it in the query"
        ) from None
    return schema


def _arrow_type(columns: StructType, side: str) -> pa.DataType | None:
    """Return the Arrow type of a column in a frame, or None if it has no such column."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType

    from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

    field = next((field for field in columns.fields if field.name == side), None)
    field = field or next((field for field in columns.fields if field.name.lower() == side), None)
    if field is None:
        return None
    try:
        return arrow_schema_in_utc(StructType([StructField(side, field.dataType)])).field(0).type
    except (PySparkException, TypeError, NotImplementedError, ValueError) as error:
        raise ColumnError(f"{side} attribute: {field.dataType.simpleString()} has no Arrow type: {error}") from None
