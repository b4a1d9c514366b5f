"""What the thread that runs a query and those that hold it know of each other."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_kafka_direct.continuous._progress import About
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.system import System


class QueryState:
    """The state of one query; for several threads.

    Args:
        about: What does not change.
        kept: How many reports of progress are kept.
        system: Waits.

    Attributes:
        about: The same.
        stopping: Whether the query is to end.
        ended: Whether it has ended.
        error: Why, if it was no stop.
        status: What it does now, as ``StreamingQuery.status``.
        offsets: Where the last epoch ended, or the run begins.
    """

    def __init__(self, about: About, kept: int, system: System) -> None:
        self.about = about
        self.stopping = False
        self.ended = False
        self.error: KafkaDirectError | None = None
        self.status: Mapping[str, Any] = {}
        self.offsets: Mapping[TopicPartition, int] = {}
        self._progress: deque[dict[str, Any]] = deque(maxlen=max(kept, 1))
        self._system = system
        self._changed = threading.Condition()
        self._stop_run: Callable[[], None] | None = None
        self.tell("Initializing", active=False)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The latest reports of progress, the oldest first."""
        with self._changed:
            return list(self._progress)

    def tell(self, message: str, *, active: bool, data: bool = False) -> None:
        """Say what the query does now. One that has ended does nothing, though a late write may still tell of it."""
        if self.ended:
            return
        self.status = {"message": message, "isDataAvailable": data, "isTriggerActive": active}

    def go_on(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Say where a run begins."""
        with self._changed:
            self.offsets = offsets
            self._changed.notify_all()

    def add(self, progress: dict[str, Any], offsets: Mapping[TopicPartition, int]) -> None:
        """Say what an epoch has brought."""
        with self._changed:
            self._progress.append(progress)
            self.offsets = offsets
            self._changed.notify_all()

    @contextmanager
    def running(self, stop: Callable[[], None]) -> Iterator[None]:
        """Let a stop of the query stop a run while it lasts.

        Args:
            stop: Ends the run.
        """
        with self._changed:
            self._stop_run = stop
            if self.stopping:
                stop()
        try:
            yield
        finally:
            with self._changed:
                self._stop_run = None

    def stop(self) -> None:
        """Let the query end."""
        with self._changed:
            self.stopping = True
            if self._stop_run is not None:
                self._stop_run()
            self._changed.notify_all()

    def end(self, error: KafkaDirectError | None) -> None:
        """Say that the query has ended."""
        with self._changed:
            self.error = error
            message = "Stopped" if error is None else f"Terminated with exception: {error}"
            self.tell(message, active=False)
            self.ended = True
            self._changed.notify_all()

    def wait_for_stop(self, seconds: float) -> None:
        """Wait so long, or until the query is to end."""
        self.wait(lambda: self.stopping, seconds)

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something is so, which is looked at whenever the state changes; return whether it is.

        Args:
            condition: What.
            seconds: How long at most; ``None``: as long as it takes.
        """
        until = None if seconds is None else self._system.monotonic() + seconds
        with self._changed:
            while not condition():
                left = None if until is None else until - self._system.monotonic()
                if left is not None and left <= 0:
                    return False
                self._system.wait(self._changed, left)
            return True
