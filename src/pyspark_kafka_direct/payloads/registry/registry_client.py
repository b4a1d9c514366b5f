"""A client for registries with Confluent's REST API: several URLs, retries until a deadline, and a cache of schemas."""

from __future__ import annotations

import base64
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from pyspark_kafka_direct.client.deadline import Backoff, Deadline, Retry
from pyspark_kafka_direct.client.http_opener import is_transient, through_proxy
from pyspark_kafka_direct.client.security.oauth_login import renew_token, retrieve_token, token_proxy
from pyspark_kafka_direct.client.system import SYSTEM, after_fork
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    printable,
)
from pyspark_kafka_direct.options.payload_settings import LATEST_VERSION
from pyspark_kafka_direct.options.security_settings import MASK, Secret
from pyspark_kafka_direct.payloads.registry.http_request import HttpRequest, HttpResponse, send_request
from pyspark_kafka_direct.payloads.registry.registered_schema import (
    MAX_REFERENCES,
    NamedSchema,
    RegisteredSchema,
    ResolvedSchema,
    check_encryption,
    parse_registered_schema,
    parse_schema_id,
    parse_versions,
)
from pyspark_kafka_direct.payloads.registry.single_flight_cache import SingleFlightCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.registry.registered_schema import Schema, SchemaReference

_API_TIMEOUT: Final = "schema.registry.api.timeout.ms"
_READ_TIMEOUT: Final = "schema.registry.http.read.timeout.ms"
_URL_OPTION: Final = "schema.registry.url"
_MAX_ID: Final = 2**31 - 1
_MISSING: Final = range(40400, 40500)  # error codes: no such subject, version or schema
_GUIDS: Final = "/schemas/guids/"


@lru_cache(maxsize=16)
def registry_client(settings: RegistrySettings, system: System = SYSTEM) -> RegistryClient:
    """Return the client of this process."""
    return RegistryClient(settings, system)


after_fork(registry_client.cache_clear)


