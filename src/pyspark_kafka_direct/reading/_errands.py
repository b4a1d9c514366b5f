"""Questions that may take long, each asked in a thread of its own, so that their owner goes on waiting for everything.

Looking for leaders and connecting with them may take as long as a broker that does not answer lets it. The owner starts
an errand, waits for its descriptor among others, and takes what came back in its own thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_kafka_direct.errors import BrokerUnreachableError, KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.wire.system import System

_T = TypeVar("_T")

_NAME = "pyspark-kafka-direct-tail"


class _Answered(NamedTuple):
    take: Callable[[], None]
    drop: Callable[[], None]


class Errands:
    """What one owner has asked for.

    Args:
        system: Has the threads.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._signal = system.signal()
        self._back: deque[_Answered] = deque()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor that is readable when something came back."""
        return self._signal.fileno()

    def start(
        self,
        ask: Callable[[], _T],
        found: Callable[[_T], None],
        failed: Callable[[Exception], None],
        discard: Callable[[_T], None] = lambda _: None,
    ) -> None:
        """Ask in a thread of its own.

        Args:
            ask: The question.
            found: Called with the answer, by ``take``.
            failed: Called with what was raised instead, by ``take``.
            discard: Called with an answer that nobody takes any more.
        """

        def run() -> None:
            try:
                answer = ask()
            except Exception as error:
                trouble = error
                self._bring(lambda: failed(trouble), lambda: None)
            else:
                self._bring(lambda: found(answer), lambda: discard(answer))

        try:
            self._system.start(run, _NAME)
        except (RuntimeError, MemoryError) as error:  # no thread is to be had now; the owner would wait for ever
            trouble = BrokerUnreachableError(f"No thread could be started to ask the brokers: {error}")
            self._bring(lambda: failed(trouble), lambda: None)

    def take(self) -> None:
        """Call ``found`` or ``failed`` for each question that was answered."""
        if not self._back:
            return
        with self._lock:  # so that the signal is given whenever something is back, and only then
            self._signal.take()
            back = deque(self._back)
            self._back.clear()
        try:
            while back:
                back.popleft().take()
        finally:
            for each in back:  # one before it was raised: the others, which may hold connections, are still there
                self._bring(*each)

    def abandon(self) -> None:
        """Close what a forked child has of its parent's; the lock may be held by a thread that it has not."""
        self._signal.close()

    def close(self) -> None:
        """Take nothing any more; what is being asked is discarded when it comes."""
        with self._lock:
            self._closed = True
            self._signal.close()
        while self._back:
            self._back.popleft().drop()

    def _bring(self, take: Callable[[], None], drop: Callable[[], None]) -> None:
        with self._lock:
            if not self._closed:
                self._back.append(_Answered(take, drop))
                self._signal.give()
                return
        drop()


def ours(error: Exception) -> KafkaDirectError:
    """Return the error if it is one of ours; else it is a mistake in the code, and raised."""
    if isinstance(error, KafkaDirectError):
        return error
    raise error
