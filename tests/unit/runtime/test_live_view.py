"""What the planner of streams sees of a cluster whose brokers do not agree."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.wire.scripted import PARTITION, TOPIC, Broker

from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.runtime.live_view import LiveView
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.source import parse_stream_options
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest

LOG = logging.getLogger("pyspark_kafka_direct.structured")


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    with Broker() as one, Broker() as two:
        one.leaders = two.leaders = [(1, one), (2, two)]
        yield [one, two]
    POOL.clear()


def test_a_look_after_a_pause_asks_another_broker(brokers: list[Broker]) -> None:
    """One that is behind would give the same answer each time, and three of them were believed."""
    settings = brokers[0].settings
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    options = parse_stream_options(
        {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "fetchoffset.retryintervalms": "0"}
    )
    view = LiveView(replace(options, connection=settings), LOG)
    view.assigned(strict=False)
    before = [broker.asked["Metadata"] for broker in brokers]
    for _ in range(2):
        view.assigned(strict=False)
        view.wait()
    assert [broker.asked["Metadata"] for broker in brokers] == [asked + 1 for asked in before]


def test_ends_are_those_that_tasks_may_read(brokers: list[Broker]) -> None:
    broker = brokers[0]
    broker.leaders, broker.stable = [(1, broker)], 40
    options = parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    fetch = FetchSettings(isolation_level="read_committed")
    view = LiveView(replace(options, connection=broker.settings, fetch=fetch), LOG)
    assert view.offsets({PARTITION: LATEST}) == {PARTITION: 40}
    assert view.high_watermarks([PARTITION]) == {PARTITION: 42}
    assert broker.connections == 1
