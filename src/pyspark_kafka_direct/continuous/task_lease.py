"""The lease of a task, which may write until it ends. It begins with the last heartbeat that the driver responded to.

The driver starts another run when each task has ended, or its lease is over
(``EpochCoordinator.wait_until_tasks_end``). The driver counts from its response, which is later, so both sides need no
common clock. A process that is suspended between the check of its lease and a write can still write.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.client.system import wait_until
from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.system import System

HEARTBEAT_TIMEOUT_OPTION: Final = "heartbeatTimeout"
LEASE_MARGIN_SECONDS: Final = 1.0  # for a write that was checked just before the lease ended

_HEARTBEATS_PER_LEASE: Final = 3


class TaskLease:
    """The lease of one task. A thread of its own sends heartbeats, also while the user's function runs."""

    def __init__(self, send: Callable[[int], None], seconds: float, started_at: float, system: System) -> None:
        self._send = send
        self._seconds = seconds
        self._system = system
        # Numbers and times of heartbeats without a response. The thread appends, and `extend` removes.
        self._sent: deque[tuple[int, float]] = deque()
        self._close_condition = system.condition()
        self._closed = False
        self.expires_at = started_at + seconds

    def __enter__(self) -> Self:
        self._system.start_thread(self._run, "pyspark-kafka-direct-heartbeat")
        return self

    def __exit__(self, *_: object) -> None:
        with self._close_condition:
            self._closed = True
            self._close_condition.notify_all()

    @property
    def expired(self) -> bool:
        """Whether the task may not write any more, by the responses that were received."""
        return self._system.monotonic() >= self.expires_at

    def extend(self, number: int) -> None:
        """Extend the lease after the response to a heartbeat: it counts from the time when that was sent."""
        while self._sent and self._sent[0][0] <= number:
            sent_number, sent_at = self._sent.popleft()
            if sent_number == number:
                self.expires_at = sent_at + self._seconds

    def expired_error(self) -> QueryRunError:
        """Return the error of a task whose lease is over."""
        return QueryRunError(
            f"The query's driver did not respond to a heartbeat for {self._seconds:g} s, so this task may not write "
            "any more, and ends. The next run resumes from the last committed epoch. If the driver is slow, raise "
            f"{HEARTBEAT_TIMEOUT_OPTION}."
        )

    def _run(self) -> None:
        number = 0
        while not self._closed:
            number += 1
            self._sent.append((number, self._system.monotonic()))
            self._send(number)
            with self._close_condition:
                wait_until(
                    self._system, self._close_condition, lambda: self._closed, self._seconds / _HEARTBEATS_PER_LEASE
                )
