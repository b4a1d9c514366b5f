"""A token endpoint in this process."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark_kafka_direct.options.security_settings import ClientCredentials, EndpointTokens, OAuthSettings, Secret

ME = ClientCredentials("me", Secret("hunter2"))


class Endpoint:
    """A token endpoint over HTTP. ``responses`` are served in turn, the last one forever."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, dict[str, str], str]] = []
        self.requests: list[tuple[dict[str, str], str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((dict(self.headers), body))
                responses = endpoint.responses
                status, headers, text = responses.pop(0) if len(responses) > 1 else responses[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def settings(self, secret: str = "hunter2", *, urlencode_header: bool = False, **more: Any) -> OAuthSettings:
        grant = ClientCredentials("me:x", Secret(secret), urlencode_header)
        return OAuthSettings(EndpointTokens(self.url, grant, **more))

    def add_response(self, status: int, content: object, **headers: str) -> None:
        self.responses.append((status, headers, content if isinstance(content, str) else json.dumps(content)))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(120)
