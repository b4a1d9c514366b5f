"""Stops of contexts and their streams, with fake contexts that have only ``stop``."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.waiting import wait_until
from tests.unit.client.fake_groups import FakeGroup
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.direct.fake_streams import FakeStream, do_nothing

from pyspark_kafka_direct.direct import stop_hooks
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stop_hooks import StopSignal, flush_commits, hook_stop
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import Condition

A = TopicPartition("t", 0)


class FakeContext:
    def __init__(self, sparkContext: Any = None) -> None:  # noqa: N803 (Spark's spelling)
        self.sparkContext = sparkContext
        self.stops: list[Any] = []

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
        self.stops.append((stopSparkContext, stopGraceFully))
        if stopSparkContext and self.sparkContext is not None:
            self.sparkContext.stop()


@pytest.fixture
def ssc() -> Any:
    return FakeContext(FakeContext())


def test_run_returns_the_result() -> None:
    assert StopSignal().run(lambda: 5) == 5


def test_run_raises_the_error() -> None:
    def fail() -> None:
        raise BrokerTimeoutError("no response", broker="b:1")

    with pytest.raises(BrokerTimeoutError, match="no response"):
        StopSignal().run(fail)


def test_a_stop_ends_the_wait_for_a_response() -> None:
    signal, requested, response = StopSignal(), threading.Event(), threading.Event()

    def query() -> None:
        requested.set()
        assert response.wait(120)

    def stop() -> None:
        assert requested.wait(120)
        signal.request_stop(0.05)

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(KafkaDirectError, match=r"stopped while it waited for brokers.* Nothing is lost"):
        signal.run(query)
    response.set()
    stopper.join(120)


def test_after_a_stop_planning_has_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_hooks, "_PLANNING_SECONDS", 0.05)
    signal = StopSignal()
    signal.request_stop(600)
    assert signal.run(lambda: 5) == 5, "a graceful stop still plans batches"
    signal.request_stop(0)
    signal.request_stop(600)
    response = threading.Event()
    with pytest.raises(KafkaDirectError, match="was stopped"):
        signal.run(lambda: response.wait(120))
    response.set()


def test_a_plan_that_starts_long_after_a_graceful_stop_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's timer continues for up to two intervals, which may be minutes, and Spark waits for the last batch."""
    monkeypatch.setattr(stop_hooks, "_PLANNING_SECONDS", 600.0)
    signal = StopSignal()
    signal.request_stop(0)

    def query() -> int:
        time.sleep(0.05)
        return 5

    assert signal.run(query) == 5
    assert signal.run(query) == 5


def test_a_plan_in_progress_ends_with_the_time_of_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_hooks, "_PLANNING_SECONDS", 600.0)
    signal, response = StopSignal(), threading.Event()
    threading.Timer(0.1, signal.request_stop, [0.05]).start()
    with pytest.raises(KafkaDirectError, match="was stopped"):
        signal.run(lambda: response.wait(120))
    response.set()


@pytest.mark.parametrize("arguments", [(True, True), (True, False), (False, True), (False, False), ()])
def test_each_stop_of_the_streaming_context_sends_commits(ssc: Any, arguments: tuple[bool, ...]) -> None:
    one, two = FakeGroup(), FakeGroup()
    for group in (one, two):
        hook_stop(ssc, FakeStream(group), do_nothing)
    ssc.stop(*arguments)
    assert ssc.stops == [arguments or (True, False)]
    assert one.commits == two.commits == [{A: 5}]


def test_a_stop_of_the_spark_context_alone_sends_commits(ssc: Any) -> None:
    group = FakeGroup()
    hook_stop(ssc, FakeStream(group), do_nothing)
    ssc.sparkContext.stop()
    assert ssc.sparkContext.stops == [(True, False)]
    assert group.commits == [{A: 5}]


def test_a_stopped_stream_is_notified_and_released_while_the_spark_context_runs(ssc: Any) -> None:
    ended: list[str] = []
    stream = FakeStream(FakeGroup())
    reference = weakref.ref(stream)
    hook_stop(ssc, stream, lambda: ended.append("first"))
    other: Any = FakeContext(ssc.sparkContext)
    hook_stop(other, FakeStream(FakeGroup()), lambda: ended.append("second"))
    ssc.stop(False)
    assert ended == ["first"]
    del stream
    gc.collect()
    assert reference() is None
    ssc.sparkContext.stop()
    assert ended == ["first", "second"]


