"""The embedded broker: it serves clients, it can be stopped and killed, and it never outlives its owner."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.integration.waiting import wait_until
from tests.shards.brokers import new_kafka

from pyspark_kafka_direct.broker import EmbeddedKafka, make_certificates, unsecured_token
from pyspark_kafka_direct.broker.__main__ import example_code
from pyspark_kafka_direct.broker.probe import free_ports
from pyspark_kafka_direct.cli.sample_flights import INITIAL_RECORDS, RECORDS_PER_SECOND
from pyspark_kafka_direct.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.conftest import MakeTopic

    TopicsOn = Callable[[str], MakeTopic]

OLD_VERSION = "3.9.2"


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=600)]
    finally:
        consumer.close()


def has_exited(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def broker_of(program: subprocess.Popen[str]) -> psutil.Process:
    [broker] = [child for child in psutil.Process(program.pid).children(recursive=True) if child.name() == "java"]
    return broker


def config_of(kafka: EmbeddedKafka, kind: ResourceType, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})  # it must outlive its futures
    described = admin.describe_configs([resource])[resource].result(600)
    return {key: entry.value for key, entry in described.items()}


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    """A broker with all listeners, ACLs, and a property. Another program uses the first port that is chosen for it.

    Tests that stop it start it again. When it is closed, its process and folder are removed.
    """
    names = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
    calls: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.MonkeyPatch.context() as patch:

        def with_used_port(count: int) -> list[int]:
            calls.append(count)
            ports = free_ports(count)
            return [other.getsockname()[1], *ports[1:]] if len(calls) == 1 else ports

        patch.setattr("pyspark_kafka_direct.broker.kafka_cluster.free_ports", with_used_port)
        kafka = new_kafka(security=names, authorizer=True, properties={"message.max.bytes": "12345"}).start()
    with kafka:
        assert len(calls) == 2
        yield kafka
        folder, pid = kafka.log_file().parent, kafka.pids[1]
    assert has_exited(pid)
    assert not folder.exists()


def test_records_written_are_read_back(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic()
    write(kafka.bootstrap_servers, topic, [b"one", b"two"])
    assert read(kafka.bootstrap_servers, topic, 2) == [b"one", b"two"]


def test_topics_get_the_requested_partitions_and_settings(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(5, cleanup_policy="compact")
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(topic, timeout=600)
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2, 3, 4]
    assert config_of(kafka, ResourceType.TOPIC, topic)["cleanup.policy"] == "compact"


def test_a_broker_keeps_its_ports_and_data_over_a_stop(secured: EmbeddedKafka, topics_on: TopicsOn) -> None:
    kafka = secured
    servers, pid = kafka.bootstrap_servers, kafka.pids[1]
    topic = topics_on(servers)()
    write(servers, topic, [b"before"])

    kafka.stop_broker(1)
    assert has_exited(pid)
    assert not kafka.is_alive(1)
    assert kafka.pids == {}
    assert "shut down completed" in kafka.log_file().read_text()
    host, _, port = kafka.listener("SASL_SSL").partition(":")
    # Kafka binds its listeners one after the other, so it responds at the first one and then exits.
    with socket.create_server((host, int(port))), pytest.raises(BrokerError, match="Address already in use"):
        kafka.start_broker(1)
    kafka.start_broker(1)
    write(servers, topic, [b"after"])
    assert kafka.bootstrap_servers == servers
    assert read(servers, topic, 2) == [b"before", b"after"]


@pytest.mark.soak
def test_a_broker_keeps_its_ports_and_data_over_a_kill(secured: EmbeddedKafka, topics_on: TopicsOn) -> None:
    kafka, servers = secured, secured.bootstrap_servers
    topic = topics_on(servers)()
    write(servers, topic, [b"before"])
    kafka.kill_broker(1)
    assert not kafka.is_alive(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(servers.split(":")[1])), timeout=120)
    kafka.start_broker(1)
    assert kafka.is_alive(1)
    write(servers, topic, [b"after"])
    assert kafka.bootstrap_servers == servers
    assert read(servers, topic, 2) == [b"before", b"after"]


@pytest.mark.soak
def test_three_brokers_elect_another_leader_when_one_dies(three_brokers: EmbeddedKafka, topics_on: TopicsOn) -> None:
    kafka = three_brokers
    assert len(kafka.bootstrap_servers.split(",")) == 3
    assert sorted(kafka.pids) == [1, 2, 3]
    topic = topics_on(kafka.bootstrap_servers)(replication=3)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def leader() -> int:
        return int(admin.list_topics(topic, timeout=600).topics[topic].partitions[0].leader)

    def another_leader() -> bool:
        try:
            return leader() not in (first, -1)
        except KafkaException:  # the dead broker was asked
            return False

    first = leader()
    write(kafka.bootstrap_servers, topic, [b"one"])
    kafka.kill_broker(first)
    wait_until(another_leader, "another leader")
    write(kafka.bootstrap_servers, topic, [b"two"])
    kafka.start_broker(first)
    wait_until(lambda: len(admin.list_topics(timeout=600).brokers) == 3, "three brokers again")
    assert read(kafka.bootstrap_servers, topic, 2) == [b"one", b"two"]
    assert config_of(kafka, ResourceType.BROKER, "2")["broker.rack"] == "rack-2"


def test_the_old_version_serves_and_logs_its_version(kafka39: EmbeddedKafka, topics_on: TopicsOn) -> None:
    topic = topics_on(kafka39.bootstrap_servers)()
    write(kafka39.bootstrap_servers, topic, [b"old"])
    assert read(kafka39.bootstrap_servers, topic, 1) == [b"old"]
    assert f"Kafka version: {OLD_VERSION}" in kafka39.log_file().read_text()


def test_every_listener_accepts_its_clients_and_rejects_others(secured: EmbeddedKafka, tmp_path: Path) -> None:
    certificates, alice = secured.certificates, secured.users[0]
    trusted = {"ssl.ca.location": str(certificates.ca)}
    pair = {"ssl.certificate.location": str(certificates.client), "ssl.key.location": str(certificates.client_key)}
    store = {"ssl.keystore.location": str(certificates.client_p12), "ssl.keystore.password": certificates.password}
    other = make_certificates(tmp_path)
    untrusted = {"ssl.certificate.location": str(other.client), "ssl.key.location": str(other.client_key)}
    user = {"sasl.username": alice.username, "sasl.password": alice.password}
    token = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (unsecured_token("olga"), time.time() + 600)}

    def connection_error(name: str, protocol: str, settings: Mapping[str, Any], seconds: float = 600) -> str | None:
        conf = {"bootstrap.servers": secured.listener(name), "security.protocol": protocol, "log_level": 0}
        try:
            AdminClient({**conf, "reconnect.backoff.ms": 500, **settings}).list_topics(timeout=seconds)
        except KafkaException as error:
            return str(error)
        return None

    assert connection_error("SSL", "SSL", trusted) is None
    assert connection_error("MTLS", "SSL", trusted | pair) is None
    assert connection_error("MTLS", "SSL", trusted | store) is None
    assert connection_error("SSL", "SSL", {"ssl.ca.location": str(other.ca)}, 1)
    assert connection_error("MTLS", "SSL", trusted, 1)
    assert connection_error("MTLS", "SSL", trusted | untrusted, 1)
    for name, options in (("SASL_PLAINTEXT", {}), ("SASL_SSL", trusted)):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert connection_error(name, name, {**options, **user, "sasl.mechanism": mechanism}) is None, (
                name,
                mechanism,
            )
        assert connection_error(name, name, {**options, **token}) is None, name
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        wrong = {**user, "sasl.password": "wrong", "sasl.mechanism": mechanism}
        assert connection_error("SASL_PLAINTEXT", "SASL_PLAINTEXT", wrong, 1)


def test_acls_are_enforced_and_properties_are_applied(secured: EmbeddedKafka, topics_on: TopicsOn) -> None:
    assert config_of(secured, ResourceType.BROKER, "1")["message.max.bytes"] == "12345"
    topic = topics_on(secured.bootstrap_servers)()  # clients of the PLAINTEXT listener are super users
    bob = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": secured.users[1].password}
    servers = {"bootstrap.servers": secured.listener("SASL_PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT"}
    metadata = AdminClient({**servers, **bob}).list_topics(topic, timeout=600)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(metadata.topics[topic].error)


def test_brokers_die_with_their_owner_even_if_it_is_killed() -> None:
    program = """
