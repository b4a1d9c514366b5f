"""A token endpoint for tests, which verifies its clients and signs tokens that a broker verifies."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import Certificates

ISSUER: Final = "https://idp.test/"
AUDIENCE: Final = "kafka"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class IdentityProvider:
    """Serves ``url`` over HTTPS.

    Args:
        certificates: A certificate of the endpoint, and its CA.
        jwks: The file to write, which has the public key of its tokens for a broker.
    """

    def __init__(self, certificates: Certificates, jwks: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        public_key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        jwks.write_text(json.dumps({"keys": [{**public_key, "kid": "idp", "use": "sig", "alg": "RS256"}]}))
        self.client_keys: dict[str, Any] = {}  # public keys by the issuer of assertions
        self.lifetime = 3600  # seconds
        self.is_failing = False
        self.requests: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.broker, certificates.broker_key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"

    def token(self, subject: str, lifetime: float | None = None) -> str:
        now = int(time.time())
        expires_at = now + int(self.lifetime if lifetime is None else lifetime)
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": expires_at, "scope": "kafka"}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "idp"})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(120)

    def _respond(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        self.requests.append(form)
        if self.is_failing:
            return 501, {"error": "temporarily_unavailable"}
        if form.get("grant_type") == _JWT_BEARER:
            assertion = form["assertion"]
        elif form.get("client_assertion_type") == _CLIENT_ASSERTION:
            assertion = form["client_assertion"]
        else:
            return 400, {"error": "unsupported_grant_type"}
        try:
            claims = jwt.decode(assertion, options={"verify_signature": False})
            key = self.client_keys[claims["iss"]]
            claims = jwt.decode(
                assertion, key, ["RS256", "ES256"], audience=self.url, options={"require": ["sub", "exp", "nbf", "iat"]}
            )
        except (jwt.InvalidTokenError, KeyError) as error:
            return 400, {"error": "invalid_grant", "error_description": f"{type(error).__name__} in {assertion}"}
        return 200, {"access_token": self.token(claims["sub"]), "token_type": "Bearer", "expires_in": self.lifetime}

    def _handler(provider) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, content = provider._respond(dict(parse_qsl(body)))
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Handler
