"""Kerberos logins and the exchange with brokers, with a fake of the library: ``make test-kerberos`` has a real KDC."""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.fake_gssapi import KDC_UNREACHABLE, NO_TICKET_CACHE, ExpiredCredentialsError, FakeKdc, GSSError, Name
from tests.integration.waiting import wait_until
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.test_sasl_authenticator import accepted, messages, rejected, rejection, secured

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.kerberos import start_exchange
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.security_settings import KerberosSettings, SaslSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.options.settings import ConnectionSettings

OFFER = b"signed:\x01\0\0\0"
LOGIN = (accepted(b"proof"), accepted(OFFER), accepted(lifetime_ms=60_000))
BROKER = "broker-1:9092"


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 1}) as cluster:
        yield cluster


@pytest.fixture
def kdc(monkeypatch: pytest.MonkeyPatch) -> FakeKdc:
    kdc = FakeKdc()
    monkeypatch.setitem(sys.modules, "gssapi", kdc.module())
    monkeypatch.setattr(Name, "canonical", {})
    return kdc


@pytest.fixture
def kerberos(tmp_path: Path) -> KerberosSettings:
    """Settings that no other test has, because a process caches its logins."""
    return KerberosSettings(principal="alice", keytab=str(tmp_path / "keytab"))


def client(cluster: UnitCluster, kerberos: KerberosSettings, *responses: Any) -> ClusterClient:
    return secured(cluster, SaslSettings("GSSAPI", kerberos=kerberos), *(responses or LOGIN))


def error(kerberos: KerberosSettings, seconds: float = 60.0) -> KafkaDirectError:
    """Return the error of a login at a real broker, which is not asked for anything."""
    with pytest.raises(KafkaDirectError) as caught:
        start_exchange(kerberos, "broker-1", Deadline.after(seconds), BROKER)
    return caught.value


# The exchange


@pytest.mark.parametrize("offered_layers", [1, 3, 7])
def test_the_messages_of_a_login(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings, offered_layers: int
) -> None:
    """A broker that also offers layers that sign and encrypt does not require them."""
    offer = accepted(b"signed:" + bytes([offered_layers, 0, 0x10, 0]))
    client(cluster, kerberos, LOGIN[0], offer, LOGIN[2]).refresh_brokers()
    assert messages(cluster) == [b"alice@REALM for kafka/broker-1@", b"", b"signed:\x01\0\0\0alice@REALM"]
    (store,) = kdc.logins
    assert store is not None
    assert store["client_keytab"] == f"FILE:{kerberos.keytab}"
    assert store["ccache"].startswith("MEMORY:pyspark-kafka-direct-")


def test_a_session_is_renewed(cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    reader = client(cluster, kerberos, *LOGIN, *LOGIN)
    for logins in (1, 2):
        reader.offsets({TopicPartition("t", 0): LATEST})
        assert len(messages(cluster)) == 3 * logins
        cluster.sleep(55)
    assert len(kdc.logins) == 1


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ([accepted(b"forged")], "does not prove that it is kafka/broker-1 (Decrypt integrity check failed)"),
        ([accepted(b"")], "does not prove that it is kafka/broker-1"),
        (
            [accepted(b"proof"), accepted(b"\x01\0\0\0")],
            "does not prove that it is kafka/broker-1 (A token was invalid)",
        ),
        ([accepted(b"proof"), accepted(b"signed:\x04\0\0\0")], "requires a security layer"),
        ([accepted(b"proof"), accepted(b"signed:")], "requires a security layer"),
        ([accepted(b"more")] * 20, "did not end the login"),
        (
            [rejected(58, "clock skew")],
            'rejected the Kerberos principal alice@REALM (GSSAPI): "clock skew". Check that the keytab of the broker',
        ),
    ],
)
def test_brokers_that_fail_a_login(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings, responses: list[Any], reason: str
) -> None:
    assert reason in rejection(client(cluster, kerberos, *responses))


