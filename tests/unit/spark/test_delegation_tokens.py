"""The tokens of an application over simulated weeks: brokers that fail, and a driver that was suspended."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from tests.settings import parse_client_params
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.delegation_tokens import CreatedToken, LostTokenError
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    TlsError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options import security_settings
from pyspark_kafka_direct.options.security_settings import DelegationToken, DelegationTokenLogin, Secret, TokenState
from pyspark_kafka_direct.options.token_cluster_parser import TokenClusterConfig
from pyspark_kafka_direct.options.token_clusters import TokenCluster
from pyspark_kafka_direct.spark import delegation_tokens
from pyspark_kafka_direct.spark.delegation_tokens import ApplicationTokens, ClusterToken, start_delegation_tokens
from pyspark_kafka_direct.spark.token_file import TokenFile, token_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_kafka_direct.errors import KafkaDirectError

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass
class Brokers:
    """Tokens of a cluster, with Kafka's rules, on the clock of a system."""

    system: FakeTimeSystem
    period: float = DAY
    lifetime: float = 7 * DAY
    error: KafkaDirectError | None = None
    rejects_new_tokens: bool = False
    unrenewable: str = ""  # the name of a token whose renewal fails
    expiries: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def create(self, *_: object) -> CreatedToken:
        if self.rejects_new_tokens:
            raise AuthorizationError("The principal may not create a delegation token.")
        self._receive("create")
        name = str(len(self.expiries))
        now = self.system.now
        self.expiries[name], self.ends[name] = now + self.period, now + self.lifetime
        times = (round(each * 1000) for each in (now, self.expiries[name], self.ends[name]))
        return CreatedToken(("User", "alice"), Secret(f"id-{name}"), Secret(name), *times)

    def renew(self, _: object, hmac: Secret, *__: object) -> int:
        self._receive("renew")
        name, now = hmac.reveal(), self.system.now
        if name == self.unrenewable:
            raise BrokerError("The server has an unexpected error.")
        if self.expiries.get(name, 0.0) <= now:
            raise LostTokenError("The delegation token has expired.")
        self.expiries[name] = min(now + self.period, self.ends[name])
        return round(self.expiries[name] * 1000)

    def _receive(self, request: str) -> None:
        if self.error is not None:
            raise self.error
        self.requests.append(request)


class Application:
    """One cluster's tokens, whose steps the test runs."""

    def __init__(self, brokers: Brokers) -> None:
        login = DelegationTokenLogin("application", "main")
        connection = parse_client_params({"bootstrap.servers": "b:1"}).connection
        self.config = TokenClusterConfig(TokenCluster(login), connection)
        self.brokers = brokers
        self.state = TokenState()
        self.closed = 0
        self._token = ClusterToken(self.config, self._publish, brokers.system, self.connect)

    def run(self, seconds: float, check: Callable[[], None] = lambda: None, step: float = 60.0) -> None:
        """Run for some time; at most ``step`` seconds pass between two checks."""
        system = self.brokers.system
        end = system.now + seconds
        while system.now < end:
            pause = self._token.run_once()
            check()
            system.now += min(pause, step)

    def margin(self) -> float:
        """Return for how long the published token stays valid at the brokers if nobody renews it any more."""
        assert self.state.token is not None
        return self.brokers.expiries[self.state.token.hmac.reveal()] - self.brokers.system.now

    def _publish(self, _: TokenCluster, state: TokenState) -> None:
        self.state = state

    def connect(self, _: object) -> Any:
        return SimpleNamespace(deadline=lambda: None, pool=SimpleNamespace(close=self._close))

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Application:
    brokers = Brokers(FakeTimeSystem(1_800_000_000.0))
    monkeypatch.setattr(delegation_tokens, "create_delegation_token", brokers.create)
    monkeypatch.setattr(delegation_tokens, "renew_delegation_token", brokers.renew)
    return Application(brokers)


def test_a_token_of_a_month(application: Application) -> None:
    """Each published token can be renewed for half of its lifetime, and no token expires before its end."""
    brokers = application.brokers

    def check() -> None:
        assert application.state.error is None
        assert application.margin() > DAY / 4 - 60
        token = application.state.token
        assert token is not None
        assert brokers.ends[token.hmac.reveal()] - brokers.system.now > 3.5 * DAY - 60
        for name, end in brokers.ends.items():
            assert brokers.expiries[name] > brokers.system.now or brokers.expiries[name] == end

    application.run(30 * DAY, check)
    assert brokers.requests.count("create") == 9
    assert brokers.requests.count("renew") < 100
    assert application.closed == len(brokers.requests), "each step has a login"
    assert application.state.token is not None
    assert application.state.token.serial == 9


