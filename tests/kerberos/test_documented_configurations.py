"""Documented configurations of Kerberos read records, with other hosts, principals and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.stream_queries import produce
from tests.jvm_configurations.table import CONFIGURATIONS
from tests.kerberos.kdc import REALM

from pyspark_kafka_direct import read_arrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeTopic
    from tests.kerberos.kdc import Kdc

    from pyspark_kafka_direct.broker import EmbeddedKafka

BY_NAME = {each.name: each for each in CONFIGURATIONS}
KEYTABS = {
    "Cloudera HDP: Kerberos with a keytab": ("/etc/security/keytabs/storm.service.keytab", "storm@EXAMPLE.COM"),
    "Apache Kafka: Kerberos": ("/etc/security/keytabs/kafka_client.keytab", "kafka-client-1@EXAMPLE.COM"),
}


TICKET_CACHE = "Cloudera: Kerberos with a ticket cache"


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> str:
    """A topic with a record that every principal may read."""
    name = topics_on(kafka.bootstrap_servers)()
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acl = AclBinding(ResourceType.TOPIC, name, literal, "User:*", "*", AclOperation.READ, allow)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_acls([acl])[acl].result(600)
    produce(kafka.bootstrap_servers, name, ["a"])
    return name


@pytest.mark.parametrize("name", KEYTABS)
def test_keytabs(kafka: EmbeddedKafka, topic: str, alice: Path, name: str) -> None:
    keytab, principal = KEYTABS[name]
    params = params_of(name, kafka)
    jaas = params["sasl.jaas.config"]
    assert keytab in jaas
    assert principal in jaas
    params["sasl.jaas.config"] = jaas.replace(keytab, str(alice)).replace(principal, f"alice@{REALM}")
    assert values_of(topic, params) == [b"a"]


def test_a_ticket_cache(
    kafka: EmbeddedKafka, topic: str, kdc: Kdc, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.kinit('alice', alice)}")
    assert values_of(topic, params_of(TICKET_CACHE, kafka)) == [b"a"]


def test_the_table_has_the_configurations_of_these_tests() -> None:
    run = {each.name for each in CONFIGURATIONS if each.is_run and "GSSAPI" in each.properties}
    assert run == {*KEYTABS, TICKET_CACHE}


def params_of(name: str, kafka: EmbeddedKafka) -> dict[str, str]:
    params = {option.removeprefix("kafka."): value for option, value in BY_NAME[name].options().items()}
    return {
        **params,
        "bootstrap.servers": kafka.listener("SASL_SSL"),
        "ssl.truststore.location": str(kafka.certificates.ca),
    }


def values_of(topic: str, params: dict[str, str]) -> list[bytes]:
    values: list[bytes] = read_arrow(topic, params, columns=["value"]).read_all().column("value").to_pylist()
    return values
