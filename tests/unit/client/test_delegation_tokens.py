"""Requests for delegation tokens: creation, until each broker has the token, renewal, and what error codes mean."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.delegation_tokens import (
    LostTokenError,
    create_delegation_token,
    renew_delegation_token,
)
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    KafkaDirectError,
    ProtocolError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for
from pyspark_kafka_direct.protocol.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.delegation_tokens import CreatedToken

NEVER = 1000.0  # seconds


class TokenBrokers(UnitCluster):
    """Three brokers, each of which has a new token after some seconds."""

    def __init__(self) -> None:
        super().__init__({}, brokers=3)
        self.lags = {1: 0.0, 2: 0.0, 3: 0.0}  # seconds, by broker
        self.created: dict[str, Any] = {
            "principal_type": "User",
            "principal_name": "alice",
            "issue_timestamp_ms": 1_000,
            "expiry_timestamp_ms": 2_000,
            "max_timestamp_ms": 3_000,
            "token_id": "new",
            "hmac": b"secret",
        }
        self.codes: list[int] = []  # of the next responses
        self.describe_code = dict.fromkeys(self.lags, ErrorCode.NONE)
        self._created_at = 0.0
        self.offer(CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN)
        self.change("CreateDelegationToken", lambda *_: self._create())
        self.change("DescribeDelegationToken", lambda broker, _: self._describe(broker))
        self.change("RenewDelegationToken", lambda *_: self._respond({"expiry_timestamp_ms": 2_500}))

    def create(self) -> CreatedToken:
        client = self.client()
        return create_delegation_token(client, client.deadline())

    def renew(self) -> int:
        client = self.client()
        return renew_delegation_token(client, Secret(base64.b64encode(b"secret").decode()), client.deadline())

    def _respond(self, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "error_code": self.codes.pop(0) if self.codes else ErrorCode.NONE}

    def _create(self) -> dict[str, Any]:
        self._created_at = self.now
        return self._respond(self.created)

    def _describe(self, broker: int) -> dict[str, Any]:
        has_token = self.now >= self._created_at + self.lags[broker]
        names = ["old", *["new"] * has_token, "another"]
        tokens = [] if self.describe_code[broker] else [{"token_id": name, "hmac": b"x"} for name in names]
        return {"error_code": self.describe_code[broker], "tokens": tokens}


@pytest.fixture
def cluster() -> Iterator[TokenBrokers]:
    with TokenBrokers() as cluster:
        yield cluster


def test_a_new_token_is_returned_once_each_broker_has_it(cluster: TokenBrokers) -> None:
    cluster.lags, started = {1: 1.0, 2: 6.0, 3: 4.0}, cluster.now
    token = cluster.create()
    assert 6 <= cluster.now - started < 6.2
    assert (token.owner, token.id.reveal(), base64.b64decode(token.hmac.reveal())) == (
        ("User", "alice"),
        "new",
        b"secret",
    )
    assert (token.issued_ms, token.expires_ms, token.ends_ms) == (1_000, 2_000, 3_000)
    (request,) = cluster.received("CreateDelegationToken")
    assert (request.renewers, request.max_lifetime_ms) == ((), -1)
    assert {each.owners for each in cluster.received("DescribeDelegationToken")} == {(("User", "alice"),)}
    assert all(cluster.received_by("DescribeDelegationToken"))


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_broker_that_lags_for_long_ends_no_login(cluster: TokenBrokers, broker: int) -> None:
    cluster.lags[broker], started = NEVER, cluster.now
    cluster.create()
    assert 9.9 < cluster.now - started <= 10.1


@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("is_down", [False, True])
def test_a_broker_that_cannot_list_tokens_does_not_stand_for_the_others(
    cluster: TokenBrokers, broker: int, is_down: bool
) -> None:
    cluster.lags, started = dict.fromkeys(cluster.lags, 4.0), cluster.now
    if is_down:
        cluster.event("stop_broker", broker=broker - 1, seconds=NEVER)
    else:
        cluster.describe_code[broker] = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    cluster.create()
    assert 4 <= cluster.now - started < 5
    counts = cluster.received_by("DescribeDelegationToken")
    assert counts[broker - 1] == (0 if is_down else 1)
    assert sum(count > 0 for count in counts) == (2 if is_down else 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"token_id": ""},
        {"token_id": "x" * 1025},
        {"hmac": b""},
        {"hmac": bytes(1025)},
        {"expiry_timestamp_ms": 1_999},
        {"expiry_timestamp_ms": 3_001},
    ],
    ids=str,
)
def test_a_response_without_a_usable_token_is_an_error(cluster: TokenBrokers, changed: dict[str, Any]) -> None:
    cluster.created |= changed
    with pytest.raises(ProtocolError, match="has no token that is valid for a second"):
        cluster.create()


def test_the_longest_token_may_end_with_its_first_period(cluster: TokenBrokers) -> None:
    cluster.created |= {"token_id": "new", "hmac": bytes(1024), "max_timestamp_ms": 2_000}
    assert cluster.create().ends_ms == 2_000


def test_a_token_is_renewed_for_the_period_of_the_cluster(cluster: TokenBrokers) -> None:
    assert cluster.renew() == 2_500
    (request,) = cluster.received("RenewDelegationToken")
    assert (bytes(request.hmac), request.renew_period_ms) == (b"secret", -1)


REASONS: dict[int, tuple[type[KafkaDirectError], str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (UnsupportedBrokerError, r"set delegation\.token\.secret\.key"),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (AuthenticationError, "but not with another delegation token"),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (AuthorizationError, "may not create a delegation token"),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: (LostTokenError, "do not have the delegation token any more"),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: (LostTokenError, "The delegation token has expired"),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (LostTokenError, "may not renew the delegation token"),
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
@pytest.mark.parametrize("renews", [False, True])
def test_what_error_codes_mean(cluster: TokenBrokers, code: ErrorCode, renews: bool) -> None:
    """Other errors may pass or not, but the token is not lost."""
    cluster.codes = [code] * 4  # of all brokers, and again
    call = cluster.renew if renews else cluster.create
    general = error_for(code, "testing")
    if isinstance(general, TransientBrokerError):
        call()
        assert cluster.codes == []
        return
    error_type, message = REASONS.get(
        code,
        (
            BrokerError if isinstance(general, ProtocolError) else type(general),
            f"{code.name} while {'renewing' if renews else 'creating'} a delegation token",
        ),
    )
    with pytest.raises(error_type, match=message) as caught:
        call()
    assert type(caught.value) is error_type
    assert caught.value.broker in {f"broker-{number}:9092" for number in cluster.lags}
