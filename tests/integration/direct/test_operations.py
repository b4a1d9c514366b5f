"""The operations of Spark's DStreams on direct streams."""

from __future__ import annotations

import threading
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import (
    DEADLINE,
    BatchResults,
    count_values,
    direct_stream,
    streaming,
)
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.direct.direct_stream import batch_time_ms
from pyspark_kafka_direct.errors import InvalidOffsetsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import DirectKafkaInputDStream, KafkaRDD, KafkaRecord

    Put = Callable[..., None]

BATCH = 1


def number(record: KafkaRecord) -> int:
    return int(record.value)


def by_key(record: KafkaRecord) -> tuple[str, int]:
    return record.key.decode(), 1


def test_union_of_two_direct_streams_with_the_ranges_of_each(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    one, other = make_topic(2), make_topic()
    put(one, range(10))
    put(other, range(10, 15))
    values, topics = BatchResults(), BatchResults()

    def store_ranges(rdd: KafkaRDD) -> RDD[Any]:
        topics.add({each.topic for each in rdd.offsetRanges()})
        return rdd.map(number)

    with streaming(spark.sparkContext, BATCH) as ssc:
        first, second = (direct_stream(ssc, kafka.bootstrap_servers, topic, None) for topic in (one, other))
        union = first.transform(store_ranges).union(second.transform(store_ranges))
        union.foreachRDD(lambda rdd: values.add(rdd.collect()))
        # Also without a transform of the user.
        raw = BatchResults()
        first.union(second).foreachRDD(lambda rdd: raw.add(rdd.map(number).collect()))
        ssc.start()
        values.wait_for_elements(15)
        put(other, [15])
        values.wait_for_elements(16)
        raw.wait_for_elements(16)
    assert sorted(values.flat) == sorted(raw.flat) == list(range(16))
    assert topics.all[:2] in ([{one}, {other}], [{other}, {one}])


def test_a_window_contains_the_records_of_its_batches(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(10))
    windows = BatchResults()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.map(number).window(3 * BATCH, BATCH).foreachRDD(lambda rdd: windows.add(sorted(rdd.collect())))
        ssc.start()
        windows.wait_for_more(5)
    assert windows.all[:5] == [list(range(10))] * 3 + [[]] * 2


def test_a_window_of_records(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put) -> None:
    topic = make_topic()
    put(topic, range(10))
    windows = BatchResults()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        # Spark stores the pickled records of a batch, so a window does not read them from Kafka again.
        stream.window(2 * BATCH, BATCH).foreachRDD(
            lambda rdd: windows.add(sorted(rdd.map(lambda record: (record.offset, record.topic)).collect()))
        )
        ssc.start()
        windows.wait_for_more(3)
    all_records = [(offset, topic) for offset in range(10)]
    assert windows.all[:3] == [all_records, all_records, []]


def test_offset_ranges_by_time(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put) -> None:
    topic = make_topic(2)
    put(topic, range(10))
    mapped, windows, transformed = BatchResults(), BatchResults(), BatchResults()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.map(number).foreachRDD(_store_counts(stream, mapped))
        union = stream.map(number).filter(bool).union(stream.map(number))
        union.window(2 * BATCH, BATCH).foreachRDD(_store_counts(stream, windows))
        ssc.transform([stream, stream.map(number)], _first).foreachRDD(_store_counts(stream, transformed))
        ssc.start()
        mapped.wait_for_more(3)
        windows.wait_for_more(3)
        transformed.wait(lambda results: len(results) >= 3)
        with pytest.raises(InvalidOffsetsError, match=r"no offset ranges are known .* there was no such batch"):
            stream.offsetRanges(datetime.fromtimestamp(1))
    assert mapped.all[:3] == transformed.all[:3] == [(10, 10), (0, 0), (0, 0)]
    assert windows.all[:3] == [(10, 19), (0, 19), (0, 0)], "the time of a window is that of its last batch"


def test_the_result_of_a_function_is_ignored(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(3))
    counts = BatchResults()

    def count(rdd: KafkaRDD) -> int:
        counts.add(rdd.count())
        return 7

    with streaming(spark.sparkContext, BATCH) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(count)
        ssc.start()
        counts.wait_for_more(3)
        ssc.awaitTerminationOrTimeout(1)  # raises the error of a batch
    assert counts.all[:3] == [3, 0, 0]


def test_failed_batches_keep_only_their_ranges(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(3))
    times = BatchResults()

    def fail(time: datetime, rdd: KafkaRDD) -> None:
        times.add(time)
        raise RuntimeError("on purpose")

    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.foreachRDD(fail)
        ssc.start()
        times.wait_for_more(8)
        stored_rdds = set(stream._stream.context_binding._rdds)  # type: ignore[union-attr]
        assert batch_time_ms(times.all[0]) not in stored_rdds
        assert [each.count() for each in stream.offsetRanges(times.all[0])] == [3], "a restart runs it again"


def test_batches_behind_a_slow_one_keep_their_rdds(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    """No window looks back to them, but their functions have not run yet."""
    topic = make_topic()
    put(topic, range(3))
    times, values, resume = BatchResults(), BatchResults(), threading.Event()

    def collect(time: datetime, rdd: KafkaRDD) -> None:
        times.add((batch_time_ms(time), rdd))
        resume.wait(DEADLINE)
        values.add(rdd.map(number).collect())

    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.foreachRDD(collect)
        ssc.start()
        try:
            ((first, _),) = times.wait_for_more(1)
            binding: Any = stream._stream.context_binding
            last = first + 8000 * BATCH
            wait_until(lambda: max(binding._reported_times, default=0) >= last, "pending batches", DEADLINE)
            stored_rdds = dict(binding._rdds)
            assert set(stored_rdds) >= set(range(first, first + 8000 * BATCH, 1000 * BATCH))
        finally:
            resume.set()
        times.wait_for_more(4)
        assert all(rdd is stored_rdds[time_ms] for time_ms, rdd in times.all[:5])
        values.wait_for_elements(3)
        assert values.flat == [0, 1, 2]


def test_state_by_key_counts_each_record_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic = make_topic(2)
    states = BatchResults()
    with streaming(spark.sparkContext, BATCH, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        counts = stream.map(by_key).updateStateByKey(_sum)
        counts.foreachRDD(_store_dict(states))
        ssc.start()
        for goal in (6, 12, 18):
            for key in ("a", "b", "b"):
                put(topic, range(2), key=key)
            states.wait(partial(_total_reaches, goal))
        states.wait_for_more(2)
    assert states.all[-1] == {"a": 6, "b": 12}


def test_a_window_with_an_inverse_function(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic = make_topic(2)
    put(topic, range(4), key="a")
    put(topic, range(3), key="b")
    windows = BatchResults()
    with streaming(spark.sparkContext, BATCH, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        # PySpark uses the inverse function only in windows of at least five batches, and recomputes smaller ones.
        summed = stream.map(by_key).reduceByKeyAndWindow(
            lambda some, more: some + more, lambda some, less: some - less, 5 * BATCH, BATCH
        )
        summed.foreachRDD(_store_dict(windows))
        ssc.start()
        windows.wait_for_more(7)
    assert windows.all[:7] == [{"a": 4, "b": 3}] * 5 + [{"a": 0, "b": 0}] * 2


def test_joined_streams(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put) -> None:
    one, other = make_topic(), make_topic()
    for topic in (one, other):
        put(topic, range(3), key="a")
    joined = BatchResults()
    with streaming(spark.sparkContext, BATCH) as ssc:
        first, second = (direct_stream(ssc, kafka.bootstrap_servers, topic, None) for topic in (one, other))
        first.map(by_key).join(second.map(by_key)).foreachRDD(lambda rdd: joined.add(rdd.keys().collect()))
        ssc.start()
        joined.wait_for_elements(9)
    assert count_values(joined.flat) == {"a": 9}


def _total_reaches(goal: int, states: list[dict[str, int]]) -> bool:
    return bool(states) and sum(states[-1].values()) >= goal


def _sum(new: Iterable[int], total: int | None) -> int:
    return sum(new) + (total or 0)


def _first(rdds: tuple[RDD[Any], ...]) -> RDD[Any]:
    assert not hasattr(rdds[0], "offsetRanges"), "PySpark creates the RDDs that ssc.transform passes"
    return rdds[0]


# Spark pickles the functions of a checkpointed stream, so they refer to their results by index.
_RESULTS: list[BatchResults] = []


def _store_dict(results: BatchResults) -> Callable[[RDD[Any]], None]:
    _RESULTS.append(results)
    index = len(_RESULTS) - 1
    return lambda rdd: _add(index, rdd)


def _add(index: int, rdd: RDD[Any]) -> None:
    _RESULTS[index].add(dict(rdd.collect()))


def _store_counts(stream: DirectKafkaInputDStream, results: BatchResults) -> Callable[[datetime, RDD[Any]], None]:
    """Store the number of offsets and the number of elements of each batch."""

    def store(time: datetime, rdd: RDD[Any]) -> None:
        results.add((sum(each.count() for each in stream.offsetRanges(time)), rdd.count()))

    return store