@pytest.mark.parametrize("seed", range(20))
def test_random_failures_of_brokers(application: Application, seed: int) -> None:
    """Shorter than the margins, they are not noticed by queries."""
    source = random.Random(seed)
    brokers = application.brokers
    brokers.period = source.choice([HOUR, DAY])
    brokers.lifetime = brokers.period * source.choice([1, 2, 7])
    application.run(60)

    def check() -> None:
        assert application.margin() > 0
        assert application.state.token is not None

    for _ in range(30):
        application.run(source.random() * brokers.lifetime, check)
        brokers.error = BrokerUnreachableError("no broker")
        application.run(source.random() * brokers.period * 0.2, check)
        brokers.error = None


def test_the_first_error_is_published_and_the_next_attempt_succeeds(application: Application) -> None:
    application.brokers.error = AuthenticationError("The broker rejected the user.")
    application.run(30, step=0.5)
    assert application.state == TokenState(None, "The broker rejected the user.", is_final=True)
    attempts = application.closed
    assert 4 <= attempts <= 6, "the pauses double"
    application.brokers.error = BrokerUnreachableError("no broker")
    application.run(60, step=0.5)
    assert (application.state.error, application.state.is_final) == ("no broker", False)
    application.brokers.error = None
    application.run(61, step=0.5)
    assert application.state.token is not None
    assert application.state.error is None


