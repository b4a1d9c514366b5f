"""Finds the schemas to write with: given ones, those of a subject, or of the columns."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import (
    ColumnError,
    OptionError,
    SchemaNotFoundError,
    with_advice,
)
from pyspark_kafka_direct.options.payload_formats import format_row
from pyspark_kafka_direct.options.payload_settings import (
    LATEST_VERSION,
    is_short_subject,
    short_subject_advice,
    subject_name,
)
from pyspark_kafka_direct.payloads.latest_schemas import NOT_SAVED, FoundSchema, LatestSchemas, fetch_version
from pyspark_kafka_direct.payloads.payload_format import DerivedSchemaFormat, schema_format, writable_format
from pyspark_kafka_direct.payloads.write_schema import column_position

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.options.payload_settings import SidePayload
    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.options.sink_payloads import SinkPayloads
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings

_NO_ENCODERS: Final[Mapping[str, EncoderSettings]] = {}


def resolve_writer_schemas(
    payloads: SinkPayloads, columns: pa.Schema | None, topic: str | None, latest: LatestSchemas = NOT_SAVED
) -> Mapping[str, EncoderSettings]:
    """Return how keys and values are encoded, by column; ``columns`` are those that are written, if known."""
    if not payloads.sides:
        return _NO_ENCODERS
    settings: dict[str, EncoderSettings] = {}
    for payload in payloads.sides:
        position = None if columns is None else column_position(columns.names, payload.side)
        data_type = None if columns is None or position is None else columns.field(position).type
        if columns is not None and data_type is None:
            if payload.side == "value":
                continue  # an error that names all columns follows
            raise ColumnError(f"keyFormat={payload.format} needs a column named key: add it, or remove keyFormat")
        settings[payload.side] = _encoder_settings(payloads, payload, data_type, topic, latest)
    return settings


def _encoder_settings(
    payloads: SinkPayloads,
    payload: SidePayload,
    data_type: pa.DataType | None,
    topic: str | None,
    latest: LatestSchemas,
) -> EncoderSettings:
    from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError, check_encodable

    if format_row(payload.format).has_schema:
        found = _find_schema(payloads, payload, data_type, topic, latest)
        # Values have the id in front of them. A header has the GUID, if there is one.
        schema_id = found.guid if payload.framing == "header" and found.guid is not None else found.schema_id
        payload = replace(
            payload, schema=found.text, references=found.references, source=found.source, schema_id=schema_id
        )
    settings = writable_format(payload.format).encoder_settings(payload)
    if data_type is not None:
        try:
            check_encodable(payload.side, settings, data_type)
        except (SchemaMismatchError, ValueError) as error:
            raise ColumnError(
                f"{payload.side} attribute cannot be written as {settings.format_name}: {error}"
            ) from None
    return settings


def _find_schema(
    payloads: SinkPayloads,
    payload: SidePayload,
    data_type: pa.DataType | None,
    topic: str | None,
    latest: LatestSchemas,
) -> FoundSchema:
    """Return the schema that is given, derived from the column, or that of a version of the subject."""
    format_code, side = schema_format(payload.format), payload.side
    if payload.schema is None and not payloads.use_latest:
        if data_type is None:
            raise OptionError(
                f"{side}Schema is missing: the types of the columns are not known before the query starts, so "
                "they do not define a schema. Set it to an Avro schema, or write with the latest one of the subject"
            )
        assert isinstance(format_code, DerivedSchemaFormat), "the parser of the options requires a schema of others"
        payload = replace(payload, schema=format_code.derived_schema(data_type, side))
    registry = payloads.registry
    if payload.schema is not None:
        name = format_code.schema_name(payload)  # an error if the schema is not valid
        if registry is None:
            return FoundSchema(payload.schema, source=payload.schema_option)
        subject = _subject(payload, topic, name)
        format_code.check_registrable(payload)
        return _registered(latest, registry, subject, payload, registers=payloads.auto_register)
    assert registry is not None, "the parser of the options requires it"
    try:
        return _version_of_subject(registry, payload, topic, latest)
    except SchemaNotFoundError as error:
        advice = _advice(payload, payloads.schema_argument or payload.schema_option, has_type=data_type is not None)
        raise with_advice(error, advice) from None


def _version_of_subject(
    registry: RegistrySettings, payload: SidePayload, topic: str | None, latest: LatestSchemas
) -> FoundSchema:
    """Return the version of a subject that a side names, which may be ``latest``."""
    subject = _subject(payload, topic, record_name=payload.message or "")
    wanted = replace(payload, message=None)  # checked later, because the error about it has to name its option
    if payload.version != LATEST_VERSION:
        return _fetch_version(latest, registry, subject, wanted)
    key = json.dumps([payload.format, subject])
    return latest.fetch_or_load(registry, key, lambda: fetch_version(registry, subject, wanted))


def _advice(payload: SidePayload, schema_option: str, *, has_type: bool) -> str:
    """Return what to do if the registry does not have the version of a subject."""
    side = payload.side
    if is_short_subject(payload):
        return short_subject_advice(payload)
    if payload.version != LATEST_VERSION:
        return f"Set {side}Subject and {side}SchemaVersion to those of a schema."
    if format_row(payload.format).derives_schema and has_type:
        return "Register a schema, or set auto.register.schemas=true to register that of the column."
    return f"Register a schema, or set {schema_option} and auto.register.schemas=true to register it."


def _subject(payload: SidePayload, topic: str | None, record_name: str) -> str:
    """Return the subject that is set, or the one that follows from the strategy."""
    side = payload.side
    if payload.subject is not None:
        return payload.subject
    if payload.strategy != "topic" and not record_name:
        format_code = schema_format(payload.format)
        raise OptionError(
            f"{side}SubjectNameStrategy={payload.strategy} needs the {format_code.type_name}; set {side}Subject, or "
            f"{side}{format_code.name_advice}"
        )
    if topic is None and payload.strategy != "record":
        raise OptionError(
            f"{side}Format={payload.format}: the subject follows from the option topic, but rows name their topics; "
            f"set {side}Subject"
        )
    return subject_name(payload.strategy, topic or "", side, record_name)


@functools.lru_cache(maxsize=64)  # a version does not change
def _fetch_version(
    latest: LatestSchemas, registry: RegistrySettings, subject: str, payload: SidePayload
) -> FoundSchema:
    """Return a version that is not ``latest``, which a process requests once."""
    key = json.dumps([payload.format, subject, payload.version])
    return latest.fetch_or_load(registry, key, lambda: fetch_version(registry, subject, payload))


@functools.lru_cache(maxsize=64)  # the id of a schema does not change
def _registered(
    latest: LatestSchemas, registry: RegistrySettings, subject: str, payload: SidePayload, *, registers: bool
) -> FoundSchema:
    """Look the schema of a side up in a subject, or register it."""
    key = json.dumps([payload.format, subject, "schema", payload.schema])
    return latest.fetch_or_load(registry, key, lambda: _identify(registry, subject, payload, registers=registers))


def _identify(registry: RegistrySettings, subject: str, payload: SidePayload, *, registers: bool) -> FoundSchema:
    """Request the id of a schema, which has no references, because the text is all that a user gives."""
    from pyspark_kafka_direct.payloads.registry.registered_schema import Schema, check_encryption, invalid_response
    from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

    client, schema = registry_client(registry), Schema(payload.schema or "", payload.format.upper())
    if registers:
        schema_id = client.register(subject, schema)
        guid = client.schema_by_id(schema_id).registered.guid  # raises SchemaError if the subject encrypts fields
        return _identified_schema(schema.text, schema_id, guid, subject)
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
    return _identified_schema(schema.text, found.schema_id, found.guid, subject)


def _identified_schema(text: str, schema_id: int, guid: UUID | None, subject: str) -> FoundSchema:
    return FoundSchema(
        text,
        schema_id=schema_id,
        guid=None if guid is None else str(guid),
        source=f"schema id {schema_id} of {subject}",
    )
