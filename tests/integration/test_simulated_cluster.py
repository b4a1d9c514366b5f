"""A real broker and the simulated one (``tests/simulation``) give equal results, request by request.

The same steps run over a ``Connection`` of this package: to a real broker, with and without transaction.version 2, and
to a simulated one, in a simulated process. Error codes, offsets, epochs and the bytes of records are compared; producer
ids are numbered by first appearance.
"""

from __future__ import annotations

import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.waiting import wait_until
from tests.shards.brokers import new_kafka, shared_broker
from tests.simulation.compared_cases import COMPARED_CASES, run_simulated
from tests.simulation.log_caller import run_case

from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.broker.maven import kafka_jars
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = "4.4.0"
_GROUP, _TRANSACTION = 0, 1  # key types of FindCoordinator


# With 0, the soaks compare a real broker, and tests/simulation/test_transcripts.py its recorded responses.
@pytest.fixture(scope="module", params=[2, pytest.param(0, marks=pytest.mark.soak)])
def transaction_version(request: pytest.FixtureRequest) -> int:
    assert isinstance(request.param, int)
    return request.param


@pytest.fixture(scope="module")
def servers(transaction_version: int) -> Iterator[str]:
    """Return the address of a broker of this version and ``transaction.version``, whose coordinators are ready."""
    # The feature is one of the cluster, so other tests cannot share a broker without it.
    with new_kafka(version=_VERSION) if transaction_version == 0 else shared_broker("plain") as kafka:
        if transaction_version == 0:
            _disable_transaction_v2(kafka.bootstrap_servers)
        wait_until(lambda: _is_ready(kafka.bootstrap_servers, transaction_version), "ready")
        yield kafka.bootstrap_servers


@pytest.mark.parametrize("name", COMPARED_CASES)
def test_the_simulated_broker_responds_as_a_real_one(name: str, servers: str, transaction_version: int) -> None:
    label = f"{name}-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": servers})

    def delete_records(topic: str, partition: int, offset: int) -> None:
        (result,) = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        result.result(timeout=600)

    real = run_case(
        label,
        COMPARED_CASES[name],
        _settings(servers),
        SYSTEM,
        kip_890=transaction_version == 2,
        delete_records=delete_records,
    )
    assert run_simulated(name, label, transaction_version) == real


def _settings(servers: str) -> ConnectionSettings:
    host, _, port = servers.rpartition(":")
    return ConnectionSettings(((host, int(port)),))


def _disable_transaction_v2(servers: str) -> None:
    jars = kafka_jars(_VERSION, None)[0].parent
    tool = [str(find_java()), "-Xmx128m", "-cp", f"{jars}/*", "org.apache.kafka.tools.FeatureCommand"]
    command = [*tool, "--bootstrap-server", servers, "downgrade", "--feature", "transaction.version=0"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)


def _is_ready(servers: str, transaction_version: int) -> bool:
    settings = _settings(servers)
    deadline = Deadline.after(60)
    connection = Connection.open(settings, *settings.bootstrap_servers[0], deadline)
    try:
        errors = [
            connection.call(messages.FIND_COORDINATOR, {"key": "any", "key_type": key_type}, deadline).error_code
            for key_type in (_GROUP, _TRANSACTION)
        ]
        return not any(errors) and connection.features(deadline).get("transaction.version", 0) == transaction_version
    finally:
        connection.close()
