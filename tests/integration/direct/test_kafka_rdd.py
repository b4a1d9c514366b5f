"""KafkaRDD on a broker and Spark: its records, its ranges, and its number of jobs."""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.topics import Admin

from pyspark_kafka_direct import KafkaDirectError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.direct import KafkaRDD, KafkaRecord, KafkaUtils, LocationStrategies, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

MakeRdd = "Callable[..., KafkaRDD]"


@pytest.fixture
def sc(spark: SparkSession) -> SparkContext:
    return spark.sparkContext


@pytest.fixture
def rdd_of(sc: SparkContext, kafka: EmbeddedKafka) -> Callable[..., KafkaRDD]:
    """``rdd_of((topic, partition, from, until), ...)``."""

    def make(*ranges: tuple[str, int, int, int], params: dict[str, Any] | None = None, **options: Any) -> KafkaRDD:
        offset_ranges = [OffsetRange(*numbers) for numbers in ranges]
        return KafkaUtils.createRDD(
            sc, {"bootstrap.servers": kafka.bootstrap_servers} | (params or {}), offset_ranges, **options
        )

    return make


@pytest.fixture
def jobs(sc: SparkContext) -> Iterator[Callable[[], list[int]]]:
    """The number of tasks of each job since the start of the test."""
    group = f"test-{time.monotonic_ns()}"
    sc.setJobGroup(group, "jobs of a test")

    def tasks() -> list[int]:
        listeners: Any = sc._jsc.sc().listenerBus()
        listeners.waitUntilEmpty(60_000)  # Spark updates its status tracker on another thread
        tracker = sc.statusTracker()
        task_counts = []
        for job in sorted(tracker.getJobIdsForGroup(group)):
            info = tracker.getJobInfo(job)
            assert info is not None
            stage = tracker.getStageInfo(info.stageIds[0])
            assert stage is not None
            task_counts.append(stage.numTasks)
        return task_counts

    yield tasks
    sc.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def values(records: list[KafkaRecord]) -> list[Any]:
    return [record.value for record in records]


# KafkaRDDSuite "basic usage"


