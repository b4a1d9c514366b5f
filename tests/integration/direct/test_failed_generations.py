"""Spark fails to generate a batch: no record is lost by it, and none is seen twice.

Batches are told apart by their times, so that a batch that Spark runs again after a restart counts once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.running import DEADLINE, direct_stream, streaming
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.direct.rates import PerPartitionConfig

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
SECONDS = 2  # a batch; so that a busy machine keeps up


class Outputs:
    """What the outputs of a context have seen, by name and batch time; known by its name to the checkpoint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, dict[int, list[Any]]] = {}
        self.armed: set[str] = set()
        self.failed: list[str] = []
        self.one_has_records = False

    def put(self, name: str, at: datetime, values: list[Any]) -> None:
        with self._lock:
            self._seen.setdefault(name, {})[round(at.timestamp() * 1000)] = values

    def by_time(self, name: str) -> dict[int, list[Any]]:
        with self._lock:
            return dict(self._seen.get(name, {}))

    def of(self, name: str) -> list[Any]:
        return sorted(value for values in self.by_time(name).values() for value in values)

    @property
    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._seen)

    def fail_once(self, name: str) -> None:
        if name in self.armed:
            self.armed.remove(name)
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


class Note:
    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, at: datetime, rdd: RDD[Any]) -> None:
        OUTPUTS.put(self.name, at, rdd.collect())


def values(rdd: KafkaRDD) -> Any:
    return rdd.map(lambda record: int(record.value))


def values_of_one(rdd: KafkaRDD) -> Any:
    OUTPUTS.one_has_records = any(each.count() for each in rdd.offsetRanges())
    return values(rdd)


def function_fails(rdd: RDD[Any]) -> RDD[Any]:
    """For ``transform``: fails once for a batch with records, when it is armed."""
    if not rdd.isEmpty():
        OUTPUTS.fail_once("function")
    return rdd


def slide_fails(rdd: RDD[Any]) -> RDD[Any]:
    if not rdd.isEmpty():
        OUTPUTS.fail_once("slide")
    return rdd


class PlanFails(PerPartitionConfig):
    """Limits that make the planning of stream two fail once when it is armed, after records of stream one."""

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        if OUTPUTS.one_has_records:
            OUTPUTS.fail_once("plan")
        return 0


def total(new: Iterable[int], old: int | None) -> int:
    return sum(new) + (old or 0)


def make_context(spark: SparkSession, servers: str, topics: list[str], checkpoint: Path | None) -> StreamingContext:
    """Three streams: two that plain outputs, a window and a state see, one that only windows of two batches see.

    Without a checkpoint there is no state, and a failure is first seen when the next batch is generated; with one, when
    the checkpoint is written.
    """
    ssc = StreamingContext(spark.sparkContext, SECONDS)
    one = direct_stream(ssc, servers, topics[0], None).transform(values_of_one)
    two = direct_stream(ssc, servers, topics[1], None, perPartitionConfig=PlanFails()).transform(values)
    three = direct_stream(ssc, servers, topics[2], None).transform(values)
    one.foreachRDD(Note("one").put)
    both = one.union(two)
    both.window(2 * SECONDS, SECONDS).foreachRDD(Note("window").put)
    if checkpoint is not None:
        ssc.checkpoint(str(checkpoint))
        both.map(lambda number: ("sum", number)).updateStateByKey(total, 1).foreachRDD(Note("state").put)
    one.transform(function_fails).foreachRDD(Note("checked").put)
    two.foreachRDD(Note("two").put)
    three.window(2 * SECONDS, 2 * SECONDS).transform(slide_fails).foreachRDD(Note("three").put)
    three.window(2 * SECONDS, 2 * SECONDS).foreachRDD(Note("three again").put)
    return ssc


def wait_for_all(numbers: range) -> None:
    """Wait until all is there, each once."""

    def missing() -> list[str]:
        return [name for name in NAMES if OUTPUTS.of(name) != list(numbers)]

    deadline = time.monotonic() + DEADLINE
    while missing():
        assert time.monotonic() < deadline, {name: OUTPUTS.by_time(name) for name in missing()}
        time.sleep(0.05)


