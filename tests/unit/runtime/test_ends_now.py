"""Ends as the listener asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC, Broker

from pyspark_kafka_direct.runtime.cluster import ends_now
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
    POOL.clear()


@pytest.mark.parametrize(("level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_lag_counts_to_where_the_query_may_read(broker: Broker, level: str, end: int) -> None:
    broker.stable = 40
    servers = broker.settings.bootstrap_text
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "kafka.isolation.level": level}
    assert ends_now(options, [PARTITION]) == {PARTITION: end}
