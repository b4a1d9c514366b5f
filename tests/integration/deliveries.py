"""What tests of transactions need: record batches, sessions, and readers of committed records that are not ours."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from pyspark_kafka_direct.records import create_encoder
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.records import EncodedBatch

TIMEOUT_MS = 60_000


def cluster_of(servers: str, **kafka: object) -> Cluster:
    names = {name.replace("_", "."): str(value) for name, value in kafka.items()}
    return Cluster(connection_settings({"bootstrap.servers": servers} | names).connection)


def new_session(
    servers: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS, settings: ProduceSettings | None = None
) -> TransactionalSession:
    return TransactionalSession(cluster_of(servers), transactional_id, timeout_ms, settings or ProduceSettings())


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}.sink"


def batch_of(values: Iterable[bytes], partition: int = 0) -> EncodedBatch:
    """One record batch."""
    column = pa.array(list(values), pa.binary())
    rows = pa.record_batch(
        {
            "value": column,
            "partition": pa.array([partition] * len(column), pa.int32()),
            "timestamp": pa.array([int(time.time() * 1000)] * len(column), pa.int64()),
        }
    )
    encoder = create_encoder(topic="any", partitions=partition + 1, batch_bytes=64 << 20, max_record_bytes=64 << 20)
    (batch,) = (*encoder.add(rows), *encoder.flush())
    return batch


def committed(servers: str, topic: str, partitions: int = 1, *, seconds: float = 60) -> list[bytes]:
    """The values that librdkafka reads with read_committed, up to where all logs end now, by partition."""
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
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
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
