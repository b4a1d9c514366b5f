"""The ten commonest mistakes: each row of the table in docs/command-line.md is what the command prints."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.cli.common_mistakes import common_mistakes
from tests.integration.cli.test_transactions import write_hanging_transaction
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.logins import jaas_text
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.client.certified_keys import DAY, NOW, CertifiedKey

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

CA = CertifiedKey("the CA", days=40)
EXPIRED = CertifiedKey("broker", CA, hosts="localhost 127.0.0.1", start=NOW - 5 * DAY, days=2)
STORE_PASSWORD = "store-secret"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker with two topics, which accepts late writes. The certificate of its listener with TLS has expired."""
    store = tmp_path_factory.mktemp("stores") / "expired.p12"
    store.write_bytes(EXPIRED.pkcs12(STORE_PASSWORD, CA))
    properties = {
        **FEW_THREADS,
        "transaction.partition.verification.enable": "false",
        "listener.name.ssl.ssl.keystore.location": str(store),
        "listener.name.ssl.ssl.keystore.password": STORE_PASSWORD,
        "listener.name.ssl.ssl.key.password": STORE_PASSWORD,
    }
    with new_kafka(security=["SSL", "SASL_PLAINTEXT"], authorizer=True, properties=properties) as kafka:
        create_topics(kafka.bootstrap_servers, [NewTopic("flights", 1), NewTopic("carriers", 1)])
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "flights-query"})
        consumer.commit(offsets=[TopicPartition("flights", 0, 0)], asynchronous=False)
        consumer.close()
        yield kafka


class Runner:
    """Runs the command of a row, with arguments that connect it to the test's broker."""

    def __init__(self, broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self._capsys = capsys

    def __call__(self, command: str, *more: str, server: str | None = None) -> str:
        server = server or self.broker.bootstrap_servers
        without_server = re.sub(r" -b localhost:\d+", "", command)
        self._capsys.readouterr()
        code = main([*without_server.split(), "-b", server, *more])
        shown = self._capsys.readouterr()
        assert code == 1, shown
        return (shown.out + shown.err).replace(server, "localhost:9092")


def wrong_port(run: Runner, command: str) -> str:
    return run(command, server="127.0.0.1:1")


def tls_on_plaintext(run: Runner, command: str) -> str:
    return run(command)


def missing_acl(run: Runner, command: str) -> str:
    admin = AdminClient({"bootstrap.servers": run.broker.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = (ResourceType.TOPIC, "flights", literal, "User:alice", "*", AclOperation.WRITE, allow)
    acl = AclBinding(*rule)
    admin.create_acls([acl])[acl].result(300)
    wait_until(lambda: admin.describe_acls(AclBindingFilter(*rule)).result(300) == [acl], "the ACL")
    settings = run.folder / "alice.properties"
    settings.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas_text('PLAIN')}\n"
    )
    return run(command, "--command-config", str(settings), server=run.broker.listener("SASL_PLAINTEXT"))


def as_shown(run: Runner, command: str) -> str:
    return run(command)


def expired_certificate(run: Runner, command: str) -> str:
    (run.folder / "ca.pem").write_text(CA.pem)
    output = run(command, "-X", f"ssl.truststore.location={run.folder / 'ca.pem'}", server=run.broker.listener("SSL"))
    return output.replace((NOW - 3 * DAY).strftime("%Y-%m-%d"), "2026-11-27")


def deleted_topic(run: Runner, command: str) -> str:
    create_topics(run.broker.bootstrap_servers, [NewTopic("departures", 1)])
    Admin(run.broker.bootstrap_servers).delete("departures")
    return re.sub(r"none of the \d+ topics", "none of the 2 topics", run(command))


def another_checkpoint(run: Runner, command: str) -> str:
    checkpoint = run.folder / "flights.checkpoint"
    for folder, lines in (("offsets", ["v1", "{}", '{"flights":{"0":300}}']), ("commits", ["v1", "{}"])):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text("\n".join(lines))
    return run(command.replace("flights.checkpoint", str(checkpoint)))


def hanging_transaction(run: Runner, command: str) -> str:
    topic = f"hanging-{uuid.uuid4().hex[:8]}"
    create_topics(run.broker.bootstrap_servers, [NewTopic(topic, 1)])
    write_hanging_transaction(run.broker, topic)
    write_arrow(topic, pa.table({"value": [b"behind"]}), {"bootstrap.servers": run.broker.bootstrap_servers})
    return run(command).replace(topic, "flights")


MISTAKES: Mapping[str, Callable[[Runner, str], str]] = {
    "the port is wrong": wrong_port,
    "TLS is set, but the listener has none": tls_on_plaintext,
    "an ACL is missing": missing_acl,
    "the group id is wrong": as_shown,
    "the name of a topic is misspelt": as_shown,
    "a certificate has expired": expired_certificate,
    "a topic was deleted": deleted_topic,
    "the checkpoint is that of another query": another_checkpoint,
    "a transaction hangs": hanging_transaction,
}


def test_the_table_has_all_mistakes() -> None:
    tested_with_spark = {"executors lack the package"}  # by test_doctor_spark.py
    assert common_mistakes().keys() == MISTAKES.keys() | tested_with_spark


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str], tmp_path: Path, mistake: str) -> None:
    command, text = common_mistakes()[mistake]
    assert text in MISTAKES[mistake](Runner(broker, capsys, tmp_path), command)
