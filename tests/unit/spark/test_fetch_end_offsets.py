"""End offsets for the listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_broker import PARTITION, TOPIC, FakeBroker

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.spark.query_metadata import fetch_end_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker
    POOL.clear()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_log_ends_at_the_high_watermark(broker: FakeBroker, level: str) -> None:
    broker.stable = 40
    servers = broker.settings.bootstrap_string
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "kafka.isolation.level": level}
    assert fetch_end_offsets(options, [PARTITION]) == {PARTITION: 42}
