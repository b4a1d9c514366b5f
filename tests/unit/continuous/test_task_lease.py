"""A task writes only while its lease lasts, and the driver waits for that before it starts another run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.continuous.run_cluster import LONG_EPOCHS, PLAN, START, CoordinatorRun, RunCluster
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.continuous.task_lease import TaskLease
from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.continuous.control_socket import TaskChannel
    from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan

LEASES = replace(LONG_EPOCHS, heartbeat_timeout=30)


def test_a_lease_runs_from_sending_the_last_heartbeat_that_was_answered(cluster: RunCluster) -> None:
    lease = TaskLease(lambda _: None, 10, 100.0, cluster.process)
    lease._sent.extend([(1, 101.0), (2, 104.0), (3, 107.0)])
    assert lease.expires_at == 110.0
    lease.extend(2)
    assert lease.expires_at == 114.0
    lease.extend(1)
    lease.extend(7)
    assert lease.expires_at == 114.0


def test_the_driver_answers_heartbeats_while_the_task_is_busy(cluster: RunCluster) -> None:
    driver = cluster.driver(settings=LEASES)
    driver.connect(1)
    channel = driver.connect(0, is_ready=False)
    with channel.begin_lease(30) as lease:
        cluster.sleep(31)  # the user's function
        assert driver.is_running
        assert lease.expired
        channel.check_lease()
        assert not lease.expired


def test_an_unanswered_task_ends(cluster: RunCluster) -> None:
    driver = cluster.driver()
    channel = driver.connect(0, is_ready=False)  # the other task does not connect
    start = cluster.now
    with channel.begin_lease(20) as lease:
        cluster.sleep(5)
        driver.process.pause(60)
        with pytest.raises(QueryRunError, match=r"not respond to a heartbeat for 20 s, .* raise heartbeatTimeout"):
            channel.wait_for_start()
        assert lease.expired
        assert 20 < cluster.now - start < 26


def waiting_driver(cluster: RunCluster, plan: RunPlan = PLAN) -> CoordinatorRun:
    """Start a driver that waits for its tasks after the run."""
    driver = cluster.driver(plan, LEASES)
    driver.waits_for_tasks = True
    return driver


def fail(cluster: RunCluster, channel: TaskChannel) -> None:
    """Let a task fail; the run ends."""
    channel.report_failure(ValueError("on purpose"), cluster.deadline())
    cluster.sleep(0.1)


def test_a_run_does_not_wait_for_tasks_that_have_ended(cluster: RunCluster) -> None:
    driver = waiting_driver(cluster)
    channels = driver.start_tasks()
    fail(cluster, channels[0])
    assert driver.is_running
    with pytest.raises(QueryRunError, match="closed the connection"):
        channels[1].receive()
    channels[1].report_failure(ValueError("the run has ended"), cluster.deadline())
    assert not driver.is_running
    assert "on purpose" in str(driver.failure())


@pytest.mark.parametrize("loses_connection", [False, True])
def test_a_run_waits_until_the_lease_of_a_lost_task_is_over(cluster: RunCluster, loses_connection: bool) -> None:
    driver = waiting_driver(cluster)
    channels, start = driver.start_tasks(), cluster.now
    if loses_connection:
        channels[1].close()
    fail(cluster, channels[0])
    driver.failure()
    assert cluster.now - start == pytest.approx(31, abs=0.2), "the task may still write"


@pytest.mark.parametrize("renewed", [0, 1])
def test_a_run_waits_for_the_last_of_several_leases(cluster: RunCluster, renewed: int) -> None:
    driver = waiting_driver(cluster)
    channels = driver.start_tasks()
    cluster.sleep(20)
    with channels[renewed].begin_lease(60):
        cluster.sleep(0.1)
    start = cluster.now
    channels[1 - renewed].close()
    driver.failure()
    assert cluster.now - start == pytest.approx(31, abs=0.3), "one of the tasks may still write"


def test_heartbeats_after_the_end_of_a_run_are_not_answered(cluster: RunCluster) -> None:
    driver = waiting_driver(cluster)
    channels = driver.start_tasks()
    with channels[1].begin_lease(1):
        fail(cluster, channels[0])
        start = cluster.now
        driver.failure()
        assert cluster.now - start == pytest.approx(31, abs=0.5)


def test_a_run_does_not_wait_for_tasks_that_are_fenced(cluster: RunCluster) -> None:
    start = replace(START, producers=(ProducerIdAndEpoch(1, 1), ProducerIdAndEpoch(2, 1)))
    driver = waiting_driver(cluster, replace(PLAN, prepare=lambda _: start))
    fail(cluster, driver.start_tasks()[0])
    assert not driver.is_running
    driver.failure()


def test_a_driver_that_is_suspended_while_it_waits_restarts(cluster: RunCluster) -> None:
    """It is suspended for 25 seconds before each look at the clock."""
    driver = waiting_driver(cluster)
    channel = driver.start_tasks()[0]
    monotonic, wait_ready = driver.process.monotonic, driver.process.wait_ready

    def suspended() -> float:
        driver.process.sleep(25)
        return monotonic()

    def checked(to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        assert seconds >= 0, "a negative timeout never ends"
        return wait_ready(to_read, to_write, seconds)

    wait = driver.coordinator.wait_until_tasks_end

    def wait_suspended(is_interrupted: Callable[[], bool]) -> None:
        vars(driver.process).update(monotonic=suspended, wait_ready=checked)
        wait(is_interrupted)

    vars(driver.coordinator)["wait_until_tasks_end"] = wait_suspended
    fail(cluster, channel)
    driver.failure()


def test_a_stop_interrupts_the_wait(cluster: RunCluster) -> None:
    driver = waiting_driver(cluster)
    fail(cluster, driver.start_tasks()[0])
    assert driver.is_running
    driver.waits_for_tasks = False
    driver.coordinator.stop()
    assert not driver.is_running
    driver.failure()