def test_a_failed_renewal_keeps_the_token_and_logs_one_warning(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    for outage in range(3):
        application.run(60)
        application.brokers.error = BrokerUnreachableError("no broker")
        application.run(20 * HOUR)
        assert application.state.token is not None
        assert application.state.error == "no broker"
        assert [record.levelname for record in caplog.records] == ["WARNING"] * (outage + 1), "one for each outage"
        assert "spark.kafka.clusters.main; the driver retries: no broker" in caplog.messages[outage]
        application.brokers.error = None
        application.run(120)
        assert application.state.token.serial == 1
        assert not application.state.error


def test_of_two_errors_that_of_the_new_token_is_published(application: Application) -> None:
    """Queries need it. Only tasks that are running use the earlier tokens."""
    application.brokers.lifetime = 1.2 * DAY  # half of it is over before the first renewal
    application.run(HOUR)
    application.brokers.rejects_new_tokens = True
    application.brokers.unrenewable = "0"
    application.run(22 * HOUR)
    assert application.state.token is not None
    assert application.state.error == "The principal may not create a delegation token."


@pytest.mark.parametrize("error", [AuthenticationError, TlsError, AuthorizationError, UnsupportedBrokerError])
def test_a_driver_whose_login_fails_for_an_hour_keeps_a_valid_token(
    application: Application, error: type[BrokerError]
) -> None:
    """Its password, keytab or certificate may be in renewal; a retry does not help, but the token is still valid."""
    application.run(17 * HOUR)
    application.brokers.error = error("The broker rejected the user.")

    def check() -> None:
        assert application.state.token is not None
        assert application.margin() > 0

    application.run(2 * HOUR, check)
    assert application.state.error == "The broker rejected the user."
    application.brokers.error = None
    application.run(HOUR, check)
    assert application.state.token is not None
    assert application.state.token.serial == 1
    assert application.brokers.requests == ["create", "renew"]


def test_a_token_is_renewed_until_its_end_if_no_new_one_can_be_created(application: Application) -> None:
    """The permission to create tokens may be lost for days."""
    application.run(HOUR)
    application.brokers.rejects_new_tokens = True

    def check() -> None:
        assert application.state.token is not None
        assert application.margin() > 0

    application.run(6.5 * DAY, check, step=600.0)
    application.brokers.rejects_new_tokens = False
    application.run(120)
    assert application.state.token is not None
    assert application.state.token.serial == 2


def test_an_old_token_that_cannot_be_renewed_does_not_prevent_the_renewal_of_the_newest(
    application: Application,
) -> None:
    application.brokers.lifetime = 6 * DAY  # half of it is a multiple of the time after which a token is renewed
    application.run(3.1 * DAY)
    application.brokers.unrenewable = "0"

    def check() -> None:
        assert application.state.token is not None
        assert application.state.token.serial == 2
        assert application.margin() > 0

    application.run(2.5 * DAY, check, step=600.0)


def test_a_failed_attempt_is_repeated_after_the_clock_was_set_back(application: Application) -> None:
    """A machine may start with a wrong clock and without a network."""
    application.brokers.error = BrokerUnreachableError("no broker")
    application.run(30)
    application.brokers.error = None
    application.brokers.system.now -= 30 * DAY
    application.run(120)
    assert application.state.token is not None


def test_another_process_of_the_application_continues_the_serials(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a notebook's new one. Tasks of queries that are running ignore tokens with smaller serials."""
    file = token_file(tmp_path)
    other = TokenCluster(DelegationTokenLogin("application", "other"))
    configs = (application.config, TokenClusterConfig(other, application.config.connection))
    earlier = DelegationToken(3, Secret("id"), Secret("hmac"), application.brokers.system.now + DAY)
    states = {application.config.cluster: TokenState(earlier), other: TokenState(error="no broker")}
    file.write(states)
    assert TokenFile(tmp_path).clusters() == tuple(states)
    found = [TokenFile(tmp_path).state(cluster.login.cluster) for cluster in states]
    assert [(state.token, state.error) for state in found] == [(earlier, None), (None, "no broker")]
    threads: list[Callable[[], None]] = []
    system = application.brokers.system
    monkeypatch.setattr(system, "start_thread", lambda target, _: threads.append(target), raising=False)
    monkeypatch.setattr(system, "sleep", lambda _: shutil.rmtree(tmp_path))  # ends the thread
    monkeypatch.setattr(system, "lock", threading.Lock, raising=False)
    published: list[dict[TokenCluster, TokenState]] = []
    monkeypatch.setattr(TokenFile, "write", lambda _, states: published.append(dict(states)))
    ApplicationTokens(tmp_path, configs, system, application.connect).start()
    assert published == [dict.fromkeys(states, TokenState())], "planners find all clusters"
    for number, thread in enumerate(threads):
        tmp_path.mkdir(exist_ok=True)
        thread()
        assert [state.token is not None for state in published[-1].values()] == [True, number == 1]
    serials = [state.token and state.token.serial for state in published[-1].values()]
    assert serials == [4, 1]


def test_each_cluster_without_tokens_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("plain-text", "plain-too")
    settings = {f"spark.kafka.clusters.{name}.auth.bootstrap.servers": "b:1" for name in names}
    settings |= {f"spark.kafka.clusters.{name}.security.protocol": "PLAINTEXT" for name in names}
    context: Any = SparkContext.__new__(SparkContext)
    monkeypatch.setattr(SparkContext, "getConf", lambda _: SimpleNamespace(getAll=settings.items))
    monkeypatch.setattr(delegation_tokens, "application_folder", lambda _: tmp_path)
    assert start_delegation_tokens(context) == ()
    for name in names:
        assert f"spark.kafka.clusters.{name}.security.protocol is PLAINTEXT, so there is no" in caplog.text


def test_a_driver_that_was_suspended_creates_a_new_token(application: Application) -> None:
    application.run(HOUR)
    application.brokers.system.now += 2 * DAY
    application.run(10)
    assert application.state.token is not None
    assert application.state.token.serial == 2
    assert application.margin() > DAY - 120
    assert application.brokers.requests == ["create", "create"]


def test_a_token_that_was_deleted_is_replaced(application: Application) -> None:
    """An administrator may expire it, or the brokers may have lost it."""
    application.run(HOUR)
    application.brokers.expiries.clear()
    application.brokers.expiries["unused"] = 0.0
    application.run(DAY)
    assert application.state.token is not None
    assert application.state.token.serial == 2
    assert application.margin() > 0


@pytest.mark.parametrize("seed", range(6))
def test_each_process_has_the_states_that_were_written_last(tmp_path: Path, seed: int) -> None:
    """File systems give a new file the inode of one that was deleted."""
    source = random.Random(seed)
    clusters = [TokenCluster(DelegationTokenLogin(f"application-{seed}", name)) for name in ("main", "other")]
    writer, reader = TokenFile(tmp_path), TokenFile(tmp_path)
    assert reader.clusters() == ()
    for serial in range(1, 30):
        token = DelegationToken(serial, Secret(f"id-{serial}"), Secret("hmac"), 2e9)
        states = [
            TokenState(source.choice([None, token]), source.choice([None, "no broker"]), source.choice([True, False]))
            for _ in clusters
        ]
        writer.write(dict(zip(clusters, states, strict=True)))
        (file,) = tmp_path.iterdir()
        assert file.stat().st_mode & 0o077 == 0
        if source.random() < 0.6:
            assert reader.clusters() == tuple(clusters)
            for cluster, state in zip(clusters, states, strict=True):
                for found in (reader.state(cluster.login.cluster), security_settings.TOKENS.state(cluster.login)):
                    assert (found.token, found.error, found.is_final) == (state.token, state.error, state.is_final)
    file.unlink()  # Spark deletes the folder with the application
    assert reader.clusters() == ()
    assert (reader.state("main").token, reader.state("main").is_final) == (None, True)


def test_each_folder_has_its_token_file(tmp_path: Path) -> None:
    """A process may run several applications, one after the other."""
    one, other = token_file(tmp_path / "one"), token_file(tmp_path / "other")
    assert token_file(tmp_path / "one") is one
    assert other is not one
