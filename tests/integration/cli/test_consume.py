"""``kafka-direct consume`` with two topics of a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.integration.cli.program import START, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def producer(kafka: EmbeddedKafka) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    yield producer
    assert producer.flush(300) == 0


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic, producer: Producer) -> list[str]:
    """Two topics with two partitions and five records each."""
    topics = sorted(make_topic(2) for _ in range(2))
    for topic in topics:
        for number in range(10):
            producer.produce(topic, f"{number}", key=f"k{number}", partition=number % 2, timestamp=1000 + number)
    assert producer.flush(300) == 0
    return topics


def consume(kafka: EmbeddedKafka, *arguments: str) -> list[str]:
    """Return the printed lines."""
    done = run("consume", "-b", kafka.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_positions_and_formats(kafka: EmbeddedKafka, topics: list[str]) -> None:
    one, two = topics
    assert consume(kafka, *topics, "-e", "-f", r"%t %p %o %k %s\n") == [
        f"{topic} {partition} {number // 2} k{number} {number}"
        for topic in topics
        for partition in range(2)
        for number in range(partition, 10, 2)
    ]
    assert consume(kafka, one, "-o", "-1:end") == ["8", "9"]
    assert consume(kafka, one, "-o", "+4:end") == ["8", "9"]
    assert consume(kafka, one, "-o", "1:3") == ["2", "4", "3", "5"]
    assert consume(kafka, one, "-o", "@1970-01-01:1007") == ["0", "2", "4", "6", "1", "3", "5"]
    assert consume(kafka, one, "-o", "end", "-e") == []
    assert consume(kafka, one, two, "-n", "3") == ["0", "2", "4"]
    assert consume(kafka, "--pattern", f"{one[:-1]}{one[-1]}|{two}", "-o", "-1", "-e") == ["8", "9"] * 2
    (last,) = consume(kafka, two, "-o", "-1", "-n", "1", "--json")
    assert json.loads(last) == {
        "topic": two,
        "partition": 0,
        "offset": 4,
        "timestamp": "1970-01-01T00:00:01.008Z",
        "key": "k8",
        "value": "8",
    }


def test_it_waits_for_records_of_known_and_new_partitions(
    kafka: EmbeddedKafka, topics: list[str], producer: Producer
) -> None:
    process = subprocess.Popen(
        [*START, "consume", "-b", kafka.bootstrap_servers, *topics, "-o", "-1", "-f", r"%t %p %s\n"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert [process.stdout.readline() for _ in range(4)][-1] == f"{topics[1]} 1 9\n"
        for topic in topics:
            producer.produce(topic, "next", partition=1)
        assert producer.flush(300) == 0
        assert {process.stdout.readline() for _ in topics} == {f"{topic} 1 next\n" for topic in topics}
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
    finally:
        process.kill()
        process.stdout.close()


def test_a_reader_that_ends_ends_the_command_quietly(kafka: EmbeddedKafka, topics: list[str]) -> None:
    process = subprocess.Popen(
        [*START, "consume", "-b", kafka.bootstrap_servers, topics[0]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            producer.produce(topics[0], "more")
            assert producer.flush(300) == 0
            time.sleep(0.1)
        assert (process.returncode, process.stderr.read()) == (0, b"")


def test_errors_are_one_line_with_an_exit_code(kafka: EmbeddedKafka, topics: list[str]) -> None:
    command = [*START, "consume", "-b", kafka.bootstrap_servers, f"{topics[0]}x", "-e"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3
    assert done.stderr.startswith(f"kafka-direct consume: no such topic: {topics[0]}x")
    assert done.stderr.count("\n") == 1
    assert os.linesep not in done.stdout


@pytest.mark.parametrize("start", ["7", "+7"])
def test_a_start_behind_the_end_applies_while_it_waits(
    kafka: EmbeddedKafka, topics: list[str], producer: Producer, start: str
) -> None:
    """All partitions but one end at offset 5."""
    one, two = topics
    for _ in range(3):
        producer.produce(two, "later", partition=0)
    assert producer.flush(300) == 0
    process = subprocess.Popen(
        [*START, "consume", "-b", kafka.bootstrap_servers, *topics, "-o", start, "-n", "3", "-f", r"%t %p %o\n"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"{two} 0 7\n"
        for _ in range(5):
            producer.produce(one, "later", partition=1)
            assert producer.flush(300) == 0
            time.sleep(0.3)
        assert process.communicate(timeout=300)[0].splitlines() == [f"{one} 1 7", f"{one} 1 8"]
    finally:
        process.kill()


def test_no_topic_matches(kafka: EmbeddedKafka) -> None:
    for position in ("5", "+5", "5:7", "start", "-5"):
        assert consume(kafka, "--pattern", "no-such-topic.*", "-o", position, "-e") == []


def test_a_format_that_is_not_utf_8(kafka: EmbeddedKafka, topics: list[str]) -> None:
    command = [
        *START,
        "consume",
        "-b",
        kafka.bootstrap_servers,
        topics[0],
        "-e",
        "-n",
        "1",
        "-f",
        os.fsdecode(b"\xff%s"),
    ]
    assert subprocess.run(command, check=True, capture_output=True, timeout=300).stdout == b"\xff0"
