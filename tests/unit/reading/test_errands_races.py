"""Questions that are asked in threads of their own: nothing is left waiting, and nobody is woken for nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.reading._errands import Errands
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable


class _Hesitating:
    """A signal whose giver is held up just before it gives."""

    def __init__(self) -> None:
        self.given = False
        self.before: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return 1

    def give(self) -> None:
        self.before()
        self.given = True

    def take(self) -> None:
        self.given = False

    def close(self) -> None:
        """Nothing to close."""


class _Machine(RealSystem):
    def __init__(self) -> None:
        self.given = _Hesitating()
        self.failures: list[BaseException] = []

    def signal(self) -> _Hesitating:
        return self.given

    def start(self, run: Callable[[], None], name: str) -> None:
        if self.failures:
            raise self.failures.pop()
        run()


def test_an_answer_that_is_taken_before_its_signal_leaves_none_behind() -> None:
    """Else the owner's wait would end at once for ever, as there is nothing to take."""
    machine = _Machine()
    errands = Errands(machine)
    found: list[int] = []
    taker = threading.Thread(target=errands.take)

    def take_now() -> None:
        taker.start()
        taker.join(0.2)

    machine.given.before = take_now
    errands.start(lambda: 1, found.append, lambda _: None)
    taker.join()
    assert found == [1]
    assert not machine.given.given


def test_a_question_that_no_thread_can_ask_has_failed() -> None:
    machine = _Machine()
    errands = Errands(machine)
    failed: list[Exception] = []
    for error in (RuntimeError("can't start new thread"), MemoryError()):
        machine.failures.append(error)
        errands.start(lambda: 1, lambda _: None, failed.append)
        assert machine.given.given
        errands.take()
    assert [type(error) for error in failed] == [BrokerUnreachableError] * 2
    assert "can't start new thread" in str(failed[0])
