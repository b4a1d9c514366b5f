"""``kafka-direct doctor`` and ``transactions`` with a broker of an unusual configuration, which the tests share."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pytest
from tests.integration.cli import program
from tests.integration.cli.doctor import diagnose
from tests.integration.cli.test_transactions import write_hanging_transaction
from tests.logins import jaas_text
from tests.proxy import Fault, Network
from tests.shards.brokers import FEW_THREADS, new_kafka

from pyspark_kafka_direct import read_arrow, write_arrow
from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from pyspark_kafka_direct.broker import EmbeddedKafka

NO_HOST: Final = "no-such-host.invalid:9092"
"""The address that the listener SASL_PLAINTEXT advertises. It does not resolve."""

_API_VERSIONS: Final = 18
_METADATA: Final = 3


class UnusualBroker(NamedTuple):
    """The broker, whose listener PLAINTEXT advertises a proxy.

    It accepts a late write to a transaction that its coordinator does not know, as brokers do before Kafka 3.6.
    """

    kafka: EmbeddedKafka
    address: str  # of the proxy
    responds: threading.Event  # otherwise the proxy passes only what API versions and metadata need


@pytest.fixture(scope="module")
def unusual_broker() -> Iterator[UnusualBroker]:
    """The broker. A test that clears ``responds`` sets it again."""
    responds = threading.Event()
    responds.set()

    def fault(api_key: int) -> Fault:
        return Fault.PASS if responds.is_set() or api_key in (_API_VERSIONS, _METADATA) else Fault.LATE_REQUEST

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Network(fault) as network:
        address = f"127.0.0.1:{network.port('127.0.0.1', port)}"
        properties = {
            **FEW_THREADS,
            "advertised.listeners": f"PLAINTEXT://{address},SASL_PLAINTEXT://{NO_HOST}",
            "transaction.partition.verification.enable": "false",
        }
        with new_kafka(port=port, security=["SASL_PLAINTEXT"], properties=properties) as kafka:
            yield UnusualBroker(kafka, address, responds)


def test_an_advertised_address_that_does_not_resolve(
    unusual_broker: UnusualBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = tmp_path / "alice.properties"
    login.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas_text('SCRAM-SHA-512')}\n"
    )
    done = diagnose(capsys, "-b", unusual_broker.kafka.listener("SASL_PLAINTEXT"), "--command-config", str(login))
    assert (done.code, [*done.not_ok]) == (1, [(f"broker 1 at {NO_HOST}", "dns")])
    assert "Broker 1 advertises this address (advertised.listeners)" in done.problems
    assert "the driver and all executors can reach" in done.problems


def test_the_only_broker_hangs_after_its_metadata(
    unusual_broker: UnusualBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    unusual_broker.responds.clear()
    try:
        done = diagnose(capsys, "-b", unusual_broker.address, "--timeout", "5")
    finally:
        unusual_broker.responds.set()
    assert done.code == 1
    assert done.problems == (
        "The broker accepts connections, but does not respond within --timeout. It has returned metadata, so it is "
        "frozen or overloaded: check its process and its log."
    )


def test_a_hanging_transaction_is_shown_and_ended(unusual_broker: UnusualBroker) -> None:
    kafka = unusual_broker.kafka

    def run(*arguments: str) -> CompletedProcess[str]:
        return program.run("transactions", *arguments, "-b", kafka.bootstrap_servers)

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    for topic in ("one", "two"):
        create_topics(kafka.bootstrap_servers, [NewTopic(topic, 1)])
        write_arrow(topic, pa.table({"value": [b"before"]}), servers)
        write_hanging_transaction(kafka, topic)
        write_arrow(topic, pa.table({"value": [b"behind"]}), servers)
    listed = run("list", "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert listed.returncode == 1
    assert [(row["partition"], row["state"], row["start_offset"], row["behind"]) for row in rows] == [
        ("one-0", "hanging", 1, 2),
        ("two-0", "hanging", 1, 2),
    ]
    committed = {**servers, "isolation.level": "read_committed"}
    assert read_arrow("one", committed).read_all()["value"].to_pylist() == [b"before"]
    young = run("abort", "--partition", "one-0", "--execute")
    assert young.returncode == 1
    assert "It is younger than transaction.max.timeout.ms (900000 ms)" in young.stderr
    dry = run("abort", "--partition", "one-0", "--force")
    assert (dry.returncode, dry.stdout[:43]) == (0, "Would abort the hanging transaction of prod")
    wrong = run("abort", "--partition", "one-0", "--start-offset", "7", "--force", "--execute")
    assert (wrong.returncode, wrong.stderr) == (1, "one-0 has no such open transaction.\n")
    done = run("abort", "--partition", "one-0", "--start-offset", "1", "--force", "--execute")
    assert (done.returncode, done.stdout[:43]) == (0, "Aborted the hanging transaction of producer")
    assert read_arrow("one", committed).read_all()["value"].to_pylist() == [b"before", b"behind"]
    assert [json.loads(line)["partition"] for line in run("list", "--json").stdout.splitlines()] == ["two-0"]
