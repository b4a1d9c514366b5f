"""HTTP services of cloud providers in this process: requests are recorded, and a function returns the responses."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # a path; of a proxy, a URL or an address
    headers: dict[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        """The fields of the body and of the query."""
        fields = {**parse_qs(urlsplit(self.target).query), **parse_qs(self.body)}
        return {name: values[0] for name, values in fields.items()}


Response = tuple[int, str]


class HttpService:
    def __init__(self, respond: Callable[[Request], Response], content_type: str = "application/json") -> None:
        self.requests: list[Request] = []
        self.respond = respond
        service = self

        class Handler(BaseHTTPRequestHandler):
            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                request = Request(self.command, self.path, dict(self.headers), body)
                service.requests.append(request)
                status, text = service.respond(request)
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Metadata-Flavor", "Google")  # a metadata server has it
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_CONNECT = _respond  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(120)


class SecurityTokenService(HttpService):
    """AWS's STS: each role session has other keys. ``lifetime`` is in seconds; ``error`` is a code and a message."""

    def __init__(self) -> None:
        self.lifetime = 3600.0
        self.error: tuple[str, str] | None = None
        super().__init__(self._respond_to, "text/xml")

    def _respond_to(self, request: Request) -> Response:
        if self.error is not None:
            code, message = self.error
            return 403, f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
        action = request.form["Action"]
        if action == "GetCallerIdentity":
            return 200, _result(action, "<Arn>arn:aws:sts::123456789012:assumed-role/reader/me</Arn>")
        number = len(self.requests)
        expiration = datetime.fromtimestamp(datetime.now(UTC).timestamp() + self.lifetime, UTC)
        credentials = (
            f"<Credentials><AccessKeyId>ASIAROLE{number}</AccessKeyId><SecretAccessKey>role-secret</SecretAccessKey>"
            f"<SessionToken>role-session-{number}</SessionToken>"
            f"<Expiration>{expiration.strftime('%Y-%m-%dT%H:%M:%SZ')}</Expiration></Credentials>"
        )
        return 200, _result(action, credentials)


def _result(action: str, content: str) -> str:
    namespace = "https://sts.amazonaws.com/doc/2011-06-15/"
    return f'<{action}Response xmlns="{namespace}"><{action}Result>{content}</{action}Result></{action}Response>'
