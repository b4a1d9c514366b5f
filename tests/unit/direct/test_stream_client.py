"""The broker requests of the planner of a direct stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_broker import PARTITION, TOPIC, FakeBroker

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.config import option_messages
from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.offsets import TopicPartition


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def view(broker: FakeBroker, isolation_level: str, **changes: str) -> StreamClusterView:
    params = {
        "bootstrap.servers": broker.settings.bootstrap_string,
        "isolation.level": isolation_level,
        **changes,
    }
    strategy = ConsumerStrategies.Subscribe([TOPIC], params)
    return StreamClusterView(
        create_stream_client(strategy), StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None
    )


@pytest.mark.parametrize(("isolation_level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_a_batch_ends_at_the_last_readable_offset(broker: FakeBroker, isolation_level: str, end: int) -> None:
    cluster_view = view(broker, isolation_level)
    assert cluster_view.latest([PARTITION]) == {PARTITION: end}
    assert cluster_view.high_watermarks([PARTITION]) == {PARTITION: 42}
    assert broker.connections == 1


@pytest.mark.parametrize(("isolation_level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_latest_is_the_last_readable_offset(broker: FakeBroker, isolation_level: str, end: int) -> None:
    assert view(broker, isolation_level).start().offsets == {PARTITION: end}


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_committed_offset_after_the_last_stable_offset_is_in_the_log(
    broker: FakeBroker, isolation_level: str
) -> None:
    """The fake broker returns this offset for every group."""
    broker.committed = 41
    cluster_view = view(broker, isolation_level, **{"group.id": "g", "auto.offset.reset": "none"})
    assert cluster_view.start().offsets == {PARTITION: 41}
    assert cluster_view.new_partition_offsets([PARTITION]) == {PARTITION: 41}


@pytest.mark.parametrize(("fail_on_data_loss", "log_starts"), [("false", {PARTITION: 5}), ("true", {})])
def test_log_starts_are_requested_only_without_fail_on_data_loss(
    broker: FakeBroker, fail_on_data_loss: str, log_starts: dict[TopicPartition, int]
) -> None:
    assert view(broker, "read_uncommitted", failOnDataLoss=fail_on_data_loss).log_starts([PARTITION]) == log_starts


@pytest.mark.parametrize(("group", "times"), [({}, 1), ({"group.id": "g"}, 0)])
def test_a_missing_group_id_is_logged_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, group: dict[str, str], times: int
) -> None:
    option_messages.warn_once.cache_clear()
    for _ in range(2):
        view(broker, "read_uncommitted", **group)
    assert sum("group.id is not set" in record.getMessage() for record in caplog.records) == times
