"""Stops a streaming application in good order when it is told to end."""

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
    """A ``StreamingContext``, a ``StreamingQuery``, or anything else that can be stopped."""

    def stop(self, *args: Any) -> object:
        """Stop."""


def stop_at_signal(what: Stoppable, *args: Any, signals: Sequence[int] = (signal.SIGTERM,)) -> None:
    """Call ``what.stop(*args)`` when this process gets a signal; call this in the main thread.

    Then ``awaitTermination`` returns, and the program goes on behind it::

        stop_at_signal(ssc, True, True)  # the SparkContext too, gracefully
        ssc.start()
        ssc.awaitTermination()

    The stop runs in a thread of its own. The main thread waits in ``awaitTermination`` for an answer of the JVM, and
    Python runs the handler in the middle of that: a stop there would use the same connection and break it. Signals
    after the first change nothing, unless the stop has failed: then it is tried again. The interpreter waits for the
    stop before it ends.

    Called for several, as for each query of an application, it stops all of them, the last one first.

    Args:
        what: A StreamingContext, a StreamingQuery, or a continuous query.
        *args: What its ``stop`` is given.
        signals: Which signals. In the foreground of a terminal ``SIGINT`` reaches the JVM too, which ends at once.

    Raises:
        OptionError: It cannot be stopped.
        ValueError: This is not the main thread.
    """
    if not callable(getattr(what, "stop", None)):
        raise OptionError(f"stop_at_signal takes what has a method stop, such as a query, got {what!r}")
    stop = _Stop(what, args)
    for each in signals:
        before = signal.getsignal(each)
        others = before.stops if isinstance(before, _Handler) else ()
        signal.signal(each, _Handler((stop, *(other for other in others if other.what is not what))))


class _Handler:
    """Begins stops at a signal."""

    def __init__(self, stops: tuple[_Stop, ...]) -> None:
        self.stops = stops

    def __call__(self, *_: object) -> None:  # always in the main thread
        due = [stop for stop in self.stops if not stop.begun]
        for stop in due:
            stop.begun = True
        if due:
            threading.Thread(target=_run, args=(due,), name="pyspark-kafka-direct-stop").start()


class _Stop:
    def __init__(self, what: Stoppable, args: tuple[Any, ...]) -> None:
        self.what = what
        self.args = args
        self.begun = False


def _run(stops: Sequence[_Stop]) -> None:
    for stop in stops:
        try:
            stop.what.stop(*stop.args)
        except Exception:
            stop.begun = False
            _log.exception("%r could not be stopped; the next signal tries again", stop.what)
