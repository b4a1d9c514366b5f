"""``kafka-direct lag`` with two groups and two topics of a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pyspark_kafka_direct import write_arrow

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

START = [sys.executable, "-c", "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())", "lag"]


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> list[str]:
    """Two topics with ten records in one partition; the first one has an open transaction behind them."""
    topics = sorted(make_topic(1) for _ in range(2))
    for topic in topics:
        write_arrow(topic, pa.table({"value": [b"x"] * 10}), {"bootstrap.servers": kafka.bootstrap_servers})
    return topics


def commit(kafka: EmbeddedKafka, group: str, offsets: dict[str, int]) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset) for topic, offset in offsets.items()], asynchronous=False)
    consumer.close()


def lag(kafka: EmbeddedKafka, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*START, *arguments, "-b", kafka.bootstrap_servers]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lag_up_to_the_end_and_up_to_open_transactions(kafka: EmbeddedKafka, topics: list[str]) -> None:
    one, two = topics
    commit(kafka, f"{one}-a", {one: 4, two: 10})
    commit(kafka, f"{one}-b", {two: 0})
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{one}-open"})
    writer.init_transactions(300)
    writer.begin_transaction()
    writer.produce(one, b"open")
    assert writer.flush(300) == 0
    done = lag(kafka, f"{one}-a", f"{one}-b", "--json")
    assert done.returncode == 0
    assert rows(done.stdout) == [
        {"group": f"{one}-a", "partition": f"{one}-0", "offset": 4, "end": 11, "lag": 7, "stable_lag": 6},
        {"group": f"{one}-a", "partition": f"{two}-0", "offset": 10, "end": 10, "lag": 0, "stable_lag": 0},
        {"group": f"{one}-b", "partition": f"{two}-0", "offset": 0, "end": 10, "lag": 10, "stable_lag": 10},
    ]
    writer.abort_transaction(300)
    table = lag(kafka, f"{one}-b").stdout.splitlines()
    assert table[0].split() == ["GROUP", "PARTITION", "OFFSET", "END", "LAG", "STABLE", "LAG"]
    assert table[1].split() == [f"{one}-b", f"{two}-0", "0", "10", "10", "10"]
    unknown = lag(kafka, f"{one}-b", "no-such-group", "--json")
    assert (unknown.returncode, len(rows(unknown.stdout))) == (1, 1)
    assert "no-such-group: no committed offsets; check the id" in unknown.stderr


def test_watch_shows_rates(kafka: EmbeddedKafka, topics: list[str]) -> None:
    group = f"{topics[0]}-watched"
    commit(kafka, group, {topics[0]: 2})
    command = [*START, group, "--watch", "--interval", "0.2", "--json", "-b", kafka.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["lag"], first["rate"]) == (8, None)
        commit(kafka, group, {topics[0]: 9})
        for line in process.stdout:
            row = json.loads(line)
            if row["offset"] == 9:
                break
            assert row["rate"] == 0
        assert row["lag"] == 1
        assert row["rate"] > 0
        process.kill()


def test_the_interval_is_positive(kafka: EmbeddedKafka) -> None:
    done = lag(kafka, "group", "--interval", "0")
    assert (done.returncode, "--interval must be more than 0" in done.stderr) == (2, True)