class RegistryClient:
    """Requests schemas; several threads may share it."""

    def __init__(self, settings: RegistrySettings, system: System = SYSTEM) -> None:
        self._settings = settings
        self._system = system
        self._urls = settings.urls  # the one that responded last is the first one
        self._backoff = Backoff(settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._by_id: SingleFlightCache[ResolvedSchema] = SingleFlightCache(system, _size_of_resolved)
        self._versions: SingleFlightCache[RegisteredSchema] = SingleFlightCache(system, _size)
        self._missing_ids = MissingIds(system)

    def schema_by_id(self, schema_id: int) -> ResolvedSchema:
        """Return the schema with an id and its references: a request for each, once per process."""
        if not 0 <= schema_id <= _MAX_ID:
            raise SchemaNotFoundError(f"Schema id {schema_id}: ids are integers from 0 to {_MAX_ID}.")
        return self._cached_schema(schema_id, f"Schema id {schema_id}", f"/schemas/ids/{schema_id}")

    def schema_by_guid(self, guid: UUID) -> ResolvedSchema:
        """Return the schema with a GUID and its references: a request for each, once per process."""
        return self._cached_schema(guid, f"Schema {guid}", f"{_GUIDS}{guid}")

    def schema_of_subject(self, subject: str, version: int | str = LATEST_VERSION) -> ResolvedSchema:
        """Return a version of a subject, by default the latest one, which is requested each time."""
        source = f"Subject {subject!r}, version {version}"
        deadline = self._deadline()
        if version == LATEST_VERSION:
            return self._resolve(self._request_version(subject, version, source, deadline), source, deadline)
        return self._resolve(self._version(subject, int(version), deadline), source, deadline)

    def versions_of_id(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects and versions that have a schema."""
        source = f"Schema id {schema_id}"
        content = self._request(HttpRequest("GET", f"/schemas/ids/{schema_id}/versions"), source, self._deadline())
        return parse_versions(content, source)

    def look_up(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Return the version of a subject that has this schema; raises ``SchemaNotFoundError`` if there is none."""
        source = f"Subject {subject!r}"
        request = HttpRequest("POST", f"/subjects/{_escaped(subject)}", _schema_content(schema))
        return parse_registered_schema(self._request(request, source, self._deadline()), source)

    def register(self, subject: str, schema: Schema) -> int:
        """Return the id of this schema in a subject, to which it is added if necessary."""
        source = f"Subject {subject!r}"
        request = HttpRequest("POST", f"/subjects/{_escaped(subject)}/versions", _schema_content(schema))
        return parse_schema_id(self._request(request, source, self._deadline()), source)

    def _cached_schema(self, key: int | UUID, source: str, path: str) -> ResolvedSchema:
        deadline = self._deadline()

        def fetch() -> ResolvedSchema:
            try:
                content = self._request(HttpRequest("GET", path), source, deadline)
            except SchemaNotFoundError:  # of the id; a missing reference does not count
                self._missing_ids.add()
                raise
            return self._resolve(parse_registered_schema(content, source), source, deadline)

        if not self._by_id.has(key):
            self._missing_ids.check(source)  # its error is not cached, so it replaces no schema in the cache
        return self._by_id.get(key, fetch, deadline.remaining())

    def _resolve(self, registered: RegisteredSchema, source: str, deadline: Deadline) -> ResolvedSchema:
        def fetch(reference: SchemaReference) -> RegisteredSchema:
            return self._version(reference.subject, reference.version, deadline)

        resolved = resolve_references(registered, fetch, source)
        check_encryption(resolved.encryption_rules, source)
        return resolved.schema

    def _version(self, subject: str, version: int, deadline: Deadline) -> RegisteredSchema:
        source = f"Subject {subject!r}, version {version}"
        return self._versions.get(
            (subject, version),
            lambda: self._request_version(subject, version, source, deadline),
            deadline.remaining(),
        )

    def _request_version(self, subject: str, version: int | str, source: str, deadline: Deadline) -> RegisteredSchema:
        request = HttpRequest("GET", f"/subjects/{_escaped(subject)}/versions/{version}")
        return parse_registered_schema(self._request(request, source, deadline), source)

    def _deadline(self) -> Deadline:
        return Deadline.after(self._settings.api_timeout_ms / 1000, _API_TIMEOUT, system=self._system)

    def _request(self, request: HttpRequest, source: str, deadline: Deadline) -> Any:
        """Send a request to one URL after the other until one responds; pause when all have failed."""
        retry = Retry(deadline, retries=None, backoff=self._backoff)
        failures: dict[str, str] = {}
        while True:
            urls = self._urls
            for index, url in enumerate(urls):
                try:  # a URL that does not respond leaves time for the others
                    share = deadline.limited_to(deadline.remaining() / (len(urls) - index))
                    response = self._send(url, request, share)
                except SchemaRegistryUnavailableError as error:
                    # The last request may have little time; an earlier failure says more.
                    failures[url] = failures.get(url, error.message) if share.expired else error.message
                except SchemaRegistryError as error:  # another URL of the registry would respond the same
                    raise type(error)(f"{source}: the registry {_host(url)} {error.message}.") from None
                else:
                    self._urls = (url, *(other for other in self._settings.urls if other != url))
                    return response.content
            reasons = "; ".join(f"{_host(url)} {failure}" for url, failure in failures.items())
            retry.wait_or_raise(
                SchemaRegistryUnavailableError(
                    f"{source}: no schema registry of {_URL_OPTION} is available: {reasons}. Start the query "
                    "again when a registry is available: a stream continues from its checkpoint."
                )
            )

    def _send(self, url: str, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        """Send a request to one URL; an error of the server itself is a ``SchemaRegistryUnavailableError``."""
        attempt = Deadline.after(self._settings.read_timeout_ms / 1000, _READ_TIMEOUT, system=self._system)
        attempt = min(attempt, deadline, key=lambda limit: limit.at)
        if attempt.expired:
            raise SchemaRegistryUnavailableError(f"was not requested ({attempt.setting})")
        headers = self._headers(url, attempt)
        response = send_request(url, request, headers, self._settings.tls, attempt)
        if response.status < 300:
            return response
        if response.status == HTTPStatus.UNAUTHORIZED and (oauth := self._settings.credentials.oauth) is not None:
            renew_token(oauth, Secret(_sent_credentials(headers)), attempt, _host(url))
        code, message = _error_fields(response.content)
        for secret in self._secrets(headers):
            message = message.replace(secret, MASK)
        message = f' "{printable(message)}"' if message else ""
        # Without a tunnel, as there is with https, the response may also be that of the proxy.
        description = f"returned HTTP {response.status}{message}{through_proxy(response.proxy)}"
        if is_transient(response.status):
            raise SchemaRegistryUnavailableError(description)
        if response.status == 404 and code in _MISSING:
            raise SchemaNotFoundError(f"does not have it (error {code}{message})")
        # A 404 without such a code: either the registry has no GUIDs, or the path in the URL is wrong.
        if response.status == 404 and request.path.startswith(_GUIDS) and self._has_ids(url, attempt):
            raise SchemaNotFoundError("does not find schemas by GUIDs, only by ids (HTTP 404)")
        raise SchemaRegistryError(f"{description}; {_advice(response.status)}")

    def _has_ids(self, url: str, deadline: Deadline) -> bool:
        """Return whether the path in the URL is right: registries without GUIDs do not have their path."""
        try:
            self._send(url, HttpRequest("GET", "/schemas/ids/0"), deadline)
        except SchemaNotFoundError:  # a registry without this schema
            return True
        except SchemaRegistryUnavailableError:  # another kind of SchemaRegistryError: the path may be right
            raise
        except SchemaRegistryError:
            return False
        return True

    def _secrets(self, headers: Mapping[str, str]) -> list[str]:
        """Return what a registry could return of the credentials."""
        return [
            secret for secret in (_sent_credentials(headers), self._settings.credentials.password.reveal()) if secret
        ]

    def _headers(self, url: str, deadline: Deadline) -> dict[str, str]:
        credentials = self._settings.credentials
        if credentials.username is not None:
            return {"Authorization": f"Basic {_base64(f'{credentials.username}:{credentials.password.reveal()}')}"}
        token = credentials.token  # None without credentials
        if credentials.oauth is not None:
            try:
                token = retrieve_token(credentials.oauth, deadline, _host(url)).value
            except BrokerTimeoutError:
                through = through_proxy(token_proxy(credentials.oauth))
                raise SchemaRegistryUnavailableError(
                    f"was not requested, because there was no token in time ({deadline.setting}){through}"
                ) from None
            except AuthenticationError as error:
                raise SchemaRegistryError(f"cannot be requested. {error.message.rstrip('.')}") from None
        return {} if token is None else {"Authorization": f"Bearer {token.reveal()}", **dict(credentials.headers)}


def _sent_credentials(headers: Mapping[str, str]) -> str:
    return headers.get("Authorization", "").partition(" ")[2]


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _escaped(subject: str) -> str:
    return quote(subject, safe="")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _schema_content(schema: Schema) -> dict[str, object]:
    references = [reference._asdict() for reference in schema.references]
    return {
        "schema": schema.text,
        **({} if schema.schema_type == "AVRO" else {"schemaType": schema.schema_type}),
        **({"references": references} if references else {}),
    }


def _error_fields(content: Any) -> tuple[int | None, str]:
    """Return the error code and the message of an error; the message may contain secrets."""
    if not isinstance(content, dict):
        return None, ""
    code, message = content.get("error_code"), content.get("message")
    return code if type(code) is int else None, message if isinstance(message, str) else ""


def _advice(status: int) -> str:
    if status < 400:
        return f"redirects are not followed, because requests have credentials; set {_URL_OPTION} to the other address"
    if status in (401, 403):
        return "check the credentials (schema.registry.basic.auth.* or schema.registry.bearer.auth.*)"
    if status == 404:
        return f"check the path in {_URL_OPTION}"
    return "the registry rejected the request"


def _size(registered: RegisteredSchema) -> int:
    return len(registered.schema.text)


def _size_of_resolved(resolved: ResolvedSchema) -> int:
    return _size(resolved.registered) + sum(len(dependency.text) for dependency in resolved.dependencies)


MAX_MISSING: Final = 100
"""The number of missing ids that a process requests without a pause between them."""

_SECONDS_PER_ID: Final = 1.0  # after them


class MissingIds:
    """Counts missing ids as a token bucket does. Several threads may share one.

    Records can contain any ids. Without a limit, each record of a harmful producer would cause a request.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = system.lock()
        self._free_at = system.monotonic()  # when all requests are available again

    def check(self, source: str) -> None:
        """Raise an error if no further id may be requested; ``source`` begins it."""
        with self._lock:
            used = (self._free_at - self._system.monotonic()) / _SECONDS_PER_ID  # each id is used for a second
        if used > MAX_MISSING - 1:
            raise SchemaNotFoundError(
                f"{source} was not requested: the registry did not have {MAX_MISSING} other ids, so this process "
                "requests one unknown id per second."
            )

    def add(self) -> None:
        """Count an id that the registry does not have."""
        with self._lock:
            self._free_at = max(self._free_at, self._system.monotonic()) + _SECONDS_PER_ID


_MAX_DEPTH: Final = 100
_MAX_CHARS: Final = 32 << 20  # of all schemas


class Resolution(NamedTuple):
    """A schema with its references, and the rules of all of them that encrypt."""

    schema: ResolvedSchema
    encryption_rules: tuple[str, ...]


def resolve_references(
    registered: RegisteredSchema, fetch: Callable[[SchemaReference], RegisteredSchema], source: str
) -> Resolution:
    """Fetch the schemas that a schema refers to, each once; ``source`` begins errors."""
    resolver = _Resolver(fetch, source)
    resolver.add_references(registered, ())
    rules = (*registered.encryption_rules, *resolver.encryption_rules)
    return Resolution(ResolvedSchema(registered, tuple(resolver.found.values())), rules)


class _Resolver:
    def __init__(self, fetch: Callable[[SchemaReference], RegisteredSchema], source: str) -> None:
        self._fetch = fetch
        self._source = source
        self._fetched = 0
        self._chars = 0
        self.found: dict[SchemaReference, NamedSchema] = {}  # each behind those that it refers to
        self.encryption_rules: list[str] = []

    def add_references(self, registered: RegisteredSchema, path: tuple[SchemaReference, ...]) -> None:
        """Add the references of a schema, which was reached by a path of references."""
        for reference in registered.schema.references:
            if reference in path:
                raise self._error(f"refer to themselves by {reference.name!r}")
            if reference in self.found:
                continue
            if len(path) >= _MAX_DEPTH:
                raise self._error(f"are nested more than {_MAX_DEPTH} levels deep")
            try:
                target = self._fetch(reference)
            except SchemaNotFoundError as error:
                message = f"{self._source}: its reference {printable(reference.name)!r} is missing. {error.message}"
                raise SchemaNotFoundError(message) from None
            self._fetched += 1
            self._chars += len(target.schema.text)
            if self._fetched > MAX_REFERENCES or self._chars > _MAX_CHARS:
                raise self._error(f"are more than {MAX_REFERENCES}, or larger than {_MAX_CHARS >> 20} MiB together")
            self.add_references(target, (*path, reference))
            self.found[reference] = NamedSchema(reference.name, target.schema.text)  # behind its own references
            self.encryption_rules += target.encryption_rules

    def _error(self, problem: str) -> SchemaError:
        return SchemaError(f"{self._source}: its references {problem}.")
