"""SASL authentication: SaslHandshake, then SaslAuthenticate until the mechanism completes.

    SaslHandshake v1       mechanism                ->  error code, mechanisms the listener offers
    SaslAuthenticate v0-2  bytes of the mechanism   ->  error code, error message, bytes, [v1+: session lifetime in ms]

Both are ordinary requests (KIP-152). The same exchange on a connection in use re-authenticates it (KIP-368).

SCRAM proves that both sides know the password, without sending it (RFC 5802, RFC 7677):

    client-first   n,,n=<user>,r=<client nonce>[,tokenauth=true]
    server-first   r=<client nonce><server nonce>,s=<base64 salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<base64 proof>
    server-final   v=<base64 server signature>        or e=<error>

    salted  = PBKDF2(password, salt, iterations)      stored = H(HMAC(salted, "Client Key"))
    auth    = client-first without "n,,", server-first and client-final without the proof, joined by commas
    proof   = HMAC(salted, "Client Key") xor HMAC(stored, auth)
    server signature = HMAC(HMAC(salted, "Server Key"), auth)

Kafka deviates from the RFC in two points. Passwords are UTF-8 without SASLprep (``ScramFormatter.normalize``): a client
that applied it would fail for passwords that it changes. And ``tokenauth=true`` means that user and password are a
delegation token (KIP-48).

GSSAPI (Kerberos): see ``kerberos.py``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, ProtocolError, printable
from pyspark_kafka_direct.options.security_settings import MASK, AwsTokens, AzureTokens, GoogleTokens
from pyspark_kafka_direct.protocol.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.security.kerberos import KerberosExchange
    from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
    from pyspark_kafka_direct.options.security_settings import OAuthSettings, SaslSettings, Secret
    from pyspark_kafka_direct.options.settings import ConnectionSettings
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

# Error codes of the protocol guide.
_NONE: Final = 0
_UNSUPPORTED_SASL_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34
_SASL_AUTHENTICATION_FAILED: Final = 58


class SaslConnection(Protocol):
    """The part of a connection that authentication uses."""

    settings: ConnectionSettings
    host: str
    broker: str  # host:port

    def call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        """Send a request and wait for its response; see ``Connection.call``."""


def authenticate(connection: SaslConnection, deadline: Deadline) -> float | None:
    """Authenticate, or re-authenticate, a connection; return the session's lifetime in seconds, if it is limited."""
    sasl = connection.settings.security.sasl
    if sasl is None:
        raise ProtocolError(
            "The connection cannot authenticate: kafka.security.protocol has no SASL.", broker=connection.broker
        )
    # Tokens and tickets first: to get them may take long, and brokers close connections with a slow handshake.
    try:
        exchange = _prepare_exchange(connection, sasl, deadline)
    except BrokerTimeoutError as error:
        error.before_login = True
        raise
    exchange.handshake()
    match sasl.mechanism:
        case "PLAIN":
            exchange.plain()
        case "OAUTHBEARER":
            exchange.oauthbearer()
        case "GSSAPI":
            exchange.gssapi()
        case _:
            exchange.scram()
    return exchange.session_lifetime


def _prepare_exchange(connection: SaslConnection, sasl: SaslSettings, deadline: Deadline) -> _SaslExchange:
    token = kerberos = None
    if sasl.oauth is not None:
        from pyspark_kafka_direct.client.security.oauth_login import retrieve_token

        token = retrieve_token(sasl.oauth, deadline, connection.broker)
    if sasl.kerberos is not None:
        from pyspark_kafka_direct.client.security.kerberos import start_exchange

        kerberos = start_exchange(sasl.kerberos, connection.host, deadline, connection.broker)
    if sasl.token_login is not None:
        from pyspark_kafka_direct.client.security.token_login import with_token

        sasl = with_token(sasl, sasl.token_login, deadline, connection.broker)
    return _SaslExchange(connection, sasl, deadline, token, kerberos)


