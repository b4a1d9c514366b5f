"""Background tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.consumer.background import BackgroundTasks, as_kafka_error
from pyspark_kafka_direct.errors import BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def background() -> Iterator[BackgroundTasks]:
    background = BackgroundTasks(SYSTEM)
    yield background
    background.close()


def unexpected(value: Any) -> None:
    raise AssertionError(value)


def wait(background: BackgroundTasks) -> None:
    SYSTEM.wait_readable([background.fileno()], 120)


def test_result_is_passed_to_the_owner_thread(background: BackgroundTasks) -> None:
    threads: list[int] = []

    def call() -> int:
        threads.append(threading.get_ident())
        return 7

    def on_success(result: int) -> None:
        threads.append(threading.get_ident())
        assert result == 7

    background.start(call, on_success, unexpected)
    wait(background)
    background.run_callbacks()
    assert threads[0] != threads[1] == threading.get_ident()
    assert not SYSTEM.readable(background.fileno())


def test_error_is_passed_to_the_owner_thread(background: BackgroundTasks) -> None:
    failures: list[Exception] = []

    def call() -> int:
        raise BrokerUnreachableError("disconnected")

    background.start(call, unexpected, failures.append)
    wait(background)
    background.run_callbacks()
    assert str(failures[0]) == "disconnected"


def test_run_callbacks_does_not_block(background: BackgroundTasks) -> None:
    release_task = threading.Event()
    results: list[bool] = []
    background.start(lambda: release_task.wait(120), results.append, unexpected)
    background.run_callbacks()
    assert results == []
    release_task.set()
    wait(background)
    background.run_callbacks()
    assert results == [True]


def test_no_result_of_many_is_missed(background: BackgroundTasks) -> None:
    """The descriptor is readable if and only if a task has completed."""
    results: list[int] = []
    for number in range(300):
        background.start(lambda number=number: number, results.append, unexpected)  # type: ignore[misc]
        background.run_callbacks()
    while len(results) < 300:
        assert SYSTEM.readable(background.fileno()) or threading.active_count() > 1
        wait(background)
        background.run_callbacks()
    assert sorted(results) == list(range(300))
    assert not SYSTEM.readable(background.fileno())


@pytest.mark.parametrize("before", [False, True])
def test_result_after_close_is_discarded(before: bool) -> None:
    """Whether it completed before or after ``close``."""
    background = BackgroundTasks(SYSTEM)
    release_task, discarded = threading.Event(), threading.Event()
    background.start(lambda: release_task.wait(120), unexpected, unexpected, lambda _: discarded.set())
    if before:
        release_task.set()
        wait(background)
    background.close()
    release_task.set()
    assert discarded.wait(120)
    background.run_callbacks()


def test_other_results_survive_a_failing_callback(background: BackgroundTasks) -> None:
    """Another result may be a connection, which must be released."""
    discarded: list[str] = []
    for result in ("bad", "good", "better"):
        background.start(lambda result=result: result, unexpected, unexpected, discarded.append)  # type: ignore[misc]
    while len(background._completed) < 3:
        wait(background)
    with pytest.raises(AssertionError):
        background.run_callbacks()
    assert SYSTEM.readable(background.fileno())
    background.close()
    assert len(discarded) == 2


def test_only_foreign_errors_are_raised() -> None:
    error = BrokerUnreachableError("disconnected")
    assert as_kafka_error(error) is error
    with pytest.raises(KeyError):
        as_kafka_error(KeyError("bug"))
