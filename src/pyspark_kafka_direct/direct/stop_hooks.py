"""Stopping direct streams: a stop limits how long planning may wait for brokers, and sends queued commits.

Kubernetes gives a driver 30 seconds to exit. With an unresponsive broker, planning and commits take at most half of it.
Spark waits in ``stop`` until the current batch is planned, so planning gets a few more seconds and then fails. Nothing
is lost, because the next start resumes where the last planned batch ended.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark import SparkContext
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.direct.commit_queue import CommitQueue

_T = TypeVar("_T")

_PLANNING_SECONDS = 3.0  # far more than planning takes if the brokers respond
# A graceful stop takes longer: Spark's timer continues for up to two intervals, and then Spark waits for the last of
# these batches. Each of them has to be planned, however long ago the stop was requested, or Spark waits for ten
# intervals.
_GRACEFUL_PLANNING_SECONDS = 10.0
FLUSH_TIMEOUT_SECONDS = 5.0  # how long a stop, or the exit of the interpreter, waits for commits


class StoppableStream(Protocol):
    """The part of a stream that a stop needs."""

    stop_signal: StopSignal

    @property
    def commit_queue(self) -> CommitQueue | None:
        """The queue of offset commits; ``None`` if nothing was ever committed."""


class StopSignal:
    """Limits the planning time of a stream that is being stopped; thread-safe."""

    def __init__(self, system: System = SYSTEM) -> None:
        self._system = system
        # A stop of the streaming context is often followed by a stop of the SparkContext, or by the exit of the
        # interpreter. If commits timed out in the first one, the others do not wait for them again.
        self.flush_timed_out = False
        self._changed = system.condition()
        self._planning_deadline = math.inf

    def request_stop(self, seconds: float) -> None:
        """Limit planning to this many more seconds, or fewer if a stop was already requested."""
        with self._changed:
            self._planning_deadline = min(self._planning_deadline, self._system.monotonic() + seconds)
            self._changed.notify_all()

    def cancel_stop(self) -> None:
        """Remove the limit, because Spark rejected the stop."""
        with self._changed:
            self._planning_deadline = math.inf
        self.flush_timed_out = False

    def run(self, plan: Callable[[], _T]) -> _T:
        """Run a function that sends broker requests; raises KafkaDirectError if a stop ends the wait first."""
        # The function runs on a thread of its own, because it may block in a socket, a retry backoff, DNS or a token
        # request. If the wait ends first, the thread ends by its own timeouts and its result is dropped. A plan that
        # starts after the stop gets at least _PLANNING_SECONDS, which are enough if the brokers respond.
        results: list[_T] = []
        failures: list[BaseException] = []
        minimum_deadline = self._system.monotonic() + _PLANNING_SECONDS

        def run() -> None:
            try:
                results.append(plan())
            except BaseException as error:
                failures.append(error)
            with self._changed:
                self._changed.notify_all()

        self._system.start_thread(run, "pyspark-kafka-direct-planning")
        with self._changed:
            stop_requested_before = not math.isinf(self._planning_deadline)
            while not results and not failures:
                deadline = (
                    max(self._planning_deadline, minimum_deadline) if stop_requested_before else self._planning_deadline
                )
                remaining = deadline - self._system.monotonic()
                if remaining <= 0:
                    raise KafkaDirectError(
                        "The stream was stopped while it waited for brokers, so the next batch was not planned. "
                        "Nothing is lost: the stream resumes where the last planned batch ends."
                    )
                self._system.wait(self._changed, None if math.isinf(remaining) else remaining)
        if failures:
            raise failures[0]
        return results[0]


def hook_stop(ssc: StreamingContext, stream: StoppableStream, on_stopped: Callable[[], None]) -> None:
    """Make a stop of the context or of its SparkContext stop the stream; ``on_stopped`` may be called twice."""
    # Spark has no event that is certain to arrive, and stopping a SparkContext does not notify the streaming context.
    # So the stop method of each of the two objects is wrapped once.
    spark_context = _stop_hook_of(ssc.sparkContext)
    spark_context.streams.append(stream)
    spark_context.stop_callbacks.append(on_stopped)
    streaming_context = _stop_hook_of(ssc)
    streaming_context.streams.append(stream)
    # A SparkContext may have many streaming contexts, one after the other, so its hook releases stopped streams.
    streaming_context.stop_callbacks += [on_stopped, lambda: spark_context.forget(stream, on_stopped)]


class _StopHook:
    """Replaces the ``stop`` method of a context."""

    def __init__(self, stop: Callable[..., None]) -> None:
        self._stop = stop
        self.streams: list[StoppableStream] = []
        self.stop_callbacks: list[Callable[[], None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        seconds = _GRACEFUL_PLANNING_SECONDS if _stops_gracefully(args, kwargs) else _PLANNING_SECONDS
        for stream in self.streams:
            stream.stop_signal.request_stop(seconds)
        try:
            self._stop_and_flush(*args, **kwargs)
        except Exception:  # for example a stop within a listener: Spark continues to run
            for stream in self.streams:
                stream.stop_signal.cancel_stop()
            raise
        for on_stopped in self.stop_callbacks:
            on_stopped()
        self.streams, self.stop_callbacks = [], []

    def _stop_and_flush(self, *args: Any, **kwargs: Any) -> None:
        """Call Spark's stop, and send the queued commits even if it fails; only an error of Spark is raised."""
        try:
            self._stop(*args, **kwargs)
        finally:
            flush_commits(self.streams, FLUSH_TIMEOUT_SECONDS)

    def forget(self, stream: StoppableStream, on_stopped: Callable[[], None]) -> None:
        """Remove a stream whose streaming context is stopped."""
        if stream in self.streams:
            self.streams.remove(stream)
            self.stop_callbacks.remove(on_stopped)


def _stops_gracefully(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return the second argument of ``StreamingContext.stop``; ``SparkContext.stop`` has no arguments."""
    return bool(kwargs.get("stopGraceFully", args[1] if len(args) > 1 else False))


def _stop_hook_of(context: StreamingContext | SparkContext) -> _StopHook:
    if not isinstance(context.stop, _StopHook):
        context.stop = _StopHook(context.stop)  # type: ignore[method-assign]
    return context.stop


def flush_commits(streams: Iterable[StoppableStream], seconds: float) -> None:
    """Send the queued commits of all streams at the same time, and wait this long for each."""
    queues = [(stream.stop_signal, stream.commit_queue) for stream in streams if not stream.stop_signal.flush_timed_out]
    pending = [(stop_signal, queue, queue.deadline(seconds)) for stop_signal, queue in queues if queue is not None]
    for _, queue, deadline in pending:
        queue.send(deadline)
    for stop_signal, queue, deadline in pending:
        stop_signal.flush_timed_out = not queue.wait(deadline)
