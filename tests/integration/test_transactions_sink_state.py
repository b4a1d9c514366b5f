"""Sink state records in a real compacted topic: the newest committed one is read, or there is an error."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_transactions_histories import new_query, records_of
from tests.integration.topics import Admin
from tests.integration.transactional_batches import cluster_of, new_transactional_producer
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    TopicNotFoundError,
    TransactionStateError,
)
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.producer.compacted_partition import COMPACTED_TOPIC_CONFIGS
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def store(kafka: EmbeddedKafka) -> SinkStateStore:
    store = SinkStateStore(cluster_of(kafka.bootstrap_servers), f"sink-state-{uuid.uuid4().hex[:8]}")
    store.ensure_topic()
    return store


def write(servers: str, store: SinkStateStore, records: list[tuple[str, bytes | None]], *, commit: bool = True) -> None:
    """Write each record in its own transaction."""
    with new_transactional_producer(servers, f"{uuid.uuid4().hex}.sink") as producer:
        for key, value in records:
            producer.init_transactions()
            producer.send(store.topic, store.encode(key, value))
            producer.flush()
            if commit:
                producer.commit()
            else:
                producer.abort()
        producer.init_transactions()  # waits for the control record of the last one


def test_the_topic_is_created_with_its_configs(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    found = describe_topic_config(cluster_of(kafka.bootstrap_servers), store.topic, COMPACTED_TOPIC_CONFIGS)
    assert found == COMPACTED_TOPIC_CONFIGS
    store.ensure_topic()  # a second call changes nothing
    assert store.read("p.sink").value is None


def test_the_newest_record_of_a_key_is_read(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1"), ("q", b"2"), ("p", b"3")])
    assert (store.read("p").value, store.read("q").value, store.read("r").value) == (
        b"3",
        b"2",
        None,
    )
    write(kafka.bootstrap_servers, store, [("q", None)])
    assert store.read("q").value is None


def test_an_aborted_record_is_ignored(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1")])
    write(kafka.bootstrap_servers, store, [("p", b"2")], commit=False)
    assert store.read("p").value == b"1"


def test_a_record_far_from_the_end_is_read(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    write(kafka.bootstrap_servers, store, [("p", b"1")])
    write(kafka.bootstrap_servers, store, [("q", b"%d" % number) for number in range(250)])
    assert store.read("p").value == b"1"
    assert store.read("q").value == b"249"


def test_records_without_a_key_are_ignored(kafka: EmbeddedKafka, bench: Workbench) -> None:
    store = SinkStateStore(cluster_of(kafka.bootstrap_servers), bench.make_topic())
    bench.write(store.topic, [b"other"])
    assert store.read("p").value is None


def test_open_transactions_of_other_writers_are_not_waited_for(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    servers = kafka.bootstrap_servers
    write(servers, store, [("p", b"1")])
    with new_transactional_producer(servers, f"{uuid.uuid4().hex}.sink") as producer:
        producer.init_transactions()
        producer.send(store.topic, store.encode("other", b"open"))
        producer.flush()
        write(servers, store, [("p", b"2")])
        assert store.read_decided("p").value == b"2"
        stored = store.read("other")
        assert stored.newest is None
        assert stored.undecided is not None
        assert stored.undecided.value == b"open"
        with pytest.raises(BrokerError, match="has no control record, although its writer is fenced"):
            store.read_decided("other")
        producer.commit()
        wait_until(lambda: store.read("other").value == b"open", "the control record is written")


def test_tickets_are_in_the_order_of_planning(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    tickets = [store.append_ticket("p") for _ in range(3)]
    for older, newer in pairwise(tickets):
        assert newer.is_newer_than(older)
    assert store.read("p").newest is None
    write(kafka.bootstrap_servers, store, [("p", b"1")])
    store.append_ticket("p")
    assert store.read("p").value == b"1"


def test_a_missing_topic_is_an_error(kafka: EmbeddedKafka) -> None:
    with pytest.raises(TopicNotFoundError):
        SinkStateStore(cluster_of(kafka.bootstrap_servers), "no-such-sink-state").read("p")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_is_rejected(kafka: EmbeddedKafka, bench: Workbench, policy: str) -> None:
    topic = bench.make_topic(cleanup_policy=policy)
    with pytest.raises(TransactionStateError, match=f"cleanup.policy={policy}.*kafka-configs.sh"):
        SinkStateStore(cluster_of(kafka.bootstrap_servers), topic).ensure_topic()


def test_without_permission_the_error_has_the_acl_and_the_command(stoppable_kafka: EmbeddedKafka) -> None:
    kafka = stoppable_kafka
    user = kafka.users[0]
    settings = parse_client_params(
        {
            "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user.username,
            "sasl.password": user.password,
        }
    )
    with pytest.raises(AuthorizationError, match=r"CREATE.*kafka-topics\.sh --create --topic sink-state") as caught:
        SinkStateStore(ClusterClient(settings.connection), "sink-state").ensure_topic()
    assert "cleanup.policy=compact" in str(caught.value)


def test_tickets_of_each_process_have_the_id_of_the_topic(kafka: EmbeddedKafka, store: SinkStateStore) -> None:
    """Without it, tickets of a topic that was recreated or restored would be compared."""
    ticket = SinkStateStore(cluster_of(kafka.bootstrap_servers), store.topic).append_ticket("p")
    topic_id = cluster_of(kafka.bootstrap_servers).topics([store.topic])[store.topic].topic_id
    assert topic_id is not None
    assert ticket.topic_id == topic_id.hex


@pytest.mark.parametrize("fixture", ["kafka", "kafka39"])
def test_a_query_continues_with_a_sink_state_that_was_restored_in_another_topic(
    request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic], fixture: str
) -> None:
    """Its ticket has a higher offset than those of the new topic."""
    first = new_query(request.getfixturevalue(fixture).bootstrap_servers, topics_on)
    for batch in range(3):
        first.commit(batch)
    state = first.sink_state()
    assert state is not None
    Admin(first.servers).recreate(first.sink_state_topic, 1)
    cluster, transactional_id = cluster_of(first.servers), first.options.query_transactional_id
    store = SinkStateStore(cluster, first.sink_state_topic)
    restored = BatchProducer(cluster, ProducerSettings())
    restored.send(store.topic, store.encode(transactional_id, state.to_json().encode()))
    restored.flush()
    restored.close()
    second = first.restarted("run-2")
    assert not second.commit(2).newly_committed
    assert second.commit(3).newly_committed
    assert first.committed_values() == records_of(0, 1, 2, 3)
