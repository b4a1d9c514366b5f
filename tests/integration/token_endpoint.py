"""An HTTPS endpoint of the client-credentials grant."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from pyspark_kafka_direct.broker import unsecured_token

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import Certificates

_SECONDS = 600.0


class TokenEndpoint:
    """Returns tokens of the user ``tokens``, or rejects requests with a description that repeats their secrets."""

    def __init__(self, certificates: Certificates, *, rejects: bool = False) -> None:
        self.forms: list[dict[str, list[str]]] = []
        """The received requests."""
        forms = self.forms

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = self.rfile.read(int(self.headers["Content-Length"])).decode()
                forms.append(parse_qs(request))
                if rejects:
                    description = f"{self.headers['Authorization']} {request}"
                    self._respond(401, {"error": "invalid_client", "error_description": description})
                else:
                    self._respond(200, {"access_token": unsecured_token("tokens"), "expires_in": 3600})

            def _respond(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.broker, certificates.broker_key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_SECONDS)
