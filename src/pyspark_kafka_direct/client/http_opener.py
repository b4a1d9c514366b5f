"""HTTP requests to schema registries and token endpoints: a deadline for a whole response, no redirects, and proxies.

Python's ``urllib`` limits only the time between two pieces of a response. One that never ends would occupy its thread
and its connection for ever.
"""

from __future__ import annotations

import http.client
import io
import re
import urllib.request
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark_kafka_direct.errors import printable

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

    from pyspark_kafka_direct.client.deadline import Deadline

_TUNNEL_STATUS: Final = re.compile(r"Tunnel connection failed: ([1-9][0-9]{2})\b")  # of http.client


def build_opener(deadline: Deadline, context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return an opener for one request, which ends with the deadline.

    Args:
        deadline: Reading the response fails with a ``TimeoutError`` after it.
        context: That of an ``https`` URL. Without one, a proxy with TLS is checked with the CAs of the machine.
    """
    return urllib.request.build_opener(_HttpHandler(deadline), _HttpsHandler(deadline, context), _NoRedirects())


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


def tunnel_status(error: object) -> int | None:
    """Return the status with which a proxy rejected a connection to another host, or None for another error."""
    found = _TUNNEL_STATUS.match(str(error)) if isinstance(error, OSError) else None
    return None if found is None else int(found[1])


def invalid_request(error: Exception) -> str:
    """Return why a URL cannot be requested, without the URL of a proxy, which may have a password."""
    problem, _, value = str(error).partition(":")
    return printable(problem if "@" in value else str(error))


def proxy_rejection(status: int, proxy: str | None) -> str:
    """Return what a proxy responded, for errors; ``proxy`` is None if the environment has none."""
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        advice = "; check the user and the password in the environment variable http_proxy or https_proxy"
    else:
        advice = ""
    return f"{'a proxy' if proxy is None else f'the proxy {proxy}'} returned HTTP {status}{advice}"


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
