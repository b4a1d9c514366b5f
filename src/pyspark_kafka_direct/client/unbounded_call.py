"""Calls of code that accepts no deadline, such as user code, name servers and C libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System

_T = TypeVar("_T")

# A thread that has not returned for so long is assumed to hang, and another one is started.
_ASSUMED_TO_HANG_SECONDS: Final = 60.0


class UnboundedCalls(Generic[_T]):
    """Calls a function in a thread, which is abandoned at the caller's deadline.

    The caller ensures that only one thread is in ``call``. The next call returns the result of an abandoned one, or
    starts another thread if that one failed or is assumed to hang.
    """

    def __init__(self, system: System, thread_name: str) -> None:
        self._system = system
        self._thread_name = thread_name
        self._abandoned: _ThreadCall[_T] | None = None  # still runs, after its caller's deadline

    def call(self, function: Callable[[], _T], deadline: Deadline) -> _T | BaseException | None:
        """Return the result or the exception, or ``None`` after the deadline."""
        if (abandoned := self._abandoned) is not None:
            result = abandoned.wait(deadline.limited_to(abandoned.seconds_until_assumed_to_hang))
            if result is not None and not isinstance(result, BaseException):
                self._abandoned = None
                return result
            if deadline.expired:
                return None
        started = _ThreadCall(function, self._system, self._thread_name)
        result = started.wait(deadline)
        self._abandoned = started if result is None else None
        return result


class _ThreadCall(Generic[_T]):
    """A call in a separate thread, which starts at once."""

    def __init__(self, function: Callable[[], _T], system: System, thread_name: str) -> None:
        self._function = function
        self._system = system
        self._result: _T | BaseException | None = None
        self._assumed_to_hang_at = system.monotonic() + _ASSUMED_TO_HANG_SECONDS
        self._running_lock = system.lock()  # held while the call is in progress
        self._running_lock.acquire()
        system.start_thread(self._run, thread_name)

    def wait(self, deadline: Deadline) -> _T | BaseException | None:
        """Return the result or the exception, or ``None`` after the deadline."""
        if self._system.acquire(self._running_lock, max(deadline.remaining(), 0.001)):
            self._running_lock.release()
        return self._result

    @property
    def seconds_until_assumed_to_hang(self) -> float:
        """Seconds until the call has taken so long that it may never end; negative: it has."""
        return self._assumed_to_hang_at - self._system.monotonic()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # raised in the waiting thread
            self._result = error
        finally:
            self._running_lock.release()
