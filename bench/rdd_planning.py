"""What planning one batch of many partitions costs the driver: ends of the logs, preferred hosts, the RDD.

Preferred hosts exist only where there are executors, so this needs a Spark of its own, a local cluster.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

    from bench.topics import Topic

MASTER = "local-cluster[2,1,1024]"
_ROUNDS = 15
_TIMEOUT = 120.0  # seconds until the executors are there


@dataclass(frozen=True, slots=True)
class BatchPlanning:
    """Medians, in seconds.

    Attributes:
        partitions: Of the batch.
        ends: Looking up the ends of the logs.
        rdd: Executors, preferred hosts, and the RDD as far as Spark needs it for a job.
    """

    partitions: int
    ends: float
    rdd: float

    @property
    def seconds(self) -> float:
        """Both."""
        return self.ends + self.rdd


@contextmanager
def local_cluster() -> Iterator[SparkContext]:
    """Two executors in processes of their own."""
    from pyspark import SparkConf, SparkContext

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setMaster(MASTER).setAppName("planning").set("spark.ui.enabled", "false")
    with SparkContext(conf=conf) as sc:
        yield sc


def plan(sc: SparkContext, topic: Topic, bootstrap_servers: str) -> BatchPlanning:
    """Plan the topic as a batch again and again, all executors being there.

    Raises:
        BenchError: The executors did not come, or a task got no preferred host.
    """
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.direct import OffsetRange, TopicPartition
    from pyspark_kafka_direct.direct.kafka_rdd import create_kafka_rdd
    from pyspark_kafka_direct.direct.location_strategies import list_executors
    from pyspark_kafka_direct.offsets import LATEST
    from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

    deadline = time.monotonic() + _TIMEOUT
    while len(list_executors(sc)) < 2:
        if time.monotonic() > deadline:
            raise BenchError(f"{MASTER} has no two executors after {_TIMEOUT:.0f} s")
        time.sleep(0.1)
    parameters = parse_kafka_params({"bootstrap.servers": bootstrap_servers})
    cluster = ClusterClient(parameters.connection)
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    ids = {name: found.topic_id for name, found in cluster.topics([topic.name]).items()}
    took: list[tuple[float, float]] = []
    made: Any = None
    for _ in range(_ROUNDS + 1):
        started = time.perf_counter()
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST))
        looked_up = time.perf_counter()
        ranges = [OffsetRange(*partition, 0, ends[partition]) for partition in partitions]
        leaders = cluster.known_leaders(partitions)
        made = create_kafka_rdd(sc, parameters, ranges, topic_ids=ids, leaders=leaders)
        _ = made._jrdd
        took.append((looked_up - started, time.perf_counter() - looked_up))
    java = made._tasks._jrdd.rdd()
    if not all(java.preferredLocations(partition).mkString(",") for partition in java.partitions()):
        raise BenchError("a task has no preferred host")
    return BatchPlanning(len(partitions), median(ends for ends, _ in took[1:]), median(rdd for _, rdd in took[1:]))
