"""The requests of a batch plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_broker import TOPIC, FakeBroker

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.config.client_settings import FetchSettings
from pyspark_kafka_direct.config.read_options import parse_batch_options
from pyspark_kafka_direct.datasource.kafka_batch_reader import plan_batch_query
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def test_a_batch_ends_at_the_end_of_its_isolation_level(broker: FakeBroker) -> None:
    options = parse_batch_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    options = replace(options, connection=broker.settings)
    committed = plan_batch_query(replace(options, fetch=FetchSettings(isolation_level="read_committed")), None)
    uncommitted = plan_batch_query(replace(options, fetch=FetchSettings()), None)
    assert committed.plan.ranges == (OffsetRange(TOPIC, 0, 5, 40),)
    assert uncommitted.plan.ranges == (OffsetRange(TOPIC, 0, 5, 42),)
    assert broker.connections == 1
