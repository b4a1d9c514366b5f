"""Topics that grow, are deleted or recreated while a continuous query runs or is stopped."""

from __future__ import annotations

import os
import random
import re
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.continuous_queries import SHORT_LEASE, await_failure
from tests.integration.read_back import TopicReader, values, values_of
from tests.integration.stream_queries import produce
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.shards.brokers import new_kafka
from tests.soak.processes import task_workers

import pyspark_kafka_direct
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries


@pytest.fixture
def admin(queries: Queries) -> Admin:
    return Admin(queries.bench.bootstrap_servers)


def test_new_partitions_are_read_from_their_start(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    query = queries.copy(topic, output)
    queries.expect(output, range(5), query)
    run = query.runId
    admin.grow(topic, 2)
    queries.put(topic, range(5, 15))
    queries.expect(output, range(15), query)
    assert query.runId == run
    query.processAllAvailable()
    query.stop()
    assert set(queries.end_offsets(queries.epochs("commits")[-1])[topic]) == {"0", "1"}


def test_a_pattern_waits_for_a_topic(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    prefix, output = f"later-{uuid.uuid4().hex}", make_topic()
    input_query = queries.read(subscribePattern=f"^{prefix}", startingOffsets="latest").select("value")
    query = queries.start(input_query.to_kafka(output))
    wait_until(lambda: query.status["message"] == "Waiting for topic-partitions", "a waiting query")
    query.stop()
    query = queries.start(input_query.to_kafka(output))
    admin.create(f"{prefix}-1", 1)
    queries.put(f"{prefix}-1", range(3))
    queries.expect(output, range(3), query)


def test_a_pattern_with_deleted_topics(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """KafkaContinuousSourceTopicDeletionSuite: the query continues with a topic that is created later."""
    prefix, output = f"flights-{uuid.uuid4().hex}", make_topic()
    admin.create(f"{prefix}-1", 1)
    queries.put(f"{prefix}-1", range(3))
    input_query = queries.read(subscribePattern=f"^{prefix}", failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    admin.delete(f"{prefix}-1")
    admin.create(f"{prefix}-2", 1)
    queries.put(f"{prefix}-2", range(3, 6))
    queries.expect(output, range(6), query)
    query.processAllAvailable()
    query.stop()
    assert queries.end_offsets(queries.epochs("commits")[-1]) == {f"{prefix}-2": {"0": 3}}


def test_the_only_topic_is_deleted(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """SPARK-41375: an epoch without partitions is not written, because it would lose the offsets of the others."""
    prefix, output = f"flights-{uuid.uuid4().hex}", make_topic()
    admin.create(f"{prefix}-1", 1)
    queries.put(f"{prefix}-1", range(3))
    input_query = queries.read(subscribePattern=f"^{prefix}", failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    admin.delete(f"{prefix}-1")
    wait_until(lambda: query.status["message"] == "Waiting for topic-partitions", "a waiting query")
    query.stop()
    assert query.exception() is None
    assert {} not in [queries.end_offsets(epoch) for epoch in queries.epochs("offsets")]


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_deleted_topic_ends_a_strict_query(
    queries: Queries, make_topic: MakeTopic, admin: Admin, running: bool
) -> None:
    one, two, output = make_topic(), make_topic(), make_topic()
    queries.put(one, range(3))
    input_query = queries.read(subscribe=f"{one},{two}").select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    if not running:
        query.stop()
    admin.delete(one)
    if not running:
        query = queries.start(input_query.to_kafka(output))
    error = await_failure(query)
    assert isinstance(error, DataLossError)
    assert f"{one}-0" in str(error)


@pytest.mark.parametrize("records", [2, 8], ids=["fewer", "more"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_recreated_topic(queries: Queries, make_topic: MakeTopic, admin: Admin, running: bool, records: int) -> None:
    """With failOnDataLoss=false, the new topic is read from its start if it can be distinguished from the old one."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    input_query = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, range(5), query)
    query.processAllAvailable()
    if not running:
        query.stop()
    admin.recreate(topic, 1)
    queries.put(topic, [f"new {number}" for number in range(records)])
    if not running:
        query = queries.start(input_query.to_kafka(output))
        wait_until(lambda: query.status["isTriggerActive"], "a running query")
        query.processAllAvailable()
    queries.put(topic, ["last"])

    with TopicReader(queries.bench.bootstrap_servers, output) as reader:

        def arrived() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return "last" in values_of(reader.read())

        wait_until(arrived, "the last record")
        output_values = values_of(reader.read_to_end())
    if running:
        assert output_values == sorted([*map(str, range(5)), *(f"new {number}" for number in range(records)), "last"])
    else:
        # Offsets alone do not distinguish a longer new topic from the old one, so its first records are skipped, as in
        # Spark.
        assert set(output_values) <= {*map(str, range(5)), *(f"new {number}" for number in range(records)), "last"}


def test_a_recreated_topic_is_read_once(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """The tasks have read the new topic, and the next run must not start it again."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    input_query = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, range(5), query)
    query.processAllAvailable()
    admin.recreate(topic, 1)
    queries.put(topic, range(5, 13))
    queries.expect(output, range(13), query)
    wait_until(lambda: queries.end_offsets(queries.epochs("commits")[-1])[topic] == {"0": 8}, "the new topic's epoch")
    admin.grow(topic, 2)  # starts another run
    queries.put(topic, range(13, 16), partition=1)
    queries.expect(output, range(16), query)
    query.stop()
    assert values(queries.bench.bootstrap_servers, output) == sorted(map(str, range(16)))


def test_records_that_expire_while_the_query_is_stopped(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    query = queries.copy(topic, output)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, range(5, 10))
    admin.delete_records(topic, 8)
    error = await_failure(queries.copy(topic, output))
    assert isinstance(error, DataLossError)
    assert "[5, 8)" in str(error)
    monitor = pyspark_kafka_direct.enable(queries.spark)
    input_query = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, [*range(5), 8, 9], query)

    def losses() -> list[tuple[str, int]]:
        return [(loss.cause, loss.offsets) for loss in monitor.losses if loss.topic == topic]

    wait_until(lambda: losses() == [("aged_out", 3)], "the count of skipped offsets")


def test_unavailable_brokers_are_reported_and_awaited(queries: Queries, tmp_path: Path) -> None:
    """The tasks retry, and the status shows the error. A failure in the meantime counts once."""
    arrived = tmp_path / "arrived"

    def record_arrival(batch: pa.RecordBatch) -> None:
        arrived.touch()

    with new_kafka() as own:
        Admin(own.bootstrap_servers).create("here", 1)
        query = queries.start(
            continuous_query(queries.spark)
            .read(
                {"kafka.bootstrap.servers": own.bootstrap_servers, "subscribe": "here"},
                **{"kafka.default.api.timeout.ms": 3000, "kafka.request.timeout.ms": 2000},
            )
            .foreach_batch(record_arrival),
            maxRestarts=1,
            heartbeatTimeout=SHORT_LEASE,
        )
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "a running query")
        own.stop_broker(1)
        wait_until(lambda: query.status["message"].startswith("Waiting for the brokers: "), "the error")
        assert query.status["isTriggerActive"]
        for worker in task_workers(os.getpid()):
            worker.kill()
        wait_until(lambda: not query.status["isTriggerActive"], "the end of the run")
        # A restart begins when the lease of the killed task is over, and then waits for the brokers.
        wait_until(lambda: query.status["message"].startswith("Waiting for the brokers: "), "the error again")
        assert query.awaitTermination(10) is False, "longer than two failing starts"
        assert query.status["message"].startswith("Waiting for the brokers: ")
        own.start_broker(1)
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "the recovery")
        produce(own.bootstrap_servers, "here", ["x"])
        wait_until(arrived.exists, "a record")
        assert query.exception() is None
        query.stop()


@pytest.mark.soak
def test_random_topic_changes(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """The stress suite for failOnDataLoss=false: topics change at random, and the output has only written records."""
    random_source = random.Random(20261122)
    prefix, output = f"stress-{uuid.uuid4().hex}", make_topic()
    input_query = queries.read(subscribePattern=f"^{re.escape(prefix)}", failOnDataLoss=False).select("value")
    query = queries.start(input_query.to_kafka(output), tasksMax=2)
    topics: list[str] = []
    written: set[str] = set()
    for step in range(12):
        choice = random_source.choice(["create", "delete", "recreate", "put", "put"])
        if choice == "create" or not topics:
            topics.append(f"{prefix}-{step}")
            admin.create(topics[-1], random_source.randint(1, 2))
        elif choice == "delete" and len(topics) > 1:
            admin.delete(topics.pop(random_source.randrange(len(topics))))
        elif choice == "recreate":
            admin.recreate(random_source.choice(topics), 1)
        topic = random_source.choice(topics)
        new_values = [f"{topic} {step} {number}" for number in range(random_source.randint(1, 20))]
        queries.put(topic, new_values)
        written.update(new_values)
    stable = f"{prefix}-stable"
    admin.create(stable, 1)
    last = [f"{stable} {number}" for number in range(5)]
    queries.put(stable, last)

    def arrived() -> bool:
        if (error := query.exception()) is not None:
            raise error
        return set(last) <= set(values(queries.bench.bootstrap_servers, output))

    wait_until(arrived, "the last records")
    assert set(values(queries.bench.bootstrap_servers, output)) <= written | set(last)