def test_basic_usage(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    sent = [b"the", b"quick", b"brown", b"fox"]
    bench.write(topic, sent)
    rdd = rdd_of((topic, 0, 0, 4))
    assert values(rdd.collect()) == sent
    assert rdd.map(lambda record: record.value).collect() == sent
    assert (rdd.count(), rdd.countApprox(0), rdd.isEmpty()) == (4, 4, False)
    assert values(rdd.take(1)) == [b"the"]
    assert rdd.first().value == b"the"
    assert values(rdd.take(4 + 10)) == sent
    assert rdd.take(0) == rdd.take(-1) == []


def test_an_empty_range_is_an_empty_partition(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a"])
    rdd = rdd_of((topic, 0, 0, 0))
    assert (rdd.collect(), rdd.count(), rdd.isEmpty(), rdd.take(3)) == ([], 0, True, [])
    assert rdd.getNumPartitions() == 1


def test_without_ranges_there_are_no_partitions(rdd_of: Callable[..., KafkaRDD]) -> None:
    rdd = rdd_of()
    assert (rdd.getNumPartitions(), rdd.collect(), rdd.count(), rdd.isEmpty()) == (0, [], 0, True)
    assert rdd.arrow().collect() == []
    assert rdd.toDF().collect() == []


@pytest.mark.parametrize("action", ["collect", "count", "arrow", "toDF"])
def test_a_range_beyond_the_end_fails_the_job(bench: Workbench, rdd_of: Callable[..., KafkaRDD], action: str) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a", b"b"])
    rdd = rdd_of((topic, 0, 0, 3))
    actions: dict[str, Callable[[], Any]] = {
        "collect": rdd.collect,
        "count": rdd.count,
        "arrow": lambda: rdd.arrow().collect(),
        "toDF": lambda: rdd.toDF().collect(),
    }
    with pytest.raises(Exception, match=r"DataLossError: .*beyond the end of the log"):
        actions[action]()


def test_a_deleted_start_offset_fails_the_job(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a", b"b"])
    bench.delete_records(topic, 1)
    for reset in ("earliest", "latest"):  # it applies to the start of a stream; executors never reset offsets
        with pytest.raises(Exception, match="DataLossError"):
            rdd_of((topic, 0, 0, 2), params={"auto.offset.reset": reset}).collect()


def test_lost_records_can_be_skipped(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    """Spark's connector supports this only in its Structured Streaming source."""
    topic = bench.make_topic()
    bench.write(topic, [b"a", b"b", b"c"])
    bench.delete_records(topic, 1)
    rdd = rdd_of((topic, 0, 0, 4), params={"failOnDataLoss": False})
    assert values(rdd.collect()) == [b"b", b"c"]
    assert (rdd.count(), rdd.toDF().count()) == (2, 2)


@pytest.mark.parametrize("action", ["collect", "toDF"])
def test_a_recreated_topic_fails_the_job(bench: Workbench, rdd_of: Callable[..., KafkaRDD], action: str) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"old"])
    rdd = rdd_of((topic, 0, 0, 1))
    bench.recreate_topic(topic)
    bench.write(topic, [b"new"])
    with pytest.raises(Exception, match=r"DataLossError: .*deleted and recreated"):
        rdd.collect() if action == "collect" else rdd.toDF().collect()


def test_a_stored_range_is_not_read_from_a_recreated_topic(
    spark: SparkSession, bench: Workbench, rdd_of: Callable[..., KafkaRDD]
) -> None:
    topic, other = bench.make_topic(), bench.make_topic()
    bench.write(topic, [b"old"])
    bench.write(other, [b"kept"])
    ranges = rdd_of((topic, 0, 0, 1), (other, 0, 0, 1)).offsetRanges()
    stored = pickle.loads(pickle.dumps(ranges))
    bench.recreate_topic(topic)
    bench.write(topic, [b"new"])
    params = {"bootstrap.servers": bench.bootstrap_servers, "failOnDataLoss": False}
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, stored)
    assert values(rdd.collect()) == [b"kept"]
    assert [bytes(row.value) for row in rdd.toDF().collect()] == [b"kept"]


def test_a_deleted_topic_is_skipped_by_a_data_frame_as_by_the_rdd(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD]
) -> None:
    topic, other = bench.make_topic(), bench.make_topic()
    bench.write(topic, [b"old"])
    bench.write(other, [b"kept"])
    # Shorter than the time in which brokers confirm the loss, which it does not end.
    params = {"failOnDataLoss": False, "kafkaConsumer.pollTimeoutMs": "1000", "default.api.timeout.ms": "3000"}
    rdd = rdd_of((topic, 0, 0, 1), (other, 0, 0, 1), params=params)
    Admin(bench.bootstrap_servers).delete(topic)
    assert values(rdd.collect()) == [b"kept"]
    assert [bytes(row.value) for row in rdd.toDF().collect()] == [b"kept"]


# KafkaRDDSuite "iterator boundary conditions"


def test_iterator_boundary_conditions(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, *[[b"%d" % number] * 3 for number in range(9)])
    many = rdd_of((topic, 0, 0, 27))
    assert [record.offset for record in many.collect()] == list(range(27))

    zero = rdd_of((topic, 0, 27, 27))
    bench.write(topic, [b"one"])
    assert zero.collect() == []

    one = rdd_of((topic, 0, 27, 28))
    bench.write(topic, [b"more"] * 22)
    assert [(record.offset, record.value) for record in one.collect()] == [(27, b"one")]


# KafkaRDDSuite "compacted topic"


def test_compacted_topic(bench: Workbench, compacted: str, rdd_of: Callable[..., KafkaRDD]) -> None:
    end = bench.end(compacted)
    remaining = bench.read(compacted, 0, end).offsets
    assert 3 < len(remaining) < end / 2
    rdd = rdd_of((compacted, 0, 0, end))
    records = rdd.collect()
    assert [record.offset for record in records] == remaining
    assert values(records) == [b"value-%d" % offset for offset in remaining]
    assert (rdd.count(), rdd.countApprox(0), rdd.isEmpty()) == (len(remaining), len(remaining), False)
    assert [record.offset for record in rdd.take(1)] == remaining[:1]
    assert [record.offset for record in rdd.take(3)] == remaining[:3]
    assert [record.offset for record in rdd.take(end + 10)] == remaining
    assert rdd_of((compacted, 0, 0, 0)).collect() == []
    with pytest.raises(Exception, match="DataLossError"):
        rdd_of((compacted, 0, 0, end + 1)).collect()


