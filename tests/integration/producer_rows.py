"""What the tests of the producer share: rows to write, and reading them back with a client that is not ours."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition
from tests.settings import LONG_API_TIMEOUT, parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.records import EncodedBatch

Rows = list[tuple[bytes | None, bytes | None]]
"""Keys and values."""

_NOW = 1_700_000_000_000


def cluster(servers: str, pool: ConnectionPool = POOL, **kafka: object) -> ClusterClient:
    """A cluster; settings are under Java's names, with underscores for dots."""
    names = {name.replace("_", "."): str(value) for name, value in kafka.items()}
    defaults = {"bootstrap.servers": servers, "retry.backoff.ms": "20", **LONG_API_TIMEOUT}
    settings = parse_client_params(defaults | names).connection
    return ClusterClient(settings, pool=pool)


def numbered_rows(count: int, keys: int = 50, first: int = 0) -> Rows:
    """Rows whose values count up for each of some keys."""
    return [(b"key-%d" % (number % keys), b"%d" % number) for number in range(first, first + count)]


def batches(
    topic: str,
    rows: Iterable[tuple[bytes | None, bytes | None]],
    partitions: int = 1,
    *,
    timestamps: Sequence[int] | None = None,
    **how: Any,
) -> Iterator[EncodedBatch]:
    """The rows, encoded; ``how`` is for the encoder."""
    encoder = RecordEncoder(topic=topic, partitions=partitions, **{"batch_bytes": 2000, **how})
    given = list(rows)
    for start in range(0, len(given), 1000):
        some = given[start : start + 1000]
        times = [_NOW] * len(some) if timestamps is None else timestamps[start : start + 1000]
        yield from encoder.add(
            pa.record_batch(
                {
                    "key": pa.array([key for key, _ in some], pa.binary()),
                    "value": pa.array([value for _, value in some], pa.binary()),
                    "timestamp": pa.array(times, pa.int64()),
                }
            )
        )
    yield from encoder.flush()


def read_back(servers: str, topic: str, partitions: int = 1, *, isolation_level: str = "read_uncommitted") -> list[Any]:
    """Everything in a topic, by partition and offset, as kafka-python reads it."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation_level,
        request_timeout_ms=300_000,
    )
    places = [ClientPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    found: list[Any] = []
    deadline = time.monotonic() + 600
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline
        for records in consumer.poll(200).values():
            found += records
    consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def by_key(records: Iterable[Any]) -> dict[bytes | None, list[bytes | None]]:
    """Values by key, in the order in which they lie in their partition."""
    found = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return dict(found)


def rows_by_key(rows: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, list[bytes | None]]:
    """What ``by_key`` gives where each row was written once, in order."""
    found = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return dict(found)
