"""Writes epochs down beside the run, so that the next epoch does not wait for a file system.

A checkpoint on a local disk takes Spark some 50 ms for the two files of an epoch, one on an object store much longer.
One epoch at a time: who hands over the next one waits until the last one is written.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.planning.epochs import EpochResult
    from pyspark_kafka_direct.wire.system import System


class EpochWriter:
    """A thread that writes epochs. All but that is used by one thread.

    Args:
        write: Writes an epoch down.
        done: Called in the thread when an epoch is written, or could not be.
        system: Has the threads.
    """

    def __init__(self, write: Callable[[EpochResult], None], done: Callable[[], None], system: System) -> None:
        self._write = write
        self._done = done
        self._system = system
        self._changed = threading.Condition()
        self._next: EpochResult | None = None
        self._error: BaseException | None = None
        self._is_running = False
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """Whether an epoch is being written."""
        return self._next is not None

    def check(self) -> None:
        """Raise what writing an epoch has raised.

        Raises:
            BaseException: That.
        """
        if self._error is not None:
            raise self._error

    def put(self, result: EpochResult) -> None:
        """Begin to write an epoch; the one before is written."""
        assert not self.is_busy, "one epoch at a time"
        with self._changed:
            self._next = result
            if not self._is_running:
                self._is_running = True
                self._system.start(self._run, "pyspark-kafka-direct-epochs")
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until what was begun is written, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            while self._is_running:
                self._system.wait(self._changed, None)

    def _run(self) -> None:
        while (result := self._take()) is not None:
            try:
                self._write(result)
            except BaseException as error:
                self._error = error
            self._next = None
            self._done()

    def _take(self) -> EpochResult | None:
        with self._changed:
            while self._next is None and not self._is_closing and self._error is None:
                self._system.wait(self._changed, None)
            if self._next is None or self._error is not None:
                self._is_running = False
                self._changed.notify_all()
                return None
            return self._next
