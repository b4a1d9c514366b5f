"""Consumers of three client families (Apache Kafka's in Java, librdkafka, kafka-python), which read whole topics."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.broker.maven import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.producers import Family

_DEADLINE = 600.0


class Consumed(NamedTuple):
    """A record as a consumer returns it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def consume(
    family: Family, bootstrap_servers: str, version: str, topics: Sequence[str], isolation: str = "read_uncommitted"
) -> dict[str, list[Consumed]]:
    """Reads partition 0 of each topic; ``version`` is the Java client's."""
    if family == "java":
        return _by_java(bootstrap_servers, version, topics, isolation)
    if family == "librdkafka":
        return {topic: _by_librdkafka(bootstrap_servers, topic, isolation) for topic in topics}
    return {topic: _by_kafka_python(bootstrap_servers, topic, isolation) for topic in topics}


def _by_java(bootstrap_servers: str, version: str, topics: Sequence[str], isolation: str) -> dict[str, list[Consumed]]:
    jars = kafka_jars(version)[0].parent
    source = Path(__file__).parents[1] / "java" / "Consume.java"
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{jars}/*", source]
    completed = subprocess.run(
        [*(str(part) for part in command), bootstrap_servers, isolation, *topics],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_DEADLINE,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    consumed: dict[str, list[Consumed]] = {topic: [] for topic in topics}
    for line in completed.stdout.splitlines():
        topic, offset, key, value, headers, timestamp = json.loads(line)
        pairs = tuple((name, _bytes(content)) for name, content in headers)
        consumed[topic].append(Consumed(offset, _bytes(key), _bytes(value), pairs, timestamp))
    return consumed


def _by_librdkafka(bootstrap_servers: str, topic: str, isolation: str) -> list[Consumed]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "check.crcs": True,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 32 << 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumed: list[Consumed] = []
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return consumed
            headers: Any = message.headers() or []
            consumed.append(
                Consumed(message.offset(), message.key(), message.value(), tuple(headers), message.timestamp()[1])
            )
        raise AssertionError(f"did not reach the end of {topic}")
    finally:
        consumer.close()


def _by_kafka_python(bootstrap_servers: str, topic: str, isolation: str) -> list[Consumed]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        isolation_level=isolation,
        check_crcs=True,
        max_partition_fetch_bytes=32 << 20,
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        (end,) = consumer.end_offsets([partition]).values()
        consumed = []
        deadline = time.monotonic() + _DEADLINE
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline, f"did not reach the end of {topic}"
            for records in consumer.poll(1000).values():
                consumed += [
                    Consumed(each.offset, each.key, each.value, tuple(each.headers), each.timestamp) for each in records
                ]
        return consumed
    finally:
        consumer.close()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
