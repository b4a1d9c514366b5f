"""The schemas of registries, and those that were found before, for queries that are planned during an outage."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.errors import SchemaRegistryUnavailableError
from pyspark_kafka_direct.options.security_settings import EndpointTokens, JwtBearer
from pyspark_kafka_direct.payloads.payload_format import schema_format

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_kafka_direct.options.payload_settings import SidePayload
    from pyspark_kafka_direct.options.registry_settings import RegistryCredentials, RegistrySettings
    from pyspark_kafka_direct.options.security_settings import Grant
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_log = logging.getLogger("pyspark_kafka_direct.spark")


class FoundSchema(NamedTuple):
    """A schema with the names and texts of those that it refers to, and its identity if it is in a registry."""

    text: str
    references: tuple[tuple[str, str], ...] = ()
    schema_id: int | None = None
    guid: str | None = None
    source: str = ""  # for errors


def fetch_version(registry: RegistrySettings, subject: str, payload: SidePayload) -> FoundSchema:
    """Return the schema of a subject in the version that a side names; a SchemaError if its format cannot use it."""
    from pyspark_kafka_direct.payloads.registry.registered_schema import invalid_response
    from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

    resolved = registry_client(registry).schema_of_subject(subject, payload.version)
    registered = resolved.registered
    if registered.schema_id is None:
        raise invalid_response(f"Subject {subject!r}", "without an id")
    source = f"version {registered.version} of {subject}, schema id {registered.schema_id}"
    return _checked(resolved, source, payload)


def fetch_id(registry: RegistrySettings, schema_id: int, source: str, payload: SidePayload) -> FoundSchema:
    """Return the schema with an id that was found before; ``source`` is where."""
    from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

    return _checked(registry_client(registry).schema_by_id(schema_id), source, payload)


@dataclass(frozen=True, slots=True)
class LatestSchemas:
    """The schemas that were found before, in the files of a folder."""

    find_folder: Callable[[], Path | None] = lambda: None  # returns None if the process has none: nothing is saved

    def fetch_or_load(self, registry: RegistrySettings, key: str, fetch: Callable[[], FoundSchema]) -> FoundSchema:
        """Return what is fetched, or, if no registry is available, what was fetched before."""
        try:
            found = fetch()
        except SchemaRegistryUnavailableError:
            earlier = self._load(registry, key)
            if earlier is None:
                raise
            return earlier
        self.save(registry, key, found)
        return found

    def save(self, registry: RegistrySettings, key: str, found: FoundSchema) -> None:
        """Save a schema, for example by its format and subject; a failure has an effect only during an outage."""
        file = self._file(registry, key)
        if file is None:
            return
        with contextlib.suppress(OSError):
            text = json.dumps(found)
            if not file.exists() or file.read_text() != text:
                file.parent.mkdir(mode=0o700, exist_ok=True)
                write_atomically(file, text)

    def _load(self, registry: RegistrySettings, key: str) -> FoundSchema | None:
        """Return the schema that was saved last, or None if there is none."""
        file = self._file(registry, key)
        try:  # TypeError: null, which has no parts
            text, references, schema_id, guid, source = json.loads(file.read_text() if file else "null")
        except (OSError, ValueError, TypeError):
            return None
        _log.warning("no schema registry is available; the last known schema is used: %s", source)
        return FoundSchema(text, tuple((name, reference) for name, reference in references), schema_id, guid, source)

    def _file(self, registry: RegistrySettings, key: str) -> Path | None:
        folder = self.find_folder()
        if folder is None:
            return None
        digest = hashlib.sha256(json.dumps([registry.urls, _login(registry.credentials), key]).encode()).hexdigest()
        return folder / digest


NOT_SAVED: Final = LatestSchemas()


def _checked(resolved: ResolvedSchema, source: str, payload: SidePayload) -> FoundSchema:
    """Return a schema, or raise a SchemaError if the format of keys or values cannot use it."""
    schema_format(payload.format).check_registered(resolved, source, payload.message)
    references = tuple((dependency.name, dependency.text) for dependency in resolved.dependencies)
    guid = resolved.registered.guid
    return FoundSchema(
        resolved.text,
        references,
        schema_id=resolved.registered.schema_id,
        guid=None if guid is None else str(guid),
        source=source,
    )


def _login(credentials: RegistryCredentials) -> list[object]:
    """Return what distinguishes registries with the same URL, as there are in Confluent Cloud."""
    token, source = credentials.token, None if credentials.oauth is None else credentials.oauth.source
    return [
        credentials.username,
        None if token is None else token.reveal(),
        _client_id(source.grant) if isinstance(source, EndpointTokens) else None,
        credentials.headers,
    ]


def _client_id(grant: Grant) -> str | None:
    return None if isinstance(grant, JwtBearer) else grant.client_id