def test_a_range_without_records_is_empty(bench: Workbench, compacted: str, rdd_of: Callable[..., KafkaRDD]) -> None:
    """Spark's iterator returns a record after the end of the range here."""
    rdd = rdd_of((compacted, 0, 10, 250))
    assert (rdd.collect(), rdd.count(), rdd.isEmpty(), rdd.take(1)) == ([], 0, True, [])


def test_take_continues_if_gaps_leave_too_few_records(
    bench: Workbench, compacted: str, rdd_of: Callable[..., KafkaRDD], jobs: Callable[[], list[int]]
) -> None:
    end = bench.end(compacted)
    remaining = bench.read(compacted, 0, end).offsets
    rdd = rdd_of((compacted, 0, 10, 100), (compacted, 0, 100, 250), (compacted, 0, 250, end))
    assert [record.offset for record in rdd.take(5)] == [offset for offset in remaining if offset >= 250][:5]
    assert jobs() == [1, 1, 1]
    assert not rdd.isEmpty()


def test_transactions(bench: Workbench, mixed: str, rdd_of: Callable[..., KafkaRDD]) -> None:
    """A control record or an aborted batch at the end of a range blocks Spark's iterator (SPARK-24720)."""
    visible, aborted, control_records = [0, 1, 2, 3, 4, 10, 11], [6, 7, 8, 13, 14], [5, 9, 12, 15]
    committed = {"isolation.level": "read_committed"}
    rdd = rdd_of((mixed, 0, 0, 16), params=committed)
    assert [record.offset for record in rdd.collect()] == visible
    assert (rdd.count(), [record.offset for record in rdd.take(6)]) == (7, visible[:6])
    last_offsets = rdd_of((mixed, 0, 13, 16), params=committed)
    assert (last_offsets.collect(), last_offsets.count(), last_offsets.isEmpty()) == ([], 0, True)
    everything = rdd_of((mixed, 0, 0, 16))
    assert [record.offset for record in everything.collect()] == sorted(visible + aborted)
    assert everything.count() == 16 - len(control_records)


def test_a_task_waits_for_an_open_transaction_up_to_the_poll_timeout(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD]
) -> None:
    topic = bench.make_topic()
    producer = new_transactional_producer(bench, topic)
    write_open_transaction(producer, topic, [b"a"])
    params = {"isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": 1000}
    rdd = rdd_of((topic, 0, 0, 1), params=params)
    with pytest.raises(Exception, match=r"BrokerTimeoutError: .*1 s \(option kafkaConsumer\.pollTimeoutMs\)"):
        rdd.collect()
    producer.commit_transaction(600)
    assert rdd_of((topic, 0, 0, 1), params={"isolation.level": "read_committed"}).count() == 1


# Partitions and jobs


def test_one_partition_per_range_in_the_given_order(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic(2)
    bench.write(topic, [b"%d" % number for number in range(10)], partition=0)
    bench.write(topic, [b"%d" % number for number in range(10)], partition=1)
    ranges = [(topic, 1, 5, 7), (topic, 0, 0, 2), (topic, 1, 0, 3), (topic, 0, 8, 8), (topic, 1, 2, 4)]
    rdd = rdd_of(*ranges)
    assert rdd.offsetRanges() == [OffsetRange(*numbers) for numbers in ranges]
    offsets = rdd.map(lambda record: (record.topic, record.partition, record.offset)).glom().collect()
    assert offsets == [[(name, number, offset) for offset in range(start, end)] for name, number, start, end in ranges]
    assert rdd.count() == sum(end - start for *_, start, end in ranges)


def test_take_runs_on_the_partitions_it_needs(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD], jobs: Callable[[], list[int]]
) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"%d" % number for number in range(40)])
    rdd = rdd_of(*[(topic, 0, start, start + 10) for start in (0, 10, 20, 30)], (topic, 0, 3, 3))
    assert [record.offset for record in rdd.take(15)] == list(range(15))
    assert jobs() == [2]
    assert not rdd.isEmpty()
    assert jobs() == [2, 1]
    assert rdd.count() == 40
    assert jobs() == [2, 1, 4]


