"""HTTP requests to schema registries and token endpoints: a deadline, no redirects, proxies, and their errors.

Python's ``urllib`` limits only the time between two pieces of a response. One that never ends would occupy its thread
and its connection for ever.
"""

from __future__ import annotations

import http.client
import io
import re
import ssl
import urllib.error
import urllib.request
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.errors import printable

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.security_settings import TlsSettings

_TUNNEL_STATUS: Final = re.compile(r"Tunnel connection failed: ([1-9][0-9]{2})\b")  # of http.client


def request_opener(url: str, tls: TlsSettings, deadline: Deadline) -> Callable[[urllib.request.Request], Any]:
    """Return a function that sends a request to a server and returns its response.

    Args:
        url: Of the server. If it is not ``https``, a proxy with TLS is checked with the CAs of the machine.
        tls: Of an ``https`` URL.
        deadline: Reading a response fails with a ``TimeoutError`` after it.
    """
    # A context takes tens of milliseconds, which servers without TLS do not need.
    context = tls_context(tls, deadline.system) if urlsplit(url).scheme == "https" else None
    opener = urllib.request.build_opener(_HttpHandler(deadline), _HttpsHandler(deadline, context), _NoRedirects())
    # A timeout of 0 would mean a socket that does not block.
    return lambda request: deadline.system.open_url(opener, request, max(deadline.remaining(), 0.001))


def is_transient(status: int) -> bool:
    """Return whether a retry may resolve an error."""
    return status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def proxy_of(url: str) -> str | None:
    """Return the proxy of the environment that a URL is requested through, without its password, or None."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)  # a URL, or an address
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return None
    # ``urllib`` accepts passwords with characters that end an address elsewhere, such as a slash.
    address = proxy.rpartition("@")[2].rpartition("//")[2]
    return printable(address.partition("/")[0])


def through_proxy(proxy: str | None) -> str:
    """Return how a request was sent, for the end of an error; nothing without a proxy."""
    return "" if proxy is None else f", through the proxy {proxy}"


def _tunnel_status(error: object) -> int | None:
    """Return the status with which a proxy rejected a connection to another host, or None for another error."""
    found = _TUNNEL_STATUS.match(str(error)) if isinstance(error, OSError) else None
    return None if found is None else int(found[1])


def invalid_request(error: Exception) -> str:
    """Return why a URL cannot be requested, without the URL of a proxy, which may have a password."""
    problem, _, value = str(error).partition(":")
    return printable(problem if "@" in value else str(error))


def failure_reason(error: OSError) -> object:
    """Return why a connection failed, without the wrapper that ``urllib`` has for it until a request is sent."""
    return error.reason if isinstance(error, urllib.error.URLError) else error


def is_final(reason: object) -> bool:
    """Return whether a connection would fail for the same reason again."""
    status = _tunnel_status(reason)
    return isinstance(reason, ssl.SSLCertVerificationError) or (status is not None and not is_transient(status))


def failure_description(reason: object, proxy: str | None, *, timeout_options: str, ca_advice: str) -> str:
    """Return why a connection failed, for an error whose subject is the server."""
    status = _tunnel_status(reason)
    if status is not None:
        return proxy_rejection(status, proxy)
    through = through_proxy(proxy)
    if isinstance(reason, ssl.SSLCertVerificationError):
        problem = printable(reason.verify_message)
        return f"has a certificate that cannot be verified ({problem}){through}; {ca_advice}"
    if isinstance(reason, TimeoutError):
        return f"did not respond in time ({timeout_options}){through}"
    problem = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
    return f"cannot be reached ({printable(problem)}){through}"


def proxy_rejection(status: int, proxy: str | None) -> str:
    """Return what a proxy responded, as `failure_description`; ``proxy`` is None if the environment has none."""
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        advice = "; check the user and the password in the environment variable http_proxy or https_proxy"
    else:
        advice = ""
    return f"cannot be reached: {'a proxy' if proxy is None else f'the proxy {proxy}'} returned HTTP {status}{advice}"


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self._stream = sock.makefile("rb", buffering=0)  # retains the socket, which urllib closes before it reads

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Read some bytes; a TimeoutError after the deadline."""
        remaining = self._deadline.remaining()
        if remaining <= 0:  # a timeout of 0 would mean a socket that does not block
            raise TimeoutError
        self._sock.settimeout(remaining)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        """Release the socket."""
        self._stream.close()
        super().close()


class _TimedSocket:
    """A socket as ``http.client`` uses it to read a response."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a buffered reader."""
        return io.BufferedReader(_TimedReader(self._sock, self._deadline))


def _timed_response(deadline: Deadline, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_TimedSocket(sock, deadline), **options)  # type: ignore[arg-type]


def _timed(
    connection_class: Callable[..., http.client.HTTPConnection], deadline: Deadline, host: str, **options: Any
) -> http.client.HTTPConnection:
    connection = connection_class(host, **options)
    connection.response_class = partial(_timed_response, deadline)  # type: ignore[assignment]
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._connect = partial(_timed, http.client.HTTPConnection, deadline)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    """Creates no default context before a request needs it: that takes tens of milliseconds."""

    def __init__(self, deadline: Deadline, context: ssl.SSLContext | None) -> None:
        urllib.request.AbstractHTTPHandler.__init__(self)
        self._connect = partial(_timed, http.client.HTTPSConnection, deadline)
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req, context=self._tls)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats redirects as responses: the credentials are for one address."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect; the response becomes an ``HTTPError``."""