import json, sys, time
from pyspark_kafka_direct.broker import EmbeddedKafka
with EmbeddedKafka(start_timeout=900) as kafka:
    print(json.dumps([kafka.pids[1], str(kafka.log_file().parent)]), flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = json.loads(owner.stdout.readline())
        assert not has_exited(pid)
        owner.kill()
    wait_until(lambda: has_exited(pid), "the broker's end")
    wait_until(lambda: not Path(folder).exists(), "its folder's removal")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("metric.reporters", "no.such.Reporter", "no.such.Reporter"),
        pytest.param("num.network.threads", "none", "num.network.threads", marks=pytest.mark.soak),
    ],
)
def test_a_broker_that_exits_while_starting_leaves_a_log(name: str, value: str, reason: str) -> None:
    with pytest.raises(BrokerError) as caught, EmbeddedKafka(properties={name: value}):
        pass
    message = str(caught.value)
    assert reason in message
    log = Path(message.rsplit("See ", 1)[1])
    assert reason in log.read_text()
    shutil.rmtree(log.parent)


def test_a_requested_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=f"Port {port} is in use"), EmbeddedKafka(port=port):
            pass


@pytest.mark.soak
def test_the_program_runs_in_the_foreground_until_interrupted() -> None:
    [port] = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "pyspark_kafka_direct.broker",
        "--port",
        str(port),
        "--property",
        "num.partitions=7",
    ]
    pipe = subprocess.PIPE
    # Tests may run in the background, where interrupts are ignored.
    enable_interrupts = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=enable_interrupts) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == f"127.0.0.1:{port}\n"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        assert len(admin.list_topics(timeout=600).brokers) == 1
        broker = broker_of(program)
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=900)
    assert program.returncode == 0
    assert stderr.endswith("Stopped.\n")
    assert "Traceback" not in stderr
    assert has_exited(broker.pid)