class _SaslExchange:
    """The messages of one login: ``handshake``, then the method of the mechanism."""

    def __init__(
        self,
        connection: SaslConnection,
        sasl: SaslSettings,
        deadline: Deadline,
        token: OAuthBearerToken | None,
        kerberos: KerberosExchange | None,
    ) -> None:
        self._connection = connection
        self._sasl = sasl
        self._deadline = deadline
        self._token = token
        self._kerberos = kerberos
        self.session_lifetime: float | None = None  # seconds, from the last response; None: unlimited

    def handshake(self) -> None:
        mechanism = self._sasl.mechanism
        response = self._connection.call(SASL_HANDSHAKE, {"mechanism": mechanism}, self._deadline)
        if response.error_code == _UNSUPPORTED_SASL_MECHANISM or (
            response.error_code == _NONE and mechanism not in response.mechanisms
        ):
            offered = ", ".join(sorted(response.mechanisms)) or "none"
            advice = (
                "The login to Amazon MSK with IAM uses OAUTHBEARER; use the port of the IAM listener (9098), and Kafka "
                "2.7.1 or newer."
                if self._sasl.oauth is not None and isinstance(self._sasl.oauth.source, AwsTokens)
                else "Set kafka.sasl.mechanism (and kafka.sasl.jaas.config) to one of these, or use another listener's "
                "port."
            )
            raise self._error(f"The listener does not offer {mechanism}; it offers {offered}. {advice}")
        if response.error_code == _ILLEGAL_SASL_STATE:
            raise self._error(
                "The listener does not use SASL; set kafka.security.protocol to PLAINTEXT or SSL, or use another "
                "listener's port."
            )
        if response.error_code != _NONE:
            raise self._error(f"The broker rejected the login with error code {response.error_code}.")

    def plain(self) -> None:
        """Authenticate by RFC 4616: NUL user NUL password."""
        password = self._sasl.password.reveal()
        self._send(f"\0{self._sasl.username}\0{password}".encode())

    def scram(self) -> None:
        """Authenticate by RFC 5802, verifying both sides."""
        sasl = self._sasl
        nonce = self._deadline.system.nonce()
        client = ScramClient(
            sasl.mechanism, sasl.username, sasl.password, nonce, is_delegation_token=sasl.is_delegation_token
        )
        try:
            server_first = self._send(client.first_message())
            server_final = self._send(client.final_message(server_first))
            client.verify(server_final)
        except ScramError as error:
            raise self._error(f"Authentication with {sasl.mechanism} failed because of the broker: {error}.") from None

    def oauthbearer(self) -> None:
        """Authenticate by RFC 7628 with KIP-255: one message, and a second one only after a rejection."""
        assert self._token is not None
        pairs = [("auth", f"Bearer {self._token.value.reveal()}"), *self._token.extensions]
        message = "n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs) + "\x01"
        try:
            self._send_token(message.encode())
        except AuthenticationError:
            from pyspark_kafka_direct.client.security.oauth_login import renew_token

            assert self._sasl.oauth is not None
            renew_token(self._sasl.oauth, self._token.value, self._deadline, self._connection.broker)
            raise

    def _send_token(self, message: bytes) -> None:
        server_message = self._send(message)
        if server_message:
            # The broker sends its reason in a response without an error code, and waits for a single 0x01.
            reason = _oauth_error_status(server_message)
            try:
                self._send(b"\x01")
            except AuthenticationError as error:  # the expected response, with an error code
                raise self._error(self._rejection_message(reason or error.message)) from None
            raise self._error(self._rejection_message(reason))

    def gssapi(self) -> None:
        """Authenticate by RFC 4752, verifying both sides."""
        from pyspark_kafka_direct.client.security.kerberos_login import renew_credentials

        assert self._kerberos is not None
        assert self._sasl.kerberos is not None
        try:
            self._kerberos.run(self._send)
        except AuthenticationError as error:
            renew_credentials(self._sasl.kerberos, self._deadline)
            raise self._error(error.message) from error.__cause__

    def _send(self, message: bytes) -> bytes:
        response = self._connection.call(SASL_AUTHENTICATE, {"auth_bytes": message}, self._deadline)
        if response.error_code != _NONE:
            self._raise_rejected(response)
        milliseconds = response.session_lifetime_ms
        self.session_lifetime = milliseconds / 1000 if milliseconds > 0 else None
        server_message: bytes = response.auth_bytes
        return server_message

    def _raise_rejected(self, response: Any) -> NoReturn:
        reason = response.error_message or ""
        if response.error_code != _SASL_AUTHENTICATION_FAILED:
            reason = f"error code {response.error_code} {reason}".rstrip()
        raise self._error(self._rejection_message(reason))

    def _rejection_message(self, reason: str) -> str:
        if self._sasl.token_login is not None:
            from pyspark_kafka_direct.client.security.token_login import rejected_token_advice

            principal = "the delegation token"
            advice = rejected_token_advice(self._sasl.token_login.cluster)
        elif self._sasl.mechanism == "OAUTHBEARER":
            principal = "the token"
            advice = _token_advice(self._sasl.oauth, self._deadline.system.wall_time())
        elif self._kerberos is not None:
            principal = f"the Kerberos principal {self._kerberos.principal}"
            advice = (
                f"Check that the keytab of the broker has the KDC's current key of {self._kerberos.service}, that the "
                "clocks are synchronized (clock skew), and sasl.kerberos.principal.to.local.rules; the log of the "
                "broker has the reason."
            )
        else:
            principal = f"the user {self._sasl.username!r}"
            advice = (
                "Check user and password in kafka.sasl.jaas.config (or kafka.sasl.username and kafka.sasl.password), "
                "and that the user exists for this mechanism."
            )
        quoted_reason = f': "{self._redact(reason)}"' if reason else ""
        return f"The broker rejected {principal} ({self._sasl.mechanism}){quoted_reason}. {advice}"

    def _redact(self, message: str) -> str:
        # Passwords must not be shown, even if a broker includes one in its reason.
        secrets = [self._sasl.password.reveal()] + ([self._token.value.reveal()] if self._token else [])
        if self._sasl.token_login is not None:
            secrets.append(self._sasl.username)
        for secret in secrets:
            if secret:
                message = message.replace(secret, MASK)
        return printable(message)

    def _error(self, message: str) -> AuthenticationError:
        return AuthenticationError(message, broker=self._connection.broker)


