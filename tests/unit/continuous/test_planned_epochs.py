"""A run that reads a planned epoch again ends at its end, and commits nothing before."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.continuous.run_cluster import A0, A1, B0, LONG_EPOCHS, PLAN, START, RunCluster
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.continuous.control_messages import EpochRequest, StartTask


def test_a_planned_epoch_ends_at_its_end(cluster: RunCluster) -> None:
    end = {A0: 9, A1: 8, B0: 7}
    driver = cluster.driver(replace(PLAN, prepare=lambda _: replace(START, end_offsets=end)))
    channels = [driver.connect(0), driver.connect(1)]
    assert channels[0].wait_for_start() == StartTask(3, {A0: 5, B0: 7}, {A0: 9, B0: 7})
    assert channels[1].wait_for_start() == StartTask(3, {A1: 6}, {A1: 8})
    for offset in (6, 9):
        assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=False)] * 2
        cluster.report(channels[0], 3, {A0: offset, B0: 7})
        cluster.report(channels[1], 3, {A1: 8})
        assert driver.epochs == []
    assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2
    cluster.report(channels[0], 3, {A0: 9, B0: 7})
    cluster.report(channels[1], 3, {A1: 8})
    assert driver.wait().error is None
    assert [(each.epoch, each.offsets, each.rows) for each in driver.epochs] == [(3, end, 9)]


def test_a_stop_before_the_end_of_a_planned_epoch(cluster: RunCluster) -> None:
    start = replace(START, end_offsets={A0: 9, A1: 8, B0: 9})
    driver = cluster.driver(replace(PLAN, prepare=lambda _: start), settings=LONG_EPOCHS)
    channels = driver.start_tasks()
    driver.coordinator.stop()
    assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2
    cluster.report(channels[0], 3, {A0: 9, B0: 8})
    cluster.report(channels[1], 3, {A1: 8})
    assert (driver.wait().error, driver.epochs) == (None, [])
