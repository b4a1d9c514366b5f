"""Markers in a real compacted topic: the newest committed one is found, or an error; never "none" by mistake."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.integration.deliveries import cluster_of, new_session

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    DeliveryRefusedError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.topics import topic_config
from pyspark_kafka_direct.writing.compacted import CONFIGS
from pyspark_kafka_direct.writing.markers import MarkerStore

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench


@pytest.fixture
def store(kafka: EmbeddedKafka) -> MarkerStore:
    made = MarkerStore(cluster_of(kafka.bootstrap_servers), f"markers-{uuid.uuid4().hex[:8]}")
    made.ensure()
    return made


def write(servers: str, store: MarkerStore, markers: list[tuple[str, bytes | None]], *, commit: bool = True) -> None:
    """Each in a transaction of its own."""
    with new_session(servers, f"{uuid.uuid4().hex}.sink") as session:
        for key, value in markers:
            session.init()
            session.send(store.topic, store.encode(key, value))
            session.flush()
            if commit:
                session.commit()
            else:
                session.abort()


def test_the_topic_is_created_as_it_should_be(kafka: EmbeddedKafka, store: MarkerStore) -> None:
    found = topic_config(cluster_of(kafka.bootstrap_servers), store.topic, CONFIGS)
    assert found == CONFIGS
    store.ensure()  # once more changes nothing
    assert store.find("p.sink").value is None


def test_the_newest_of_a_key_is_found(kafka: EmbeddedKafka, store: MarkerStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1"), ("q", b"2"), ("p", b"3")])
    assert (store.find("p").value, store.find("q").value, store.find("r").value) == (b"3", b"2", None)
    write(kafka.bootstrap_servers, store, [("q", None)])
    assert store.find("q").value is None


def test_an_aborted_one_is_not_seen(kafka: EmbeddedKafka, store: MarkerStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1")])
    write(kafka.bootstrap_servers, store, [("p", b"2")], commit=False)
    assert store.find("p").value == b"1"


def test_one_far_from_the_end_is_found(kafka: EmbeddedKafka, store: MarkerStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1")])
    write(kafka.bootstrap_servers, store, [("q", b"%d" % number) for number in range(250)])
    assert store.find("p").value == b"1"
    assert store.find("q").value == b"249"


def test_records_without_a_key_do_no_harm(kafka: EmbeddedKafka, bench: Workbench) -> None:
    store = MarkerStore(cluster_of(kafka.bootstrap_servers), bench.make_topic())
    bench.write(store.topic, [b"other"])
    assert store.find("p").value is None


def test_an_open_transaction_of_another_is_waited_for(kafka: EmbeddedKafka, store: MarkerStore) -> None:
    """Until the deadline: "no marker" would be a lie."""
    servers = kafka.bootstrap_servers
    with new_session(servers, f"{uuid.uuid4().hex}.sink") as session:
        session.init()
        session.send(store.topic, store.encode("other", b"open"))
        session.flush()
        with pytest.raises(BrokerTimeoutError, match=r"a transaction of another writer is open from offset 0 on"):
            store.find("p", Deadline.after(0.5))
        session.commit()
        assert store.find("p").value is None
        assert store.find("other").value == b"open"


def test_a_topic_that_is_not_there_is_an_error(kafka: EmbeddedKafka) -> None:
    with pytest.raises(TopicNotFoundError):
        MarkerStore(cluster_of(kafka.bootstrap_servers), "no-such-markers").find("p")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(kafka: EmbeddedKafka, bench: Workbench, policy: str) -> None:
    topic = bench.make_topic(cleanup_policy=policy)
    with pytest.raises(DeliveryRefusedError, match=f"cleanup.policy={policy}.*kafka-configs.sh"):
        MarkerStore(cluster_of(kafka.bootstrap_servers), topic).ensure()


def test_without_permission_the_acl_and_the_command_are_told() -> None:
    with EmbeddedKafka(security=["SASL_PLAINTEXT"], authorizer=True) as kafka:
        user = kafka.users[0]
        settings = connection_settings(
            {
                "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user.username,
                "sasl.password": user.password,
            }
        )
        with pytest.raises(AuthorizationError, match=r"CREATE.*kafka-topics\.sh --create --topic markers") as caught:
            MarkerStore(Cluster(settings.connection), "markers").ensure()
        assert "cleanup.policy=compact" in str(caught.value)
