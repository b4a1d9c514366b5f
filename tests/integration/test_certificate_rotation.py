"""The client's certificate, its key and the CAs change several times while queries and a log run.

A log writes numbers to a topic and reads them, a micro-batch stream copies them, and a continuous query copies the
copy. All connections are mutual TLS. A failed request would end the stream or the continuous query, which have no
retries of tasks, or repeat records.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.read_back import TopicReader, values_of
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.client.certified_keys import CertifiedKey

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

SECONDS = 600.0  # a limit for hangs
RENEWAL_SECONDS = 3.0  # files are loaded a second after their change, and connections check them once a second
INPUT, COPY, OUTPUT = "numbers", "copied-numbers", "numbers-copied-twice"

NEW_CA = CertifiedKey("the new CA")
SECOND = CertifiedKey("second", NEW_CA, hosts="client")
THIRD = CertifiedKey("third", NEW_CA, hosts="client")
NEW_BROKER = CertifiedKey("broker", NEW_CA, hosts="localhost 127.0.0.1")


class Broker:
    """A broker with mutual TLS and ACLs, which reloads its stores on request."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(topic, 2) for topic in (INPUT, COPY, OUTPUT)]
        for created in self.admin.create_topics(topics, operation_timeout=SECONDS).values():
            created.result(SECONDS)
        for name in ("client", "second", "third"):
            self.allow(name)

    def reject(self, name: str) -> None:
        """Remove all permissions of a certificate's subject."""
        matches = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:CN={name}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for removed in self.admin.delete_acls([matches]).values():
            assert removed.result(SECONDS)

    def trust(self, *authorities: str) -> None:
        self.kafka.certificates.ca.write_text("".join(authorities))
        self._reload("truststore", str(self.kafka.certificates.ca))

    def use(self, certificate: CertifiedKey) -> None:
        store = self.kafka.certificates.broker_p12
        store.write_bytes(certificate.pkcs12(self.kafka.certificates.password, NEW_CA))
        self._reload("keystore", str(store))

    def _reload(self, store: str, path: str) -> None:
        entry = ConfigEntry(
            f"listener.name.mtls.ssl.{store}.location", path, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def allow(self, name: str) -> None:
        """Add all permissions of a certificate's subject."""
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        resources = {ResourceType.TOPIC: "*", ResourceType.BROKER: "kafka-cluster"}
        acls = [
            AclBinding(kind, resource, literal, f"User:CN={name}", "*", AclOperation.ALL, allow)
            for kind, resource in resources.items()
        ]
        for created in self.admin.create_acls(acls).values():
            created.result(SECONDS)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with new_kafka(security=["MTLS"], authorizer=True, properties=FEW_THREADS) as kafka:
        yield Broker(kafka)


class ClientFiles:
    """The files that the options name."""

    def __init__(self, folder: Path, certificates: Any) -> None:
        folder.mkdir()
        self.ca, self.certificate, self.key = folder / "ca.pem", folder / "tls.crt", folder / "tls.key"
        self.ca.write_text(certificates.ca.read_text())
        self.certificate.write_text(certificates.client.read_text())
        self.key.write_text(certificates.client_key.read_text())

    def options(self, servers: str) -> dict[str, str]:
        return {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.ca),
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
        }


@dataclass
class Load:
    """Sends numbers through the log until it is stopped."""

    log: KafkaBasedLog
    received: list[bytes | None]
    sent: int = 0
    errors: list[BaseException] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            while not self.stopped.wait(0.1):
                self.log.send_with_receipt(b"%d" % self.sent, b"%d" % self.sent).result(SECONDS)
                self.sent += 1
        except BaseException as error:
            self.errors.append(error)  # the test raises it


@contextmanager
def running_load(params: dict[str, str]) -> Iterator[Load]:
    received: list[bytes | None] = []
    with KafkaBasedLog(INPUT, params, on_record=lambda record: received.append(record.value)) as log:
        load = Load(log, received)
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            yield load
        finally:
            load.stopped.set()
            thread.join(SECONDS)


