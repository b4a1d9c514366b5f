"""Questions that are asked in threads of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.reading._errands import Errands, ours
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def errands() -> Iterator[Errands]:
    errands = Errands(SYSTEM)
    yield errands
    errands.close()


def unexpected(value: Any) -> None:
    raise AssertionError(value)


def wait(errands: Errands) -> None:
    SYSTEM.wait_readable([errands.fileno()], 20)


def test_what_was_found_is_taken_by_the_owner(errands: Errands) -> None:
    threads: list[int] = []

    def ask() -> int:
        threads.append(threading.get_ident())
        return 7

    def found(answer: int) -> None:
        threads.append(threading.get_ident())
        assert answer == 7

    errands.start(ask, found, unexpected)
    wait(errands)
    errands.take()
    assert threads[0] != threads[1] == threading.get_ident()
    assert not SYSTEM.readable(errands.fileno())


def test_what_went_wrong_is_taken_too(errands: Errands) -> None:
    failures: list[Exception] = []

    def ask() -> int:
        raise BrokerUnreachableError("gone")

    errands.start(ask, unexpected, failures.append)
    wait(errands)
    errands.take()
    assert str(failures[0]) == "gone"


def test_nothing_is_waited_for(errands: Errands) -> None:
    go = threading.Event()
    found: list[bool] = []
    errands.start(lambda: go.wait(20), found.append, unexpected)
    errands.take()
    assert found == []
    go.set()
    wait(errands)
    errands.take()
    assert found == [True]


def test_none_of_many_is_missed(errands: Errands) -> None:
    """The descriptor is readable whenever something is back, and not when nothing is."""
    found: list[int] = []
    for number in range(300):
        errands.start(lambda number=number: number, found.append, unexpected)  # type: ignore[misc]
        errands.take()
    while len(found) < 300:
        assert SYSTEM.readable(errands.fileno()) or threading.active_count() > 1
        wait(errands)
        errands.take()
    assert sorted(found) == list(range(300))
    assert not SYSTEM.readable(errands.fileno())


@pytest.mark.parametrize("before", [False, True])
def test_what_nobody_takes_is_discarded(before: bool) -> None:
    """Whether it came before the end or after."""
    errands = Errands(SYSTEM)
    go, discarded = threading.Event(), threading.Event()
    errands.start(lambda: go.wait(20), unexpected, unexpected, lambda _: discarded.set())
    if before:
        go.set()
        wait(errands)
    errands.close()
    go.set()
    assert discarded.wait(20)
    errands.take()


def test_what_came_beside_an_error_is_not_lost(errands: Errands) -> None:
    """An error ends the taking; an answer behind it may be a connection, which somebody has to close."""
    discarded: list[str] = []
    for answer in ("bad", "good", "better"):
        errands.start(lambda answer=answer: answer, unexpected, unexpected, discarded.append)  # type: ignore[misc]
    while len(errands._back) < 3:
        wait(errands)
    with pytest.raises(AssertionError):
        errands.take()
    assert SYSTEM.readable(errands.fileno())
    errands.close()
    assert len(discarded) == 2


def test_a_mistake_is_raised_and_trouble_is_not() -> None:
    trouble = BrokerUnreachableError("gone")
    assert ours(trouble) is trouble
    with pytest.raises(KeyError):
        ours(KeyError("mistake"))
