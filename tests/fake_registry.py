"""A schema registry in this process, which stores schemas and can fail in many ways."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True)
class Reply:
    """A response: JSON, or bytes. ``pieces`` are sent one by one, with a pause before each of them."""

    status: int = 200
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None
    pause: float = 0.0
    declared_bytes: int | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    content: Any


def not_found(code: int, message: str) -> Reply:
    return Reply(404, {"error_code": code, "message": message})


class FakeRegistry:
    """Responds to the requests of one API of Confluent, unless ``fault`` returns another response."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Reply | None] | None = None
        self.delay = 0.0  # of each response, in seconds
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler_class())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections; stopping it twice does nothing."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def add(self, subject: str, text: str, *, schema_id: int | None = None, **fields: Any) -> int:
        """Add a version to a subject and return its id."""
        with self._lock:
            content = {"schema": text, **fields}
            for known_id, known in self._schemas.items():
                if schema_id is None and {key: known.get(key) for key in content} == content:
                    schema_id = known_id
            schema_id = schema_id or max(self._schemas, default=0) + 1
            guid = str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True)))
            self._schemas[schema_id] = {**content, "guid": guid}
            versions = self._subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def guid_of(self, schema_id: int) -> uuid.UUID:
        return uuid.UUID(self._schemas[schema_id]["guid"])

    def respond(self, request: Request) -> Reply:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["schemas", "ids", schema_id]:
                found = self._schemas.get(int(schema_id))
                return Reply(content=found) if found else not_found(40403, "Schema not found")
            case "GET", ["schemas", "ids", schema_id, "versions"]:
                return Reply(content=self._versions_of(int(schema_id)))
            case "GET", ["schemas", "guids", guid]:
                found = next((each for each in self._schemas.values() if each["guid"] == guid), None)
                return Reply(content=found) if found else not_found(40403, "Schema not found")
            case "GET", ["subjects", subject, "versions", number]:
                return self._version(unquote(subject), number)
            case "POST", ["subjects", subject, "versions"]:
                added_id = self.add(unquote(subject), request.content.pop("schema"), **request.content)
                return Reply(content={"id": added_id, **self._schemas[added_id]})
            case "POST", ["subjects", subject]:
                for version, known_id in enumerate(self._subjects.get(unquote(subject), []), 1):
                    if self._schemas[known_id]["schema"] == request.content["schema"]:
                        return self._version(unquote(subject), str(version))
                return not_found(40403, "Schema not found")
        return Reply(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def _versions_of(self, schema_id: int) -> list[dict[str, Any]]:
        return [
            {"subject": subject, "version": ids.index(schema_id) + 1}
            for subject, ids in self._subjects.items()
            if schema_id in ids
        ]

    def _version(self, subject: str, version: str) -> Reply:
        versions = self._subjects.get(subject)
        if versions is None:
            return not_found(40401, f"Subject '{subject}' not found.")
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return not_found(40402, f"Version {version} not found.")
        schema_id = versions[number - 1]
        return Reply(content={"subject": subject, "version": number, "id": schema_id, **self._schemas[schema_id]})

    def _reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
        time.sleep(self.delay)
        return (self.fault and self.fault(request)) or self.respond(request)

    def _handler_class(registry) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler
        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True  # it delays the body by 40 ms

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = urlsplit(self.path).path
                request = Request(self.command, path, dict(self.headers), json.loads(body) if body else None)
                with contextlib.suppress(OSError):
                    self._send(registry._reply(request))

            do_POST = do_GET  # noqa: N815 - the name is that of the base class

            def _send(self, reply: Reply) -> None:
                pieces = [json.dumps(reply.content).encode()] if reply.pieces is None else reply.pieces
                size = reply.declared_bytes  # without it, the body ends with the connection
                if size is None and isinstance(pieces, list):
                    size = sum(map(len, pieces))
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if size is not None:
                    self.send_header("Content-Length", str(size))
                self.end_headers()
                for piece in pieces:
                    time.sleep(reply.pause)
                    self.wfile.write(piece)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
