"""One HTTP request to one registry, with limits of time and size: connection, errors and JSON.

The resolver of host names has no timeout. So the request runs in a thread that is abandoned after the deadline.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.http_opener import (
    build_opener,
    invalid_request,
    is_transient,
    proxy_of,
    proxy_rejection,
    through_proxy,
    tunnel_status,
)
from pyspark_kafka_direct.client.security.tls_handshake import is_connection_closed, tls_context
from pyspark_kafka_direct.client.system import start_call
from pyspark_kafka_direct.errors import SchemaRegistryError, SchemaRegistryUnavailableError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.security_settings import TlsSettings

MAX_RESPONSE_BYTES: Final = 8 << 20  # a registry stores a schema in one record, which has at most 1 MiB by default

_CHUNK_BYTES: Final = 64 << 10


class HttpRequest(NamedTuple):
    """A request without a host."""

    method: str
    path: str  # escaped, with a slash at the start
    content: Mapping[str, object] | None = None  # sent as JSON


class HttpResponse(NamedTuple):
    """A response of any status."""

    status: int
    content: Any  # of JSON; None if the body is something else
    proxy: str | None  # that it came through


class _TooLargeError(Exception):
    pass


def send_request(
    url: str, request: HttpRequest, headers: Mapping[str, str], tls: TlsSettings, deadline: Deadline
) -> HttpResponse:
    """Send a request to a registry and return its response; ``deadline`` limits this request only."""
    http_request = urllib.request.Request(  # noqa: S310 - the parser of the settings allows http and https only
        url + request.path,
        data=None if request.content is None else json.dumps(request.content).encode(),
        method=request.method,
        headers={
            "Accept": "application/vnd.schemaregistry.v1+json, application/json;q=0.9",
            "User-Agent": "pyspark-kafka-direct",
            **({} if request.content is None else {"Content-Type": "application/vnd.schemaregistry.v1+json"}),
            **headers,
        },
    )
    # A context takes tens of milliseconds, which registries without TLS do not need.
    opener = build_opener(deadline, tls_context(tls) if http_request.type == "https" else None)
    system = deadline.system
    call = start_call(system, lambda: _receive(opener, http_request, deadline), "pyspark-kafka-direct-registry")
    system.wait_for_future(call, deadline.remaining())
    # No failure is raised here: its traceback would retain this call, and with it the values of the caller, in a cycle.
    failure = call.exception() if call.done() else TimeoutError()
    proxy = proxy_of(url)
    if isinstance(failure, Exception):
        raise _registry_error(failure, tls, deadline, proxy)
    status, body = call.result()
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:  # registries do not return it
        raise SchemaRegistryError(f"cannot be reached: {proxy_rejection(status, proxy)}")
    return HttpResponse(status, _parse_json(body), proxy)


def _receive(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, deadline: Deadline
) -> tuple[int, bytes]:
    try:
        # A timeout of 0 would mean a socket that does not block.
        response = deadline.system.open_url(opener, request, max(deadline.remaining(), 0.001))
    except urllib.error.HTTPError as error:  # which is also the response, of a status from 300 on
        response = error
    with response:
        body = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_RESPONSE_BYTES:
                raise _TooLargeError
        if response.length:  # the rest of the body, which did not arrive
            raise http.client.IncompleteRead(b"")
        return response.status, bytes(body)


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None


def _registry_error(error: Exception, tls: TlsSettings, deadline: Deadline, proxy: str | None) -> Exception:
    """Return an error whose message begins with a verb: the caller puts the registry's URL before it."""
    status = tunnel_status(_reason(error))
    if status is not None:
        error_class = SchemaRegistryUnavailableError if is_transient(status) else SchemaRegistryError
        return error_class(f"cannot be reached: {proxy_rejection(status, proxy)}")
    through = through_proxy(proxy)
    if isinstance(error, _TooLargeError):
        return SchemaRegistryError(f"returned more than {MAX_RESPONSE_BYTES >> 20} MiB{through}")
    if isinstance(error, http.client.InvalidURL | ValueError):  # characters, or a host name or port
        return SchemaRegistryError(f"cannot be requested ({invalid_request(error)}){through}")
    if isinstance(error, http.client.HTTPException):
        return SchemaRegistryUnavailableError(f"does not respond with HTTP ({type(error).__name__}){through}")
    if isinstance(error, OSError):
        found = _connection_error(error, tls, deadline)
        return type(found)(f"{found.message}{through}")
    return error


def _reason(error: Exception) -> object:
    return error.reason if isinstance(error, urllib.error.URLError) else error


def _connection_error(error: OSError, tls: TlsSettings, deadline: Deadline) -> SchemaRegistryError:
    reason = _reason(error)
    if isinstance(reason, TimeoutError):
        return SchemaRegistryUnavailableError(f"did not respond in time ({deadline.setting})")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SchemaRegistryError(
            f"has a certificate that cannot be verified ({printable(reason.verify_message)}); set its CA in "
            f"{tls.prefix}ssl.truststore.certificates or {tls.prefix}ssl.truststore.location"
        )
    if isinstance(reason, ssl.SSLError) and not is_connection_closed(reason):
        return SchemaRegistryError(
            f"failed the TLS handshake ({printable(reason.reason or 'no reason')}); check whether the URL has to begin "
            f"with http, and whether the registry requires a client certificate ({tls.prefix}ssl.keystore.location)"
        )
    description = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
    return SchemaRegistryUnavailableError(f"cannot be reached ({printable(description)})")
