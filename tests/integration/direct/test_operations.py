"""What Spark offers on any DStream, over direct streams."""

from __future__ import annotations

import threading
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.running import DEADLINE, Seen, counted, direct_stream, streaming
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.direct._carrier import milliseconds
from pyspark_kafka_direct.errors import OffsetPlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import DirectKafkaDStream, KafkaRDD, KafkaRecord

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
    values, topics = Seen(), Seen()

    def keep_ranges(rdd: KafkaRDD) -> RDD[Any]:
        topics.add({each.topic for each in rdd.offsetRanges()})
        return rdd.map(number)

    with streaming(spark.sparkContext, BATCH) as ssc:
        first, second = (direct_stream(ssc, kafka.bootstrap_servers, topic, None) for topic in (one, other))
        both = first.transform(keep_ranges).union(second.transform(keep_ranges))
        both.foreachRDD(lambda rdd: values.add(rdd.collect()))
        # Without a transform of the user's, too.
        raw = Seen()
        first.union(second).foreachRDD(lambda rdd: raw.add(rdd.map(number).collect()))
        ssc.start()
        values.wait_for_elements(15)
        put(other, [15])
        values.wait_for_elements(16)
        raw.wait_for_elements(16)
    assert sorted(values.flat) == sorted(raw.flat) == list(range(16))
    assert topics.all[:2] in ([{one}, {other}], [{other}, {one}])


def test_a_window_has_the_records_of_its_batches(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(10))
    windows = Seen()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.map(number).window(3 * BATCH, BATCH).foreachRDD(lambda rdd: windows.add(sorted(rdd.collect())))
        ssc.start()
        windows.wait_for_more(5)
    assert windows.all[:5] == [list(range(10))] * 3 + [[]] * 2


def test_a_window_over_the_records_themselves(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(10))
    windows = Seen()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        # The records of a batch are read, pickled and kept by Spark, so a window does not read them from Kafka again.
        stream.window(2 * BATCH, BATCH).foreachRDD(
            lambda rdd: windows.add(sorted(rdd.map(lambda record: (record.offset, record.topic)).collect()))
        )
        ssc.start()
        windows.wait_for_more(3)
    whole = [(offset, topic) for offset in range(10)]
    assert windows.all[:3] == [whole, whole, []]


def test_ranges_by_time_where_the_rdd_knows_none(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(10))
    mapped, windows, transformed = Seen(), Seen(), Seen()
    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.map(number).foreachRDD(_keep_sizes(stream, mapped))
        both = stream.map(number).filter(bool).union(stream.map(number))
        both.window(2 * BATCH, BATCH).foreachRDD(_keep_sizes(stream, windows))
        ssc.transform([stream, stream.map(number)], _first_as_is).foreachRDD(_keep_sizes(stream, transformed))
        ssc.start()
        mapped.wait_for_more(3)
        windows.wait_for_more(3)
        transformed.wait(lambda seen: len(seen) >= 3)
        with pytest.raises(OffsetPlanError, match="are not known: there was none"):
            stream.offsetRanges(datetime.fromtimestamp(1))
    assert mapped.all[:3] == transformed.all[:3] == [(10, 10), (0, 0), (0, 0)]
    assert windows.all[:3] == [(10, 19), (0, 19), (0, 0)], "the time of a window is that of its last batch"


def test_what_a_function_returns_is_dropped(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(3))
    counts = Seen()

    def count(rdd: KafkaRDD) -> int:
        counts.add(rdd.count())
        return 7

    with streaming(spark.sparkContext, BATCH) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(count)
        ssc.start()
        counts.wait_for_more(3)
        ssc.awaitTerminationOrTimeout(1)  # would raise the error of a batch
    assert counts.all[:3] == [3, 0, 0]


def test_batches_that_fail_leave_only_their_ranges(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(3))
    times = Seen()

    def fail(time: datetime, rdd: KafkaRDD) -> None:
        times.add(time)
        raise RuntimeError("on purpose")

    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.foreachRDD(fail)
        ssc.start()
        times.wait_for_more(8)
        held = set(stream._carried.spark._rdds)  # type: ignore[union-attr]
        assert milliseconds(times.all[0]) not in held
        assert [each.count() for each in stream.offsetRanges(times.all[0])] == [3], "a restart runs it again"


