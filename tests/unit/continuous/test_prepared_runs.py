"""A run is prepared, which fences other drivers, when all its tasks have connected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.continuous.run_cluster import A0, A1, B0, LONG_EPOCHS, PLAN, START, Gate, RunCluster
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.continuous.control_messages import StartTask
from pyspark_kafka_direct.errors import QueryRunError, TaskStartTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.continuous.epoch_coordinator import RunStart


class Preparation(Gate):
    """The preparation of a run, which waits until it is released."""

    def __init__(self, cluster: RunCluster, start: RunStart | None = START, error: Exception | None = None) -> None:
        super().__init__(cluster)
        self._start, self._error = start, error

    def prepare(self, _: Callable[[], None]) -> RunStart | None:
        self()
        if self._error is not None:
            raise self._error
        return self._start


def test_a_run_without_all_tasks_is_not_prepared(cluster: RunCluster) -> None:
    preparation = Preparation(cluster)
    driver = cluster.driver(replace(PLAN, prepare=preparation.prepare))
    driver.connect(0)
    assert isinstance(driver.failure(), TaskStartTimeoutError)
    assert not preparation.was_reached
    assert not driver.coordinator.started


@pytest.mark.parametrize(("start_timeout", "setup_timeout"), [(10.0, 100.0), (100.0, 10.0)])
def test_the_setup_of_tasks_has_its_own_limit(cluster: RunCluster, start_timeout: float, setup_timeout: float) -> None:
    settings = replace(LONG_EPOCHS, task_start_timeout=start_timeout, task_setup_timeout=setup_timeout)
    driver = cluster.driver(settings=settings)
    channels = [driver.connect(task, is_ready=False) for task in range(2)]
    assert driver.is_running
    cluster.sleep(20.0)
    if setup_timeout < 20:
        assert "The setup of 2 of 2 tasks took longer than 10 s" in str(driver.failure())
        return
    assert driver.is_running
    for channel in channels:
        channel.report_ready()
    assert channels[0].wait_for_start().epoch == 3


def test_tasks_receive_what_was_prepared(cluster: RunCluster) -> None:
    producers = (ProducerIdAndEpoch(7, 1), ProducerIdAndEpoch(8, 2))
    start = replace(START, assignment=((A0, A1, B0), ()), producers=producers)
    driver = cluster.driver(replace(PLAN, prepare=lambda _: start))
    channels = [driver.connect(task) for task in range(2)]
    first, second = (channel.wait_for_start() for channel in channels)
    assert first == StartTask(3, START.offsets, producer=producers[0])
    assert second == StartTask(3, {}, producer=producers[1])
    for channel, offsets in zip(channels, (START.offsets, {}), strict=True):
        cluster.report(channel, cluster.next_epoch_request(channel).epoch, dict(offsets))
    assert cluster.next_epoch_request(channels[0]).epoch == 3


@pytest.mark.parametrize("ends_by", ["nothing to read", "error", "stop"])
def test_a_run_ends_while_it_is_prepared(cluster: RunCluster, ends_by: str) -> None:
    error = QueryRunError("not now") if ends_by == "error" else None
    preparation = Preparation(cluster, START if ends_by == "stop" else None, error)
    driver = cluster.driver(replace(PLAN, prepare=preparation.prepare))
    channels = [driver.connect(task) for task in range(2)]
    cluster.sleep(0.1)
    assert preparation.was_reached
    if ends_by == "stop":
        driver.coordinator.stop()
    preparation.is_open = True
    driver.wait()
    assert (driver.error, driver.result, driver.coordinator.started) == (error, None, False)
    for channel in channels:
        with pytest.raises(QueryRunError, match="closed the connection"):
            channel.wait_for_start()


def test_a_lost_task_ends_a_run_when_its_preparation_has_ended(cluster: RunCluster) -> None:
    preparation = Preparation(cluster)
    driver = cluster.driver(replace(PLAN, prepare=preparation.prepare))
    channels = [driver.connect(task) for task in range(2)]
    cluster.sleep(0.1)
    assert preparation.was_reached
    channels[1].close()
    cluster.sleep(10)
    assert driver.is_running, "the next run must not prepare itself at the same time"
    preparation.is_open = True
    assert "was lost" in str(driver.failure())