def test_assume_consecutive_offsets_counts_without_a_job(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD], jobs: Callable[[], list[int]]
) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a"] * 5)
    rdd = rdd_of((topic, 0, 1, 5), assumeConsecutiveOffsets=True)
    assert (rdd.count(), rdd.countApprox(10), rdd.isEmpty()) == (4, 4, False)
    assert rdd_of((topic, 0, 1, 1), assumeConsecutiveOffsets=True).isEmpty()
    assert jobs() == []


def test_count_fills_a_persisted_rdd(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a", b"b", b"c"])
    rdd = rdd_of((topic, 0, 0, 3))
    rdd.cache()
    assert rdd.count() == 3
    bench.delete_records(topic, 3)
    assert values(rdd.collect()) == [b"a", b"b", b"c"]  # from Spark's memory, because the topic no longer contains them
    assert (values(rdd.take(2)), rdd.isEmpty()) == ([b"a", b"b"], False)
    rdd.unpersist()


def test_many_batches_contain_each_record_once(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"%d" % number for number in range(30_000)], compression_type="lz4")
    rdd = rdd_of((topic, 0, 17, 29_990))
    assert rdd.map(lambda record: int(record.value)).collect() == list(range(17, 29_990))
    assert rdd.filter(lambda record: record.offset % 1000 == 0).map(lambda record: record.offset).collect() == list(
        range(1000, 29_990, 1000)
    )