def test_batches_that_wait_for_a_slow_one_keep_their_rdds(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    """They are older than all that windows look back to, but their functions have not had them yet."""
    topic = make_topic()
    put(topic, range(3))
    times, values, goes_on = Seen(), Seen(), threading.Event()

    def collect(time: datetime, rdd: KafkaRDD) -> None:
        times.add((milliseconds(time), rdd))
        goes_on.wait(DEADLINE)
        values.add(rdd.map(number).collect())

    with streaming(spark.sparkContext, BATCH) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.foreachRDD(collect)
        ssc.start()
        try:
            ((first, _),) = times.wait_for_more(1)
            side: Any = stream._carried.spark
            wait_until(lambda: max(side._reported, default=0) >= first + 8000 * BATCH, "batches that wait", DEADLINE)
            held = dict(side._rdds)
            assert set(held) >= set(range(first, first + 8000 * BATCH, 1000 * BATCH))
        finally:
            goes_on.set()
        times.wait_for_more(4)
        assert all(rdd is held[time_ms] for time_ms, rdd in times.all[:5])
        values.wait_for_elements(3)
        assert values.flat == [0, 1, 2]


def test_state_by_key_counts_each_record_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic = make_topic(2)
    states = Seen()
    with streaming(spark.sparkContext, BATCH, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        counts = stream.map(by_key).updateStateByKey(_add_up)
        counts.foreachRDD(_keep(states))
        ssc.start()
        for goal in (6, 12, 18):
            for key in ("a", "b", "b"):
                put(topic, range(2), key=key)
            states.wait(partial(_counts_up_to, goal))
        states.wait_for_more(2)
    assert states.all[-1] == {"a": 6, "b": 12}


def test_a_window_that_adds_and_takes_away(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic = make_topic(2)
    put(topic, range(4), key="a")
    put(topic, range(3), key="b")
    windows = Seen()
    with streaming(spark.sparkContext, BATCH, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        # PySpark takes away only in windows of five batches or more; smaller ones it adds up anew.
        summed = stream.map(by_key).reduceByKeyAndWindow(
            lambda some, more: some + more, lambda some, less: some - less, 5 * BATCH, BATCH
        )
        summed.foreachRDD(_keep(windows))
        ssc.start()
        windows.wait_for_more(7)
    assert windows.all[:7] == [{"a": 4, "b": 3}] * 5 + [{"a": 0, "b": 0}] * 2


def test_streams_that_are_joined(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put) -> None:
    one, other = make_topic(), make_topic()
    for topic in (one, other):
        put(topic, range(3), key="a")
    joined = Seen()
    with streaming(spark.sparkContext, BATCH) as ssc:
        first, second = (direct_stream(ssc, kafka.bootstrap_servers, topic, None) for topic in (one, other))
        first.map(by_key).join(second.map(by_key)).foreachRDD(lambda rdd: joined.add(rdd.keys().collect()))
        ssc.start()
        joined.wait_for_elements(9)
    assert counted(joined.flat) == {"a": 9}


def _counts_up_to(goal: int, seen: list[dict[str, int]]) -> bool:
    return bool(seen) and sum(seen[-1].values()) >= goal


def _add_up(new: Iterable[int], total: int | None) -> int:
    return sum(new) + (total or 0)


def _first_as_is(rdds: tuple[RDD[Any], ...]) -> RDD[Any]:
    assert not hasattr(rdds[0], "offsetRanges"), "PySpark makes the RDDs that ssc.transform hands over"
    return rdds[0]


_KEPT: list[Seen] = []
"""Spark pickles the functions of a checkpointed stream; what they fill is of this process and stays behind."""


def _keep(seen: Seen) -> Callable[[RDD[Any]], None]:
    _KEPT.append(seen)
    number = len(_KEPT) - 1
    return lambda rdd: _add(number, rdd)


def _add(number: int, rdd: RDD[Any]) -> None:
    _KEPT[number].add(dict(rdd.collect()))


def _keep_sizes(stream: DirectKafkaDStream, seen: Seen) -> Callable[[datetime, RDD[Any]], None]:
    """Keep how many offsets the ranges of each batch have, and how many elements there are."""

    def keep(time: datetime, rdd: RDD[Any]) -> None:
        seen.add((sum(each.count() for each in stream.offsetRanges(time)), rdd.count()))

    return keep
