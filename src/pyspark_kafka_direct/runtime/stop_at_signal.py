"""Stops a streaming application in good order when it is told to end."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    after the first change nothing. The interpreter waits for the stop before it ends.

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
    stops: list[threading.Thread] = []

    def handle(*_: object) -> None:  # always in the main thread
        if not stops:
            stops.append(threading.Thread(target=what.stop, args=args, name="pyspark-kafka-direct-stop"))
            stops[0].start()

    for each in signals:
        signal.signal(each, handle)
