"""A task writes only while its lease lasts, and the driver waits for that before it starts another run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.integration.waiting import wait_until
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.continuous.coordinator_threads import (
    LONG_EPOCHS,
    PLAN,
    START,
    AdvancingSystem,
    CoordinatorThread,
    deadline_in,
)

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.control_socket import TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunStart
from pyspark_kafka_direct.continuous.task_lease import TaskLease
from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.client.system import Condition
    from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan

LEASES = replace(LONG_EPOCHS, heartbeat_timeout=30)


class PollingSystem(FakeTimeSystem):
    """Time advances only by assignments to ``now``; waits for a condition check it often."""

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        return super().wait(condition, 0.01)


def test_a_lease_runs_from_sending_the_last_heartbeat_that_was_answered() -> None:
    lease = TaskLease(lambda _: None, 10, 100.0, SYSTEM)
    lease._sent.extend([(1, 101.0), (2, 104.0), (3, 107.0)])
    assert lease.expires_at == 110.0
    lease.extend(2)
    assert lease.expires_at == 114.0
    lease.extend(1)
    lease.extend(7)
    assert lease.expires_at == 114.0


def test_the_driver_answers_heartbeats_while_the_task_is_busy(drivers: Callable[..., CoordinatorThread]) -> None:
    driver = drivers(settings=LEASES)
    driver.connect(1)
    clock = PollingSystem()
    deadline = Deadline.after(120, system=clock)
    with TaskChannel.connect(driver.address, 0, 0, deadline) as channel, channel.begin_lease(30) as lease:
        for count in range(1, 5):
            while len(lease._sent) < count:
                clock.now += 5  # the user's function
                time.sleep(0.02)
        assert driver.keeps_polling()
        assert lease.expired
        channel.check_lease()
        assert not lease.expired


def test_an_unanswered_task_ends(drivers: Callable[..., CoordinatorThread]) -> None:
    driver = drivers()
    channel = driver.connect(0)  # the other task does not connect
    with channel.begin_lease(0.2) as lease:
        driver.coordinator._handle_message = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(QueryRunError, match=r"not respond to a heartbeat for 0\.2 s, .* raise heartbeatTimeout"):
            channel.wait_for_start()
        assert lease.expired


def waiting_driver(drivers: Callable[..., CoordinatorThread], plan: RunPlan = PLAN) -> CoordinatorThread:
    """Start a driver that waits for its tasks after the run; only ``advance`` lets a lease end."""
    driver = drivers(plan, settings=LEASES)
    driver.waits_for_tasks = True
    return driver


def fail(driver: CoordinatorThread, channel: TaskChannel) -> None:
    """Let a task fail; the run ends."""
    channel.report_failure(ValueError("on purpose"), deadline_in())
    wait_until(lambda: driver.coordinator._is_disconnected, "the end of the run")


def test_a_run_does_not_wait_for_tasks_that_have_ended(drivers: Callable[..., CoordinatorThread]) -> None:
    driver = waiting_driver(drivers)
    channels = driver.start_tasks()
    fail(driver, channels[0])
    assert driver.keeps_polling()
    with pytest.raises(QueryRunError, match="closed the connection"):
        channels[1].receive()
    channels[1].report_failure(ValueError("the run has ended"), deadline_in())
    assert "on purpose" in str(driver.failure())


@pytest.mark.parametrize("loses_connection", [False, True])
def test_a_run_waits_until_the_lease_of_a_lost_task_is_over(
    drivers: Callable[..., CoordinatorThread], loses_connection: bool
) -> None:
    driver = waiting_driver(drivers)
    channels = driver.start_tasks()
    if loses_connection:
        channels[1].close()
    fail(driver, channels[0])
    for seconds in (20, 10.9):
        driver.advance(seconds)
        assert driver.keeps_polling(), "the task may still write"
    driver.advance(0.2)
    driver.failure()


@pytest.mark.parametrize("renewed", [0, 1])
def test_a_run_waits_for_the_last_of_several_leases(drivers: Callable[..., CoordinatorThread], renewed: int) -> None:
    driver = waiting_driver(drivers)
    channels = driver.start_tasks()
    driver.advance(20)
    with channels[renewed].begin_lease(60):
        renewals = driver.coordinator._lease_renewed_at
        wait_until(lambda: renewals[renewed] >= renewals[1 - renewed] + 20, "a heartbeat")
    channels[1 - renewed].close()
    wait_until(lambda: driver.coordinator._is_disconnected, "the end of the run")
    for seconds in (12, 18.5):
        driver.advance(seconds)
        assert driver.keeps_polling(), "one of the tasks may still write"
    driver.advance(0.6)
    driver.failure()


def test_heartbeats_after_the_end_of_a_run_are_not_answered(drivers: Callable[..., CoordinatorThread]) -> None:
    driver = waiting_driver(drivers)
    channels = driver.start_tasks()
    with channels[1].begin_lease(0.01):
        fail(driver, channels[0])
        driver.advance(29)
        polls = driver.polls
        wait_until(lambda: driver.polls > polls + 5, "heartbeats")
    driver.advance(2.1)
    driver.failure()


def test_a_run_does_not_wait_for_tasks_that_are_fenced(drivers: Callable[..., CoordinatorThread]) -> None:
    start = replace(START, producers=(ProducerIdAndEpoch(1, 1), ProducerIdAndEpoch(2, 1)))
    driver = waiting_driver(drivers, replace(PLAN, prepare=lambda _: start))
    channels = driver.start_tasks()
    channels[0].report_failure(ValueError("on purpose"), deadline_in())
    driver.failure()


class SuspendedSystem(AdvancingSystem):
    """The process is suspended for 25 seconds before each look at the clock."""

    def monotonic(self) -> float:
        self.advanced_by += 25
        return super().monotonic()

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        assert seconds >= 0, "a negative timeout never ends"
        return set()


def test_a_driver_that_is_suspended_while_it_waits_restarts() -> None:
    coordinator = EpochCoordinator(PLAN, LEASES, lambda _: None, "127.0.0.1", SuspendedSystem())
    try:
        coordinator._start_tasks(RunStart(assignment=(), offsets={}, epoch=1))
        coordinator._lease_renewed_at = {0: coordinator._system.monotonic()}
        coordinator.wait_until_tasks_end(lambda: False)
    finally:
        coordinator.close()


def test_a_stop_interrupts_the_wait(drivers: Callable[..., CoordinatorThread]) -> None:
    driver = waiting_driver(drivers)
    fail(driver, driver.start_tasks()[0])
    assert driver.keeps_polling()
    driver.waits_for_tasks = False
    driver.coordinator.stop()
    driver.failure()
