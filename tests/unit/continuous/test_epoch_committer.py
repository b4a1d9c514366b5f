"""Commits on a file system that hangs: no thread waits forever."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.integration.waiting import wait_until
from tests.unit.continuous.coordinator_threads import (
    A0,
    A1,
    B0,
    LONG_EPOCHS,
    PLAN,
    SETTINGS,
    CoordinatorThread,
    next_epoch_request,
    report,
)

from pyspark_kafka_direct.continuous import epoch_coordinator
from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings

TIMEOUT_MESSAGE = "Epoch 3 was not committed within 120 s. The checkpoint's file system hangs"


class HangingCommit:
    """A commit that hangs until it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.released = threading.Event()
        self.ended = threading.Event()

    def __call__(self, _: EpochResult) -> None:
        self.started.set()
        self.released.wait(300)
        self.ended.set()


@contextmanager
def hanging_driver(
    plan: RunPlan = PLAN, settings: ContinuousSettings = SETTINGS, *, stops: bool = False, freezes: bool = True
) -> Iterator[CoordinatorThread]:
    """A driver whose first commit hangs."""
    commit = HangingCommit()
    driver = CoordinatorThread(plan, settings, commit)
    try:
        channels = driver.start_tasks()
        if stops:
            driver.coordinator.stop()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_epoch_request(channel).epoch, offsets)
        assert commit.started.wait(120)
        if freezes:
            driver.freeze()
        yield driver
        assert not commit.ended.is_set()
        commit.released.set()
        assert commit.ended.wait(120), "the abandoned commit completes"
    finally:
        commit.released.set()
        driver.close()


def let_time_pass(driver: CoordinatorThread, seconds: float) -> None:
    """Advance the clock; the run waits until then, and no longer."""
    committer = driver.coordinator._committer
    for step in (seconds - 2, 4):  # the clock stood still some time after the deadline was set
        wait_until(lambda: committer._is_closing, "the end of the run")
        driver._thread.join(0.05)
        assert driver._thread.is_alive(), "the commit may still complete"
        driver.advance(step)
        with committer._changed:
            committer._changed.notify_all()
    driver.wait()


@pytest.mark.parametrize("coalesces_epochs", [False, True])
def test_a_run_ends_although_its_commit_hangs(coalesces_epochs: bool) -> None:
    with hanging_driver(replace(PLAN, coalesces_epochs=coalesces_epochs)) as driver:
        driver.advance(120)
        let_time_pass(driver, 5)
        assert str(driver.failure()) == f"{TIMEOUT_MESSAGE} or is slow. If it is slow, raise epochTimeout."


def test_a_waiting_run_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_coordinator, "_MAX_POLL_SECONDS", 3600)  # a poll without a deadline takes an hour
    with hanging_driver(settings=replace(LONG_EPOCHS, epoch_timeout=1), stops=True, freezes=False) as driver:
        driver.unfreeze()
        driver._thread.join(120)
        assert not driver._thread.is_alive()
        assert "was not committed within 1 s" in str(driver.failure())


def test_the_last_commit_hangs() -> None:
    with hanging_driver(settings=LONG_EPOCHS, stops=True) as driver:
        driver.advance(120)
        let_time_pass(driver, 5)
        assert str(driver.failure()).startswith(TIMEOUT_MESSAGE)
        assert driver.result is None


def test_a_failed_run_waits_until_the_deadline() -> None:
    with hanging_driver() as driver:
        driver.coordinator.abort(QueryRunError("on purpose"))
        let_time_pass(driver, 120)
        assert str(driver.failure()) == "on purpose"
        driver.coordinator.close()  # idempotent, and does not wait again


def test_a_suspended_driver_still_waits_for_a_moment() -> None:
    """The deadline has passed although the commit has just started."""
    commit = HangingCommit()
    driver = CoordinatorThread(on_epoch=commit)
    try:
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_epoch_request(channel).epoch, offsets)
        assert commit.started.wait(120)
        driver.advance(200)
        wait_until(lambda: driver.coordinator._committer._is_closing, "the end of the run")
        driver._thread.join(0.05)
        assert driver._thread.is_alive(), "the commit may still complete"
        commit.released.set()
        assert str(driver.failure()).startswith(TIMEOUT_MESSAGE)
        assert commit.ended.is_set(), "so another run may start"
    finally:
        commit.released.set()
        driver.close()
