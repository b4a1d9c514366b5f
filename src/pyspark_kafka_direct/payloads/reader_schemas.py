"""Finds the schemas to read with in a schema registry."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError, SchemaNotFoundError, with_advice
from pyspark_kafka_direct.options.payload_formats import format_row
from pyspark_kafka_direct.options.payload_settings import LATEST_VERSION, is_short_subject, short_subject_advice
from pyspark_kafka_direct.payloads.latest_schemas import NOT_SAVED, FoundSchema, LatestSchemas, fetch_id, fetch_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.options.registry_settings import RegistrySettings

SCHEMA_COMMENT: Final = re.compile(r"version [0-9]+ of .*, schema id ([0-9]{1,10})", re.DOTALL)
"""The comment of a column whose schema is from a registry."""


def with_reader_schemas(
    settings: PayloadSettings, comments: Mapping[str, str] | None = None, latest: LatestSchemas = NOT_SAVED
) -> PayloadSettings:
    """Return the settings with the schemas of a registry.

    ``comments`` are those of the columns by lower-case name, once the columns are known.
    """
    registry = settings.registry
    if registry is None:
        return settings
    for payload in (settings.key, settings.value):
        row, comment = format_row(payload.format), (comments or {}).get(payload.side) or ""
        found = payload
        # Once the columns are known, JSON needs no schema, because they have its fields, nor does a side without one.
        if row.registry_has_fields:
            is_needed = comments is None and payload.schema is None
            if not payload.has_given_framing and (is_needed or SCHEMA_COMMENT.fullmatch(comment)):
                found = replace(payload, framing="confluent")  # a writer that registers the schema writes its id, too
        else:
            is_needed = row.encoded_by_schema and (comments is None or payload.side in comments)
        if is_needed:
            try:
                found = _with_reader_schema(found, registry, comment, latest)
            except SchemaNotFoundError as error:
                raise with_advice(error, _advice(payload, comment)) from None
        settings = settings.with_side(found)
    return settings


def find_reader_schema(
    payload: SidePayload, registry: RegistrySettings, subject: str, latest: LatestSchemas
) -> FoundSchema:
    """Return the schema of a subject in the version that a side names, which may be ``latest``."""
    key = json.dumps(["read", payload.format, subject, payload.version])
    found = latest.fetch_or_load(registry, key, lambda: fetch_version(registry, subject, payload))
    # Other processes find it by its source, too, if no registry is available then.
    latest.save(registry, found.source, found)
    return found


def _with_reader_schema(
    payload: SidePayload, registry: RegistrySettings, comment: str, latest: LatestSchemas
) -> SidePayload:
    side = payload.side
    if payload.schema is not None:
        return replace(payload, source=payload.schema_option)
    # With the strategy record, the subject has the name of the message.
    subject = payload.message if payload.subject is None and payload.strategy == "record" else payload.subject
    resolved_before = SCHEMA_COMMENT.fullmatch(comment)
    if resolved_before is not None:  # another process has found the schema; a later version must not replace it
        source, schema_id = resolved_before[0], int(resolved_before[1])
        found = latest.fetch_or_load(registry, source, lambda: fetch_id(registry, schema_id, source, payload))
    elif subject is not None:
        found = find_reader_schema(payload, registry, subject, latest)
    else:
        kind = format_row(payload.format).read_schema_kind
        raise OptionError(
            f"{side}Format={payload.format}: the subject does not follow from the topics and {side}SubjectNameStrategy="
            f"{payload.strategy}; set {side}Subject, or {side}Schema to {kind}"
        )
    return replace(payload, schema=found.text, references=found.references, source=found.source, subject=subject)


def _advice(payload: SidePayload, comment: str) -> str:
    """Return what to do if the registry does not have the schema of a column."""
    side, kind = payload.side, format_row(payload.format).read_schema_kind
    if SCHEMA_COMMENT.fullmatch(comment):
        return (
            f"The comment of the column {side} contains this id. Call load() again, without .schema() or with one "
            f"that lacks the comment, or set {side}Schema to {kind}."
        )
    if is_short_subject(payload):
        return short_subject_advice(payload)
    version = "" if payload.version == LATEST_VERSION else f" and {side}SchemaVersion"
    return f"Set {side}Subject{version} to {'those' if version else 'that'} of the schema, or {side}Schema to {kind}."
