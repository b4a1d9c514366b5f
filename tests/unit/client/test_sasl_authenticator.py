"""Authentication, and the broker's responses to it."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.test_scram import Broker

from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel, FetchRequestPartition
from pyspark_kafka_direct.errors import AuthenticationError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.security_settings import (
    AwsTokens,
    FileTokens,
    OAuthSettings,
    ProviderTokens,
    SaslSettings,
    Secret,
    SecuritySettings,
)
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    Response = dict[str, Any] | Callable[[bytes], dict[str, Any]]

TOKEN = jwt.encode({"sub": "me"}, "a secret of 32 characters or more")
SCRAM = SaslSettings(mechanism="SCRAM-SHA-256", username="user", password=Secret("pencil"))
PLAIN = SaslSettings(mechanism="PLAIN", username="user", password=Secret("pencil"))


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 1}) as cluster:
        yield cluster


@pytest.fixture
def oauth(tmp_path: Path) -> SaslSettings:
    (tmp_path / "token").write_text(TOKEN)
    oauth = OAuthSettings(FileTokens(str(tmp_path / "token")))
    return SaslSettings(mechanism="OAUTHBEARER", oauth=oauth)


def secured(cluster: UnitCluster, sasl: SaslSettings, *responses: Response, offered: str = "") -> ClusterClient:
    """Return a client whose logins get these responses in turn, from a listener with one mechanism."""
    remaining = list(responses)
    handshake = {"error_code": 0, "mechanisms": [offered or sasl.mechanism]}

    def respond(_: int, values: dict[str, Any]) -> dict[str, Any]:
        response = remaining.pop(0)
        return response(messages(cluster)[-1]) if callable(response) else response

    cluster.change("SaslHandshake", lambda _, values: handshake)
    cluster.change("SaslAuthenticate", respond)
    return cluster.client(security=SecuritySettings("SASL_PLAINTEXT", sasl=sasl))


def messages(cluster: UnitCluster) -> list[bytes]:
    """Return what the client has sent."""
    return [bytes(each.auth_bytes) for each in cluster.received("SaslAuthenticate")]


def accepted(content: bytes = b"", lifetime_ms: int = 0) -> dict[str, Any]:
    return {"error_code": 0, "error_message": None, "auth_bytes": content, "session_lifetime_ms": lifetime_ms}


def rejected(code: int, message: str | None) -> dict[str, Any]:
    return {**accepted(), "error_code": code, "error_message": message}


def rejection(client: ClusterClient) -> str:
    with pytest.raises(AuthenticationError) as caught:
        client.refresh_brokers()
    assert caught.value.broker == "broker-1:9092"
    assert TOKEN not in str(caught.value)
    return caught.value.message


@pytest.mark.parametrize("lifetime_ms", [0, 90_000])
def test_a_scram_login_verifies_both_sides_and_is_renewed(cluster: UnitCluster, lifetime_ms: int) -> None:
    broker = Broker("sha256", "pencil")
    login: tuple[Response, ...] = (
        lambda message: accepted(broker.respond(message)),
        lambda message: accepted(broker.finish(message), lifetime_ms),
    )
    client = secured(cluster, SCRAM, *login, *login)
    client.refresh_brokers()
    assert messages(cluster)[0].startswith(b"n,,n=user,r=")
    for seconds, logins in ((75, 1), (3, 2 if lifetime_ms else 1)):  # 85% of the lifetime
        cluster.sleep(seconds)
        assert client.offsets({TopicPartition("t", 0): LATEST}) == {TopicPartition("t", 0): 0}
        assert len(messages(cluster)) == 2 * logins
    assert cluster.network.connect_count == 1


def test_a_session_that_no_longer_ends_is_not_renewed(cluster: UnitCluster) -> None:
    client = secured(cluster, PLAIN, accepted(lifetime_ms=60_000), accepted())
    for seconds, logins in ((0, 1), (55, 2), (55, 2), (200, 2)):
        cluster.sleep(seconds)
        client.offsets({TopicPartition("t", 0): LATEST})
        assert len(messages(cluster)) == logins
    assert cluster.network.connect_count == 1


def test_a_session_is_renewed_when_no_response_is_outstanding(cluster: UnitCluster) -> None:
    client = secured(cluster, PLAIN, *[accepted(lifetime_ms=60_000)] * 2)
    deadline = client.deadline(600)
    connection = cluster.pool.acquire(client.settings, "broker-1", 9092, deadline)
    connection.submit(METADATA, {"topics": []}, deadline)
    cluster.sleep(55)
    assert connection.reauthentication_due
    connection.submit(METADATA, {"topics": []}, deadline)
    for _ in range(2):
        assert len(messages(cluster)) == 1
        assert connection.complete(METADATA, deadline).cluster_id == "simulated-cluster"
    connection.call(METADATA, {"topics": []}, deadline)
    assert len(messages(cluster)) == 2
    client.release(connection)


def test_a_short_session_is_renewed_after_a_second(cluster: UnitCluster) -> None:
    """Brokers reject a second login within a second of the first (KIP-368)."""
    client = secured(cluster, PLAIN, *[accepted(lifetime_ms=1_000)] * 3)
    found = []
    for seconds in (0, 0.95, 0.2, 1.0, 0.2):
        cluster.sleep(seconds)
        client.refresh_brokers()
        found.append(len(messages(cluster)))
    assert found == [1, 1, 2, 2, 3]


def test_the_lifetime_of_a_session_begins_with_its_login(cluster: UnitCluster) -> None:
    """Not with the end of the login, which may be late."""
    cluster.fault("SaslAuthenticate", "delay_response", seconds=6)
    client = secured(cluster, PLAIN, *[accepted(lifetime_ms=60_000)] * 2)
    found = []
    for seconds in (0, 44, 2):
        cluster.sleep(seconds)
        client.refresh_brokers()
        found.append(len(messages(cluster)))
    assert found == [1, 1, 2], "at 51 s"


def test_a_connection_whose_renewal_is_rejected_is_closed(cluster: UnitCluster) -> None:
    client = secured(cluster, PLAIN, accepted(lifetime_ms=60_000), rejected(58, "no"))
    client.refresh_brokers()
    cluster.sleep(55)
    assert "rejected the user" in rejection(client)
    assert cluster.open_connections == 0


def test_reauthentication_preserves_the_last_response(cluster: UnitCluster) -> None:
    """Records are decoded while the next request is sent, which re-authentication may precede."""
    tp = TopicPartition("t", 0)
    cluster.append(tp, 20, size=100)
    client = secured(cluster, PLAIN, *[accepted(bytes(1000), lifetime_ms=60_000)] * 2)
    deadline = client.deadline(600)
    connection = cluster.pool.acquire(client.settings, "broker-1", 9092, deadline)
    channel = FetchChannel(connection, FetchSettings())
    partition = FetchRequestPartition("t", cluster.topic_id("t"), 0, 0, 1 << 20)
    channel.request([partition], deadline)
    records = channel.response(deadline).partition(tp).records
    content = bytes(records)
    assert len(content) > 2000
    cluster.sleep(55)
    channel.request([partition], deadline)
    assert len(messages(cluster)) == 2
    assert bytes(records) == content
    assert bytes(channel.response(deadline).partition(tp).records) == content
    client.release(connection)


@pytest.mark.parametrize(
    ("final", "reason"),
    [(b"v=AAAA", "Authentication with SCRAM-SHA-256 failed because of the broker: "), (b"e=other", "other")],
)
def test_a_broker_that_does_not_know_the_password_is_not_trusted(
    cluster: UnitCluster, final: bytes, reason: str
) -> None:
    broker = Broker("sha256", "pencil")
    assert reason in rejection(secured(cluster, SCRAM, lambda first: accepted(broker.respond(first)), accepted(final)))


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (rejected(58, "invalid credentials"), '(PLAIN): "invalid credentials". Check user and password in'),
        (rejected(58, None), "(PLAIN). Check user and password in kafka.sasl.jaas.config (or kafka.sasl.username and"),
        (rejected(58, "user pencil is locked"), '(PLAIN): "user ******** is locked".'),
        (rejected(33, "later"), '(PLAIN): "error code 33 later".'),
        (rejected(-1, None), '(PLAIN): "error code -1".'),
    ],
)
def test_a_rejected_user_is_told_the_reason(cluster: UnitCluster, response: Response, reason: str) -> None:
    assert f"The broker rejected the user 'user' {reason}" in rejection(secured(cluster, PLAIN, response))
    assert messages(cluster) == [b"\0user\0pencil"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (b'{"status":"expired"}', rejected(58, "Authentication failed"), '"expired"'),
        (b"{}", rejected(58, "the token has expired"), "the token has expired"),
        (f'{{"status":"no {TOKEN}"}}'.encode(), accepted(), 'rejected the token (OAUTHBEARER): "no ********".'),
    ],
)
def test_a_rejected_token_is_acknowledged(
    cluster: UnitCluster, oauth: SaslSettings, first: bytes, second: Response, reason: str
) -> None:
    """The broker waits for this message before it ends the authentication."""
    assert reason in rejection(secured(cluster, oauth, accepted(first), second))
    assert messages(cluster) == [f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode(), b"\x01"]


def test_all_extensions_are_sent_with_a_token(cluster: UnitCluster, oauth: SaslSettings) -> None:
    assert oauth.oauth is not None
    extended = replace(oauth, oauth=replace(oauth.oauth, extensions=(("pool", "p-1"), ("cluster", "mine"))))
    secured(cluster, extended, accepted()).refresh_brokers()
    assert messages(cluster) == [f"n,,\x01auth=Bearer {TOKEN}\x01pool=p-1\x01cluster=mine\x01\x01".encode()]


@pytest.mark.parametrize(
    "responses",
    [(accepted(b'{"status":"invalid_token"}'), rejected(58, None)), (rejected(58, None),)],
    ids=["status", "code"],
)
def test_the_next_login_after_a_rejected_token_requests_another_one(
    cluster: UnitCluster, responses: tuple[Response, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An identity provider may have new keys, or its administrator has corrected a claim."""
    numbers = itertools.count(1)
    provider = ModuleType("numbered_tokens")
    provider.make = lambda: lambda: (f"t{next(numbers)}", 1e10)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numbered_tokens", provider)
    sasl = SaslSettings(mechanism="OAUTHBEARER", oauth=OAuthSettings(ProviderTokens("numbered_tokens:make")))
    client = secured(cluster, sasl, *responses, accepted(), accepted())
    rejection(client)
    for _ in range(2):
        cluster.sleep(60)
        cluster.pool.clear()
        client.refresh_brokers()
    logins = [message for message in messages(cluster) if message != b"\x01"]
    assert [re.findall(rb"t[0-9]+", login.partition(b"Bearer")[2]) for login in logins] == [[b"t1"], [b"t2"], [b"t2"]]


