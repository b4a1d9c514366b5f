"""OAUTHBEARER authentication against scripted responses of the broker."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security import oauth_login
from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.client.security.sasl_authenticator import authenticate
from pyspark_kafka_direct.config.security_settings import OAuthSettings, SaslSettings, Secret
from pyspark_kafka_direct.errors import AuthenticationError
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
        authenticate(FakeSaslConnection(response), Deadline.after(20))
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
