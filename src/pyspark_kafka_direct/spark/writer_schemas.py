"""Finds the Avro schemas that a query writes with, on the driver: given ones, those of a subject, or of the columns."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.config.registry_settings import LATEST_VERSION
from pyspark_kafka_direct.config.subject_names import subject_name
from pyspark_kafka_direct.errors import (
    ColumnError,
    OptionError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.config.registry_settings import RegistrySettings
    from pyspark_kafka_direct.config.sink_payloads import AvroSinkColumn, SinkPayloads
    from pyspark_kafka_direct.formats.avro.column_encoder import AvroWriteSettings
    from pyspark_kafka_direct.formats.avro.schema import AvroSchema
    from pyspark_kafka_direct.spark.latest_schemas import FoundSchema

_NO_ENCODERS: Final[Mapping[str, AvroWriteSettings]] = {}


class WriterSchema(NamedTuple):
    """A schema, and its identity in a registry if it has one."""

    schema: AvroSchema
    schema_id: int | None = None
    guid: UUID | None = None
    source: str = ""  # for errors


def resolve_writer_schemas(
    payloads: SinkPayloads, columns: StructType | None, topic: str | None
) -> Mapping[str, AvroWriteSettings]:
    """Return how keys and values are encoded as Avro, by column; ``columns`` are those of the frame, if known."""
    if not payloads.columns:
        return _NO_ENCODERS
    settings: dict[str, AvroWriteSettings] = {}
    for column in payloads.columns:
        data_type = None if columns is None else _arrow_type(columns, column.side)
        if columns is not None and data_type is None:
            if column.side == "value":
                continue  # an error that names all columns follows
            raise ColumnError("keyFormat=avro needs a column named key: add it, or remove keyFormat")
        settings[column.side] = _write_settings(payloads, column, data_type, topic)
    return settings


def _write_settings(
    payloads: SinkPayloads, column: AvroSinkColumn, data_type: pa.DataType | None, topic: str | None
) -> AvroWriteSettings:
    from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.formats.avro.column_encoder import AvroWriteSettings, check_encodable
    from pyspark_kafka_direct.formats.framing import HEADER_NAMES, schema_id_prefix, single_object_prefix

    writer = _writer_schema(payloads, column, data_type, topic)
    prefix, header = b"", None
    match column.subject.framing:
        case "confluent" if writer.schema_id is not None:
            prefix = schema_id_prefix(writer.schema_id)
        case "header" if writer.schema_id is not None:
            header = (HEADER_NAMES[column.side], schema_id_prefix(writer.guid or writer.schema_id))
        case "single-object":
            from pyspark_kafka_direct.formats.avro.canonical_form import fingerprint

            prefix = single_object_prefix(fingerprint(writer.schema.root))
    settings = AvroWriteSettings(writer.schema, prefix, header, writer.source)
    if data_type is not None:
        try:
            check_encodable(column.side, settings, data_type)
        except (AvroSchemaError, ValueError) as error:
            raise ColumnError(f"{column.side} attribute cannot be written as Avro: {error}") from None
    return settings


def _writer_schema(
    payloads: SinkPayloads, column: AvroSinkColumn, data_type: pa.DataType | None, topic: str | None
) -> WriterSchema:
    schema = column.schema
    if schema is None and not payloads.use_latest:
        if data_type is None:
            raise OptionError(
                f"{column.side}Schema is missing: the types of the columns are not known before the query starts, so "
                "they do not define a schema. Set it to an Avro schema, or write with the latest one of the subject"
            )
        schema = _derived(column.side, data_type)
    if payloads.registry is None:
        assert schema is not None, "the parser of the options requires it"
        return WriterSchema(_parse(f"{column.side}Schema", schema), source=f"{column.side}Schema")
    if schema is None:
        if column.subject.subject is None and column.subject.strategy != "topic":
            raise OptionError(
                f"{column.side}SubjectNameStrategy={column.subject.strategy} needs the name of the record; set "
                f"{column.side}Subject, or {column.side}Schema to an Avro schema"
            )
        return _of_subject(payloads.registry, _subject(column, topic, ""), column.subject.version)
    parsed = _parse(f"{column.side}Schema", schema)
    subject = _subject(column, topic, getattr(parsed.root, "name", ""))
    return _registered(payloads.registry, subject, schema, payloads.auto_register)


def _subject(column: AvroSinkColumn, topic: str | None, record_name: str) -> str:
    settings = column.subject
    if settings.subject is not None:
        return settings.subject
    if topic is None and settings.strategy != "record":
        raise OptionError(
            f"{column.side}Format=avro: the subject follows from the option topic, but rows name their topics; set "
            f"{column.side}Subject"
        )
    return subject_name(settings.strategy, topic or "", column.side, record_name)


def _of_subject(registry: RegistrySettings, subject: str, version: str) -> WriterSchema:
    """Return a version of a subject. If the registry is down, ``latest`` is the one that was found before."""
    if version != LATEST_VERSION:
        return _fetch_version(registry, subject, version)
    return _as_writer_schema(_found(registry, subject, lambda: _fetch(registry, subject, version)))


def _found(registry: RegistrySettings, key: str, fetch: Callable[[], FoundSchema]) -> FoundSchema:
    """Return what is fetched, or, if the registry is down, what this application has fetched before."""
    from pyspark_kafka_direct.spark.latest_schemas import load_latest, save_latest

    try:
        found = fetch()
    except SchemaRegistryUnavailableError:
        earlier = load_latest(registry, key)
        if earlier is None:
            raise
        return earlier
    save_latest(registry, key, found)
    return found


def _fetch(registry: RegistrySettings, subject: str, version: str) -> FoundSchema:
    from pyspark_kafka_direct.formats.avro.registry_schemas import avro_schema
    from pyspark_kafka_direct.registry.registered_schema import invalid_response
    from pyspark_kafka_direct.registry.registry_client import registry_client
    from pyspark_kafka_direct.spark.latest_schemas import FoundSchema

    try:
        resolved = registry_client(registry).schema_of_subject(subject, version)
    except SchemaNotFoundError as error:
        raise type(error)(
            f"{error.message.rstrip('.')}. Register a schema, or set auto.register.schemas=true to register that of "
            "the column."
        ) from None
    registered = resolved.registered
    if registered.schema_id is None:
        raise invalid_response(f"Subject {subject!r}", "without an id")
    source = f"version {registered.version} of {subject}, schema id {registered.schema_id}"
    schema = avro_schema(resolved, source)
    return FoundSchema(schema.text, schema.references, registered.schema_id, _text(registered.guid), source)


@functools.lru_cache(maxsize=64)  # a version does not change
def _fetch_version(registry: RegistrySettings, subject: str, version: str) -> WriterSchema:
    key = json.dumps([subject, version])
    return _as_writer_schema(_found(registry, key, lambda: _fetch(registry, subject, version)))


def _as_writer_schema(found: FoundSchema) -> WriterSchema:
    from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema

    guid = None if found.guid is None else UUID(found.guid)
    return WriterSchema(parse_avro_schema(found.text, found.references), found.schema_id, guid, found.source)


@functools.lru_cache(maxsize=64)  # the id of a schema does not change
def _registered(registry: RegistrySettings, subject: str, text: str, auto_register: bool) -> WriterSchema:
    """Look a schema up in a subject, or register it."""
    key = json.dumps([subject, "schema", text])
    return _as_writer_schema(_found(registry, key, lambda: _identify(registry, subject, text, auto_register)))


def _identify(registry: RegistrySettings, subject: str, text: str, auto_register: bool) -> FoundSchema:
    from pyspark_kafka_direct.registry.registered_schema import Schema, invalid_response
    from pyspark_kafka_direct.registry.registry_client import registry_client
    from pyspark_kafka_direct.spark.latest_schemas import FoundSchema

    client, schema = registry_client(registry), Schema(text)
    if auto_register:
        schema_id = client.register(subject, schema)
        guid = client.schema_by_id(schema_id).registered.guid  # raises SchemaError if the subject encrypts fields
        return FoundSchema(text, (), schema_id, _text(guid), f"schema id {schema_id} of {subject}")
    try:
        found = client.look_up(subject, schema)
    except SchemaNotFoundError as error:
        raise type(error)(
            f"{error.message.rstrip('.')}. The schema has to be registered in the subject before it is written with: "
            "register it, or set auto.register.schemas=true."
        ) from None
    if found.schema_id is None:
        raise invalid_response(f"Subject {subject!r}", "without an id")
    if found.encryption_rules:
        raise SchemaError(
            f"Subject {subject!r} has rules that encrypt fields or values, which is not supported: they would be "
            "written without encryption."
        )
    return FoundSchema(text, (), found.schema_id, _text(found.guid), f"schema id {found.schema_id} of {subject}")


def _text(guid: UUID | None) -> str | None:
    return None if guid is None else str(guid)


def _parse(name: str, text: str) -> AvroSchema:
    from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema

    try:
        return parse_avro_schema(text)
    except AvroSchemaError as error:
        raise OptionError(f"{name}: {error}") from None


def _derived(side: str, data_type: pa.DataType) -> str:
    from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.formats.avro.derived_schema import derived_schema
    from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema

    try:
        schema = derived_schema(data_type, null_first=True)
        parse_avro_schema(schema)  # names of columns need not be those that Avro allows
    except AvroSchemaError as error:
        raise ColumnError(
            f"{side} attribute cannot be written as Avro: {error}: rename or cast it in the query"
        ) from None
    return schema


def _arrow_type(columns: StructType, side: str) -> pa.DataType | None:
    """Return the Arrow type of a column in a frame, or None if it has no such column."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType

    from pyspark_kafka_direct.spark.spark_versions import arrow_schema_in_utc

    field = next((field for field in columns.fields if field.name == side), None)
    field = field or next((field for field in columns.fields if field.name.lower() == side), None)
    if field is None:
        return None
    try:
        return arrow_schema_in_utc(StructType([StructField(side, field.dataType)])).field(0).type
    except (PySparkException, TypeError, NotImplementedError, ValueError) as error:
        raise ColumnError(f"{side} attribute: {field.dataType.simpleString()} has no Arrow type: {error}") from None