def test_a_stop_that_fails_sends_commits() -> None:
    class FailingContext(FakeContext):
        def stop(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("the JVM has exited")

    ssc: Any = FailingContext(FakeContext())
    group = FakeGroup()
    hook_stop(ssc, FakeStream(group), do_nothing)
    with pytest.raises(RuntimeError, match="the JVM has exited"):
        ssc.stop()
    assert group.commits == [{A: 5}]


def test_a_stop_that_spark_rejects_does_not_limit_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark rejects a stop within one of its listeners, and continues with its batches."""
    monkeypatch.setattr(stop_hooks, "_PLANNING_SECONDS", 0.05)

    class RejectingContext(FakeContext):
        def stop(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("Cannot stop StreamingContext within listener bus thread.")

    ssc: Any = RejectingContext(FakeContext())
    stream = FakeStream(FakeGroup())
    hook_stop(ssc, stream, do_nothing)
    with pytest.raises(RuntimeError, match="within listener"):
        ssc.stop()

    def query() -> int:
        time.sleep(0.3)
        return 5

    assert stream.stop_signal.run(query) == 5


def test_an_error_after_spark_has_stopped_does_not_cancel_the_stop(ssc: Any) -> None:
    """Otherwise the next stop, or the exit of the interpreter, would wait again for commits that timed out."""

    def fail() -> None:
        raise RuntimeError("the callback failed")

    stream = FakeStream(FakeGroup())
    hook_stop(ssc, stream, fail)
    with pytest.raises(RuntimeError, match="the callback failed"):
        ssc.stop(False)
    assert stream.stop_signal._planning_deadline < math.inf


def test_planning_is_limited_before_spark_waits_for_it() -> None:
    """A graceful stop leaves more time."""
    system = FakeTimeSystem()
    remaining: list[float] = []

    class ObservingContext(FakeContext):
        def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
            remaining.append(stream.stop_signal._planning_deadline - system.now)

    for gracefully in (False, True):
        ssc: Any = ObservingContext(FakeContext())
        stream = FakeStream(FakeGroup())
        stream.stop_signal = StopSignal(system)
        hook_stop(ssc, stream, do_nothing)
        ssc.stop(stopSparkContext=False, stopGraceFully=gracefully)
    assert 0 < remaining[0] <= 3 < remaining[1] <= 10


class SlowWaits(FakeTimeSystem):
    """Time advances by waits for a condition, which end when another group has committed; ``waits`` counts them."""

    def __init__(self, other: FakeGroup) -> None:
        super().__init__()
        self._other = other
        self.waits = 0

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        assert seconds is not None
        wait_until(lambda: bool(self._other.commits), "a commit")
        self.waits += 1
        self.now += seconds
        return False


def test_an_unresponsive_coordinator_delays_no_other_group_and_only_one_stop(caplog: pytest.LogCaptureFixture) -> None:
    unresponsive, responsive = FakeGroup(unresponsive=True), FakeGroup()
    streams = [FakeStream(unresponsive), FakeStream(responsive)]
    system = SlowWaits(responsive)
    streams[0].commit_queue = CommitQueue(unresponsive, system)
    streams[0].commit_queue.add([OffsetRange("t", 0, 0, 5)])
    streams[0].commit_queue.send()
    assert unresponsive.requested.acquire(timeout=120)  # in flight, with a timeout of a minute
    streams[0].commit_queue.add([OffsetRange("t", 0, 5, 6)])
    flush_commits(streams, 120)
    assert responsive.commits == [{A: 5}]
    assert caplog.text.count("not committed before the timeout of the stop") == 1
    flush_commits(streams, 120)
    assert system.waits == 1, "the SparkContext is stopped after the streaming context"


EXITS = """
from pyspark_kafka_direct.direct import checkpointed_stream
from tests.unit.client.fake_groups import FakeGroup
from tests.unit.direct.fake_streams import FakeStream

class PrintingGroup(FakeGroup):
    def commit(self, offsets, *, deadline=None):
        print("committed", *offsets.values(), deadline.remaining() <= 5)

stream = FakeStream(PrintingGroup())
stream.stream_id = "id"
checkpointed_stream.register_stream(stream)
raise SystemExit(3)
"""


def test_an_application_that_exits_without_a_stop_sends_commits() -> None:
    process = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=300, check=False)
    assert (process.returncode, process.stdout) == (3, "committed 5 True\n"), process.stderr


@pytest.mark.parametrize(
    ("arguments", "named", "gracefully"),
    [
        ((), {}, False),
        ((True,), {}, False),
        ((True, False), {}, False),
        ((True, True), {}, True),
        ((), {"stopGraceFully": True}, True),
    ],
)
def test_a_graceful_stop_gives_planning_more_time(
    ssc: Any, arguments: tuple[bool, ...], named: dict[str, bool], gracefully: bool
) -> None:
    requested: list[float] = []
    stream: Any = FakeStream(FakeGroup())
    stream.stop_signal = SimpleNamespace(request_stop=requested.append, flush_timed_out=False)
    hook_stop(ssc, stream, do_nothing)
    ssc.stop(*arguments, **named)
    assert (requested[0] > 5) is gracefully
