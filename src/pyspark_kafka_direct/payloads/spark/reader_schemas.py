"""Finds the Avro and Protobuf schemas that a query reads with in a schema registry, on the driver.

Several processes plan a query. The comment of a column contains the id of its schema, so that ``latest`` has the same
meaning in all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.config.payload_settings import ProtobufSource
from pyspark_kafka_direct.config.registry_settings import LATEST_VERSION
from pyspark_kafka_direct.config.subject_names import SIDES, is_short_subject, short_subject_advice
from pyspark_kafka_direct.errors import OptionError, SchemaNotFoundError, with_advice

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.config.payload_parser import PayloadOptions
    from pyspark_kafka_direct.config.registry_settings import RegistryPayloads, RegistrySettings
    from pyspark_kafka_direct.config.subject_names import Side
    from pyspark_kafka_direct.payloads.avro.registry_schemas import ReaderSchema
    from pyspark_kafka_direct.payloads.spark.latest_schemas import FoundSchema

SCHEMA_COMMENT: Final = re.compile(r"version [0-9]+ of .*, schema id ([0-9]{1,10})", re.DOTALL)
"""The comment of a column whose schema is from a registry."""


def with_reader_schemas(payloads: PayloadOptions, schema: StructType | None = None) -> PayloadOptions:
    """Return the options with the schemas of a registry; ``schema`` are the columns, once Spark has them."""
    registry = payloads.settings.registry
    if registry is None:
        return payloads
    comments = {} if schema is None else {field.name.lower(): field.metadata.get("comment") for field in schema.fields}
    for column in SIDES:
        wanted = schema is None or column in comments
        payload_format = payloads.settings.format_of(column)
        if payload_format in ("avro", "protobuf") and wanted:
            with_schema = _with_reader_schema if payload_format == "avro" else _with_reader_message
            comment = comments.get(column)
            try:
                payloads = with_schema(payloads, registry, column, comment)
            except SchemaNotFoundError as error:
                raise with_advice(error, _advice(payloads, registry, column, comment)) from None
            registry = payloads.settings.registry or registry
    return payloads


def find_reader_schema(registry: RegistrySettings, subject: str, version: str) -> FoundSchema:
    """Return the Avro schema of a subject's version, which may be ``latest``."""
    from pyspark_kafka_direct.payloads.avro.registry_schemas import fetch_reader_schema

    key = json.dumps(["read", "avro", subject, version])
    return _find(registry, key, lambda: _found_avro(fetch_reader_schema(registry, subject, version)))


def _with_reader_schema(
    payloads: PayloadOptions, registry: RegistryPayloads, column: str, comment: str | None
) -> PayloadOptions:
    from pyspark_kafka_direct.payloads.avro.registry_schemas import fetch_reader_schema_by_id

    side = registry.side(column)
    if payloads.settings.avro_schema_of(column) is not None:
        side = replace(side, source=f"{column}Schema")
        return payloads._replace(settings=replace(payloads.settings, registry=registry.with_side(column, side)))
    resolved_before = SCHEMA_COMMENT.fullmatch(comment or "")
    access, subject, version = registry.settings, side.subject, side.version
    if resolved_before is not None:
        source, schema_id = resolved_before[0], int(resolved_before[1])
        found = _find(access, source, lambda: _found_avro(fetch_reader_schema_by_id(access, schema_id, source)))
    elif subject is not None:
        found = find_reader_schema(access, subject, version)
    else:
        raise OptionError(
            f"{column}Format=avro: the subject does not follow from the topics and {column}SubjectNameStrategy="
            f"{side.strategy}; set {column}Subject, or {column}Schema to an Avro schema"
        )
    side = replace(side, references=tuple(text for _, text in found.references), source=found.source)
    settings = replace(payloads.settings, registry=registry.with_side(column, side))
    settings = settings.with_avro_schema(column, found.text)
    if column == "key":
        return payloads._replace(settings=settings, key_schema=found.text)
    return payloads._replace(settings=settings, value_schema=found.text)


def _with_reader_message(
    payloads: PayloadOptions, registry: RegistryPayloads, column: str, comment: str | None
) -> PayloadOptions:
    from pyspark_kafka_direct.payloads.protobuf.registry_messages import fetch_source, fetch_source_by_id

    side, given = registry.side(column), payloads.settings.protobuf_of(column)
    access, message, version = registry.settings, given.message, side.version
    subject = message if side.subject is None and side.strategy == "record" else side.subject
    resolved_before = SCHEMA_COMMENT.fullmatch(comment or "")
    if given.schema.strip():
        side = replace(side, source=f"{column}Schema")
        settings = replace(payloads.settings, registry=registry.with_side(column, side))
        return payloads._replace(settings=settings)
    if resolved_before is not None:
        source, schema_id = resolved_before[0], int(resolved_before[1])
        found = _find(access, source, lambda: _found_message(fetch_source_by_id(access, schema_id, message), source))
    elif subject is not None:
        key = json.dumps(["read", "protobuf", subject, version])
        found = _find(access, key, lambda: _found_message(*fetch_source(access, subject, version, message)))
        side = replace(side, subject=subject)
    else:
        raise OptionError(
            f"{column}Format=protobuf: the subject does not follow from the topics and {column}SubjectNameStrategy="
            f"{side.strategy}; set {column}Subject, or {column}Schema to a Protobuf schema"
        )
    settings = replace(payloads.settings, registry=registry.with_side(column, replace(side, source=found.source)))
    source_of_message = ProtobufSource(found.text, message, found.references)
    return payloads._replace(settings=settings.with_protobuf(column, source_of_message))


def _find(registry: RegistrySettings, key: str, fetch: Callable[[], FoundSchema]) -> FoundSchema:
    """Return a schema, which other processes find by its source, too, if no registry is available then."""
    from pyspark_kafka_direct.payloads.spark.latest_schemas import (  # most queries need no registry
        fetch_or_load,
        save_latest,
    )

    found = fetch_or_load(registry, key, fetch)
    if found.source != key:
        save_latest(registry, found.source, found)
    return found


def _found_avro(reader: ReaderSchema) -> FoundSchema:
    from pyspark_kafka_direct.payloads.spark.latest_schemas import FoundSchema

    return FoundSchema(reader.text, tuple(("", text) for text in reader.references), source=reader.source)


def _found_message(message: ProtobufSource, source: str) -> FoundSchema:
    from pyspark_kafka_direct.payloads.spark.latest_schemas import FoundSchema

    return FoundSchema(message.schema, message.imports, source=source)


def _advice(payloads: PayloadOptions, registry: RegistryPayloads, column: Side, comment: str | None) -> str:
    """Return what to do if the registry does not have the schema of a column."""
    side = registry.side(column)
    is_protobuf = payloads.settings.format_of(column) == "protobuf"
    kind = "a Protobuf schema" if is_protobuf else "an Avro schema"
    if SCHEMA_COMMENT.fullmatch(comment or ""):
        return (
            f"The comment of the column {column} contains this id. Call load() again, without .schema() or with one "
            f"that lacks the comment, or set {column}Schema to {kind}."
        )
    if is_protobuf and is_short_subject(side, payloads.settings.protobuf_of(column).message):
        return short_subject_advice(column, side)
    version = "" if side.version == LATEST_VERSION else f" and {column}SchemaVersion"
    return (
        f"Set {column}Subject{version} to {'those' if version else 'that'} of the schema, or {column}Schema to {kind}."
    )
