"""Stops a streaming application gracefully when its process gets a signal."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger("pyspark_kafka_direct.stop")


class Stoppable(Protocol):
    """A ``StreamingContext``, a ``StreamingQuery``, or any object with a method ``stop``."""

    def stop(self, *args: Any) -> object:
        """Stop."""


def stop_at_signal(target: Stoppable, *args: Any, signals: Sequence[int] = (signal.SIGTERM,)) -> None:
    """Call ``target.stop(*args)`` when this process gets a signal; call this in the main thread.

    ``awaitTermination`` then returns, and the program continues after it::

        stop_at_signal(ssc, True, True)  # also stops the SparkContext, gracefully
        ssc.start()
        ssc.awaitTermination()

    The stop runs in its own thread. The main thread waits in ``awaitTermination`` for a response of the JVM, and Python
    runs the signal handler during that wait: a stop there would use the same connection and break it. Later signals
    have no effect, unless the stop has failed: then it is retried. The interpreter waits for the stop before it exits.

    If it is called for several targets, such as all queries of an application, it stops all of them, the last one
    first. Queries that have ended are forgotten at the next call. Other handlers of these signals are replaced, and are
    not called any more.

    Args:
        target: A StreamingContext, a StreamingQuery, or a continuous query.
        *args: The arguments of its ``stop``.
        signals: The signals. In the foreground of a terminal, ``SIGINT`` also reaches the JVM, which exits at once.

    Raises:
        OptionError: The target has no method ``stop``.
        ValueError: This is not the main thread.
    """
    if not callable(getattr(target, "stop", None)):
        raise OptionError(f"stop_at_signal needs an object with a method stop, such as a query, got {target!r}")
    request = _StopRequest(target, args)
    for signal_number in signals:
        previous = signal.getsignal(signal_number)
        earlier_requests = previous.requests if isinstance(previous, _SignalHandler) else ()
        # A request for the same target is replaced, because its arguments may differ.
        retained = [each for each in earlier_requests if each.target is not target and not each.has_ended]
        signal.signal(signal_number, _SignalHandler((request, *retained)))


class _SignalHandler:
    """Stops the targets of all requests that have not been started, or that have failed."""

    def __init__(self, requests: tuple[_StopRequest, ...]) -> None:
        self.requests = requests

    def __call__(self, *_: object) -> None:  # always in the main thread
        pending = [request for request in self.requests if not request.started]
        for request in pending:
            request.started = True
        if pending:
            threading.Thread(target=_stop_all, args=(pending,), name="pyspark-kafka-direct-stop").start()


class _StopRequest:
    def __init__(self, target: Stoppable, args: tuple[Any, ...]) -> None:
        self.target = target
        self.args = args
        self.started = False  # by a signal; false again after a failure

    @property
    def has_ended(self) -> bool:
        """Whether the target is a query that has ended; the JVM would retain it as long as this object does."""
        try:
            return not getattr(self.target, "isActive", True)
        except Exception:  # the JVM has exited
            return False


def _stop_all(requests: Sequence[_StopRequest]) -> None:
    for request in requests:
        try:
            request.target.stop(*request.args)
        except Exception:
            request.started = False
            _log.exception("%r failed to stop; the next signal retries", request.target)
