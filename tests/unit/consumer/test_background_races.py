"""Races of background tasks: no result is missed, and no wakeup is spurious."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.consumer.background import BackgroundTasks
from pyspark_kafka_direct.errors import BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable


class _DelayedSignal:
    """A signal that runs an action just before it is set."""

    def __init__(self) -> None:
        self.is_set = False
        self.before_set: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return 1

    def set(self) -> None:
        self.before_set()
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False

    def close(self) -> None:
        """Nothing to close."""


class _FakeSystem(RealSystem):
    def __init__(self) -> None:
        self.signal = _DelayedSignal()
        self.failures: list[BaseException] = []

    def wakeup_signal(self) -> _DelayedSignal:
        return self.signal

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        if self.failures:
            raise self.failures.pop()
        run()


def test_result_handled_before_its_signal_leaves_no_signal() -> None:
    """Else every wait of the owner would end at once, without a result."""
    system = _FakeSystem()
    background = BackgroundTasks(system)
    results: list[int] = []
    owner = threading.Thread(target=background.run_callbacks)

    def run_callbacks_now() -> None:
        owner.start()
        owner.join(0.2)

    system.signal.before_set = run_callbacks_now
    background.start(lambda: 1, results.append, lambda _: None)
    owner.join()
    assert results == [1]
    assert not system.signal.is_set


def test_task_without_a_thread_fails() -> None:
    system = _FakeSystem()
    background = BackgroundTasks(system)
    failed: list[Exception] = []
    for error in (RuntimeError("can't start new thread"), MemoryError()):
        system.failures.append(error)
        background.start(lambda: 1, lambda _: None, failed.append)
        assert system.signal.is_set
        background.run_callbacks()
    assert [type(error) for error in failed] == [BrokerUnreachableError] * 2
    assert "can't start new thread" in str(failed[0])
