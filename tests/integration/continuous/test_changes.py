"""Topics that grow, go and come back while a continuous query runs, or while it is stopped."""

from __future__ import annotations

import os
import random
import re
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.queries import failure_of
from tests.integration.read_back import values
from tests.integration.stream_queries import produce
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.soak.processes import task_workers

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.integration.continuous.queries import Queries


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
    assert set(queries.logged(queries.entries("commits")[-1])[topic]) == {"0", "1"}


def test_a_pattern_without_a_topic_waits_for_one(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    word, output = f"later-{uuid.uuid4().hex}", make_topic()
    reading = queries.read(subscribePattern=f"^{word}", startingOffsets="latest").select("value")
    query = queries.start(reading.to_kafka(output))
    wait_until(lambda: query.status["message"] == "Waiting for topic-partitions", "it waits")
    query.stop()
    query = queries.start(reading.to_kafka(output))
    admin.create(f"{word}-1", 1)
    queries.put(f"{word}-1", range(3))
    queries.expect(output, range(3), query)


def test_a_pattern_and_topics_that_are_deleted(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """KafkaContinuousSourceTopicDeletionSuite: the query goes on with the topic that is made then."""
    word, output = f"flights-{uuid.uuid4().hex}", make_topic()
    admin.create(f"{word}-1", 1)
    queries.put(f"{word}-1", range(3))
    reading = queries.read(subscribePattern=f"^{word}", failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    admin.delete(f"{word}-1")
    admin.create(f"{word}-2", 1)
    queries.put(f"{word}-2", range(3, 6))
    queries.expect(output, range(6), query)
    query.processAllAvailable()
    query.stop()
    assert queries.logged(queries.entries("commits")[-1]) == {f"{word}-2": {"0": 3}}


def test_the_only_topic_is_deleted(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """SPARK-41375: no end without partitions is written, which would forget where the others were."""
    word, output = f"flights-{uuid.uuid4().hex}", make_topic()
    admin.create(f"{word}-1", 1)
    queries.put(f"{word}-1", range(3))
    reading = queries.read(subscribePattern=f"^{word}", failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    admin.delete(f"{word}-1")
    wait_until(lambda: query.status["message"] == "Waiting for topic-partitions", "it waits")
    query.stop()
    assert query.exception() is None
    assert {} not in [queries.logged(epoch) for epoch in queries.entries("offsets")]


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_deleted_topic_ends_a_strict_query(
    queries: Queries, make_topic: MakeTopic, admin: Admin, running: bool
) -> None:
    one, two, output = make_topic(), make_topic(), make_topic()
    queries.put(one, range(3))
    reading = queries.read(subscribe=f"{one},{two}").select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, range(3), query)
    query.processAllAvailable()
    if not running:
        query.stop()
    admin.delete(one)
    if not running:
        query = queries.start(reading.to_kafka(output))
    error = failure_of(query)
    assert isinstance(error, DataLossError)
    assert f"{one}-0" in str(error)


@pytest.mark.parametrize("records", [2, 8], ids=["fewer", "more"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_topic_that_is_created_anew(
    queries: Queries, make_topic: MakeTopic, admin: Admin, running: bool, records: int
) -> None:
    """With failOnDataLoss=false the new one is read from its start, as far as it can be told from the old one."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    reading = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, range(5), query)
    query.processAllAvailable()
    if not running:
        query.stop()
    admin.recreate(topic, 1)
    queries.put(topic, [f"new {number}" for number in range(records)])
    if not running:
        query = queries.start(reading.to_kafka(output))
        wait_until(lambda: query.status["isTriggerActive"], "it runs")
        query.processAllAvailable()
    queries.put(topic, ["last"])

    def arrived() -> bool:
        if (error := query.exception()) is not None:
            raise error
        return "last" in values(queries.bench.bootstrap_servers, output)

    wait_until(arrived, "the last record", 120)
    got = values(queries.bench.bootstrap_servers, output)
    if running:
        assert got == sorted([*map(str, range(5)), *(f"new {number}" for number in range(records)), "last"])
    else:
        # Offsets alone do not tell a longer new topic from the old one: what lies before is missed, as in Spark.
        assert set(got) <= {*map(str, range(5)), *(f"new {number}" for number in range(records)), "last"}


def test_a_topic_that_is_created_anew_is_read_once(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """The tasks have found the new topic, and the next run must not take it for one that nobody has read yet."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    reading = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, range(5), query)
    query.processAllAvailable()
    admin.recreate(topic, 1)
    queries.put(topic, range(5, 13))
    queries.expect(output, range(13), query)
    wait_until(lambda: queries.logged(queries.entries("commits")[-1])[topic] == {"0": 8}, "the new topic's epoch")
    admin.grow(topic, 2)  # another run begins
    queries.put(topic, range(13, 16), partition=1)
    queries.expect(output, range(16), query)
    query.stop()
    assert values(queries.bench.bootstrap_servers, output) == sorted(map(str, range(16)))


def test_records_that_have_aged_out_while_it_was_stopped(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(5))
    query = queries.copy(topic, output)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, range(5, 10))
    admin.delete_records(topic, 8)
    error = failure_of(queries.copy(topic, output))
    assert isinstance(error, DataLossError)
    assert "[5, 8)" in str(error)
    reading = queries.read(subscribe=topic, failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, [*range(5), 8, 9], query)


def test_brokers_that_are_gone_are_told_and_waited_for(queries: Queries, tmp_path: Path) -> None:
    """The tasks try on, and nobody but the status says why nothing comes. A failure meanwhile is one, not many."""
    arrived = tmp_path / "arrived"

    def arrive(batch: pa.RecordBatch, epoch: int) -> None:
        arrived.touch()

    with EmbeddedKafka(reuse_running=False) as own:
        Admin(own.bootstrap_servers).create("here", 1)
        query = queries.start(
            continuous_query(queries.spark)
            .read(
                {"kafka.bootstrap.servers": own.bootstrap_servers, "subscribe": "here"},
                **{"kafka.default.api.timeout.ms": 3000, "kafka.request.timeout.ms": 2000},
            )
            .foreach_batch(arrive),
            maxRestarts=1,
        )
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "it runs")
        own.stop_broker(1)
        wait_until(lambda: query.status["message"].startswith("Waiting for the brokers: "), "trouble", 120)
        assert query.status["isTriggerActive"]
        for worker in task_workers(os.getpid()):
            worker.kill()
        wait_until(lambda: not query.status["isTriggerActive"], "the run has ended")
        assert query.awaitTermination(10) is False, "longer than two starts that fail"
        assert query.status["message"].startswith("Waiting for the brokers: ")
        own.start_broker(1)
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "it is well again", 120)
        produce(own.bootstrap_servers, "here", ["x"])
        wait_until(arrived.exists, "a record")
        assert query.exception() is None
        query.stop()


def test_at_random_no_wrong_data(queries: Queries, make_topic: MakeTopic, admin: Admin) -> None:
    """The stress suite for failOnDataLoss=false: topics come, go and come back, and what arrives was once written."""
    chance = random.Random(20261122)
    word, output = f"stress-{uuid.uuid4().hex}", make_topic()
    reading = queries.read(subscribePattern=f"^{re.escape(word)}", failOnDataLoss=False).select("value")
    query = queries.start(reading.to_kafka(output), tasksMax=2)
    there: list[str] = []
    written: set[str] = set()
    for step in range(12):
        choice = chance.choice(["create", "delete", "recreate", "put", "put"])
        if choice == "create" or not there:
            there.append(f"{word}-{step}")
            admin.create(there[-1], chance.randint(1, 2))
        elif choice == "delete" and len(there) > 1:
            admin.delete(there.pop(chance.randrange(len(there))))
        elif choice == "recreate":
            admin.recreate(chance.choice(there), 1)
        topic = chance.choice(there)
        texts = [f"{topic} {step} {number}" for number in range(chance.randint(1, 20))]
        queries.put(topic, texts)
        written.update(texts)
    steady = f"{word}-steady"
    admin.create(steady, 1)
    last = [f"{steady} {number}" for number in range(5)]
    queries.put(steady, last)

    def arrived() -> bool:
        if (error := query.exception()) is not None:
            raise error
        return set(last) <= set(values(queries.bench.bootstrap_servers, output))

    wait_until(arrived, "what was written last", 120)
    assert set(values(queries.bench.bootstrap_servers, output)) <= written | set(last)
