"""Logins with a delegation token: which token is used, how long a process waits for one, and what errors say."""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.test_sasl_authenticator import messages, rejected, secured

from pyspark_kafka_direct.client.security.token_login import wait_for_token
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError
from pyspark_kafka_direct.options.security_settings import (
    TOKENS,
    DelegationToken,
    DelegationTokenLogin,
    SaslSettings,
    Secret,
    TokenState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 1}) as cluster:
        yield cluster


@pytest.fixture
def login() -> DelegationTokenLogin:
    """A login that no other test has, because a process retains its tokens."""
    return DelegationTokenLogin(f"application {next(NUMBERS)}", "flights")


def token(serial: int, expires_at: float = 1e10) -> DelegationToken:
    hmac = base64.b64encode(b"hunter%d" % serial).decode()
    return DelegationToken(serial, Secret(f"id-{serial}"), Secret(hmac), expires_at)


def sasl(login: DelegationTokenLogin) -> SaslSettings:
    return SaslSettings(mechanism="SCRAM-SHA-256", token_login=login)


def test_the_newest_token_is_used_and_not_shown(cluster: UnitCluster, login: DelegationTokenLogin) -> None:
    other = DelegationTokenLogin(login.application, "trains")
    TOKENS.receive(other, token(9))
    for serial in (1, 2):
        TOKENS.receive(login, token(serial))
        client = secured(cluster, sasl(login), rejected(58, f"id-{serial} or {token(serial).hmac.reveal()} is unknown"))
        with pytest.raises(AuthenticationError) as caught:
            client.refresh_brokers()
        assert messages(cluster)[-1].startswith(b"n,,n=id-%d,r=" % serial)
        assert messages(cluster)[-1].endswith(b",tokenauth=true")
        assert 'rejected the delegation token (SCRAM-SHA-256): "******** or ******** is unknown"' in str(caught.value)
        assert "renews the token of spark.kafka.clusters.flights" in caught.value.message


def test_an_executor_uses_its_token_although_it_seems_to_have_expired(
    cluster: UnitCluster, login: DelegationTokenLogin
) -> None:
    """Its clock may differ, so the broker decides; it cannot wait for another one either."""
    deadline = cluster.client().deadline()
    with pytest.raises(AuthenticationError, match="has no delegation token for spark") as caught:
        wait_for_token(login, deadline, "b:1")
    assert caught.value.broker == "b:1"
    old = token(1, expires_at=cluster.process.wall_time() - 100)
    TOKENS.receive(login, old)
    assert wait_for_token(login, deadline) == old


@pytest.mark.parametrize("has_expired", [False, True])
def test_a_driver_waits_for_a_token_that_is_valid(
    cluster: UnitCluster, login: DelegationTokenLogin, has_expired: bool
) -> None:
    now = cluster.process.wall_time()
    old = token(1, expires_at=now) if has_expired else None
    states = [TokenState(old, "why", is_driver=True)]
    TOKENS.read_by(login.application, lambda name: states[0])
    problem = "The delegation token has expired" if has_expired else "The application has no delegation token"
    started = cluster.now
    with pytest.raises(BrokerTimeoutError, match=f"{problem} for spark.kafka.clusters.flights: why") as caught:
        wait_for_token(login, cluster.client().deadline(5), "b:1")
    assert caught.value.broker == "b:1"
    assert 4.8 < cluster.now - started <= 5
    cluster.after(2, lambda: states.insert(0, TokenState(token(2), is_driver=True)))
    assert wait_for_token(login, cluster.client().deadline(5)) == token(2)
    states.insert(0, TokenState(old, "tokens are disabled.", is_final=True, is_driver=True))
    started = cluster.now
    with pytest.raises(AuthenticationError, match=f"{problem} for .*flights: tokens are disabled\\.$"):
        wait_for_token(login, cluster.client().deadline(5))
    assert cluster.now < started + 0.01, "a retry cannot resolve the error"