def test_a_rotation_under_load_loses_and_repeats_nothing(
    broker: Broker, make_spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pyspark_kafka_direct")
    certificates = broker.kafka.certificates
    old_ca = certificates.ca.read_text()
    files = ClientFiles(tmp_path / "files", certificates)
    params = files.options(broker.kafka.listener("MTLS"))
    options = {f"kafka.{name}": value for name, value in params.items()}
    spark = make_spark(master="local[4]")
    with running_load(params) as load, TopicReader(broker.kafka.bootstrap_servers, OUTPUT) as reader:
        source = spark.readStream.format("kafka-direct").options(**options).option("subscribe", INPUT)
        copy = source.option("startingOffsets", "earliest").load().select("key", "value").writeStream
        copy = copy.format("kafka-direct").options(**options).option("topic", COPY)
        # Records arrive all the time, so without an interval there would be ten batches a second.
        copy = copy.option("checkpointLocation", str(tmp_path / "stream")).trigger(processingTime="1 second")
        stream = copy.start()
        query = (
            continuous_query(spark)
            .read(options, subscribe=COPY, startingOffsets="earliest")
            .select("key", "value")
            .to_kafka(OUTPUT, options)
            .start(checkpointLocation=str(tmp_path / "query"), tasksMax=1, maxRestarts=0, taskStartTimeout=600)
        )

        def check() -> None:
            assert load.errors == []
            for error in (stream.exception(), query.exception()):
                if error is not None:
                    raise error

        def await_output(until: Callable[[], bool]) -> None:
            def happened() -> bool:
                check()
                return until()

            wait_until(happened, f"the output of {load.sent} records", SECONDS)

        def await_renewal() -> None:
            """Wait until all connections have had the time to be renewed, and records that were sent then arrive."""
            renewed_at = time.monotonic() + RENEWAL_SECONDS
            await_output(lambda: time.monotonic() > renewed_at)
            sent = load.sent
            await_output(lambda: len(reader.read()) > sent)

        try:
            await_renewal()

            # Both sides trust the new CA, too. The client's file is half written for a while.
            broker.trust(old_ca, NEW_CA.pem)
            files.ca.write_text(old_ca + NEW_CA.pem[:200])
            await_renewal()
            files.ca.write_text(old_ca + NEW_CA.pem)
            await_renewal()

            # Another certificate of the new CA: truncated, then complete without its key.
            files.certificate.write_text(SECOND.pem[:200])
            await_renewal()
            files.certificate.write_text(SECOND.pem)
            await_renewal()
            files.key.write_text(SECOND.key_pem())
            await_renewal()
            broker.reject("client")
            await_renewal()

            # The broker's certificate, and a third one of the client, whose files are missing for a while.
            broker.use(NEW_BROKER)
            await_renewal()
            files.certificate.unlink()
            files.key.unlink()
            await_renewal()
            files.key.write_text(THIRD.key_pem())
            files.certificate.write_text(THIRD.pem)
            await_renewal()
            broker.reject("second")
            await_renewal()

            # The old CA is no longer trusted.
            broker.trust(NEW_CA.pem)
            files.ca.write_text(NEW_CA.pem)
            await_renewal()
            load.stopped.set()
            await_output(lambda: len(reader.read()) >= load.sent)
        finally:
            stream.stop()
            query.stop()
        check()
        expected = sorted(str(number) for number in range(load.sent))
        assert values_of(reader.read_to_end()) == expected
        load.log.read_to_end().result(SECONDS)
        assert sorted(value.decode() for value in load.received if value is not None) == expected
    with TopicReader(broker.kafka.bootstrap_servers, COPY) as copied:
        assert values_of(copied.read_to_end()) == expected
    warnings = [record.getMessage() for record in caplog.records if "TLS files" in record.getMessage()]
    reasons = (
        "ssl.truststore.location is damaged",
        "ssl.certificate.location has no PEM",
        "does not belong",
        "cannot be read",
    )
    assert [reason for reason in reasons if not any(reason in warning for warning in warnings)] == []
    assert len(warnings) < 2 * len(reasons), "one for each change, not for each connection"
    old = {
        "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.client_key),
        "default.api.timeout.ms": "5000",
    }
    with pytest.raises(BrokerError):
        ClusterClient(parse_client_params(params | old).connection).topics([INPUT])
