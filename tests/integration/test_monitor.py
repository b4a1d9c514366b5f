"""``enable(spark)`` on real queries: progress is seen, and lag is 0 at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.integration.stream_queries import DEADLINE, Stream, produce

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.monitor import QueryLag


def wait_for(condition: Callable[[], bool]) -> None:
    # Progress reports arrive a little after their batch, on a thread of Spark's.
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not after {DEADLINE} s"
        time.sleep(0.02)


def test_enable_is_idempotent(spark: SparkSession) -> None:
    monitor = pyspark_kafka_direct.enable(spark)
    assert pyspark_kafka_direct.enable(spark) is monitor
    assert pyspark_kafka_direct.enable(type(spark).builder.getOrCreate()) is monitor


def test_lag_goes_down_to_zero(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2, prefix="lag")
    for partition in (0, 1):
        produce(kafka.bootstrap_servers, topic, range(50), partition=partition)
    monitor = pyspark_kafka_direct.enable(spark)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    seen: list[QueryLag] = []

    def remember() -> bool:
        lag = monitor.lag(stream.query)
        if lag is not None and lag not in seen:
            seen.append(lag)
        return bool(seen) and seen[-1].batch_id == 1

    stream.run()
    wait_for(remember)
    last = seen[-1]
    assert [(each.topic, each.offset, each.latest, each.lag) for each in last.sources[0].partitions] == [
        (topic, 50, 50, 0),
        (topic, 50, 50, 0),
    ]
    assert last.sources[0].max_seconds_behind == 0
    assert last.sources[0].rate > 0
    if len(seen) > 1:
        assert seen[0].sources[0].total == 40