def test_a_derived_rdd_has_no_offset_ranges(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a"])
    mapped = rdd_of((topic, 0, 0, 1)).map(lambda record: record.offset).filter(lambda offset: offset == 0)
    with pytest.raises(KafkaDirectError, match="before any transformation"):
        mapped.offsetRanges()  # type: ignore[attr-defined]
    assert mapped.collect() == [0]


def test_union_and_shuffle(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a", b"b", b"a"])
    rdd = rdd_of((topic, 0, 0, 3))
    counted = rdd.union(rdd_of((topic, 0, 0, 2))).map(lambda record: (record.value, 1)).reduceByKey(lambda x, y: x + y)
    assert sorted(counted.collect()) == [(b"a", 3), (b"b", 2)]
    assert rdd.distinct().count() == 3
    assert sorted(record.offset for record in rdd.repartition(2).collect()) == [0, 1, 2]


# Records


def test_the_fields_of_a_record(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    producer = bench.producer()
    producer.produce(topic, b"value", b"key", 0, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, None, 0, timestamp=1_700_000_000_124)
    assert producer.flush(300) == 0
    first, second = rdd_of((topic, 0, 0, 2)).collect()
    assert (first.topic, first.partition, first.offset, first.leaderEpoch) == (topic, 0, 0, 0)
    assert (first.timestamp, first.timestampType) == (1_700_000_000_123, "CreateTime")
    assert (first.key, first.value, first.headers) == (b"key", b"value", (("a", b"1"), ("a", None)))
    assert (second.key, second.value, second.headers, second.timestamp) == (None, None, (), 1_700_000_000_124)


def test_log_append_time(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic(message_timestamp_type="LogAppendTime")
    bench.write(topic, [b"a"])
    (record,) = rdd_of((topic, 0, 0, 1)).collect()
    assert record.timestampType == "LogAppendTime"
    assert abs(record.timestamp / 1000 - time.time()) < 600


def test_decoders(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    producer = bench.producer()
    for number in range(3):
        producer.produce(topic, json.dumps({"n": number}), f"key-{number}", 0)
    producer.produce(topic, None, None, 0)
    producer.produce(topic, b"no json", None, 0)
    assert producer.flush(300) == 0
    rdd = rdd_of((topic, 0, 0, 4), keyDecoder=bytes.decode, valueDecoder=json.loads)
    assert [(record.key, record.value) for record in rdd.collect()] == [
        *[(f"key-{number}", {"n": number}) for number in range(3)],
        (None, None),
    ]
    bad = rdd_of((topic, 0, 3, 5), valueDecoder=json.loads)
    assert bad.map(lambda record: record.offset).collect() == [3, 4]  # a value that is not accessed is not decoded
    with pytest.raises(Exception, match=rf"RecordError: The value decoder raised JSONDecodeError.*{topic}.*offset 4"):
        bad.collect()


# Arrow and DataFrames


def test_arrow(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"%d" % number for number in range(1000)])
    rdd = rdd_of((topic, 0, 10, 20), (topic, 0, 500, 990))
    batches = rdd.arrow().collect()
    assert batches[0].schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == [*range(10, 20), *range(500, 990)]
    assert {batch.column("topic")[0].as_py() for batch in batches} == {topic}
    narrow = rdd.arrow(columns=["headers", "value"]).map(lambda batch: (batch.schema.names, batch.num_rows)).collect()
    assert {tuple(names) for names, _ in narrow} == {("headers", "value")}
    assert sum(rows for _, rows in narrow) == 500
    with pytest.raises(OptionError, match="no column 'values'"):
        rdd.arrow(columns=["values"])


def test_a_dataframe_of_the_same_ranges(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic(2)
    bench.write(topic, [b"%d" % number for number in range(100)])
    bench.write(topic, [b"%d" % number for number in range(100)], partition=1)
    params = {
        "group.id": "g",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "fetch.min.bytes": 2,
    }
    rdd = rdd_of((topic, 0, 5, 8), (topic, 1, 99, 100), (topic, 0, 7, 9), params=params)
    df = rdd.toDF()
    assert df.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    rows = sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())
    assert rows == [(0, 5), (0, 6), (0, 7), (0, 7), (0, 8), (1, 99)]
    assert rdd.toDF("value binary").columns == ["value"]


def test_secrets_are_not_in_the_plan(spark: SparkSession, bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a"])
    params = {"ssl.truststore.password": "swordfish"}  # not used with PLAINTEXT
    rdd = rdd_of((topic, 0, 0, 1), params=params)
    df = rdd.toDF()
    assert df.count() == 1
    plan = df._jdf.queryExecution().toString()
    assert "swordfish" not in plan
    assert "swordfish" not in repr(vars(rdd))


# Invalid arguments


def test_preferred_brokers_are_allowed(bench: Workbench, rdd_of: Callable[..., KafkaRDD]) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"a"])
    assert rdd_of((topic, 0, 0, 1), locationStrategy=LocationStrategies.PreferBrokers).count() == 1


def test_ranges_that_do_not_exist_any_more_are_skipped_if_data_loss_is_allowed(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD], caplog: pytest.LogCaptureFixture
) -> None:
    deleted, existing = bench.make_topic(), bench.make_topic()
    bench.write(existing, [b"a"])
    bench.delete_topic(deleted)
    ranges = [(deleted, 0, 0, 5), (existing, 0, 0, 1), (existing, 7, 0, 5)]
    rdd = rdd_of(*ranges, params={"failOnDataLoss": False}, locationStrategy=LocationStrategies.PreferBrokers)
    assert values(rdd.collect()) == [b"a"]
    assert f"{existing}-7" in caplog.text
    assert rdd.toDF().count() == 1
    with pytest.raises(TopicNotFoundError, match=deleted):
        rdd_of(*ranges)


def test_invalid_arguments_are_rejected_before_any_task(
    bench: Workbench, rdd_of: Callable[..., KafkaRDD], sc: SparkContext
) -> None:
    topic = bench.make_topic()
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        rdd_of(("no-such-topic", 0, 0, 1))
    with pytest.raises(TopicNotFoundError, match="it has 1"):
        rdd_of((topic, 1, 0, 1))
    with pytest.raises(OptionError, match=r"bootstrap\.servers"):
        KafkaUtils.createRDD(sc, {}, [])
    with pytest.raises(OptionError, match=r"OffsetRange\.create"):
        KafkaUtils.createRDD(sc, {"bootstrap.servers": "x:1"}, [(topic, 0, 0, 1)])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="PreferFixed"):
        rdd_of((topic, 0, 0, 1), locationStrategy="PreferConsistent")
