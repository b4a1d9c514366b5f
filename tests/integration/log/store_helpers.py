"""Offset stores of tests, and the records in their topics."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from pyspark_kafka_direct.log import KafkaOffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterator


def new_name(prefix: str = "offsets") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def store_of(servers: str, topic: str, query: str = "q", **more: Any) -> KafkaOffsetStore:
    params = {"bootstrap.servers": servers, **more.pop("params", {})}
    return KafkaOffsetStore(topic, query, params, **more)


def records(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[Any, Any]]:
    """Return all keys and values in a store's topic, read by librdkafka."""
    return list(_records(servers, topic, isolation))


def _records(servers: str, topic: str, isolation: str) -> Iterator[tuple[Any, Any]]:
    config = {
        "bootstrap.servers": servers,
        "group.id": uuid.uuid4().hex,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(600)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return
            value = message.value()
            yield json.loads(message.key()), None if value is None else json.loads(value)
    finally:
        consumer.close()
