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
    failure_description,
    failure_reason,
    invalid_request,
    is_final,
    proxy_of,
    proxy_rejection,
    request_opener,
    through_proxy,
)
from pyspark_kafka_direct.client.security.tls_handshake import is_connection_closed
from pyspark_kafka_direct.client.system import start_call
from pyspark_kafka_direct.errors import SchemaRegistryError, SchemaRegistryUnavailableError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    open_request = request_opener(url, tls, deadline)
    system = deadline.system
    call = start_call(system, lambda: _receive(open_request, http_request), "pyspark-kafka-direct-registry")
    system.wait_for_future(call, deadline.remaining())
    # No failure is raised here: its traceback would retain this call, and with it the values of the caller, in a cycle.
    failure = call.exception() if call.done() else TimeoutError()
    proxy = proxy_of(url)
    if isinstance(failure, Exception):
        raise _registry_error(failure, tls, deadline, proxy)
    status, body = call.result()
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:  # registries do not return it
        raise SchemaRegistryError(proxy_rejection(status, proxy))
    return HttpResponse(status, _parse_json(body), proxy)


def _receive(
    open_request: Callable[[urllib.request.Request], Any], request: urllib.request.Request
) -> tuple[int, bytes]:
    try:
        response = open_request(request)
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
    through = through_proxy(proxy)
    if isinstance(error, _TooLargeError):
        return SchemaRegistryError(f"returned more than {MAX_RESPONSE_BYTES >> 20} MiB{through}")
    if isinstance(error, http.client.InvalidURL | ValueError):  # characters, or a host name or port
        return SchemaRegistryError(f"cannot be requested ({invalid_request(error)}){through}")
    if isinstance(error, http.client.HTTPException):
        return SchemaRegistryUnavailableError(f"does not respond with HTTP ({type(error).__name__}){through}")
    if isinstance(error, OSError):
        return _connection_error(error, tls, deadline, proxy)
    return error


def _connection_error(error: OSError, tls: TlsSettings, deadline: Deadline, proxy: str | None) -> SchemaRegistryError:
    reason = failure_reason(error)
    ca_advice = f"set its CA in {tls.prefix}ssl.truststore.certificates or {tls.prefix}ssl.truststore.location"
    problem = failure_description(reason, proxy, timeout_options=deadline.setting, ca_advice=ca_advice)
    if is_final(reason):
        return SchemaRegistryError(problem)
    if isinstance(reason, ssl.SSLError) and not is_connection_closed(reason):
        return SchemaRegistryError(
            f"failed the TLS handshake ({printable(reason.reason or 'no reason')}); check whether the URL has to begin "
            f"with http, and whether the registry requires a client certificate ({tls.prefix}ssl.keystore.location)"
            f"{through_proxy(proxy)}"
        )
    return SchemaRegistryUnavailableError(problem)
