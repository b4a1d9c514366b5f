"""Logging in to a broker: SaslHandshake, then SaslAuthenticate until both sides are content.

    SaslHandshake v1       mechanism                ->  error code, mechanisms the listener offers
    SaslAuthenticate v0-2  bytes of the mechanism   ->  error code, error message, bytes, [v1+: session lifetime in ms]

Both are ordinary requests (KIP-152). The same exchange on a connection in use re-authenticates it (KIP-368).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from pyspark_kafka_direct.errors import AuthenticationError, ProtocolError
from pyspark_kafka_direct.settings.secret import MASK
from pyspark_kafka_direct.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE
from pyspark_kafka_direct.wire.security._scram import ScramClient, ScramError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.security import SaslSettings
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.messages import Api
    from pyspark_kafka_direct.wire.security._token import Token

# Error codes of the protocol guide.
_NONE: Final = 0
_UNSUPPORTED_SASL_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34
_SASL_AUTHENTICATION_FAILED: Final = 58

_LONGEST_REASON: Final = 500


class Caller(Protocol):
    """What a log-in needs of a connection.

    Attributes:
        settings: Has the credentials.
        broker: ``host:port``, for errors.
    """

    settings: ConnectionSettings
    broker: str

    def call(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        """Send a request and wait for its response; see ``Connection.call``."""


def authenticate(connection: Caller, deadline: Deadline) -> float | None:
    """Log in over an open connection, or log in again.

    Args:
        connection: Its settings say how.
        deadline: End of the whole exchange.

    Returns:
        Seconds until the broker wants a new log-in, ``None`` where it never does.

    Raises:
        AuthenticationError: The broker refuses, or can't prove who it is; says which option to check.
        OptionError: The ``oauthTokenProvider`` can't be used.
        BrokerTimeoutError: The deadline passed.
    """
    sasl = connection.settings.security.sasl
    if sasl is None:
        raise ProtocolError("A log-in was asked for, but kafka.security.protocol has none.", broker=connection.broker)
    # The token first: fetching it may take a while, and brokers close connections that dawdle over a handshake.
    token = None
    if sasl.oauth is not None:
        from pyspark_kafka_direct.wire.security._oauth import token_for

        token = token_for(sasl.oauth, deadline, connection.broker)
    exchange = _Exchange(connection, sasl, deadline, token)
    exchange.handshake()
    match sasl.mechanism:
        case "PLAIN":
            exchange.plain()
        case "OAUTHBEARER":
            exchange.oauthbearer()
        case _:
            exchange.scram()
    return exchange.lifetime


class _Exchange:
    """One log-in on one connection."""

    def __init__(self, connection: Caller, sasl: SaslSettings, deadline: Deadline, token: Token | None) -> None:
        self._connection = connection
        self._sasl = sasl
        self._deadline = deadline
        self._token = token
        self.lifetime: float | None = None

    def handshake(self) -> None:
        """Agree on the mechanism."""
        wanted = self._sasl.mechanism
        response = self._connection.call(SASL_HANDSHAKE, {"mechanism": wanted}, self._deadline)
        if response.error_code == _UNSUPPORTED_SASL_MECHANISM or (
            response.error_code == _NONE and wanted not in response.mechanisms
        ):
            offered = ", ".join(sorted(response.mechanisms)) or "none"
            raise self._error(
                f"The listener does not offer {wanted}; it offers {offered}. Set kafka.sasl.mechanism (and "
                "kafka.sasl.jaas.config) to one of these, or use another listener's port."
            )
        if response.error_code == _ILLEGAL_SASL_STATE:
            raise self._error(
                "The listener wants no log-in; set kafka.security.protocol to PLAINTEXT or SSL, or use another "
                "listener's port."
            )
        if response.error_code != _NONE:
            raise self._error(f"The broker refused the log-in with error code {response.error_code}.")

    def plain(self) -> None:
        """Log in by RFC 4616: NUL user NUL password."""
        password = self._sasl.password.reveal()
        self._send(f"\0{self._sasl.username}\0{password}".encode())

    def scram(self) -> None:
        """Log in by RFC 5802; both sides are checked."""
        sasl = self._sasl
        nonce = self._deadline.system.nonce()
        token = sasl.delegation_token
        client = ScramClient(sasl.mechanism, sasl.username, sasl.password, nonce, delegation_token=token)
        try:
            server_first = self._send(client.first())
            server_final = self._send(client.final(server_first))
            client.verify(server_final)
        except ScramError as error:
            raise self._error(f"The log-in by {sasl.mechanism} failed because of the broker: {error}.") from None

    def oauthbearer(self) -> None:
        """Log in by RFC 7628 as KIP-255 has it: one message, and one more to close a refusal."""
        assert self._token is not None
        pairs = [("auth", f"Bearer {self._token.value.reveal()}"), *self._token.extensions]
        message = "n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs) + "\x01"
        answer = self._send(message.encode())
        if answer:
            # The broker tells its reason inside an answer without an error code, and waits for a lone 0x01.
            reason = _status_in(answer)
            try:
                self._send(b"\x01")
            except AuthenticationError as error:
                raise self._error(self._refusal(reason or error.message)) from None
            raise self._error(self._refusal(reason))

    def _send(self, message: bytes) -> bytes:
        response = self._connection.call(SASL_AUTHENTICATE, {"auth_bytes": message}, self._deadline)
        if response.error_code != _NONE:
            self._refused(response)
        milliseconds = response.session_lifetime_ms
        self.lifetime = milliseconds / 1000 if milliseconds > 0 else None
        authenticated: bytes = response.auth_bytes
        return authenticated

    def _refused(self, response: Any) -> NoReturn:
        reason = response.error_message or ""
        if response.error_code != _SASL_AUTHENTICATION_FAILED:
            reason = f"error code {response.error_code} {reason}".rstrip()
        raise self._error(self._refusal(reason))

    def _refusal(self, reason: str) -> str:
        if self._sasl.mechanism == "OAUTHBEARER":
            who = "the token"
            check = (
                "Check where it comes from (oauthTokenProvider or kafka.sasl.oauthbearer.*), its audience and scope."
            )
        else:
            who = f"the user {self._sasl.username!r}"
            check = (
                "Check user name and password in kafka.sasl.jaas.config, and that the user exists for this mechanism."
            )
        said = f': "{self._clean(reason)}"' if reason else ""
        return f"The broker refused {who} ({self._sasl.mechanism}){said}. {check}"

    def _clean(self, text: str) -> str:
        # No broker is known to send a password back; that this one does not is not for it to decide.
        secrets = [self._sasl.password.reveal()] + ([self._token.value.reveal()] if self._token else [])
        for secret in secrets:
            if secret:
                text = text.replace(secret, MASK)
        return "".join(character if character.isprintable() else " " for character in text)[:_LONGEST_REASON]

    def _error(self, text: str) -> AuthenticationError:
        return AuthenticationError(text, broker=self._connection.broker)


def _status_in(answer: bytes) -> str:
    # RFC 7628, 3.2.2: {"status":"invalid_token","scope":"...","openid-configuration":"..."}
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):  # the second: thousands of brackets
        return ""
    status = content.get("status") if isinstance(content, dict) else None
    return status if isinstance(status, str) else ""  # fewer brackets can be read, and still be too many to be shown