def test_the_program_creates_topics_and_produces_a_sample_until_it_is_terminated() -> None:
    [port] = free_ports(1)
    program_and_port = [sys.executable, "-m", "pyspark_kafka_direct.broker", "--port", str(port)]
    command = [*program_and_port, "--property", "num.io.threads=2", "--sample", "flights"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--topic", "copies:2", "late"], stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == f"127.0.0.1:{port}\n"
        servers = {"bootstrap.servers": f"localhost:{port}"}
        topics = AdminClient(servers).list_topics(timeout=600).topics
        assert {name: len(topics[name].partitions) for name in topics} == {"flights": 2, "copies": 2, "late": 1}

        consumer = Consumer({**servers, "group.id": "none", "auto.offset.reset": "earliest"})
        consumer.subscribe(["flights"])
        flights: dict[int, dict[str, Any]] = {}

        def live_flights_arrived() -> bool:
            for message in consumer.consume(5000, timeout=1):
                value = json.loads(message.value())
                assert message.key() == value["carrier"].encode()
                flights[value["number"]] = value
            return len(flights) > INITIAL_RECORDS + RECORDS_PER_SECOND

        wait_until(live_flights_arrived, "flights that are written live")
        consumer.close()
        broker = broker_of(program)
        program.send_signal(signal.SIGTERM)
        _, stderr = program.communicate(timeout=900)
    assert has_exited(broker.pid)
    assert sorted(flights) == list(range(len(flights)))
    assert example_code(f"127.0.0.1:{port}", "flights") in stderr
    assert program.returncode == 0
    assert stderr.endswith("Stopped.\n")
    assert "Traceback" not in stderr
