"""Delegation tokens of a real broker: created, renewed, and used by connections."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkFiles
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.integration.stream_queries import produce
from tests.integration.token_brokers import LIFETIME, PERIOD, password_login, token_conf, token_kafka
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.delegation_tokens import create_delegation_token, renew_delegation_token
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.errors import AuthenticationError, BrokerError, BrokerTimeoutError, UnsupportedBrokerError
from pyspark_kafka_direct.options import security_settings
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.security_settings import (
    TOKENS,
    DelegationToken,
    DelegationTokenLogin,
    DelegationTokens,
    Secret,
    TokenState,
)
from pyspark_kafka_direct.options.token_cluster_parser import parse_token_clusters
from pyspark_kafka_direct.options.token_clusters import TokenCluster
from pyspark_kafka_direct.protocol.messages import METADATA
from pyspark_kafka_direct.spark.delegation_tokens import ApplicationTokens
from pyspark_kafka_direct.spark.token_file import TOKEN_FOLDER_NAME, token_clusters, token_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.client.delegation_tokens import CreatedToken
    from pyspark_kafka_direct.options.settings import ConnectionSettings

HANG = 120.0
_OTHER_ID, _OTHER_HMAC = Secret("not-a-token-of-the-broker"), Secret("bm90LWEtdG9rZW4=")


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with token_kafka() as cluster:
        yield cluster


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool(SYSTEM)
    yield pool
    pool.close()


@pytest.fixture
def owner(kafka: EmbeddedKafka, pool: ConnectionPool) -> ClusterClient:
    """A client that logs in with a password."""
    return ClusterClient(parse_client_params(password_login(kafka)).connection, pool=pool)


def deadline() -> Deadline:
    return Deadline.after(HANG)


def settings_with(kafka: EmbeddedKafka, token: CreatedToken, mechanism: str = "SCRAM-SHA-512") -> ConnectionSettings:
    """Return the settings of a query without a login, after the process has received the token."""
    login = DelegationTokenLogin(uuid.uuid4().hex, "main")
    TOKENS.receive(login, DelegationToken(1, token.id, token.hmac, token.expires_ms / 1000))
    options = {
        "kafka.bootstrap.servers": kafka.listener("SASL_SSL"),
        "kafka.ssl.truststore.location": str(kafka.certificates.ca),
        "subscribe": "t",
    }
    return parse_batch_options(options, [TokenCluster(login, mechanism=mechanism)]).connection


def send_request(connection: Connection) -> None:
    values = {"topics": [], "allow_auto_topic_creation": False}
    assert connection.call(METADATA, values, deadline()).brokers


def open_connection(settings: ConnectionSettings) -> closing[Connection]:
    return closing(Connection.open(settings, *settings.bootstrap_servers[0], deadline()))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_query_without_a_login_uses_the_token(kafka: EmbeddedKafka, owner: ClusterClient, mechanism: str) -> None:
    """Also after the settings were pickled, as for an executor."""
    token = create_delegation_token(owner, deadline())
    settings = settings_with(kafka, token, mechanism)
    pickled = pickle.dumps(settings)
    assert token.hmac.reveal().encode() in pickled
    for secret in (token.id.reveal(), token.hmac.reveal()):
        assert secret not in repr(settings) + repr(token)
    for each in (settings, pickle.loads(pickled)):
        with open_connection(each) as connection:
            send_request(connection)


def test_a_renewed_token_prolongs_the_sessions_that_have_it(kafka: EmbeddedKafka, owner: ClusterClient) -> None:
    """The broker ends each session with the token, as it was at the login."""
    token = create_delegation_token(owner, deadline())
    assert token.expires_ms - token.issued_ms == PERIOD * 1000
    assert token.ends_ms - token.issued_ms == LIFETIME * 1000
    with open_connection(settings_with(kafka, token)) as connection:
        created = time.monotonic()
        expires_ms = token.expires_ms
        while time.monotonic() < created + PERIOD + 3:
            send_request(connection)
            if expires_ms == token.expires_ms and time.monotonic() > created + PERIOD / 2:
                expires_ms = renew_delegation_token(owner, token.hmac, deadline())
                assert expires_ms > token.expires_ms + 4000
            time.sleep(0.05)


def test_logins_that_create_no_token(
    kafka: EmbeddedKafka, owner: ClusterClient, secured_kafka: EmbeddedKafka, kafka39: EmbeddedKafka
) -> None:
    token = create_delegation_token(owner, deadline())
    with_token = ClusterClient(settings_with(kafka, token), pool=owner.pool)
    with pytest.raises(AuthenticationError, match=r"log in with SASL .*, but not with another delegation token"):
        create_delegation_token(with_token, deadline())
    without_login = parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection
    with pytest.raises(AuthenticationError, match="The login cannot create a delegation token"):
        create_delegation_token(ClusterClient(without_login, pool=owner.pool), deadline())
    for disabled in (secured_kafka, kafka39):
        more = {
            "bootstrap.servers": disabled.listener("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(disabled.certificates.ca),
        }
        settings = parse_client_params(password_login(kafka) | more).connection
        with pytest.raises(UnsupportedBrokerError, match=r"disabled in the cluster: set delegation\.token\.secret\."):
            create_delegation_token(ClusterClient(settings, pool=owner.pool), deadline())


def test_a_client_certificate_creates_a_token(kafka: EmbeddedKafka, pool: ConnectionPool) -> None:
    certificates = kafka.certificates
    properties = {
        "spark.kafka.clusters.tls.auth.bootstrap.servers": kafka.listener("MTLS"),
        "spark.kafka.clusters.tls.security.protocol": "SSL",
        "spark.kafka.clusters.tls.ssl.truststore.location": str(certificates.ca),
        "spark.kafka.clusters.tls.ssl.truststore.type": "PEM",
        "spark.kafka.clusters.tls.ssl.keystore.location": str(certificates.client_p12),
        "spark.kafka.clusters.tls.ssl.keystore.password": certificates.password,
        "spark.kafka.clusters.tls.ssl.keystore.type": "PKCS12",
    }
    (config,) = parse_token_clusters(properties, "app", [])
    token = create_delegation_token(ClusterClient(config.connection, pool=pool), deadline())
    assert token.owner[0] == "User"
    assert "client" in token.owner[1]
    with open_connection(settings_with(kafka, token)) as connection:
        send_request(connection)


def test_a_broker_rejects_an_unknown_token(kafka: EmbeddedKafka, owner: ClusterClient) -> None:
    """The error shows neither id nor HMAC."""
    token = create_delegation_token(owner, deadline())._replace(id=_OTHER_ID)
    with pytest.raises(AuthenticationError) as caught:
        open_connection(settings_with(kafka, token))
    assert "rejected the delegation token (SCRAM-SHA-512)" in caught.value.message
    assert "enable(spark)" in caught.value.message
    assert _OTHER_ID.reveal() not in str(caught.value)
    with pytest.raises(BrokerError, match="do not have the delegation token any more"):
        renew_delegation_token(owner, _OTHER_HMAC, deadline())


def test_an_application_replaces_its_tokens_in_time(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Each token of the file is accepted until the next one is there; the threads end with the folder."""
    configs = parse_token_clusters(token_conf(kafka), "application", [])
    (tmp_path / "shared").mkdir()
    ApplicationTokens(tmp_path / "shared", configs, SYSTEM).start()
    (cluster,) = token_file(tmp_path / "shared").clusters()
    file = tmp_path / "shared" / "delegation-tokens"
    assert file.stat().st_mode & 0o777 == 0o600
    options = {"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "subscribe": "t"}
    settings = parse_batch_options(options, [cluster]).connection
    serials: list[int] = []
    expiries: set[tuple[int, float]] = set()
    end = time.monotonic() + HANG
    with open_connection(settings) as connection:
        while serials[-1:] != [2] and time.monotonic() < end:
            state = TOKENS.state(cluster.login)
            assert state.token is not None
            assert state.error is None
            assert state.token.expires_at > time.time() + 1
            if state.token.serial not in serials:
                serials.append(state.token.serial)
            expiries.add((state.token.serial, state.token.expires_at))
            send_request(connection)  # re-authenticates with the newest token
            time.sleep(0.05)
    assert serials == [1, 2]
    assert len({expiry for serial, expiry in expiries if serial == 1}) >= 2, "the first token was renewed"
    file.unlink()
    (tmp_path / "shared").rmdir()
    with pytest.raises(AuthenticationError, match="the application has ended"):
        open_connection(settings)


def test_queries_wait_for_a_token_and_report_why_there_is_none(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    wrong = f"{password_login(kafka)['sasl.jaas.config'].replace('alice-', 'wrong-')}"
    conf = token_conf(kafka, kafka_sasl_jaas_config=wrong)
    configs = parse_token_clusters(conf, "application-2", [])
    ApplicationTokens(folder, configs, SYSTEM).start()
    (cluster,) = token_file(folder).clusters()
    options = {"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "subscribe": "t"}
    settings = parse_batch_options(options, [cluster]).connection
    with pytest.raises(AuthenticationError) as caught:
        open_connection(settings)
    assert "has no delegation token for spark.kafka.clusters.main: The broker rejected the user 'alice'" in str(
        caught.value
    )
    assert "wrong-" not in str(caught.value)
    wait_until(lambda: TOKENS.state(cluster.login).is_final, "the error")
    (folder / "delegation-tokens").unlink()
    folder.rmdir()


@pytest.fixture
def late_tokens(kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Timer]:
    """An application that has no token until half a second after this timer was started."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    folder = tmp_path / TOKEN_FOLDER_NAME
    folder.mkdir()
    configs = parse_token_clusters(token_conf(kafka), uuid.uuid4().hex, [])
    token_file(folder).write({config.cluster: TokenState() for config in configs})
    timer = threading.Timer(0.5, ApplicationTokens(folder, configs, SYSTEM).start)
    yield timer
    timer.join()
    (folder / "delegation-tokens").unlink()
    folder.rmdir()


def tokens_of_executor(monkeypatch: pytest.MonkeyPatch, *pickled: bytes) -> int:
    """Return how many tokens a process has after it has unpickled these objects in their order."""
    process = DelegationTokens()
    with monkeypatch.context() as executor:
        executor.setattr(security_settings, "TOKENS", process)
        for each in pickled:
            pickle.loads(each)
    return sum(process.state(cluster.login).token is not None for cluster in token_clusters())


def test_tasks_of_a_batch_have_a_token_that_was_created_after_spark_pickled_the_reader(
    kafka: EmbeddedKafka,
    topics_on: Callable[[str], MakeTopic],
    late_tokens: threading.Timer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topics_on(kafka.bootstrap_servers)(partitions=1)
    produce(kafka.bootstrap_servers, topic, [0])
    source = KafkaSourceProvider({"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "subscribe": topic})
    reader = source.reader(source.schema())
    pickled_reader = pickle.dumps(reader)
    late_tokens.start()
    (partition,) = reader.partitions()
    assert tokens_of_executor(monkeypatch, pickled_reader, pickle.dumps(partition)) == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_tasks_of_a_sink_have_a_token_that_was_created_after_the_query_had_started(
    kafka: EmbeddedKafka, late_tokens: threading.Timer, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    """Planning a sink sends no request that would wait for the token."""
    source = KafkaSourceProvider({"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "topic": "t"})
    rows = StructType([StructField("value", BinaryType())])
    late_tokens.start()
    writer = source.streamWriter(rows, False) if streaming else source.writer(rows, False)
    assert tokens_of_executor(monkeypatch, pickle.dumps(writer)) == 1


def test_without_an_owner_an_expired_token_is_an_error(
    kafka: EmbeddedKafka, owner: ClusterClient, tmp_path: Path
) -> None:
    """As if the process that called enable(spark) had ended, or was suspended."""
    file = token_file(tmp_path)
    login = DelegationTokenLogin("application-3", "main")
    cluster = TokenCluster(login, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    token = create_delegation_token(owner, deadline())
    old = DelegationToken(1, token.id, token.hmac, time.time() - 1)
    file.write({cluster: TokenState(old)})
    options = {"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "subscribe": "t"}
    settings = parse_batch_options(options, file.clusters()).connection
    with pytest.raises(BrokerTimeoutError, match=r"has expired for spark\.kafka\.clusters\.main: the process that"):
        Connection.open(settings, *settings.bootstrap_servers[0], Deadline.after(1.0))
    file.write({cluster: TokenState(DelegationToken(2, token.id, token.hmac, time.time() + 60))})
    with open_connection(settings) as connection:
        send_request(connection)
