"""``kafka-direct transactions`` with open transactions in two topics of a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

PROGRAM = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"


class Transactions:
    """Runs the command."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._servers = kafka.bootstrap_servers

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, "transactions", *arguments, "-b", self._servers]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

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
    missing = transactions.run("describe", "no-such-id")
    assert missing.returncode == 2
    assert "The cluster has no transactional id 'no-such-id'" in missing.stderr
    assert "Name the transactional ids" in transactions.run("describe").stderr
