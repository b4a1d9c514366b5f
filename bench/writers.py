"""Writing: the same made rows into a topic, by Spark's JVM sink, by this package's, and by confluent-kafka's Producer.

The rows are a column ``value`` that the JVM makes for next to nothing: numbers of a range pick one of some thousand
values. All write to a topic of their own, which is deleted afterwards, and wait for all acknowledgements.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import Sample, sample
from bench.spark_peers import FORMATS, Spark, collect_garbage
from bench.summary import CONFLUENT, EXACTLY_ONCE
from bench.topics import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, Row

    from bench.topics import Topic

WRITE = "write"
"""What such a case has for a sink."""

TASKS = 2
_WAIT = 30.0  # seconds for what a broker is asked beside the measurement
_POOL_BYTES = 4_000_000  # of different values, more than any record batch holds


def write(spark: Spark, peer: str, topic: Topic, records: int) -> Sample:
    """Write that many rows and say what it cost.

    Raises:
        BenchError: The topic holds another number of records afterwards.
    """
    rows = made_rows(spark, topic, records)
    collect_garbage(spark)
    with new_topic(spark, topic.partitions) as name:
        _, cost = sample(lambda: _write(spark, peer, rows, name, topic.codec), spark.settings.broker_pid)
        more = topic.partitions if peer == EXACTLY_ONCE else 0
        check(spark, f"{peer} to {topic.label}", name, topic.partitions, records, more)
    return cost


def made_rows(spark: Spark, topic: Topic, records: int) -> DataFrame:
    """Return rows with the column ``value``."""
    from pyspark.sql.functions import col

    numbers = spark.session.range(0, records, 1, TASKS)
    return numbers.select(value_at(topic, col("id")).alias("value"))


def value_at(topic: Topic, number: Column, pool_bytes: int = _POOL_BYTES) -> Column:
    """Return one of so many bytes of values that a topic has, picked by a number. Spark makes the list once a query."""
    from pyspark.sql.functions import element_at, lit, split

    pool = values(topic.value_bytes, pool_bytes // topic.value_bytes)
    listed = split(lit("\n".join(value.decode() for value in pool)), "\n")
    return element_at(listed, (number % len(pool) + 1).cast("int"))


def sink_options(spark: Spark, peer: str, topic: str, codec: str) -> Mapping[str, str]:
    """Return what a Spark peer is told; ``acks=all`` and idempotence are the defaults of both sinks."""
    options = {
        "kafka.bootstrap.servers": spark.settings.bootstrap_servers,
        "kafka.compression.type": codec,
        "topic": topic,
    }
    if peer == EXACTLY_ONCE:
        # A batch of this size is more than may go through the driver.
        options |= {
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": topic,
            "stagingLocation": spark.settings.staging,
        }
    return options


@contextmanager
def new_topic(spark: Spark, partitions: int) -> Iterator[str]:
    """Create a topic, and delete it in the end."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-written-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": spark.settings.bootstrap_servers, "log_level": 0})
    config = {"file.delete.delay.ms": "1000"}  # a minute by default, in which the disk fills
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(_WAIT)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(_WAIT)


def check(spark: Spark, what: str, topic: str, partitions: int, records: int, more: int = 0) -> None:
    """Compare what a topic holds with what was written.

    Args:
        spark: Knows the broker.
        what: For the error.
        topic: The topic.
        partitions: How many it has.
        records: How many were written.
        more: Offsets that may be taken as well: a transaction leaves one in each partition that it is in.

    Raises:
        BenchError: It holds fewer or more.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": spark.settings.bootstrap_servers, "group.id": "bench", "log_level": 0})
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = sum(consumer.get_watermark_offsets(place, timeout=_WAIT)[1] for place in places)
    finally:
        consumer.close()
    if not records <= found <= records + more:
        raise BenchError(f"{what}: the topic holds {found} records, not {records}")


def _write(spark: Spark, peer: str, rows: DataFrame, topic: str, codec: str) -> None:
    if peer == CONFLUENT:
        _by_confluent(spark, rows, topic, codec)
        return
    options = sink_options(spark, peer, topic, codec)
    rows.write.format(FORMATS[peer]).options(**options).mode("append").save()


def _by_confluent(spark: Spark, rows: DataFrame, topic: str, codec: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": spark.settings.bootstrap_servers,
        "enable.idempotence": True,  # and acks=all
        "compression.type": codec,
        "log_level": 0,
    }

    # Nested, so that it is pickled as a whole: Spark's Python workers need not find this package.
    def produce(part: Iterable[Row]) -> None:
        from confluent_kafka import Producer

        producer = Producer(settings)
        for (value,) in part:
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:  # the queue is full
                    producer.poll(0.1)
        if producer.flush(300):
            raise RuntimeError("the broker did not take all records")

    rows.foreachPartition(produce)
