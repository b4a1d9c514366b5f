"""What a stop means for direct streams: planning that waits for brokers ends soon, and queued commits are sent.

All of it has to fit into half of the 30 seconds that Kubernetes gives a driver to end, with a broker that does not
answer at all. Spark waits in ``stop`` until the batch at hand is planned, so planning gets a few seconds more and then
fails. That loses nothing: where the stream begins next time is where the last planned batch ended.

A graceful stop takes longer: Spark's timer goes on for up to two intervals, and then Spark waits for the last of these
batches. Each has to be planned, however long ago the stop was, or Spark waits in vain for ten intervals.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark import SparkContext
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.direct._commits import CommitQueue
    from pyspark_kafka_direct.wire.system import System

_T = TypeVar("_T")

_PLANNING_SECONDS = 3.0  # far more than planning takes with brokers that answer
_GRACEFUL_PLANNING_SECONDS = 10.0
FLUSH_SECONDS = 5.0
"""How long a stop, or the end of the interpreter, waits for commits."""


class Stoppable(Protocol):
    """What a stop has to do with a stream."""

    stopping: StopSignal

    @property
    def queued_commits(self) -> CommitQueue | None:
        """What waits to be committed; ``None`` if nothing ever did."""


class StopSignal:
    """Whether a stream is being stopped, and how long its planning may take; for several threads.

    Args:
        system: Has the clock and the threads.

    Attributes:
        gave_up: Whether a stop has waited for commits in vain. One stop is often followed by another, of the
            SparkContext or of the interpreter, which need not wait once more.
    """

    def __init__(self, system: System = SYSTEM) -> None:
        self._system = system
        self.gave_up = False
        self._changed = threading.Condition()
        self._until = math.inf

    def give(self, seconds: float) -> None:
        """Say that the stream is being stopped: planning has so many seconds left, or fewer if that was said before.

        A plan that begins later has ``_PLANNING_SECONDS``: brokers may well answer.
        """
        with self._changed:
            self._until = min(self._until, self._system.monotonic() + seconds)
            self._changed.notify_all()

    def withdraw(self) -> None:
        """Say that the stream goes on: Spark has refused to stop it."""
        with self._changed:
            self._until = math.inf
        self.gave_up = False

    def run(self, ask: Callable[[], _T]) -> _T:
        """Run a function that asks brokers, and wait for its end or for that of the time after a stop.

        It runs in a thread of its own, as a wait within it can be for anything: a socket, a pause between two tries, a
        name, a token. Left behind it ends by its own deadlines, and nobody looks at its answer.

        Raises:
            KafkaDirectError: The stream was stopped before there was an answer; or what the function raised.
        """
        answers: list[_T] = []
        failures: list[BaseException] = []
        at_least = self._system.monotonic() + _PLANNING_SECONDS

        def run() -> None:
            try:
                answers.append(ask())
            except BaseException as error:
                failures.append(error)
            with self._changed:
                self._changed.notify_all()

        self._system.start(run, "pyspark-kafka-direct-planning")
        with self._changed:
            began_stopped = not math.isinf(self._until)
            while not answers and not failures:
                until = max(self._until, at_least) if began_stopped else self._until
                left = until - self._system.monotonic()
                if left <= 0:
                    raise KafkaDirectError(
                        "The stream was stopped before brokers had answered what the next batch is, so it was not "
                        "planned. Nothing is lost: reading goes on from where the last planned batch ends."
                    )
                self._system.wait(self._changed, None if math.isinf(left) else left)
        if failures:
            raise failures[0]
        return answers[0]


def stop_with(ssc: StreamingContext, stream: Stoppable, ended: Callable[[], None]) -> None:
    """Let a stop of the streaming context, or of its SparkContext, stop a stream too.

    Spark has no event for it that is sure to arrive, and a SparkContext that is stopped by itself tells the streaming
    context nothing. So the ``stop`` of these two objects is wrapped, once each.

    Args:
        ssc: The streaming context.
        stream: The stream.
        ended: Called once one of them is stopped, perhaps twice.
    """
    context = _wrapped(ssc.sparkContext)
    context.streams.append(stream)
    context.ends.append(ended)
    own = _wrapped(ssc)
    own.streams.append(stream)
    # A SparkContext may live on, and have many streaming contexts one after the other.
    own.ends += [ended, lambda: context.forget(stream, ended)]


class _Stop:
    """``stop`` of a context."""

    def __init__(self, stop: Callable[..., None]) -> None:
        self._stop = stop
        self.streams: list[Stoppable] = []
        self.ends: list[Callable[[], None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        gracefully = kwargs.get("stopGraceFully", args[1] if len(args) > 1 else False)
        for stream in self.streams:
            stream.stopping.give(_GRACEFUL_PLANNING_SECONDS if gracefully else _PLANNING_SECONDS)
        try:
            try:
                self._stop(*args, **kwargs)
            finally:
                flush(self.streams, FLUSH_SECONDS)
            for end in self.ends:
                end()
            self.streams, self.ends = [], []
        except Exception:  # as that of a stop within a listener, where Spark goes on
            for stream in self.streams:
                stream.stopping.withdraw()
            raise

    def forget(self, stream: Stoppable, ended: Callable[[], None]) -> None:
        """Forget a stream whose streaming context is stopped."""
        if stream in self.streams:
            self.streams.remove(stream)
            self.ends.remove(ended)


def _wrapped(context: StreamingContext | SparkContext) -> _Stop:
    if not isinstance(context.stop, _Stop):
        context.stop = _Stop(context.stop)  # type: ignore[method-assign]
    return context.stop


def flush(streams: Iterable[Stoppable], seconds: float) -> None:
    """Send what the streams have queued, all at the same time, and wait for it so long at most."""
    queues = [(each.stopping, each.queued_commits) for each in streams if not each.stopping.gave_up]
    due = [(stopping, queue, queue.deadline(seconds)) for stopping, queue in queues if queue is not None]
    for _, queue, deadline in due:
        queue.send(deadline)
    for stopping, queue, deadline in due:
        stopping.gave_up = not queue.wait(deadline)
