"""A simulated cluster whose brokers contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LONG = 10_000.0  # seconds


def cluster_of(brokers: int = 3, replicas: int | None = None, **settings: Any) -> UnitCluster:
    """Return a cluster whose brokers are called in the order of their ids; the first one leads."""
    connection = {"default_api_timeout_ms": 20_000, **settings}
    cluster = UnitCluster(
        {TOPIC: 1}, brokers=brokers, replication_factor=brokers if replicas is None else replicas, connection=connection
    )
    cluster.pool.rotation = 0.0
    cluster.append(PARTITION, 100)
    return cluster


def stick(cluster: UnitCluster, *brokers: int) -> None:
    """Let brokers apply no more metadata."""
    for broker in brokers:
        cluster.event("stick_image", broker=broker - 1, seconds=LONG)


def stop(cluster: UnitCluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.event("stop_broker", broker=broker - 1, seconds=LONG)


def pause(cluster: UnitCluster, *brokers: int, seconds: float = 100.0) -> None:
    """Let brokers accept connections and requests, but not respond."""
    for broker in brokers:
        cluster.event("pause_broker", broker=broker - 1, seconds=seconds)


def respond(cluster: UnitCluster, code: int, *brokers: int) -> None:
    """Let brokers return an error code for every topic; without brokers, end that."""

    def change(broker: int, values: dict[str, Any]) -> dict[str, Any]:
        if broker not in brokers:
            return values
        topics = [{**topic, "error_code": code, "partitions": []} for topic in values["topics"]]
        return {**values, "topics": topics}

    cluster.change("Metadata", change if brokers else None)


def advertise(cluster: UnitCluster, port: int) -> None:
    """Let metadata have another port of all brokers."""
    cluster.change(
        "Metadata", lambda _, values: {**values, "brokers": [{**each, "port": port} for each in values["brokers"]]}
    )


def depose(cluster: UnitCluster, leader: int, *outdated: int) -> None:
    """Elect another leader, and append 50 records there; outdated brokers do not learn of it."""
    stick(cluster, *outdated)
    cluster.elect(PARTITION, leader)
    cluster.sleep(1)  # until the former leader is no in-sync replica
    cluster.append(PARTITION, 50)


def restore(cluster: UnitCluster, epoch: int = 0, end: int = 100) -> None:
    """Let the cluster lose its epochs, and records, as one that was restored from a backup."""
    target = cluster.partition(PARTITION)
    for replica in target.replicas.values():
        replica.truncate_to(end)
    target.epoch = epoch
    cluster.cluster.publish()


def epoch_of(cluster: UnitCluster) -> int:
    return cluster.partition(PARTITION).epoch


def end(client: ClusterClient) -> int:
    return client.offsets({PARTITION: LATEST})[PARTITION]


def metadata_requests(cluster: UnitCluster, since: Collection[int] = ()) -> list[int]:
    """Return how many each broker has handled since an earlier count."""
    counts = cluster.received_by("Metadata")
    return [count - before for count, before in zip(counts, since or [0] * len(counts), strict=True)]
