"""What a stop does to streams; plain objects stand in for Spark's contexts, which only have to have ``stop``."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from tests.unit.direct.stops import Coordinator, Stream, nothing

from pyspark_kafka_direct.direct import _stopping
from pyspark_kafka_direct.direct._stopping import StopSignal, flush, stop_with
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

A = TopicPartition("t", 0)


class Context:
    """What of a StreamingContext, and of its SparkContext, a stop needs."""

    def __init__(self, sparkContext: Any = None) -> None:  # noqa: N803 (Spark's spelling)
        self.sparkContext = sparkContext
        self.stops: list[Any] = []

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
        self.stops.append((stopSparkContext, stopGraceFully))
        if stopSparkContext and self.sparkContext is not None:
            self.sparkContext.stop()


@pytest.fixture
def ssc() -> Any:
    return Context(Context())


def test_an_answer_comes_through() -> None:
    assert StopSignal().run(lambda: 5) == 5


def test_an_error_comes_through() -> None:
    def fail() -> None:
        raise BrokerTimeoutError("no answer", broker="b:1")

    with pytest.raises(BrokerTimeoutError, match="no answer"):
        StopSignal().run(fail)


def test_a_stop_ends_the_wait_for_an_answer() -> None:
    signal, asked, answer = StopSignal(), threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        assert answer.wait(120)

    def stop() -> None:
        assert asked.wait(60)
        signal.give(0.05)

    stopper = threading.Thread(target=stop)
    stopper.start()
    began = time.monotonic()
    with pytest.raises(KafkaDirectError, match=r"stopped before brokers had answered.* Nothing is lost"):
        signal.run(ask)
    assert time.monotonic() - began < 60
    answer.set()
    stopper.join(30)


def test_after_a_stop_there_is_a_little_time_and_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stopping, "_PLANNING_SECONDS", 0.05)
    signal = StopSignal()
    signal.give(60)
    assert signal.run(lambda: 5) == 5, "a graceful stop plans what is due"
    signal.give(0)
    signal.give(60)
    with pytest.raises(KafkaDirectError, match="was stopped"):
        signal.run(threading.Event().wait)


def test_a_plan_that_begins_long_after_a_graceful_stop_has_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's timer goes on for up to two intervals, which may be minutes, and Spark waits for the last of them."""
    monkeypatch.setattr(_stopping, "_PLANNING_SECONDS", 60.0)
    signal = StopSignal()
    signal.give(0)

    def ask() -> int:
        time.sleep(0.05)
        return 5

    assert signal.run(ask) == 5
    assert signal.run(ask) == 5


def test_a_plan_under_way_at_the_stop_has_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stopping, "_PLANNING_SECONDS", 120.0)
    signal, answer = StopSignal(), threading.Event()
    threading.Timer(0.1, signal.give, [0.05]).start()
    began = time.monotonic()
    with pytest.raises(KafkaDirectError, match="was stopped"):
        signal.run(lambda: answer.wait(120))
    assert time.monotonic() - began < 60
    answer.set()


@pytest.mark.parametrize("arguments", [(True, True), (True, False), (False, True), (False, False), ()])
def test_each_stop_of_the_streaming_context_sends_commits(ssc: Any, arguments: tuple[bool, ...]) -> None:
    one, two = Coordinator(), Coordinator()
    for coordinator in (one, two):
        stop_with(ssc, Stream(coordinator), nothing)
    ssc.stop(*arguments)
    assert ssc.stops == [arguments or (True, False)]
    assert one.commits == two.commits == [{A: 5}]


def test_a_stop_of_the_spark_context_alone_sends_commits(ssc: Any) -> None:
    coordinator = Coordinator()
    stop_with(ssc, Stream(coordinator), nothing)
    ssc.sparkContext.stop()
    assert ssc.sparkContext.stops == [(True, False)]
    assert coordinator.commits == [{A: 5}]


def test_a_stopped_stream_is_told_and_forgotten_while_the_spark_context_lives_on(ssc: Any) -> None:
    ended: list[str] = []
    stream = Stream(Coordinator())
    gone = weakref.ref(stream)
    stop_with(ssc, stream, lambda: ended.append("first"))
    other: Any = Context(ssc.sparkContext)
    stop_with(other, Stream(Coordinator()), lambda: ended.append("second"))
    ssc.stop(False)
    assert ended == ["first"]
    del stream
    gc.collect()
    assert gone() is None
    ssc.sparkContext.stop()
    assert ended == ["first", "second"]


def test_a_stop_that_fails_sends_commits_too() -> None:
    class Failing(Context):
        def stop(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("the JVM is gone")

    ssc: Any = Failing(Context())
    coordinator = Coordinator()
    stop_with(ssc, Stream(coordinator), nothing)
    with pytest.raises(RuntimeError, match="the JVM is gone"):
        ssc.stop()
    assert coordinator.commits == [{A: 5}]


def test_a_stop_that_spark_refuses_limits_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not stop within a listener of its own: it raises, and goes on with its batches."""
    monkeypatch.setattr(_stopping, "_PLANNING_SECONDS", 0.05)

    class Refusing(Context):
        def stop(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("Cannot stop StreamingContext within listener bus thread.")

    ssc: Any = Refusing(Context())
    stream = Stream(Coordinator())
    stop_with(ssc, stream, nothing)
    with pytest.raises(RuntimeError, match="within listener"):
        ssc.stop()

    def ask() -> int:
        time.sleep(0.3)
        return 5

    assert stream.stopping.run(ask) == 5


def test_the_signal_is_given_before_spark_waits_for_the_plan() -> None:
    """A graceful stop leaves more time than the other."""
    left: list[float] = []

    class Waiting(Context):
        def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
            left.append(stream.stopping._until - time.monotonic())

    for gracefully in (False, True):
        ssc: Any = Waiting(Context())
        stream = Stream(Coordinator())
        stop_with(ssc, stream, nothing)
        ssc.stop(stopSparkContext=False, stopGraceFully=gracefully)
    assert 0 < left[0] <= 3 < left[1] <= 10


def test_a_silent_coordinator_holds_up_nobody_else_and_is_waited_for_once(caplog: pytest.LogCaptureFixture) -> None:
    silent, good = Coordinator(silent=True), Coordinator()
    streams = [Stream(silent), Stream(good)]
    streams[0].queued_commits.send()
    assert silent.asked.wait(30)  # under way, with a minute to go
    streams[0].queued_commits.add([OffsetRange("t", 0, 5, 6)])
    flush(streams, 2)
    assert good.commits == [{A: 5}]
    assert caplog.text.count("not committed in the time that a stop has for it") == 1
    began = time.monotonic()
    flush(streams, 60)
    assert time.monotonic() - began < 30, "the SparkContext is stopped after the streaming context"


EXITS = """
from pyspark_kafka_direct.direct import _registry
from tests.unit.direct.stops import Coordinator, Stream

class Printing(Coordinator):
    def commit(self, offsets, *, deadline=None):
        print("committed", *offsets.values(), deadline.remaining() <= 5)

stream = Stream(Printing())
stream.stream_id = "it"
_registry.enter(stream)
raise SystemExit(3)
"""


def test_an_application_that_ends_without_a_stop_sends_commits() -> None:
    ended = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (3, "committed 5 True\n"), ended.stderr
