"""Spark fails to generate a batch: no record is lost, and none is processed twice.

Results are stored by batch time, so that a batch that Spark runs again after a restart counts once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.streaming_contexts import DEADLINE, direct_stream, streaming
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession
    from pyspark.streaming import DStream
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD, TopicPartition

NAMES = ("one", "two", "checked", "three", "three again")
SECONDS = 2  # the batch interval, long enough for a busy machine


class Outputs:
    """The results of the outputs of a context, by name and batch time; pickled by reference in the checkpoint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, dict[int, list[Any]]] = {}
        self.failures_to_raise: set[str] = set()
        self.failed: list[str] = []
        self.one_has_records = False

    def store(self, name: str, at: datetime, values: list[Any]) -> None:
        with self._lock:
            self._results.setdefault(name, {})[round(at.timestamp() * 1000)] = values

    def by_time(self, name: str) -> dict[int, list[Any]]:
        with self._lock:
            return dict(self._results.get(name, {}))

    def values_of(self, name: str) -> list[Any]:
        return sorted(value for values in self.by_time(name).values() for value in values)

    @property
    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._results)

    def fail_once(self, name: str) -> None:
        if name in self.failures_to_raise:
            self.failures_to_raise.remove(name)
            self.failed.append(name)
            raise ValueError(f"{name} fails once")

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


OUTPUTS = Outputs()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    OUTPUTS.clear()
    yield
    OUTPUTS.clear()


class StoreResult:
    def __init__(self, name: str) -> None:
        self.name = name

    def store(self, at: datetime, rdd: RDD[Any]) -> None:
        OUTPUTS.store(self.name, at, rdd.collect())


def values(rdd: KafkaRDD) -> Any:
    return rdd.map(lambda record: int(record.value))


def values_of_one(rdd: KafkaRDD) -> Any:
    OUTPUTS.one_has_records = any(each.count() for each in rdd.offsetRanges())
    return values(rdd)


def function_fails(rdd: RDD[Any]) -> RDD[Any]:
    """For ``transform``: fails once for a batch with records, if the failure is requested."""
    if not rdd.isEmpty():
        OUTPUTS.fail_once("function")
    return rdd


def slide_fails(rdd: RDD[Any]) -> RDD[Any]:
    if not rdd.isEmpty():
        OUTPUTS.fail_once("slide")
    return rdd


class PlanFails(PerPartitionConfig):
    """Limits that make the planning of stream two fail once, after stream one has planned records."""

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        if OUTPUTS.one_has_records:
            OUTPUTS.fail_once("plan")
        return 0


def total(new: Iterable[int], old: int | None) -> int:
    return sum(new) + (old or 0)


def make_context(spark: SparkSession, servers: str, topics: list[str], checkpoint: Path | None) -> StreamingContext:
    """Three streams: two with plain outputs, a window and a state, and one with only windows of two batches.

    Without a checkpoint there is no state, and a failure is detected when the next batch is generated. With a
    checkpoint it is detected when the checkpoint is written.
    """
    ssc = StreamingContext(spark.sparkContext, SECONDS)
    one = direct_stream(ssc, servers, topics[0], None).transform(values_of_one)
    two = direct_stream(ssc, servers, topics[1], None, perPartitionConfig=PlanFails()).transform(values)
    three = direct_stream(ssc, servers, topics[2], None).transform(values)
    one.foreachRDD(StoreResult("one").store)
    both = one.union(two)
    both.window(2 * SECONDS, SECONDS).foreachRDD(StoreResult("window").store)
    if checkpoint is not None:
        ssc.checkpoint(str(checkpoint))
        both.map(lambda number: ("sum", number)).updateStateByKey(total, 1).foreachRDD(StoreResult("state").store)
    one.transform(function_fails).foreachRDD(StoreResult("checked").store)
    two.foreachRDD(StoreResult("two").store)
    three.window(2 * SECONDS, 2 * SECONDS).transform(slide_fails).foreachRDD(StoreResult("three").store)
    three.window(2 * SECONDS, 2 * SECONDS).foreachRDD(StoreResult("three again").store)
    return ssc


def wait_for_all(numbers: range) -> None:
    """Wait until every output has each number once."""

    def missing() -> list[str]:
        return [name for name in NAMES if OUTPUTS.values_of(name) != list(numbers)]

    deadline = time.monotonic() + DEADLINE
    while missing():
        assert time.monotonic() < deadline, {name: OUTPUTS.by_time(name) for name in missing()}
        time.sleep(0.05)


def check_windows(numbers: range) -> None:
    """Check that each window has the values of its batches, and no number more than once per stream."""
    windows = OUTPUTS.by_time("window")

    def complete() -> set[int]:
        return OUTPUTS.by_time("one").keys() & OUTPUTS.by_time("two").keys()

    # The outputs of a batch run one after the other, and one batch is in progress.
    wait_until(lambda: windows.keys() <= complete(), "the plain outputs of all windows' batches", DEADLINE)
    batches = {at: sorted(OUTPUTS.by_time("one")[at] + OUTPUTS.by_time("two")[at]) for at in complete()}
    checked = 0
    for at, values in windows.items():
        before = batches.get(at - SECONDS * 1000, [])  # a batch that was not generated has no values
        assert sorted(values) == sorted(before + batches[at]), (at, batches, windows)
        checked += len(values)
    assert checked >= 2 * len(numbers)
    assert all(count <= 2 for values in windows.values() for count in Counter(values).values())


