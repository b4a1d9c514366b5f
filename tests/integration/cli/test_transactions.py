"""``kafka-direct transactions`` with open transactions in two topics of a real broker."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.integration.cli.program import run
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params
from tests.unit.records.encoding import Row, encode

from pyspark_kafka_direct import TopicPartition
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.protocol.messages import PRODUCE
from pyspark_kafka_direct.records import set_producer_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


class Transactions:
    """Runs the command."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._servers = kafka.bootstrap_servers

    def run(self, *arguments: str) -> CompletedProcess[str]:
        return run("transactions", *arguments, "-b", self._servers)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def transactions(kafka: EmbeddedKafka) -> Transactions:
    return Transactions(kafka)


@pytest.fixture
def writers(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Iterator[tuple[list[str], list[Producer]]]:
    """Two topics, and two producers with an open transaction each, the second of which has written to both topics."""
    topics = sorted(make_topic(2) for _ in range(2))
    producers = []
    for number, written in enumerate([topics[:1], topics]):
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topics[0]}-writer-{number}"}
        )
        producer.init_transactions(300)
        producer.begin_transaction()
        for topic in written:
            producer.produce(topic, b"open", partition=1)
        assert producer.flush(300) == 0
        producers.append(producer)
    yield topics, producers
    for producer in producers:
        producer.abort_transaction(300)


def test_the_first_open_transaction_blocks_a_partition(
    transactions: Transactions, writers: tuple[list[str], list[Producer]]
) -> None:
    (one, two), producers = writers
    rows = transactions.rows("list", one, two)
    assert [(row["partition"], row["transactional_id"], row["blocks"]) for row in rows] == [
        (f"{one}-1", f"{one}-writer-0", "yes"),
        (f"{one}-1", f"{one}-writer-1", "no"),
        (f"{two}-1", f"{one}-writer-1", "yes"),
    ]
    assert {(row["state"], row["behind"] > 0, row["since"][:2]) for row in rows} == {("Ongoing", True, "20")}
    assert [row["start_offset"] for row in rows] == [0, 1, 0]
    (described,) = transactions.rows("describe", f"{one}-writer-1")
    assert described["partitions"] == f"{one}-1 {two}-1"
    assert (described["state"], described["producer_id"]) == ("Ongoing", rows[1]["producer_id"])
    producers[0].commit_transaction(300)
    producers[0].begin_transaction()  # so that the fixture can abort it

    def is_first_ended() -> bool:  # at the moment when a transaction ends, the command has a note about its partition
        return f"{one}-writer-0" not in transactions.run("list", one).stdout

    wait_until(is_first_ended, "the control record of the other transaction")
    rows = transactions.rows("list", one)
    assert [(row["transactional_id"], row["blocks"]) for row in rows] == [(f"{one}-writer-1", "yes")]


def test_a_table_for_people(transactions: Transactions, writers: tuple[list[str], list[Producer]]) -> None:
    (one, two), _ = writers
    done = transactions.run("list", two)
    header, row = done.stdout.splitlines()
    assert header.split("  ")[0].strip() == "PARTITION"
    assert header.index("TRANSACTIONAL ID") == row.index(f"{one}-writer-1")
    assert done.returncode == 0


def test_no_transaction(transactions: Transactions, make_topic: MakeTopic) -> None:
    done = transactions.run("list", make_topic(1))
    assert (done.returncode, done.stdout) == (0, "No transaction is open.\n")
    misspelt = transactions.run("list", "no-such-topic", make_topic(1))
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert "The cluster has no topic 'no-such-topic'" in misspelt.stderr
    missing = transactions.run("describe", "no-such-id")
    assert missing.returncode == 2
    assert "The cluster has no transactional id 'no-such-id'" in missing.stderr
    assert "the following arguments are required: ID" in transactions.run("describe").stderr


def test_abort_ends_the_transaction_of_an_id(
    transactions: Transactions, writers: tuple[list[str], list[Producer]], kafka: EmbeddedKafka
) -> None:
    (one, two), producers = writers
    dry = transactions.run("abort", f"{one}-writer-1")
    assert dry.returncode == 0
    assert dry.stdout.startswith(f"Would abort the transaction of '{one}-writer-1' in {one}-1, {two}-1, open since 20")
    assert len(transactions.rows("list", one, two)) == 3
    done = transactions.run("abort", f"{one}-writer-1", "--execute")
    assert (done.returncode, done.stdout[:7]) == (0, "Aborted")
    assert [row["transactional_id"] for row in transactions.rows("list", one, two)] == [f"{one}-writer-0"]
    with pytest.raises(KafkaException, match=r"fenced|epoch"):
        producers.pop().commit_transaction(300)
    again = transactions.run("abort", f"{one}-writer-1", "--execute")
    assert again.returncode == 1
    assert "so there is nothing to abort" in again.stderr
    by_partition = transactions.run("abort", "--partition", f"{one}-1", "--execute")
    assert "Its producer is fenced" in by_partition.stdout
    assert transactions.rows("list", one) == []
    producers.clear()


def write_hanging_transaction(kafka: EmbeddedKafka, topic: str, age: float = 0) -> None:
    """Write a record, which is ``age`` seconds old, without adding the partition to its transaction."""
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection)
    producer = TransactionCoordinatorClient(cluster, f"{topic}-late").init_transactions(60_000).producer
    (batch,) = encode([Row(b"late", timestamp=int((time.time() - age) * 1000))])
    set_producer_state(batch.data, producer.id, producer.epoch, 0, transactional=True)
    partitions = [{"index": 0, "records": bytes(batch.data)}]
    request = {
        "transactional_id": f"{topic}-late",
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }
    connection = cluster.connect(cluster.leader(TopicPartition(topic, 0)), cluster.deadline())
    response = connection.call(PRODUCE.with_max_version(11), request, cluster.deadline())
    cluster.release(connection)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Name one transactional id, or set --partition"),
        (("a", "--partition", "t-0"), "Remove the transactional id, or --partition"),
        (("--partition", "t"), "--partition: 't' is not TOPIC-N, such as flights-0"),
        (("no-such-id",), "The cluster has no transactional id 'no-such-id'"),
    ],
)
def test_mistakes_with_abort(transactions: Transactions, arguments: tuple[str, ...], message: str) -> None:
    done = transactions.run("abort", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
