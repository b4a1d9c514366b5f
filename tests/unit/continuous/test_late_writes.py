"""A file system that does not answer: nobody waits for it for ever."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.continuous.coordinators import A0, A1, B0, LONG, PLAN, TIMES, Driver, next_mark, report

from pyspark_kafka_direct.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.continuous._coordinator import RunPlan, RunTimes
    from pyspark_kafka_direct.planning.epochs import EpochResult

LATE = "Epoch 3 has not been written down within 20 s. The file system of the checkpoint does not answer"


class Hanging:
    """Writes epochs down, when it is told to at last."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.answers = threading.Event()
        self.ended = threading.Event()

    def __call__(self, _: EpochResult) -> None:
        self.begun.set()
        self.answers.wait(300)
        self.ended.set()


@contextmanager
def hanging_driver(plan: RunPlan = PLAN, times: RunTimes = TIMES, *, stops: bool = False) -> Iterator[Driver]:
    """A driver whose first epoch is being written, and hangs."""
    files = Hanging()
    driver = Driver(plan, times, files)
    try:
        channels = driver.start_tasks()
        if stops:
            driver.coordinator.stop()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_mark(channel).epoch, offsets)
        assert files.begun.wait(20)
        yield driver
        assert not files.ended.is_set()
        files.answers.set()
        assert files.ended.wait(20), "nothing keeps the late write from its end"
    finally:
        files.answers.set()
        driver.close()


def let_time_pass(driver: Driver) -> None:
    """Put the clock forward until the run has ended."""
    until = time.monotonic() + 60
    writer = driver.coordinator._writer
    while driver._thread.is_alive() and time.monotonic() < until:
        driver.put_forward(1)
        with writer._changed:
            writer._changed.notify_all()
        driver._thread.join(0.02)
    assert not driver._thread.is_alive(), "it waits for ever"


@pytest.mark.parametrize("shares_numbers", [False, True])
def test_a_run_ends(shares_numbers: bool) -> None:
    with hanging_driver(replace(PLAN, shares_numbers=shares_numbers)) as driver:
        driver.put_forward(20)
        let_time_pass(driver)
        assert str(driver.failure()) == f"{LATE}, or needs longer: raise epochTimeout."


def test_nobody_needs_to_wake_a_run_that_waits() -> None:
    with hanging_driver(times=replace(LONG, report=5), stops=True) as driver:
        driver._thread.join(30)  # a turn alone takes a minute
        assert not driver._thread.is_alive()
        assert "has not been written down within 5 s" in str(driver.failure())


def test_the_last_epoch_is_late() -> None:
    with hanging_driver(times=LONG, stops=True) as driver:
        driver.put_forward(20)
        let_time_pass(driver)
        assert str(driver.failure()).startswith(LATE)
        assert driver.result is None


def test_a_run_that_fails_meanwhile_waits_no_longer() -> None:
    with hanging_driver() as driver:
        driver.coordinator.abort(RunFailedError("on purpose"))
        driver._thread.join(0.2)
        assert driver._thread.is_alive(), "it may be written yet"
        let_time_pass(driver)
        assert str(driver.failure()) == "on purpose"
        driver.coordinator.close()  # whoever holds it does so again, and need not wait again


def test_a_driver_that_slept_gives_the_write_a_moment() -> None:
    """All of the time is gone then, and the write had none of it."""
    files = Hanging()
    driver = Driver(on_epoch=files)
    try:
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_mark(channel).epoch, offsets)
        assert files.begun.wait(20)
        driver.put_forward(100)
        until = time.monotonic() + 20
        while not driver.coordinator._writer._is_closing and time.monotonic() < until:
            time.sleep(0.001)
        assert driver._thread.is_alive()
        files.answers.set()
        assert str(driver.failure()).startswith(LATE)
        assert files.ended.is_set(), "so another run may begin"
    finally:
        files.answers.set()
        driver.close()
