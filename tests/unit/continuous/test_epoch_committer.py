"""Commits on a file system that hangs: no thread waits forever."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.continuous.run_cluster import A0, A1, B0, LONG_EPOCHS, PLAN, SETTINGS, CoordinatorRun, Gate, RunCluster
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings

TIMEOUT_MESSAGE = "Epoch 3 was not committed within 120 s. The checkpoint's file system hangs"


def hanging_driver(
    cluster: RunCluster, plan: RunPlan = PLAN, settings: ContinuousSettings = SETTINGS, *, stops: bool = False
) -> tuple[CoordinatorRun, Gate]:
    """Return a driver whose first commit has just begun, and hangs."""
    commit = Gate(cluster)
    driver = cluster.driver(plan, settings, commit)
    channels = driver.start_tasks()
    if stops:
        driver.coordinator.stop()
    for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
        cluster.report(channel, cluster.next_epoch_request(channel).epoch, offsets)
    cluster.sleep(0.01)
    assert commit.was_reached
    return driver, commit


def check_abandoned(cluster: RunCluster, driver: CoordinatorRun, commit: Gate, *, after: float) -> None:
    """Check that the run ends after some seconds, and that the abandoned commit completes."""
    start = cluster.now
    driver.wait()
    assert cluster.now - start == pytest.approx(after, abs=0.3)
    assert not commit.was_passed
    commit.is_open = True
    cluster.sleep(0.1)
    assert commit.was_passed


@pytest.mark.parametrize("coalesces_epochs", [False, True])
def test_a_run_ends_although_its_commit_hangs(cluster: RunCluster, coalesces_epochs: bool) -> None:
    """It waits for some seconds after the deadline."""
    settings = replace(SETTINGS, epoch_timeout=120)
    driver, commit = hanging_driver(cluster, replace(PLAN, coalesces_epochs=coalesces_epochs), settings)
    check_abandoned(cluster, driver, commit, after=125)
    assert str(driver.failure()) == f"{TIMEOUT_MESSAGE} or is slow. If it is slow, raise epochTimeout."


@pytest.mark.parametrize(("timeout", "after"), [(1, 6), (120, 125)])
def test_the_last_commit_hangs(cluster: RunCluster, timeout: int, after: int) -> None:
    settings = replace(LONG_EPOCHS, epoch_timeout=timeout)
    driver, commit = hanging_driver(cluster, settings=settings, stops=True)
    check_abandoned(cluster, driver, commit, after=after)
    assert str(driver.failure()).startswith(TIMEOUT_MESSAGE.replace("120", str(timeout)))
    assert driver.result is None


def test_a_failed_run_waits_until_the_deadline(cluster: RunCluster) -> None:
    driver, commit = hanging_driver(cluster)
    driver.coordinator.abort(QueryRunError("on purpose"))
    check_abandoned(cluster, driver, commit, after=120)
    assert str(driver.failure()) == "on purpose"
    start = cluster.now
    driver.coordinator.close()  # idempotent, and does not wait again
    assert cluster.now - start < 0.1


def test_a_suspended_driver_still_waits_for_a_moment(cluster: RunCluster) -> None:
    """The deadline has passed although the commit has just started."""
    driver, commit = hanging_driver(cluster)
    driver.process.pause(200)
    cluster.sleep(202)
    assert driver.is_running, "the commit may still complete"
    commit.is_open = True
    assert str(driver.failure()).startswith(TIMEOUT_MESSAGE)
    assert commit.was_passed, "so another run may start"
