"""Finds the Avro and Protobuf schemas that a query reads with in a schema registry, on the driver.

Several processes plan a query. The comment of a column contains the id of its schema, so that ``latest`` has the same
meaning in all of them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.config.registry_settings import LATEST_VERSION
from pyspark_kafka_direct.config.subject_names import SIDES, is_short_subject, short_subject_advice
from pyspark_kafka_direct.errors import OptionError, SchemaNotFoundError, with_advice

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.config.payload_parser import PayloadOptions
    from pyspark_kafka_direct.config.registry_settings import RegistryPayloads
    from pyspark_kafka_direct.config.subject_names import Side

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


def _with_reader_schema(
    payloads: PayloadOptions, registry: RegistryPayloads, column: str, comment: str | None
) -> PayloadOptions:
    from pyspark_kafka_direct.formats.avro.registry_schemas import fetch_reader_schema, fetch_reader_schema_by_id

    side = registry.side(column)
    if payloads.settings.avro_schema_of(column) is not None:
        side = replace(side, source=f"{column}Schema")
        return payloads._replace(settings=replace(payloads.settings, registry=registry.with_side(column, side)))
    resolved_before = SCHEMA_COMMENT.fullmatch(comment or "")
    if resolved_before is not None:
        reader = fetch_reader_schema_by_id(registry.settings, int(resolved_before[1]), resolved_before[0])
    elif side.subject is not None:
        reader = fetch_reader_schema(registry.settings, side.subject, side.version)
    else:
        raise OptionError(
            f"{column}Format=avro: the subject does not follow from the topics and {column}SubjectNameStrategy="
            f"{side.strategy}; set {column}Subject, or {column}Schema to an Avro schema"
        )
    side = replace(side, references=reader.references, source=reader.source)
    settings = replace(payloads.settings, registry=registry.with_side(column, side))
    settings = settings.with_avro_schema(column, reader.text)
    if column == "key":
        return payloads._replace(settings=settings, key_schema=reader.text)
    return payloads._replace(settings=settings, value_schema=reader.text)


def _with_reader_message(
    payloads: PayloadOptions, registry: RegistryPayloads, column: str, comment: str | None
) -> PayloadOptions:
    from pyspark_kafka_direct.formats.protobuf.registry_messages import fetch_source, fetch_source_by_id

    side, source = registry.side(column), payloads.settings.protobuf_of(column)
    subject = source.message if side.subject is None and side.strategy == "record" else side.subject
    resolved_before = SCHEMA_COMMENT.fullmatch(comment or "")
    if source.schema.strip():
        side = replace(side, source=f"{column}Schema")
    elif resolved_before is not None:
        source = fetch_source_by_id(registry.settings, int(resolved_before[1]), source.message)
        side = replace(side, source=resolved_before[0])
    elif subject is not None:
        source, where = fetch_source(registry.settings, subject, side.version, source.message)
        side = replace(side, subject=subject, source=where)
    else:
        raise OptionError(
            f"{column}Format=protobuf: the subject does not follow from the topics and {column}SubjectNameStrategy="
            f"{side.strategy}; set {column}Subject, or {column}Schema to a Protobuf schema"
        )
    settings = replace(payloads.settings, registry=registry.with_side(column, side))
    return payloads._replace(settings=settings.with_protobuf(column, source))


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
