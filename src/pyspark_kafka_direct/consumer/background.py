"""Blocking calls in threads of their own, so that their owner can keep waiting for all its sockets.

Metadata requests and connection attempts take as long as an unresponsive broker lets them. The owner starts a task,
polls its descriptor among others, and runs the callbacks in its own thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_kafka_direct.errors import BrokerUnreachableError, KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.system import System

_T = TypeVar("_T")

_THREAD_NAME = "pyspark-kafka-direct-consumer"


class _Completion(NamedTuple):
    """A completed task: exactly one of its functions is called."""

    call_back: Callable[[], None]
    discard: Callable[[], None]  # instead of ``call_back`` after ``close``


class BackgroundTasks:
    """The background tasks of one owner."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = system.lock()
        self._signal = system.wakeup_signal()
        self._completed: deque[_Completion] = deque()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor that is readable when a task has completed."""
        return self._signal.fileno()

    def start(
        self,
        call: Callable[[], _T],
        on_success: Callable[[_T], None],
        on_error: Callable[[Exception], None],
        on_discard: Callable[[_T], None] = lambda _: None,  # called with a result that arrives after ``close``
    ) -> None:
        """Run ``call`` in a new thread; ``run_callbacks`` then calls ``on_success`` or ``on_error``."""

        def run() -> None:
            try:
                result = call()
            except Exception as error:
                failure = error
                self._complete(lambda: on_error(failure), lambda: None)
            else:
                self._complete(lambda: on_success(result), lambda: on_discard(result))

        try:
            self._system.start_thread(run, _THREAD_NAME)
        except (RuntimeError, MemoryError) as error:  # without this, the owner would wait forever
            failure = BrokerUnreachableError(f"Cannot start a thread for requests to the brokers: {error}")
            self._complete(lambda: on_error(failure), lambda: None)

    def run_callbacks(self) -> None:
        """Call ``on_success`` or ``on_error`` of each completed task."""
        if not self._completed:
            return
        with self._lock:  # so that the signal is set if and only if a task has completed
            self._signal.clear()
            completed = deque(self._completed)
            self._completed.clear()
        try:
            while completed:
                completed.popleft().call_back()
        finally:
            # If a callback raised, the others remain for the next call, or for `close`: they may own connections.
            for completion in completed:
                self._complete(*completion)

    def close_after_fork(self) -> None:
        """Close the child's copy of the descriptor, without the lock: a thread of the parent may hold it."""
        self._signal.close()

    def close(self) -> None:
        """Discard the results of completed and running tasks."""
        with self._lock:
            self._closed = True
            self._signal.close()
        while self._completed:
            self._completed.popleft().discard()

    def _complete(self, call_back: Callable[[], None], discard: Callable[[], None]) -> None:
        with self._lock:
            if not self._closed:
                self._completed.append(_Completion(call_back, discard))
                self._signal.set()
                return
        discard()


def as_kafka_error(error: Exception) -> KafkaDirectError:
    """Return the error if it belongs to this package; raise any other, which is a bug."""
    if isinstance(error, KafkaDirectError):
        return error
    raise error