def wait_for_state(numbers: range) -> None:
    """Wait until the state has counted each number once per stream."""

    def states() -> list[Any]:
        by_time = OUTPUTS.by_time("state")
        return by_time[max(by_time)]

    wait_until(lambda: states() == [("sum", 2 * sum(numbers))], "the sum", DEADLINE)


@pytest.fixture
def topics(make_topic: MakeTopic) -> list[str]:
    return [make_topic(), make_topic(), make_topic()]


def test_no_record_is_lost_or_doubled(spark: SparkSession, kafka: EmbeddedKafka, topics: list[str], put: Any) -> None:
    ssc = make_context(spark, kafka.bootstrap_servers, topics, None)
    ssc.start()
    try:
        so_far = 0
        for failure in ["none", "function", "plan", "slide"]:
            OUTPUTS.failures_to_raise.add(failure)
            for topic in topics:
                put(topic, range(so_far, so_far + 5))
            so_far += 5
            wait_for_all(range(so_far))
        assert OUTPUTS.failed == ["function", "plan", "slide"]
        check_windows(range(so_far))
        assert output_operations(ssc) == len(OUTPUTS.names), "the generation callbacks create no jobs"
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)


def output_operations(ssc: StreamingContext) -> int:
    """The maximum number of jobs of a batch, as in Spark's UI."""
    listener = ssc._jssc.ssc().progressListener()
    batches = listener.retainedCompletedBatches()
    return max(int(batches.apply(number).outputOperations().size()) for number in range(batches.size()))


def must_not_be_called() -> StreamingContext:
    raise AssertionError("there is a checkpoint")


def test_restarts_after_failed_generations(
    spark: SparkSession, kafka: EmbeddedKafka, topics: list[str], put: Any, tmp_path: Path
) -> None:
    """After an immediate stop, when the checkpoint may or may not contain the failure, and after a graceful one."""
    so_far = 0
    for failure, gracefully in [("function", False), ("plan", True), ("none", False)]:
        ssc = StreamingContext.getOrCreate(
            str(tmp_path),
            must_not_be_called if so_far else lambda: make_context(spark, kafka.bootstrap_servers, topics, tmp_path),
        )
        ssc.start()
        try:
            for topic in topics:
                put(topic, range(so_far, so_far + 5))
            so_far += 5
            wait_for_all(range(so_far))
            OUTPUTS.failures_to_raise.add(failure)
            for topic in topics:
                put(topic, range(so_far, so_far + 5))
            so_far += 5
            if failure == "none":
                wait_for_all(range(so_far))
                wait_for_state(range(so_far))
                check_windows(range(so_far))
            else:
                wait_until(lambda failure=failure: failure in OUTPUTS.failed, failure, DEADLINE)  # type: ignore[misc]
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=gracefully)
    assert OUTPUTS.failed == ["function", "plan"]


def test_a_notebook_cell_that_runs_twice(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """Spark rejects the second context, and the first one continues. Once it is stopped, another can start."""
    topic = make_topic()

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        ssc.checkpoint(str(tmp_path))
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None).transform(values)
        stream.foreachRDD(StoreResult("one").store)
        return ssc

    def wait_for(numbers: range) -> None:
        wait_until(lambda: OUTPUTS.values_of("one") == list(numbers), "the output", DEADLINE)

    contexts = []
    for number in range(2):
        ssc = StreamingContext.getOrCreate(str(tmp_path), must_not_be_called if number else create)
        contexts.append(ssc)
        ssc.start()
        try:
            put(topic, [2 * number])
            wait_for(range(2 * number + 1))
            second = StreamingContext.getOrCreate(str(tmp_path), must_not_be_called)
            with pytest.raises(Exception, match="Only one StreamingContext may be started"):
                second.start()
            put(topic, [2 * number + 1])
            wait_for(range(2 * number + 2))
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]  # raises the error of a batch
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)


def test_spark_rejects_a_context_without_outputs(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    with streaming(spark.sparkContext, 1) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, make_topic(), None)
        with pytest.raises(Exception, match="No output operations registered"):
            ssc.start()


def test_without_generation_callbacks_no_batch_is_planned(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    """Failed generations could not be detected, so planning fails."""
    with streaming(spark.sparkContext, 1) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, make_topic(), None).foreachRDD(lambda rdd: None)
        ssc._jssc.ssc().start()
        with pytest.raises(Exception, match=r"Start the context with start\(\) of the object"):
            ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]


class AddsOutputs(StreamingContext):
    """A subclass whose ``start`` adds the last outputs, as an application may do."""

    checked: DStream[Any]

    def start(self) -> None:
        self.checked.foreachRDD(StoreResult("checked").store)
        super().start()


def test_an_output_that_start_adds_may_fail(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    ssc = AddsOutputs(spark.sparkContext, SECONDS)
    one = direct_stream(ssc, kafka.bootstrap_servers, topic, None).transform(values)
    one.foreachRDD(StoreResult("one").store)
    ssc.checked = one.transform(function_fails)
    OUTPUTS.failures_to_raise.add("function")
    put(topic, range(5))
    ssc.start()
    try:
        wait_until(lambda: bool(OUTPUTS.failed), "the failure", DEADLINE)
        for name in ("one", "checked"):
            wait_until(lambda name=name: OUTPUTS.values_of(name) == list(range(5)), name, DEADLINE)  # type: ignore[misc]
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)
