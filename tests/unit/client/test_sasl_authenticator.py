"""Authentication against scripted responses of the broker."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.client.test_scram import Broker

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security import oauth_login
from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.client.security.sasl_authenticator import authenticate
from pyspark_kafka_direct.errors import AuthenticationError
from pyspark_kafka_direct.options.security_settings import OAuthSettings, SaslSettings, Secret
from pyspark_kafka_direct.protocol.messages import SASL_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.protocol.messages import ApiMessageType


class FakeSaslConnection:
    """A connection to a broker with a given response to the token."""

    broker = "broker:9092"

    def __init__(self, response: bytes) -> None:
        sasl = SaslSettings(mechanism="OAUTHBEARER", oauth=OAuthSettings(provider="a:b"))
        self.settings: Any = SimpleNamespace(security=SimpleNamespace(sasl=sasl))
        self._response = response

    def call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        if api is SASL_HANDSHAKE:
            return SimpleNamespace(error_code=0, mechanisms=["OAUTHBEARER"])
        return SimpleNamespace(error_code=0, error_message=None, auth_bytes=self._response, session_lifetime_ms=0)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_login, "retrieve_token", lambda *_: OAuthBearerToken(Secret("hunter2")))


def rejection_message(response: bytes) -> str:
    with pytest.raises(AuthenticationError) as caught:
        authenticate(FakeSaslConnection(response), Deadline.after(120))
    assert "hunter2" not in str(caught.value)
    return caught.value.message


def test_error_has_the_status() -> None:
    assert 'rejected the token (OAUTHBEARER): "invalid_token".' in rejection_message(b'{"status":"invalid_token"}')
    assert 'rejected the token (OAUTHBEARER): "no ********".' in rejection_message(b'{"status":"no hunter2"}')


@pytest.mark.parametrize("form", ["%s", '{"status":%s}'], ids=["alone", "status"])
def test_deeply_nested_response_is_a_rejection(form: str) -> None:
    """A few brackets, as many as can be parsed but not formatted, and more than can be parsed."""
    limit = sys.getrecursionlimit()
    for depth in (1, *range(limit - 200, limit), 100 * limit):
        message = rejection_message((form % ("[" * depth + "]" * depth)).encode())
        assert "rejected the token (OAUTHBEARER). Check" in message


class ScriptedConnection:
    """A connection to a broker that responds to each message of the client in turn."""

    broker = "broker:9092"

    def __init__(self, sasl: SaslSettings, *responses: Any) -> None:
        self.settings: Any = SimpleNamespace(security=SimpleNamespace(sasl=sasl))
        self.sent: list[bytes] = []
        self._responses = list(responses)

    def call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        if api is SASL_HANDSHAKE:
            return SimpleNamespace(error_code=0, mechanisms=[values["mechanism"]])
        self.sent.append(values["auth_bytes"])
        response = self._responses.pop(0)
        return response(self.sent[-1]) if callable(response) else response


def accepted(content: bytes = b"", lifetime_ms: int = 0) -> Any:
    return SimpleNamespace(error_code=0, error_message=None, auth_bytes=content, session_lifetime_ms=lifetime_ms)


def rejected(code: int, message: str | None) -> Any:
    return SimpleNamespace(error_code=code, error_message=message, auth_bytes=b"", session_lifetime_ms=0)


SCRAM = SaslSettings(mechanism="SCRAM-SHA-256", username="user", password=Secret("pencil"))
PLAIN = SaslSettings(mechanism="PLAIN", username="user", password=Secret("pencil"))


@pytest.mark.parametrize(("lifetime_ms", "seconds"), [(0, None), (90_500, 90.5)])
def test_a_scram_login_verifies_both_sides(lifetime_ms: int, seconds: float | None) -> None:
    broker = Broker("sha256", "pencil")
    connection = ScriptedConnection(
        SCRAM,
        lambda message: accepted(broker.respond(message)),
        lambda message: accepted(broker.finish(message), lifetime_ms),
    )
    assert authenticate(connection, Deadline.after(120)) == seconds
    assert connection.sent[0].startswith(b"n,,n=user,r=")
    assert len(connection.sent) == 2


@pytest.mark.parametrize(
    ("final", "message"),
    [
        (b"v=AAAA", "Authentication with SCRAM-SHA-256 failed because of the broker: "),
        (b"e=other", "other"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_trusted(final: bytes, message: str) -> None:
    broker = Broker("sha256", "pencil")
    connection = ScriptedConnection(SCRAM, lambda first: accepted(broker.respond(first)), accepted(final))
    with pytest.raises(AuthenticationError, match=message) as caught:
        authenticate(connection, Deadline.after(120))
    assert caught.value.broker == "broker:9092"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (rejected(58, "invalid credentials"), '(PLAIN): "invalid credentials". Check user and password in'),
        (rejected(58, None), "(PLAIN). Check user and password in"),
        (rejected(58, "user pencil is locked"), '(PLAIN): "user ******** is locked".'),
        (rejected(33, "later"), '(PLAIN): "error code 33 later".'),
        (rejected(-1, None), '(PLAIN): "error code -1".'),
    ],
)
def test_a_rejected_user_is_told_the_reason(response: Any, reason: str) -> None:
    connection = ScriptedConnection(PLAIN, response)
    with pytest.raises(AuthenticationError) as caught:
        authenticate(connection, Deadline.after(120))
    assert f"The broker rejected the user 'user' {reason}" in caught.value.message
    assert connection.sent == [b"\0user\0pencil"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (b'{"status":"expired"}', rejected(58, "Authentication failed"), '"expired"'),
        (b"{}", rejected(58, "the token has expired"), "the token has expired"),
        (b'{"status":"expired"}', accepted(), '"expired"'),
    ],
)
def test_a_rejected_token_is_acknowledged(first: bytes, second: Any, reason: str) -> None:
    """The broker waits for this message before it ends the authentication."""
    oauth = SaslSettings(mechanism="OAUTHBEARER", oauth=OAuthSettings(provider="a:b"))
    connection = ScriptedConnection(oauth, accepted(first), second)
    with pytest.raises(AuthenticationError, match=reason):
        authenticate(connection, Deadline.after(120))
    assert connection.sent == [b"n,,\x01auth=Bearer hunter2\x01\x01", b"\x01"]
