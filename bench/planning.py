"""How long it takes to plan a topic of many partitions, and how many requests go to the brokers for it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.spark_peers import Spark, frame
from bench.summary import JVM, OURS
from bench.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.client_peers import Clients
    from bench.host import Host
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Planning:
    """What planning took.

    Attributes:
        spark_seconds: By peer: from ``load()`` to a physical plan with its partitions, in Spark (median).
        cold_seconds: This package's reader alone, without Spark, the first time in a process: imports, connection,
            metadata, offsets.
        warm_seconds: The same with the connection at hand (median).
        requests: Sent by one warm plan, by the request's name.
    """

    partitions: int
    spark_seconds: dict[str, float]
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    requests: dict[str, int] | None = None


def planned_topic(partitions: int) -> Topic:
    """Return the topic to load for it: one record in each partition, as empty ranges are left out of a plan."""
    return Topic(100, "none", partitions, partitions=partitions, padding=0, purpose="planning")


def measure(spark: Host[Spark], clients: Host[Clients], topic: Topic, peers: list[str]) -> Planning:
    """Plan the topic with both Spark sources in turn, then with this package's reader alone."""
    chosen = [peer for peer in (JVM, OURS) if peer in peers]
    times: dict[str, list[float]] = {peer: [] for peer in chosen}
    for number in range(_ROUNDS + 1):
        for peer in chosen:
            took = spark.call(_plan_in_spark, peer, topic)
            if number:
                times[peer].append(took)
    in_spark = {peer: median(taken) for peer, taken in times.items()}
    if OURS not in chosen:
        return Planning(topic.partitions, in_spark)
    cold, _ = clients.call(_plan_alone, topic)
    warm = [clients.call(_plan_alone, topic) for _ in range(_ROUNDS)]
    return Planning(topic.partitions, in_spark, cold, median(took for took, _ in warm), warm[0][1])


def _plan_in_spark(spark: Spark, peer: str, topic: Topic) -> float:
    started = time.perf_counter()
    planned: Any = frame(spark, peer, topic)._jdf.queryExecution().toRdd()
    found = planned.getNumPartitions()
    took = time.perf_counter() - started
    if found != topic.partitions:
        raise BenchError(f"{peer} planned {found} partitions for the {topic.partitions} of {topic.name}")
    return took


def _plan_alone(clients: Clients, topic: Topic) -> tuple[float, dict[str, int]]:
    started = time.perf_counter()
    from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

    options = {"kafka.bootstrap.servers": clients.bootstrap_servers, "subscribe": topic.name}
    with counted_requests() as requests:
        source = KafkaSourceProvider(options)
        planned = source.reader(source.schema()).partitions()
    took = time.perf_counter() - started
    if len(planned) != topic.partitions:
        raise BenchError(f"{len(planned)} partitions were planned for the {topic.partitions} of {topic.name}")
    return took, dict(requests)


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count the requests this process sends through this package while the block lasts, by name."""
    from pyspark_kafka_direct.client.connection import Connection

    counts: Counter[str] = Counter()
    submit, send = Connection.submit, Connection.send

    def counting_submit(self: Connection, api: ApiMessageType, *rest: Any) -> None:
        counts[api.name] += 1
        submit(self, api, *rest)

    def counting_send(self: Connection, api_key: int, api_version: int, name: str, *rest: Any, **more: Any) -> None:
        counts[name] += 1
        send(self, api_key, api_version, name, *rest, **more)

    Connection.submit, Connection.send = counting_submit, counting_send  # type: ignore[method-assign, assignment]
    try:
        yield counts
    finally:
        Connection.submit, Connection.send = submit, send  # type: ignore[method-assign]
