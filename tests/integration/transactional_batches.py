"""Helpers for tests of transactions: record batches, producers, and librdkafka as reader of committed records."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from tests.integration.waiting import wait_until
from tests.settings import LONG_API_TIMEOUT, parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.records import EncodedBatch

TIMEOUT_MS = 60_000


def cluster_of(servers: str, **kafka: object) -> ClusterClient:
    names = {name.replace("_", "."): str(value) for name, value in kafka.items()}
    return ClusterClient(parse_client_params({"bootstrap.servers": servers, **LONG_API_TIMEOUT} | names).connection)


def new_transactional_producer(
    servers: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS, settings: ProducerSettings | None = None
) -> TransactionalProducer:
    return TransactionalProducer(cluster_of(servers), transactional_id, timeout_ms, settings or ProducerSettings())


def new_transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}.sink"


def batch_of(values: Iterable[bytes], partition: int = 0) -> EncodedBatch:
    """Return one record batch."""
    column = pa.array(list(values), pa.binary())
    rows = pa.record_batch(
        {
            "value": column,
            "partition": pa.array([partition] * len(column), pa.int32()),
            "timestamp": pa.array([int(time.time() * 1000)] * len(column), pa.int64()),
        }
    )
    encoder = RecordEncoder(topic="any", partitions=partition + 1, batch_bytes=64 << 20, max_record_bytes=64 << 20)
    (batch,) = (*encoder.add(rows), *encoder.flush())
    return batch


def committed(
    servers: str, topic: str, partitions: int = 1, *, seconds: float = 600, in_progress: bool = False
) -> list[bytes]:
    """Return the values that librdkafka reads with read_committed up to the current ends, by partition.

    A coordinator responds before each partition has the commit marker, so this waits for the markers, unless a
    transaction is ``in_progress``.
    """
    if not in_progress:
        wait_for_markers(servers, [TopicPartition(topic, number) for number in range(partitions)], seconds)
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(config)
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([ClientPartition(topic, number, 0) for number in range(partitions)])
        deadline = time.monotonic() + seconds
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic} was not read to its end in {seconds} s"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.partition()].append(message.value())
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise AssertionError(error)
    finally:
        consumer.close()
    return [value for number in range(partitions) for value in found[number]]


def wait_for_markers(servers: str, partitions: list[TopicPartition], seconds: float = 600) -> None:
    """Wait until no transaction is in progress in these partitions of a topic."""
    cluster = cluster_of(servers)
    ends = dict.fromkeys(partitions, -1)

    def are_equal() -> bool:
        return cluster.offsets(ends, isolation_level="read_committed") == cluster.offsets(ends)

    wait_until(are_equal, f"no transaction is in progress in {partitions[0].topic}", seconds)
