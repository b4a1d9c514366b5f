"""Writes epochs down beside the run, so that the next epoch does not wait for a file system.

A checkpoint on a local disk takes Spark some 50 ms for the two files of an epoch, one on an object store much longer.
One epoch at a time: who hands over the next one waits until the last one is written. A file system that hangs does not
answer in the end either, so a write has a deadline, and is left behind with its thread when that is over.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import RunFailedError
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.planning.epochs import EpochResult
    from pyspark_kafka_direct.wire.system import System

EPOCH_SETTING: Final = "epochTimeout"

_SECONDS_TO_END: Final = 5.0  # at least: a driver that slept finds all of its time gone


class EpochWriter:
    """A thread that writes epochs. All but that is used by one thread.

    Args:
        write: Writes an epoch down.
        done: Called in the thread when an epoch is written, or could not be.
        seconds: How long writing one may take (``epochTimeout``).
        system: Has the threads.
    """

    def __init__(
        self, write: Callable[[EpochResult], None], done: Callable[[], None], seconds: float, system: System
    ) -> None:
        self._write = write
        self._done = done
        self._seconds = seconds
        self._system = system
        self._changed = threading.Condition()
        self._next: EpochResult | None = None
        self._error: BaseException | None = None
        self._is_running = False
        self._is_closing = False
        self._deadline: Deadline | None = None
        self._left_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an epoch is being written."""
        return self._next is not None

    @property
    def late_at(self) -> float | None:
        """When the epoch that is being written is late, on the clock that never goes back; ``None`` without one."""
        return self._deadline.at if self.is_busy and self._deadline is not None else None

    def check(self) -> None:
        """Raise what writing an epoch has raised.

        Raises:
            BaseException: That.
            RunFailedError: It has not been written in time.
        """
        if self._error is not None:
            raise self._error
        result, deadline = self._next, self._deadline
        if result is not None and deadline is not None and deadline.expired:
            raise RunFailedError(
                f"Epoch {result.epoch} has not been written down within {self._seconds:g} s. The file system of the "
                f"checkpoint does not answer, or needs longer: raise {deadline.setting}."
            )

    def put(self, result: EpochResult) -> None:
        """Begin to write an epoch; the one before is written."""
        assert not self.is_busy, "one epoch at a time"
        with self._changed:
            self._deadline = Deadline.after(self._seconds, EPOCH_SETTING, system=self._system)
            self._next = result
            if not self._is_running:
                self._system.start(self._run, "pyspark-kafka-direct-epochs")
                self._is_running = True  # nobody waits for a thread that could not be started
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until what was begun is written, or late, and end the thread. Called again, it waits no longer."""
        with self._changed:
            if not self._is_closing:
                self._is_closing = True
                self._left_at = max(self.late_at or 0.0, self._system.monotonic() + _SECONDS_TO_END)
            self._changed.notify_all()
            while self._is_running and (left := self._left_at - self._system.monotonic()) > 0:
                self._system.wait(self._changed, left)

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
