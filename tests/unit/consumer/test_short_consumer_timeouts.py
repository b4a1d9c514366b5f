"""A consumer without an end whose timeouts are shorter than the confirmation of a data loss, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.polling import ONE, OTHER, ConsumerCluster, offsets, poll_until

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: dict[str, dict[str, Any]] = {
    "short API timeout": {"default_api_timeout_ms": 400, "request_timeout_ms": 300},
    "API timeout below the request timeout": {"default_api_timeout_ms": 1000},
    "no age of metadata": {"metadata_max_age_ms": 0},
}


def delete(cluster: ConsumerCluster) -> None:
    cluster.event("delete_topic", topic=ONE.topic)


def recreate(cluster: ConsumerCluster) -> None:
    cluster.event("recreate_topic", topic=ONE.topic, partitions=1)


def truncate(cluster: ConsumerCluster) -> None:
    cluster.truncate(ONE, 0, leader=2)


LOSSES: dict[Callable[[ConsumerCluster], None], type[Exception]] = {
    delete: TopicNotFoundError,
    recreate: TopicRecreatedError,
    truncate: TruncatedError,
}


@pytest.mark.parametrize("hangs", [False, True], ids=["all respond", "a replica hangs"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_short_timeouts_do_not_prevent_that_a_loss_is_found(
    lose: Callable[[ConsumerCluster], None], settings: dict[str, Any], hangs: bool
) -> None:
    with ConsumerCluster(1, topics={OTHER.topic: 1}, brokers=3, connection=settings, replication_factor=3) as cluster:
        for tp in (ONE, OTHER):
            cluster.append(tp, 10)
        with cluster.consumer() as consumer:
            read: dict[Any, list[int]] = {}
            while sum(map(len, read.values())) < 20:
                read |= offsets(consumer.poll(10))
            if hangs:
                cluster.event("pause_broker", broker=2, seconds=1000.0)
            lose(cluster)
            started = cluster.now
            with pytest.raises(LOSSES[lose]):
                poll_until(consumer, lambda: cluster.now > started + 120)
            cluster.append(OTHER, 1)
            read = {}
            while OTHER not in read and cluster.now < started + 240:
                try:
                    read = offsets(consumer.poll(1.0))
                except (DataLossError, TopicNotFoundError):
                    continue
            assert read == {OTHER: [10]}
