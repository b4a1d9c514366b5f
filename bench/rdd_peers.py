"""An RDD of Kafka records, by four ways a PySpark user has: this package's two, Spark's connector, kafka-python.

Every way reads the same offset ranges, one per partition, and hands each value (or each Arrow batch of values) to a
Python function, which counts records and bytes: that is what is checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import Sample, sample
from bench.spark_peers import VALUE, Spark, collect_garbage, frame
from bench.summary import JVM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import RDD

    from bench.topics import Topic

RECORDS = "KafkaRDD, records"
ARROW = "KafkaRDD, arrow()"
ARROW_VALUE = "KafkaRDD, arrow(columns=['value'])"
COUNT = "KafkaRDD, count()"
JVM_ROWS = "JVM source, df.rdd"
JVM_ARROW = "JVM source, df.mapInArrow"
KAFKA_PYTHON = "kafka-python in mapPartitions"
WAYS = (RECORDS, ARROW, ARROW_VALUE, COUNT, JVM_ROWS, JVM_ARROW, KAFKA_PYTHON)

# The slow ones read a share; figures are per record.
_SHARE = {KAFKA_PYTHON: 0.05, JVM_ROWS: 0.25}


def records(way: str, topic: Topic) -> int:
    """How many records that way reads."""
    return int(topic.until_offset * _SHARE.get(way, 1.0)) * topic.partitions


def read(spark: Spark, way: str, topic: Topic) -> Sample:
    """Read the topic that way and say what it cost.

    Raises:
        BenchError: The function saw something else than what was loaded.
    """
    collect_garbage(spark)
    until = records(way, topic) // topic.partitions
    seen, cost = sample(lambda: _WAYS[way](spark, topic, until), spark.settings.broker_pid)
    wanted = (until * topic.partitions, until * topic.partitions * topic.value_bytes)
    if seen != wanted and not (way == COUNT and seen[0] == wanted[0]):
        raise BenchError(f"{way} from {topic.name}: got {seen} (records, bytes), not {wanted}")
    return cost


def _kafka_rdd(spark: Spark, topic: Topic, until: int) -> Any:
    from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

    ranges = [OffsetRange(topic.name, partition, 0, until) for partition in range(topic.partitions)]
    params = {"bootstrap.servers": spark.settings.bootstrap_servers}
    return KafkaUtils.createRDD(spark.session.sparkContext, params, ranges)


def _records(spark: Spark, topic: Topic, until: int) -> tuple[int, int]:
    def count(records: Iterable[Any]) -> Iterator[tuple[int, int]]:
        seen = length = 0
        for record in records:
            seen += 1
            length += len(record.value)
        yield seen, length

    return _sums(_kafka_rdd(spark, topic, until).mapPartitions(count))


def _arrow(columns: tuple[str, ...] | None) -> Callable[[Spark, Topic, int], tuple[int, int]]:
    def work(spark: Spark, topic: Topic, until: int) -> tuple[int, int]:
        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
            import pyarrow.compute as pc

            seen = length = 0
            for batch in batches:
                seen += batch.num_rows
                length += pc.sum(pc.binary_length(batch.column("value"))).as_py()
            yield seen, length

        return _sums(_kafka_rdd(spark, topic, until).arrow(columns).mapPartitions(count))

    return work


def _count(spark: Spark, topic: Topic, until: int) -> tuple[int, int]:
    return _kafka_rdd(spark, topic, until).count(), 0


def _jvm_rows(spark: Spark, topic: Topic, until: int) -> tuple[int, int]:
    def count(rows: Iterable[Any]) -> Iterator[tuple[int, int]]:
        seen = length = 0
        for row in rows:
            seen += 1
            length += len(row.value)
        yield seen, length

    share = replace(topic, records=until * topic.partitions)
    return _sums(frame(spark, JVM, share, VALUE).rdd.mapPartitions(count))


def _jvm_arrow(spark: Spark, topic: Topic, _: int) -> tuple[int, int]:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        seen = length = 0
        for batch in batches:
            seen += batch.num_rows
            length += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        yield pa.RecordBatch.from_pydict({"seen": [seen], "length": [length]})

    rows = frame(spark, JVM, topic, VALUE).mapInArrow(count, "seen long, length long").collect()
    return sum(row.seen for row in rows), sum(row.length for row in rows)


def _kafka_python(spark: Spark, topic: Topic, until: int) -> tuple[int, int]:
    servers, name = spark.settings.bootstrap_servers, topic.name

    def count(partitions: Iterable[int]) -> Iterator[tuple[int, int]]:
        from kafka import KafkaConsumer, TopicPartition

        for number in partitions:
            consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, enable_auto_commit=False)
            partition = TopicPartition(name, number)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            seen = length = 0
            for record in consumer:
                seen += 1
                length += len(record.value)
                if record.offset + 1 >= until:
                    break
            consumer.close()
            yield seen, length

    numbers = spark.session.sparkContext.parallelize(range(topic.partitions), topic.partitions)
    return _sums(numbers.mapPartitions(count))


def _sums(parts: RDD[tuple[int, int]]) -> tuple[int, int]:
    found = parts.collect()
    return sum(seen for seen, _ in found), sum(length for _, length in found)


_WAYS: dict[str, Callable[[Spark, Topic, int], tuple[int, int]]] = {
    RECORDS: _records,
    ARROW: _arrow(None),
    ARROW_VALUE: _arrow(("value",)),
    COUNT: _count,
    JVM_ROWS: _jvm_rows,
    JVM_ARROW: _jvm_arrow,
    KAFKA_PYTHON: _kafka_python,
}