def _token_advice(oauth: OAuthSettings | None, wall_time: float) -> str:
    """Return what to check if a broker rejects a token; the services of cloud providers give no reason."""
    match oauth.source if oauth else None:
        case AwsTokens() as source:
            now = datetime.fromtimestamp(wall_time, UTC).strftime("%Y-%m-%d %H:%M:%S")
            return (
                "Amazon MSK gives no reason. Check that the IAM policy allows kafka-cluster:Connect, that the cluster "
                f"is in {source.region}, and the clock of {socket.gethostname()}, which is {now} UTC."
            )
        case AzureTokens():
            return (
                "Check that the identity has a role on the namespace, such as Azure Event Hubs Data Receiver, and that "
                "the namespace is of the tier Standard or higher."
            )
        case GoogleTokens():
            return "Check that the service account has the role roles/managedkafka.client."
    return "Check its source (oauthTokenProvider or kafka.sasl.oauthbearer.*), audience and scope."


def _oauth_error_status(server_message: bytes) -> str:
    # RFC 7628, 3.2.2: {"status":"invalid_token","scope":"...","openid-configuration":"..."}
    try:
        content = json.loads(server_message)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return ""
    status = content.get("status") if isinstance(content, dict) else None
    return status if isinstance(status, str) else ""  # deeply nested values can be parsed but not formatted


_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# RFC 7677, 4: with fewer iterations, an impostor of the broker could cheaply guess the password from the proof.
_MIN_ITERATIONS: Final = 4096
# A malicious broker could keep this client busy for minutes; Kafka's tools allow 16384.
_MAX_ITERATIONS: Final = 1_000_000

_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,9})(?:,.*)?"
)
_SERVER_FINAL: Final = re.compile(rb"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?")


class ScramError(Exception):
    """The broker's side of the exchange is invalid; the message has the reason."""


class ScramClient:
    """One authentication: ``first_message``, then ``final_message``, then ``verify``."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: Secret,
        nonce: str,
        *,
        is_delegation_token: bool = False,  # whether user and password are a delegation token's id and HMAC
    ) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce.encode()
        user = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._first = b"n=" + user + b",r=" + self._nonce + (b",tokenauth=true" if is_delegation_token else b"")
        self._expected_signature = b""  # of the broker; `final_message` computes it, and `verify` compares it

    def first_message(self) -> bytes:
        return b"n,," + self._first

    def final_message(self, server_first: bytes) -> bytes:
        """Return the client's final message, with the proof, and compute the signature that ``verify`` expects."""
        nonce, salt, iterations = self._parse_server_first(server_first)
        without_proof = b"c=biws,r=" + nonce  # biws is "n,," in base64
        auth_message = b",".join((self._first, server_first, without_proof))
        salted_password = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), salt, iterations)
        client_key = self._hmac(salted_password, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, auth_message), strict=True))
        self._expected_signature = self._hmac(self._hmac(salted_password, b"Server Key"), auth_message)
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify(self, server_final: bytes) -> None:
        """Check that the broker knows the password too."""
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None:
            raise ScramError(_server_error(server_final) or "its final message is malformed")
        signature = _unbase64(match["signature"])
        # Before the final message nothing is expected yet, and an empty signature must not match that.
        if not self._expected_signature or not hmac.compare_digest(signature, self._expected_signature):
            raise ScramError("its signature is wrong: it does not know the password, so it may be an impostor")

    def _parse_server_first(self, message: bytes) -> tuple[bytes, bytes, int]:
        """Return nonce, salt and number of iterations; raise if an impostor of the broker may have chosen them."""
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            raise ScramError(_server_error(message) or "its first message is malformed")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("its nonce does not continue this client's")
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise ScramError(
                f"it requests {iterations} iterations; {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted"
            )
        return nonce, _unbase64(match["salt"]), iterations

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _unbase64(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ScramError("its message has invalid base64") from None


def _server_error(message: bytes) -> str | None:
    match = re.search(rb"(?:^|,)e=([\x20-\x2B\x2D-\x7E]{1,200})", message)
    return None if match is None else f"it returned {match[1].decode()}"
