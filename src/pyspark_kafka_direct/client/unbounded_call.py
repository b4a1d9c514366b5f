"""Calls of code that accepts no deadline, such as user code, name servers and C libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import Condition, System

_T = TypeVar("_T")

# A thread that has not returned for so long is assumed to hang, and its result is not used.
_ASSUMED_TO_HANG_SECONDS: Final = 60.0

# Threads that run at a time, without those that hang.
_MAX_THREADS: Final = 2


class UnboundedCalls(Generic[_T]):
    """Calls a function in a thread, which is abandoned at the caller's deadline.

    The caller ensures that only one thread is in ``call``. The next call starts another thread at once, because the
    abandoned one may hang, and returns the first result of both. The later result is not used.
    """

    def __init__(self, system: System, thread_name: str) -> None:
        self._system = system
        self._thread_name = thread_name
        self._completed = system.condition()  # notified when a thread has a result
        self._abandoned: list[_ThreadCall[_T]] = []  # still run, after their callers' deadlines

    def call(self, function: Callable[[], _T], deadline: Deadline) -> _T | BaseException | None:
        """Return the first result, or the exception of the function, or ``None`` after the deadline."""
        hung_since = self._system.monotonic() - _ASSUMED_TO_HANG_SECONDS
        started: _ThreadCall[_T] | None = None
        has_timed_out = deadline.expired
        with self._completed:
            calls = [each for each in self._abandoned if each.started_at > hung_since]
            while True:
                results = [each.result for each in calls if not each.is_outdated]
                calls = [each for each in calls if each.is_running]
                self._abandoned = calls
                for result in results:
                    if result is not None and not isinstance(result, BaseException):
                        for each in calls:
                            each.is_outdated = True
                        return result
                if has_timed_out or (started is not None and started.result is not None):
                    return None if started is None else started.result
                if started is None and len(calls) < _MAX_THREADS:
                    started = _ThreadCall(function, self._completed, self._system.monotonic())
                    calls.append(started)
                    try:
                        self._system.start_thread(started.run, self._thread_name)
                    except RuntimeError:  # as in `run_with_timeout`: at exit (Python 3.12), or too many threads
                        started.run()  # without a timeout
                        continue
                has_timed_out = not self._system.wait(self._completed, deadline.remaining())


class _ThreadCall(Generic[_T]):
    """A call in a separate thread."""

    def __init__(self, function: Callable[[], _T], completed: Condition, started_at: float) -> None:
        self._function = function
        self._completed = completed
        self.started_at = started_at
        self.result: _T | BaseException | None = None
        self.is_running = True
        self.is_outdated = False  # whether the caller has the result of another call by now

    def run(self) -> None:
        result: _T | BaseException
        try:
            result = self._function()
        except BaseException as error:  # raised in the waiting thread
            result = error
        with self._completed:
            self.result = result
            self.is_running = False
            self._completed.notify_all()
