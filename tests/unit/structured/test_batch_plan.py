"""What the planning of a batch asks brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import TOPIC, Broker

from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.source import parse_options
from pyspark_kafka_direct.structured._batch_plan import plan_batch
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def test_a_batch_ends_where_tasks_may_read(broker: Broker) -> None:
    options = parse_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    options = replace(options, connection=broker.settings)
    committed = plan_batch(replace(options, fetch=FetchSettings(isolation_level="read_committed")), None)
    uncommitted = plan_batch(replace(options, fetch=FetchSettings()), None)
    assert committed.plan.ranges == (OffsetRange(TOPIC, 0, 5, 40),)
    assert uncommitted.plan.ranges == (OffsetRange(TOPIC, 0, 5, 42),)
    assert broker.connections == 1