@pytest.mark.parametrize(
    ("host", "canonical", "expected"),
    [
        ("Broker1.Example.com", "broker1.example.com", "broker1.example.com"),
        ("broker1", "broker1.example.com", "broker1.example.com"),
        ("broker1.example.com", "ip-10-0-0-1.internal", "broker1.example.com"),
        ("broker1", "broker10.example.com", "broker1"),
        ("10.0.0.1", "broker1.example.com", "broker1.example.com"),
        ("::1", "localhost", "localhost"),
    ],
)
def test_the_principal_of_a_broker_is_that_of_java(
    kdc: FakeKdc, kerberos: KerberosSettings, host: str, canonical: str, expected: str
) -> None:
    Name.canonical[host] = canonical
    exchange = start_exchange(kerberos, host, Deadline.after(60), BROKER)
    assert exchange.service == f"kafka/{expected}"


def test_the_realm_of_a_broker_is_that_of_its_name(
    kdc: FakeKdc, kerberos: KerberosSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server cannot change it."""
    Name.canonical["broker1.example.com"] = "host.partner.com"
    monkeypatch.setattr(Name, "realms", {".example.com": "EXAMPLE.COM", ".partner.com": "PARTNER.COM"})
    exchange = start_exchange(kerberos, "broker1.example.com", Deadline.after(60), BROKER)
    assert exchange.service == "kafka/broker1.example.com@EXAMPLE.COM"


def test_a_host_that_is_no_part_of_a_principal(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    with pytest.raises(AuthenticationError, match="cannot be a part of a Kerberos principal"):
        start_exchange(kerberos, "evil@REALM", Deadline.after(60), BROKER)


def test_a_rejected_login_is_repeated_with_new_tickets(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    """The broker may have replaced the key for which the process has a ticket."""
    reader = client(cluster, kerberos, rejected(58, None), *LOGIN)
    assert "rejected the Kerberos principal" in rejection(reader)
    reader.refresh_brokers()
    assert len(kdc.logins) == 2


# Logins


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch, kerberos: KerberosSettings) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    failure = error(kerberos)
    assert isinstance(failure, OptionError)
    assert "pip install 'pyspark-kafka-direct[kerberos]'" in failure.message
    assert "on the driver and the executors" in failure.message
    assert failure.broker is None, "it is the same for each"


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_other_errors_of_a_login_are_raised(
    kdc: FakeKdc, kerberos: KerberosSettings, kind: type[BaseException]
) -> None:
    def fail() -> None:
        raise kind("a reason")

    kdc.before_login = fail
    with pytest.raises(kind, match="a reason"):
        start_exchange(kerberos, "broker-1", Deadline.after(60), BROKER)


def test_the_error_of_a_login_names_the_broker(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    def fail() -> None:
        raise GSSError(KDC_UNREACHABLE, "a reason")

    kdc.before_login = fail
    assert error(kerberos).broker == BROKER


def test_a_hundred_connections_have_one_login(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    threads = [
        threading.Thread(target=start_exchange, args=(kerberos, "broker-1", Deadline.after(60), BROKER))
        for _ in range(100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kdc.logins) == 1


def test_tickets_are_renewed_after_a_part_of_their_lifetime(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    log_in(cluster, kerberos)
    for seconds, logins in ((79, 1), (2, 2), (78, 2), (3, 3)):
        cluster.sleep(seconds)
        log_in(cluster, kerberos)
        assert len(kdc.logins) == logins
    caches = {store["ccache"] for store in kdc.logins if store is not None}
    assert len(caches) == 3, "connections use the old tickets until they are authenticated"


def test_several_principals_have_separate_logins(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    for _ in range(3):
        for principal in ("alice", "bob", "carol"):
            exchange = start_exchange(
                replace(kerberos, principal=principal), "broker-1", Deadline.after(60, system=cluster.process), BROKER
            )
            assert exchange.principal == f"{principal}@REALM"
    assert len(kdc.logins) == 3


def test_a_rejected_login_uses_the_old_tickets_if_the_kdc_does_not_respond(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    def unreachable() -> None:
        raise GSSError(KDC_UNREACHABLE, "a reason")

    reader = client(cluster, kerberos, rejected(58, None), *LOGIN)
    rejection(reader)
    kdc.before_login = unreachable
    reader.refresh_brokers()
    assert len(kdc.logins) == 2


def test_tickets_without_an_end_are_not_renewed(cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    kdc.lifetime = None
    for seconds in (0, 1, 100_000):
        cluster.sleep(seconds)
        log_in(cluster, kerberos)
    assert len(kdc.logins) == 1


def test_old_tickets_are_used_until_they_expire_if_a_renewal_fails(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings, caplog: pytest.LogCaptureFixture
) -> None:
    kdc.lifetime = 1000
    log_in(cluster, kerberos)

    def unreachable() -> None:
        raise GSSError(KDC_UNREACHABLE, "Cannot contact any KDC for realm 'REALM'")

    kdc.before_login = unreachable
    cluster.sleep(810)
    with caplog.at_level(logging.WARNING):
        log_in(cluster, kerberos)
        log_in(cluster, kerberos)
        assert len(kdc.logins) == 2, "the next attempt is after min_relogin_seconds"
        cluster.sleep(61)
        log_in(cluster, kerberos)
    assert len(kdc.logins) == 3
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "Cannot contact any KDC for realm 'REALM'" in warning
    assert "The old tickets of alice@REALM are used for 190 more seconds." in warning
    cluster.sleep(130)
    with pytest.raises(AuthenticationError, match="The Kerberos login of alice failed: Cannot contact any KDC"):
        log_in(cluster, kerberos)
    kdc.before_login = lambda: None
    log_in(cluster, kerberos)
    kdc.before_login = unreachable
    cluster.sleep(810)
    log_in(cluster, kerberos)
    assert len(caplog.records) == 2, "each outage has a warning"


def test_old_tickets_are_used_if_a_renewal_hangs(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    kdc.lifetime = 1000
    log_in(cluster, kerberos)
    cluster.sleep(810)
    kdc.before_login = lambda: cluster.sleep(500)
    started = cluster.process.monotonic()
    log_in(cluster, kerberos)
    assert cluster.process.monotonic() - started == pytest.approx(30, abs=1), "half of the time is for the broker"
    log_in(cluster, kerberos)
    assert cluster.process.monotonic() - started == pytest.approx(30, abs=1)


ADVICE = {
    -1765328378: "Check the name and the realm of the principal.",
    -1765328377: "The principal of a broker consists of serviceName",
    -1765328360: "The keytab has another key than the KDC",
    -1765328353: "The keytab has another key than the KDC",
    -1765328352: "Renew the ticket cache with kinit",
    -1765328347: "Synchronize the clocks",
    -1765328236: "Synchronize the clocks",
    -1765328230: "Add the realm and its KDC",
    -1765328228: "Check the KDC in [realms]",
    -1765328160: "Write the principal with its realm, or set default_realm",
}


@pytest.mark.parametrize("code", [*ADVICE, -1765328370])
def test_the_advice_for_errors_of_the_kdc(kdc: FakeKdc, kerberos: KerberosSettings, code: int) -> None:
    def fail() -> None:
        raise GSSError(code, "a reason")

    kdc.before_login = fail
    assert (
        f"The Kerberos login of alice failed: a reason. {ADVICE.get(code, 'Check krb5.conf')}"
        in error(kerberos).message
    )
    cache = KerberosSettings(principal="alice", ticket_cache=f"{kerberos.keytab}.cache")
    assert error(cache).message.startswith(
        f"The Kerberos login of alice failed: a reason. {ADVICE[code]}"
        if code in ADVICE
        else f"The ticket cache {cache.ticket_cache!r} has no ticket for the login of alice: a reason. Create it"
    )


def test_the_key_of_another_principal(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    def no_key() -> None:
        raise GSSError(NO_TICKET_CACHE, "No credentials cache found")

    kdc.before_login = no_key
    message = error(kerberos).message
    assert f"The keytab {kerberos.keytab!r} has no key for the login of alice (No key table entry found for" in message
    assert "spark-submit --files" in message


def test_a_login_ends_with_the_call_of_the_library(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    kdc.before_login = lambda: cluster.sleep(2)
    started = cluster.process.monotonic()
    log_in(cluster, kerberos)
    assert cluster.process.monotonic() - started == pytest.approx(2, abs=0.1)


def test_a_ticket_cache_is_read_for_each_connection(kdc: FakeKdc, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    for settings, store in (
        (KerberosSettings(ticket_cache=cache), {"ccache": f"FILE:{cache}"}),
        (KerberosSettings(principal=cache, ticket_cache=""), None),
    ):
        kdc.logins.clear()
        for _ in range(2):
            start_exchange(settings, "broker-1", Deadline.after(60), BROKER)
        assert kdc.logins == [store, store] * 2, "by the login, and by the exchange"


def test_the_keytab_is_used_if_the_ticket_cache_has_expired(kdc: FakeKdc, tmp_path: Path) -> None:
    settings = KerberosSettings(principal="alice", keytab=str(tmp_path / "keytab"), ticket_cache="/tmp/cache")

    def expired() -> None:
        kdc.before_login = lambda: None
        raise ExpiredCredentialsError(0, "Success")

    kdc.before_login = expired
    start_exchange(settings, "broker-1", Deadline.after(60), BROKER)
    assert [sorted(store) for store in kdc.logins if store] == [["ccache"], ["ccache", "client_keytab"]]


def test_an_expired_ticket_cache(kdc: FakeKdc, tmp_path: Path) -> None:
    def expired() -> None:
        raise ExpiredCredentialsError(0, "Success")

    kdc.before_login = expired
    message = error(KerberosSettings(ticket_cache=str(tmp_path / "cache"))).message
    assert message == (
        f"The ticket cache {str(tmp_path / 'cache')!r} has only expired tickets. Renew the ticket cache with kinit, or "
        "use a keytab."
    )


def test_a_kdc_that_does_not_respond(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    release = threading.Event()
    kdc.before_login = lambda: release.wait(60)
    failure = error(kerberos, seconds=0.05)
    assert isinstance(failure, BrokerTimeoutError)
    assert failure.broker == BROKER
    assert "The Kerberos login of alice did not end in time" in failure.message
    assert "kafka.socket.connection.setup.timeout.ms" in failure.message
    kdc.before_login = lambda: None
    start_exchange(kerberos, "broker-1", Deadline.after(60), BROKER)  # does not wait for the abandoned login
    release.set()


def test_a_kdc_that_does_not_respond_closes_no_connections(
    cluster: UnitCluster, kdc: FakeKdc, kerberos: KerberosSettings
) -> None:
    """A broker is not at fault if another user of the process gets no ticket."""
    alice, bob = (
        client(cluster, replace(kerberos, principal=principal), *LOGIN * 4).settings for principal in ("alice", "bob")
    )

    def acquire(settings: ConnectionSettings) -> Connection:
        return cluster.pool.acquire(settings, "broker-1", 9092, Deadline.after(10, system=cluster.process))

    idle, in_use = acquire(alice), acquire(alice)
    cluster.pool.release(idle)
    kdc.before_login = lambda: cluster.sleep(60)
    with pytest.raises(BrokerTimeoutError):
        acquire(bob)
    cluster.pool.release(in_use)
    assert [acquire(alice), acquire(alice)] == [in_use, idle]
    cluster.pool.release(idle)
    cluster.pool.release(in_use)


def test_a_process_without_threads_for_a_login(kdc: FakeKdc, kerberos: KerberosSettings) -> None:
    """As at its exit, when a producer sends its last records."""
    system = NoThreadsSystem()
    start_exchange(kerberos, "broker-1", Deadline.after(60, system=system), BROKER)
    start_exchange(kerberos, "broker-2", Deadline.after(60, system=system), BROKER)
    assert len(kdc.logins) == 1


class NoThreadsSystem(RealSystem):
    """The machine, without threads."""

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")


def test_a_login_that_ends_after_another_one_is_not_used(kdc: FakeKdc, tmp_path: Path) -> None:
    """The first one has read the ticket cache before ``kinit`` wrote it."""
    settings = KerberosSettings(ticket_cache=str(tmp_path / "cache"))
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(60)
        ended.set()

    kdc.before_login = hang
    error(settings, seconds=0.05)
    kdc.before_login = lambda: None
    start_exchange(settings, "broker-1", Deadline.after(60), BROKER)
    release.set()
    ended.wait(60)
    wait_until(lambda: not any("kerberos" in thread.name for thread in threading.enumerate()))
    kdc.logins.clear()
    start_exchange(settings, "broker-1", Deadline.after(60), BROKER)
    assert len(kdc.logins) == 2, "the ticket cache is read again"


def log_in(cluster: UnitCluster, kerberos: KerberosSettings) -> None:
    """Log in on the clock of the cluster."""
    start_exchange(kerberos, "broker-1", Deadline.after(60, system=cluster.process), BROKER)
