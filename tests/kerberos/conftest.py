"""Fixtures of the Kerberos tests: a KDC, brokers with GSSAPI listeners, and Spark."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.integration.sessions import SparkSessions
from tests.kerberos.clients import MODULE
from tests.kerberos.kdc import REALM, Kdc, missing_requirements
from tests.shards.brokers import FEW_THREADS, new_kafka

from pyspark_kafka_direct.broker.probe import free_ports
from pyspark_kafka_direct.client.security import kerberos_login

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

SKEW = 3600
"""Seconds that the clock of the second KDC is ahead."""


@pytest.fixture(scope="session", autouse=True)
def _requirements() -> None:
    if missing := missing_requirements():
        pytest.skip(missing)


@pytest.fixture(scope="session")
def kdc(_requirements: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC with the principal of the brokers, ``kafka/localhost``."""
    with Kdc(tmp_path_factory.mktemp("kdc"), SKEW) as kdc:
        yield kdc


@pytest.fixture(scope="session")
def broker_keytab(kdc: Kdc) -> Path:
    return kdc.add("kafka/localhost")


@pytest.fixture(scope="session")
def krb5_conf(kdc: Kdc) -> Iterator[Path]:
    """The configuration of this process and those that it starts."""
    path = kdc.client_config("krb5", kdc.port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(path))
        patch.setenv("KRB5CCNAME", f"FILE:{kdc.folder}/no-default-cache")
        yield path


@pytest.fixture(autouse=True)
def _new_logins() -> None:
    """Forget the logins of other tests."""
    kerberos_login._login.cache_clear()


@pytest.fixture(scope="session")
def dead_krb5_conf(kdc: Kdc) -> Path:
    """A configuration with a port at which nothing listens."""
    return kdc.client_config("dead", free_ports(1)[0])


@pytest.fixture(scope="session")
def alice(kdc: Kdc) -> Path:
    """The keytab of alice."""
    return kdc.add("alice")


@contextmanager
def start_kafka(
    krb5_conf: Path, keytab: Path, properties: Mapping[str, str], service: str = "kafka"
) -> Iterator[EmbeddedKafka]:
    """A broker whose SASL listeners offer GSSAPI, with and without TLS."""
    login = f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{service}/localhost@{REALM}";'
    listeners = ("sasl_plaintext", "sasl_ssl")
    kerberos = {f"listener.name.{name}.sasl.enabled.mechanisms": "GSSAPI,PLAIN" for name in listeners}
    kerberos["sasl.kerberos.service.name"] = service
    kerberos |= {f"listener.name.{name}.gssapi.sasl.jaas.config": login for name in listeners}
    kafka = new_kafka(
        security=["SASL_PLAINTEXT", "SASL_SSL"], authorizer=True, properties={**FEW_THREADS, **kerberos, **properties}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={krb5_conf}")
        kafka.start()
    with kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka(krb5_conf: Path, broker_keytab: Path) -> Iterator[EmbeddedKafka]:
    """The broker of most tests."""
    with start_kafka(krb5_conf, broker_keytab, {}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def spark(krb5_conf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session, whose workers are processes with the environment of this one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            patch.setenv(name, sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        sessions = SparkSessions(tmp_path_factory.mktemp("warehouse"))
        yield sessions()
        sessions.stop_jvm()
