"""Exactly-once commits while the transaction coordinator moves, and while too few replicas are in sync."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.test_transactions_histories import BatchCommitter, as_large_batches, new_query, records_of
from tests.integration.transactional_batches import cluster_of
from tests.integration.waiting import wait_until
from tests.shards.brokers import new_kafka

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer import batch_producer
from pyspark_kafka_direct.producer.produce_errors import BatchDecision, decide_for_error_code
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import FIND_COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.records import EncodedBatch

TOO_FEW_REPLICAS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
DEADLINE = 600.0


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("3.9.2", marks=pytest.mark.soak)])
def brokers(request: pytest.FixtureRequest, three_brokers: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """Three brokers, with and without transaction.version 2."""
    if request.param == "4.4.0":
        yield three_brokers
    else:
        with new_kafka(brokers=3, version=request.param, properties={"default.replication.factor": "3"}) as kafka:
            yield kafka


@pytest.fixture
def query(
    request: pytest.FixtureRequest, brokers: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]
) -> BatchCommitter:
    """A query whose topic needs all replicas, or as many as the parameter says."""
    servers, in_sync = brokers.bootstrap_servers, getattr(request, "param", 3)
    topic = topics_on(servers)(2, replication=3, min_insync_replicas=in_sync)
    # On a busy machine, a broker restarts for minutes.
    settings = ProducerSettings(delivery_timeout_ms=900_000)
    return new_query(servers, topics_on, topic=topic, timeout_ms=900_000, settings=settings)


def coordinator_of(query: BatchCommitter) -> int:
    request = {"key": query.options.query_transactional_id, "key_type": 1}
    cluster = cluster_of(query.servers)

    def call(connection: Connection, limit: Deadline) -> Any:
        return connection.call(FIND_COORDINATOR, request, limit)

    node: int = cluster.call_any_broker(call, cluster.deadline()).node_id
    return node


def interrupted(query: BatchCommitter, batch: int, happens: Callable[[], None]) -> Iterator[tuple[str, EncodedBatch]]:
    """Yield the batches; something happens when the first one was sent."""
    first, *others = as_large_batches(query.batches(batch))
    yield first
    happens()
    yield from others


@pytest.mark.parametrize("query", [2], indirect=True)
@pytest.mark.parametrize("end", ["kill_broker", pytest.param("stop_broker", marks=pytest.mark.soak)])
def test_a_coordinator_that_moves_in_the_transaction(brokers: EmbeddedKafka, query: BatchCommitter, end: str) -> None:
    query.commit(0)
    moved: list[int] = []

    def move() -> None:
        if not moved:  # the batch may be sent again in another transaction
            moved.append(coordinator_of(query))
            getattr(brokers, end)(moved[0])

    try:
        assert query.commit(1, lambda: interrupted(query, 1, move)).newly_committed
        # Another broker may lag behind the one that has committed the batch.
        wait_until(lambda: coordinator_of(query) != moved[0], "another coordinator")
        assert query.commit(2).newly_committed
    finally:
        for node in moved:
            brokers.start_broker(node)
    assert query.commit(3).newly_committed
    assert query.committed_values() == records_of(0, 1, 2, 3)


@pytest.fixture
def rejected(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a broker has rejected a batch because too few replicas are in sync."""
    event = threading.Event()

    def decide(code: int, **more: Any) -> BatchDecision:
        if code in TOO_FEW_REPLICAS:
            event.set()
        return decide_for_error_code(code, **more)

    monkeypatch.setattr(batch_producer, "decide_for_error_code", decide)
    return event


def test_a_batch_waits_until_enough_replicas_are_in_sync(
    brokers: EmbeddedKafka, query: BatchCommitter, rejected: threading.Event
) -> None:
    query.commit(0)

    def restart() -> None:
        assert rejected.wait(DEADLINE)
        brokers.start_broker(3)

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        assert query.commit(1, lambda: interrupted(query, 1, lambda: brokers.stop_broker(3))).newly_committed
    finally:
        rejected.set()
        restarting.join(DEADLINE)
    assert query.commit(2).newly_committed
    assert query.committed_values() == records_of(0, 1, 2)


@pytest.mark.soak
def test_a_batch_is_aborted_if_too_few_replicas_stay_in_sync(
    brokers: EmbeddedKafka, query: BatchCommitter, rejected: threading.Event
) -> None:
    query.commit(0)
    impatient = replace(query, settings=ProducerSettings(delivery_timeout_ms=8_000))
    try:
        with pytest.raises(BrokerTimeoutError, match="NOT_ENOUGH_REPLICAS"):
            impatient.commit(1, lambda: interrupted(query, 1, lambda: brokers.stop_broker(3)))
    finally:
        brokers.start_broker(3)
    assert rejected.is_set()
    assert query.committed_values() == records_of(0)
    second = query.restarted("run-2")
    assert second.commit(1).newly_committed
    assert second.commit(2).newly_committed
    assert query.committed_values() == records_of(0, 1, 2)
