"""Direct streams in bad times: topics that go away, brokers that do not answer, transactions under way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.direct.generations import Generations
from tests.integration.direct.running import DEADLINE, Seen, direct_stream, streaming
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, TopicPartition
from pyspark_kafka_direct.direct._wire import WireView
from pyspark_kafka_direct.errors import BrokerError, DataLossError
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.direct import KafkaRDD


def parameters(kafka: EmbeddedKafka, **more: object) -> dict[str, object]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest", **given}


def test_a_topic_that_goes_away_fails_the_stream_and_is_named(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic, other = make_topic(), make_topic()
    put(topic, range(3))
    seen = Seen()
    with streaming(spark.sparkContext, 1) as ssc:
        strategy = ConsumerStrategies.Subscribe([topic, other], parameters(kafka))
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
        stream.foreachRDD(lambda rdd: seen.add(rdd.map(lambda record: record.value).collect()))
        ssc.start()
        seen.wait_for_elements(3)
        Admin(kafka.bootstrap_servers).delete(other)
        with pytest.raises(Exception, match=rf"data loss: {other}-0 are gone"):
            ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]


def test_a_topic_that_is_created_anew_is_not_taken_for_the_old_one(
    kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, topics_on: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    stream = Generations(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    assert [each.count() for each in stream.batch(1000)] == [3]
    Admin(kafka.bootstrap_servers).delete(topic)
    with pytest.raises(DataLossError, match="are gone") as failure:
        stream.batch(2000)
    assert (failure.value.topic, failure.value.partition) == (topic, 0)
    Admin(kafka.bootstrap_servers).create(topic, 1)
    put(topic, range(10))  # more than before: without its id it would look like more records
    with pytest.raises(DataLossError, match="deleted and created again"):
        stream.batch(3000)
    assert [each.count() for each in stream.batch(1000)] == [3], "what was planned stays"


def test_a_partition_that_appears_later_begins_where_the_group_has_committed(
    kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, group_id=topic, auto_offset_reset="latest"))
    stream = Generations(strategy)
    assert [each.partition for each in stream.batch(1000)] == [0]
    Admin(kafka.bootstrap_servers).grow(topic, 3)
    put(topic, range(5), partition=1)
    put(topic, range(4), partition=2)
    cluster = Cluster(connection_settings({"bootstrap.servers": kafka.bootstrap_servers}).connection)
    Group(cluster, topic).commit({TopicPartition(topic, 1): 3})
    spans = [(each.partition, each.from_offset, each.until_offset) for each in stream.batch(2000)]
    assert spans == [(0, 0, 0), (1, 3, 5), (2, 0, 4)], "and at its first record where the group has none"


def test_records_that_age_out_of_a_planned_batch_are_loss_unless_that_is_allowed(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """With auto.offset.reset=earliest, which is for the start: no task resets."""
    for fail, wanted in ((True, None), (False, [b"3", b"4"])):
        topic = make_topic()
        put(topic, range(5))
        results, failures = Seen(), Seen()
        with streaming(spark.sparkContext, 1) as ssc:
            strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, failOnDataLoss=fail))
            stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

            def handle(rdd: KafkaRDD, topic: str = topic, results: Seen = results, failures: Seen = failures) -> None:
                if rdd.offsetRanges()[0].count() >= 5:
                    Admin(kafka.bootstrap_servers).delete_records(topic, 3)
                try:
                    results.add(rdd.map(lambda record: record.value).collect())
                except Exception as error:
                    failures.add(str(error))
                    raise

            stream.foreachRDD(handle)
            ssc.start()
            if wanted is None:
                with pytest.raises(Exception, match="DataLossError"):
                    ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]
                assert f"{topic}-0" in failures.all[0]
                assert b"3" not in results.flat
            else:
                put(topic, ["later"])
                results.wait_for_elements(3)
                assert results.flat == [*wanted, b"later"]
                assert failures.all == []


def test_a_topic_that_goes_between_two_questions_of_one_plan(
    kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    stream = Generations(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    assert len(stream.batch(1000)) == 1
    ask = WireView.assigned

    def ask_and_delete(view: WireView, tracked: Any) -> Any:
        answer = ask(view, tracked)
        monkeypatch.setattr(WireView, "assigned", ask)
        Admin(kafka.bootstrap_servers).delete(topic)
        return answer

    monkeypatch.setattr(WireView, "assigned", ask_and_delete)
    with pytest.raises(DataLossError, match=rf"data loss: {topic}-0 are gone"):
        stream.batch(2000)


def test_read_committed_ends_before_a_transaction_under_way(
    kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(30)
    strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, isolation_level="read_committed"))
    stream = Generations(strategy)
    assert [each.until_offset for each in stream.batch(1000)] == [3]
    producer.commit_transaction(60)

    batches = iter(range(2000, 10**9, 1000))
    wait_until(lambda: stream.batch(next(batches))[0].until_offset == 5, seconds=DEADLINE)  # the record and its marker


def test_a_broker_that_is_away_delays_a_batch_and_then_fails_it(put: Any, topics_on: Any) -> None:
    with EmbeddedKafka() as own:
        topic = topics_on(own.bootstrap_servers)(2)
        stream = Generations(
            ConsumerStrategies.Subscribe(
                [topic],
                parameters(own, default_api_timeout_ms=10_000, request_timeout_ms=5000),
            )
        )
        assert len(stream.batch(1000)) == 2
        own.stop_broker(1)
        started = time.monotonic()
        with pytest.raises(BrokerError, match=r"reached|answer|connect"):
            stream.batch(2000)
        assert 5 < time.monotonic() - started < 90
        own.start_broker(1)
        assert [each.count() for each in stream.batch(3000)] == [0, 0], "and goes on when it is back"


def test_functions_run_in_the_worker_that_fetches(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """One PythonRDD in the lineage is one worker; the records of another would be pickled in between."""
    topic = make_topic()
    put(topic, range(3))
    seen, arrow, workers = Seen(), Seen(), Seen()

    def look(rdd: RDD[Any], seen: Seen) -> None:
        workers.add((rdd.toDebugString() or b"").count(b"PythonRDD["))
        seen.add(rdd.collect())

    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, valueDecoder=int)
        stream.map(lambda record: record.value).map(lambda number: number + 1).foreachRDD(lambda rdd: look(rdd, seen))
        stream.foreachRDD(lambda rdd: look(rdd.map(lambda record: record.value), seen))
        stream.arrow().map(lambda batch: batch.num_rows).foreachRDD(lambda rdd: look(rdd, arrow))
        ssc.start()
        seen.wait_for_elements(6)
        arrow.wait_for_elements(1)
    assert sorted(seen.flat) == [0, 1, 1, 2, 2, 3]
    assert arrow.flat == [3]
    assert set(workers.all) == {1}


def test_a_persisted_stream_is_fetched_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    fetched = spark.sparkContext.accumulator(0)
    seen = Seen()

    def counting(data: bytes) -> bytes:
        fetched.add(1)
        return data

    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, valueDecoder=counting)
        stream.cache()
        for _ in range(2):
            stream.foreachRDD(lambda rdd: seen.add(rdd.map(lambda record: record.value).collect()))
        ssc.start()
        seen.wait_for_elements(6)
    assert fetched.value <= 3


def test_planning_a_hundred_partitions_is_quick(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(100)
    stream = Generations(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    times = []
    for number in range(1, 21):
        started = time.perf_counter()
        assert len(stream.batch(number * 1000)) == 100
        times.append(time.perf_counter() - started)
    # A median, and far above what an idle machine takes (some ms), for the tests' is not idle.
    assert sorted(times)[10] < 0.5, times