def check_windows(numbers: range) -> None:
    """Each window has what its batches had in the plain outputs, and none has a number more than once per stream."""
    windows = OUTPUTS.by_time("window")

    def complete() -> set[int]:
        return OUTPUTS.by_time("one").keys() & OUTPUTS.by_time("two").keys()

    # The outputs of a batch run one after the other, and one batch is under way.
    wait_until(lambda: windows.keys() <= complete(), "the plain outputs of all windows' batches", DEADLINE)
    batches = {at: sorted(OUTPUTS.by_time("one")[at] + OUTPUTS.by_time("two")[at]) for at in complete()}
    checked = 0
    for at, values in windows.items():
        before = batches.get(at - SECONDS * 1000, [])  # none of a batch that was not generated
        assert sorted(values) == sorted(before + batches[at]), (at, batches, windows)
        checked += len(values)
    assert checked >= 2 * len(numbers)
    assert all(count <= 2 for values in windows.values() for count in Counter(values).values())


def wait_for_state(numbers: range) -> None:
    """The state has counted each number once per stream."""

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
            OUTPUTS.armed.add(failure)
            for topic in topics:
                put(topic, range(so_far, so_far + 5))
            so_far += 5
            wait_for_all(range(so_far))
        assert OUTPUTS.failed == ["function", "plan", "slide"]
        check_windows(range(so_far))
        assert output_operations(ssc) == len(OUTPUTS.names), "the marks give no jobs"
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)


def output_operations(ssc: StreamingContext) -> int:
    """The most jobs that one batch had, as Spark's page shows them."""
    listener = ssc._jssc.ssc().progressListener()
    batches = listener.retainedCompletedBatches()
    return max(int(batches.apply(number).outputOperations().size()) for number in range(batches.size()))


def must_not_be_called() -> StreamingContext:
    raise AssertionError("there is a checkpoint")


def test_restarts_after_failed_generations(
    spark: SparkSession, kafka: EmbeddedKafka, topics: list[str], put: Any, tmp_path: Path
) -> None:
    """After a stop at once, when the checkpoint may or may not know of the failure, and after a graceful one."""
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
            OUTPUTS.armed.add(failure)
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


def test_a_notebook_cell_that_is_run_twice(
    spark: SparkSession, kafka: EmbeddedKafka, topics: list[str], put: Any, tmp_path: Path
) -> None:
    """Spark refuses the context of the second run, and the first goes on. Once it is stopped, another may follow."""
    contexts = []
    for number in range(2):
        ssc = StreamingContext.getOrCreate(
            str(tmp_path),
            must_not_be_called if number else lambda: make_context(spark, kafka.bootstrap_servers, topics, tmp_path),
        )
        contexts.append(ssc)
        ssc.start()
        try:
            for again in range(3):
                for topic in topics:
                    put(topic, [4 * number + again])
                wait_for_all(range(4 * number + again + 1))
                second = StreamingContext.getOrCreate(str(tmp_path), must_not_be_called)
                with pytest.raises(Exception, match="Only one StreamingContext may be started"):
                    second.start()
            for topic in topics:
                put(topic, [4 * number + 3])
            wait_for_all(range(4 * number + 4))
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]  # raises what went wrong
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)


def test_spark_still_refuses_a_context_without_outputs(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    with streaming(spark.sparkContext, 1) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, make_topic(), None)
        with pytest.raises(Exception, match="No output operations registered"):
            ssc.start()


def test_without_marks_no_batch_is_planned(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """Failures could not be seen, so this is one."""
    with streaming(spark.sparkContext, 1) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, make_topic(), None).foreachRDD(lambda rdd: None)
        ssc._jssc.ssc().start()
        with pytest.raises(Exception, match=r"start the context by start\(\) of the object"):
            ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]


class AddsOutputs(StreamingContext):
    """A subclass whose ``start`` makes the last outputs, as a class of an application may."""

    checked: DStream[Any]

    def start(self) -> None:
        self.checked.foreachRDD(Note("checked").put)
        super().start()


def test_an_output_that_start_adds_may_fail_too(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    ssc = AddsOutputs(spark.sparkContext, SECONDS)
    one = direct_stream(ssc, kafka.bootstrap_servers, topic, None).transform(values)
    one.foreachRDD(Note("one").put)
    ssc.checked = one.transform(function_fails)
    OUTPUTS.armed.add("function")
    put(topic, range(5))
    ssc.start()
    try:
        wait_until(lambda: bool(OUTPUTS.failed), "the failure", DEADLINE)
        for name in ("one", "checked"):
            wait_until(lambda name=name: OUTPUTS.of(name) == list(range(5)), name, DEADLINE)  # type: ignore[misc]
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)
