"""Stops of contexts and their streams, with contexts that have only ``stop``."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.spark.commit_cluster import CommitCluster

from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stop_hooks import StopSignal, flush_commits, hook_stop
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A = TopicPartition("t", 0)


class Context:
    """A SparkContext, or a StreamingContext that has one."""

    def __init__(self, sparkContext: Any = None, on_stop: Callable[[], None] | None = None) -> None:  # noqa: N803
        self.sparkContext = sparkContext
        self.stops: list[Any] = []
        self._on_stop = on_stop

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803 (Spark's names)
        self.stops.append((stopSparkContext, stopGraceFully))
        if self._on_stop is not None:
            self._on_stop()
        if stopSparkContext and self.sparkContext is not None:
            self.sparkContext.stop()


class Stream:
    """A stream with a queued commit."""

    def __init__(self, cluster: CommitCluster, group: str = "shop") -> None:
        self.stop_signal = StopSignal(cluster.process)
        self.commit_queue = CommitQueue(cluster.group(group), cluster.process)
        self.commit_queue.add([OffsetRange("t", 0, 0, 5)])


def do_nothing() -> None:
    """The ``on_stopped`` callback of a test that needs none."""


@pytest.fixture
def cluster() -> Iterator[CommitCluster]:
    with CommitCluster() as cluster:
        yield cluster


@pytest.fixture
def ssc() -> Any:
    return Context(Context())


def planning_seconds(cluster: CommitCluster, signal: StopSignal) -> float:
    """Return how long a plan may take that starts now and gets no response."""
    began = cluster.now
    with pytest.raises(KafkaDirectError, match=r"stopped while it waited for brokers.* Nothing is lost"):
        signal.run(lambda: cluster.sleep(1000))
    return cluster.now - began


def test_run_returns_the_result_or_raises_the_error(cluster: CommitCluster) -> None:
    def fail() -> None:
        raise BrokerTimeoutError("no response", broker="b:1")

    signal = StopSignal(cluster.process)
    assert signal.run(lambda: 5) == 5
    with pytest.raises(BrokerTimeoutError, match="no response"):
        signal.run(fail)


@pytest.mark.parametrize("seconds", [1, 60])
def test_a_stop_ends_a_plan_in_progress_in_time(cluster: CommitCluster, seconds: float) -> None:
    signal = StopSignal(cluster.process)

    def stop() -> None:
        cluster.sleep(seconds)
        signal.request_stop(0.05)

    cluster.process.spawn("stop", stop)
    assert planning_seconds(cluster, signal) == pytest.approx(seconds + 0.05, abs=0.01)


def test_after_a_stop_planning_has_little_time(cluster: CommitCluster) -> None:
    signal = StopSignal(cluster.process)
    signal.request_stop(600)
    assert signal.run(lambda: cluster.sleep(500)) is None, "a graceful stop still plans batches"
    signal.request_stop(0)
    signal.request_stop(600)
    for _ in range(2):
        assert planning_seconds(cluster, signal) == pytest.approx(3, abs=0.01)
        cluster.sleep(1000)
        assert signal.run(lambda: cluster.sleep(2.9)) is None, "Spark waits for the last batch, maybe minutes later"


@pytest.mark.parametrize("arguments", [(True, True), (True, False), (False, True), (False, False), ()])
def test_each_stop_of_the_streaming_context_sends_commits(
    cluster: CommitCluster, ssc: Any, arguments: tuple[bool, ...]
) -> None:
    for group in ("shop", "other"):
        hook_stop(ssc, Stream(cluster, group), do_nothing)
    ssc.stop(*arguments)
    assert ssc.stops == [arguments or (True, False)]
    assert sorted(each.group_id for each in cluster.received("OffsetCommit")) == ["other", "shop"]
    assert cluster.commits == [{A: 5}] * 2


def test_a_stop_of_the_spark_context_alone_sends_commits(cluster: CommitCluster, ssc: Any) -> None:
    hook_stop(ssc, Stream(cluster), do_nothing)
    ssc.sparkContext.stop()
    assert ssc.sparkContext.stops == [(True, False)]
    assert cluster.commits == [{A: 5}]


def test_a_stopped_stream_is_notified_and_released_while_the_spark_context_runs(
    cluster: CommitCluster, ssc: Any
) -> None:
    ended: list[str] = []
    stream = Stream(cluster)
    reference = weakref.ref(stream)
    hook_stop(ssc, stream, lambda: ended.append("first"))
    other: Any = Context(ssc.sparkContext)
    hook_stop(other, Stream(cluster), lambda: ended.append("second"))
    ssc.stop(False)
    assert ended == ["first"]
    del stream
    gc.collect()
    assert reference() is None
    ssc.sparkContext.stop()
    assert ended == ["first", "second"]


def test_a_stop_that_fails_sends_commits_and_does_not_limit_planning(cluster: CommitCluster) -> None:
    """Spark rejects a stop within one of its listeners, and continues with its batches."""

    def fail() -> None:
        raise RuntimeError("Cannot stop StreamingContext within listener bus thread.")

    ssc: Any = Context(Context(), fail)
    streams = [Stream(cluster, group) for group in ("shop", "other")]
    for stream in streams:
        hook_stop(ssc, stream, do_nothing)
    with pytest.raises(RuntimeError, match="within listener"):
        ssc.stop()
    assert cluster.commits == [{A: 5}] * 2
    for stream in streams:
        stream.stop_signal.run(lambda: cluster.sleep(100))


def test_after_a_stop_that_fails_another_one_waits_for_commits_again(cluster: CommitCluster) -> None:
    rejections = [RuntimeError("Cannot stop StreamingContext within listener bus thread.")]

    def reject_once() -> None:
        if rejections:
            raise rejections.pop()

    ssc: Any = Context(Context(), reject_once)
    streams = [Stream(cluster, group) for group in ("shop", "other")]
    for stream in streams:
        hook_stop(ssc, stream, do_nothing)
    cluster.event("pause_broker", broker=0, seconds=20)
    with pytest.raises(RuntimeError, match="within listener"):
        ssc.stop()
    assert all(stream.stop_signal.flush_timed_out is False for stream in streams), "Spark continues"
    cluster.sleep(60)
    for stream in streams:
        stream.commit_queue.add([OffsetRange("t", 0, 5, 9)])
    ssc.stop()
    assert cluster.commits[-2:] == [{A: 9}] * 2


def test_an_error_after_spark_has_stopped_does_not_cancel_the_stop(cluster: CommitCluster, ssc: Any) -> None:
    """Otherwise the next stop, or the exit of the interpreter, would wait again for commits that timed out."""

    def fail() -> None:
        raise RuntimeError("the callback failed")

    stream = Stream(cluster)
    hook_stop(ssc, stream, fail)
    with pytest.raises(RuntimeError, match="the callback failed"):
        ssc.stop(False)
    assert planning_seconds(cluster, stream.stop_signal) < 5


@pytest.mark.parametrize(
    ("arguments", "named", "seconds"),
    [
        ((), {}, 3),
        ((True,), {}, 3),
        ((True, False), {}, 3),
        ((True, True), {}, 10),
        ((), {"stopGraceFully": True}, 10),
    ],
)
@pytest.mark.parametrize("planned", [0, 1])
def test_planning_is_limited_before_spark_waits_for_it(
    cluster: CommitCluster, arguments: tuple[bool, ...], named: dict[str, bool], seconds: float, planned: int
) -> None:
    """A graceful stop leaves more time."""
    streams = [Stream(cluster, group) for group in ("shop", "other")]
    limits: list[float] = []
    ssc: Any = Context(Context(), lambda: limits.append(planning_seconds(cluster, streams[planned].stop_signal)))
    for stream in streams:
        hook_stop(ssc, stream, do_nothing)
    ssc.stop(*arguments, **named)
    assert limits == pytest.approx([seconds], abs=0.01)


def test_an_unresponsive_coordinator_delays_no_other_group_and_only_one_stop(caplog: pytest.LogCaptureFixture) -> None:
    with CommitCluster(brokers=2) as cluster:
        coordinated: dict[int, str] = {}  # a group of each broker
        for number in range(10):
            cluster.group(f"group-{number}").commit({A: 1})
            coordinated[cluster.arrivals("OffsetCommit")[-1].broker] = f"group-{number}"
        streams = [Stream(cluster, coordinated[2]), Stream(cluster, coordinated[1])]
        cluster.event("pause_broker", broker=1, seconds=40)
        streams[0].commit_queue.send()
        cluster.sleep(1)  # in flight, with a timeout of a minute
        streams[0].commit_queue.add([OffsetRange("t", 0, 5, 6)])
        before, began = len(cluster.commits), cluster.now
        flush_commits(streams, 5)
        assert cluster.now - began == pytest.approx(5, abs=0.1)
        assert cluster.commits[before:] == [{A: 5}]
        assert caplog.text.count("not committed before the timeout of the stop") == 1
        flush_commits(streams, 5)
        assert cluster.now - began == pytest.approx(5, abs=0.1), "the SparkContext is stopped after the context"


def test_unresponsive_coordinators_delay_a_stop_by_one_timeout() -> None:
    with CommitCluster() as cluster:
        cluster.delay_commits(40)
        streams = [Stream(cluster, group) for group in ("shop", "other")]
        for stream in streams:
            stream.commit_queue.send()
        began = cluster.now
        flush_commits(streams, 5)
        assert cluster.now - began == pytest.approx(5, abs=0.1)


EXITS = """
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.direct import checkpointed_stream
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stop_hooks import StopSignal
from pyspark_kafka_direct.offsets import OffsetRange

class PrintingGroup(ConsumerGroup):
    def __init__(self): ...

    def commit(self, offsets, *, deadline=None):
        print("committed", *offsets.values(), deadline.remaining() <= 5)

class Stream:
    stream_id, stop_signal, commit_queue = "id", StopSignal(), CommitQueue(PrintingGroup())

stream = Stream()
stream.commit_queue.add([OffsetRange("t", 0, 0, 5)])
checkpointed_stream.register_stream(stream)
raise SystemExit(3)
"""


def test_an_application_that_exits_without_a_stop_sends_commits() -> None:
    process = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=300, check=False)
    assert (process.returncode, process.stdout) == (3, "committed 5 True\n"), process.stderr