@pytest.mark.parametrize("form", ["%s", '{"status":%s}'], ids=["alone", "status"])
def test_deeply_nested_response_is_a_rejection(cluster: UnitCluster, oauth: SaslSettings, form: str) -> None:
    """A few brackets, as many as can be parsed but not formatted, and more than can be parsed."""
    limit = sys.getrecursionlimit()
    for depth in (1, *range(limit - 200, limit, 10), 10 * limit):
        content = (form % ("[" * depth + "]" * depth)).encode()
        message = rejection(secured(cluster, oauth, accepted(content), accepted()))
        assert "rejected the token (OAUTHBEARER). Check" in message


def test_a_mechanism_that_the_listener_does_not_offer(cluster: UnitCluster) -> None:
    client = secured(cluster, PLAIN, offered="GSSAPI")
    assert "does not offer PLAIN; it offers GSSAPI" in rejection(client)
    codes = {33: "does not offer PLAIN; it offers GSSAPI", 34: "does not use SASL", 41: "error code 41"}
    remaining = list(codes)
    cluster.change("SaslHandshake", lambda *_: {"error_code": remaining.pop(0), "mechanisms": ["GSSAPI"]})
    for reason in codes.values():
        assert reason in rejection(client)


def test_all_mechanisms_of_a_listener_are_named(cluster: UnitCluster) -> None:
    client = secured(cluster, SCRAM)
    others = ["SCRAM-SHA-512", "GSSAPI", "PLAIN"]
    cluster.change("SaslHandshake", lambda *_: {"error_code": 0, "mechanisms": others})
    assert "does not offer SCRAM-SHA-256; it offers GSSAPI, PLAIN, SCRAM-SHA-512. Set" in rejection(client)
    others.append("SCRAM-SHA-256")
    cluster.change("SaslAuthenticate", lambda *_: rejected(58, "no"))
    assert '(SCRAM-SHA-256): "no"' in rejection(client)


def test_a_listener_without_the_mechanism_for_amazon_msk(cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may have set AWS_MSK_IAM, so the advice must not be to set it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a-key")
    oauth = OAuthSettings(AwsTokens("eu-west-1", allowed_hosts=("broker-1",)))
    message = rejection(secured(cluster, SaslSettings(mechanism="OAUTHBEARER", oauth=oauth), offered="AWS_MSK_IAM"))
    assert "does not offer OAUTHBEARER; it offers AWS_MSK_IAM. The login to Amazon MSK with IAM uses" in message
    assert "use the port of the IAM listener (9098), and Kafka 2.7.1 or newer" in message


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
def test_connection_closed_during_authentication(cluster: UnitCluster, api: str) -> None:
    """Brokers return a reason for rejections since Kafka 1.0: an end without one may be a restart, and is retried."""
    client = secured(cluster, PLAIN, *[accepted()] * 10)
    cluster.every(api, "lose_request")
    with pytest.raises(BrokerUnreachableError, match=f"broke during {api}.*without a reason") as caught:
        client.refresh_brokers()
    assert "pencil" not in str(caught.value)
    cluster.every(api, None)
    cluster.fault(api, "lose_request")
    client.refresh_brokers()
