"""What the planner of a direct stream asks brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC, Broker

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct._spec import StreamSpec
from pyspark_kafka_direct.direct._wire import WireView, connect
from pyspark_kafka_direct.direct.rates import PerPartitionConfig
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.offsets import TopicPartition


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def view(broker: Broker, level: str, **more: str) -> WireView:
    params = {"bootstrap.servers": broker.settings.bootstrap_text, "isolation.level": level, **more}
    strategy = ConsumerStrategies.Subscribe([TOPIC], params)
    return WireView(connect(strategy), StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None)


@pytest.mark.parametrize(("level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_a_batch_ends_where_tasks_may_read(broker: Broker, level: str, end: int) -> None:
    seen = view(broker, level)
    assert seen.latest([PARTITION]) == {PARTITION: end}
    assert seen.written([PARTITION]) == {PARTITION: 42}
    assert broker.connections == 1


@pytest.mark.parametrize(("level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_a_stream_starts_where_tasks_may_read(broker: Broker, level: str, end: int) -> None:
    assert view(broker, level).start().offsets == {PARTITION: end}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_an_offset_behind_the_last_stable_one_is_in_the_log(broker: Broker, level: str) -> None:
    """The scripted broker keeps an offset for every group."""
    broker.committed = 41
    seen = view(broker, level, **{"group.id": "g", "auto.offset.reset": "none"})
    assert seen.start().offsets == {PARTITION: 41}
    assert seen.starts_of_new([PARTITION]) == {PARTITION: 41}


@pytest.mark.parametrize(("fail", "starts"), [("false", {PARTITION: 5}), ("true", {})])
def test_log_starts_are_asked_only_where_loss_is_passed_over(
    broker: Broker, fail: str, starts: dict[TopicPartition, int]
) -> None:
    assert view(broker, "read_uncommitted", failOnDataLoss=fail).log_starts([PARTITION]) == starts
