"""A log-in by token that the broker answers as it likes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import AuthenticationError
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import OAuthSettings, SaslSettings
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.messages import SASL_HANDSHAKE
from pyspark_kafka_direct.wire.security import _oauth
from pyspark_kafka_direct.wire.security._token import Token
from pyspark_kafka_direct.wire.security.sasl import authenticate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.messages import Api


class Answering:
    """A connection to a broker that answers a token so."""

    broker = "broker:9092"

    def __init__(self, answer: bytes) -> None:
        sasl = SaslSettings(mechanism="OAUTHBEARER", oauth=OAuthSettings(provider="a:b"))
        self.settings: Any = SimpleNamespace(security=SimpleNamespace(sasl=sasl))
        self._answer = answer

    def call(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        if api is SASL_HANDSHAKE:
            return SimpleNamespace(error_code=0, mechanisms=["OAUTHBEARER"])
        return SimpleNamespace(error_code=0, error_message=None, auth_bytes=self._answer, session_lifetime_ms=0)


@pytest.fixture(autouse=True)
def _a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_oauth, "token_for", lambda *_: Token(Secret("hunter2")))


def refused(answer: bytes) -> str:
    with pytest.raises(AuthenticationError) as caught:
        authenticate(Answering(answer), Deadline.after(20))
    assert "hunter2" not in str(caught.value)
    return caught.value.message


def test_the_status_is_told() -> None:
    assert 'refused the token (OAUTHBEARER): "invalid_token".' in refused(b'{"status":"invalid_token"}')
    assert 'refused the token (OAUTHBEARER): "no ********".' in refused(b'{"status":"no hunter2"}')


@pytest.mark.parametrize("form", ["%s", '{"status":%s}'], ids=["alone", "status"])
def test_an_answer_of_brackets_is_a_refusal(form: str) -> None:
    """Few, as many as can be read and not be shown, and more than can be read."""
    limit = sys.getrecursionlimit()
    for depth in (1, *range(limit - 200, limit), 100 * limit):
        said = refused((form % ("[" * depth + "]" * depth)).encode())
        assert "refused the token (OAUTHBEARER). Check" in said
