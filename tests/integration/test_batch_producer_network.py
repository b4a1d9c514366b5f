"""The producer with network faults, read back by another client: each record once, in order by key."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from tests.integration.producer_rows import (
    batches,
    by_key,
    cluster,
    numbered_rows,
    read_back,
    rows_by_key,
)
from tests.proxy import INIT_PRODUCER_ID, PRODUCE, Fault, Network

from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import BatchProducer

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

BROKEN = (Fault.HALF_REQUEST, Fault.NO_RESPONSE, Fault.HALF_RESPONSE)


class FaultSchedule:
    """Injects a fault every few Produce requests, each kind in turn."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._left = 0
        self._kinds = itertools.cycle(BROKEN)

    def __call__(self, api_key: int) -> Fault:
        if api_key != PRODUCE:
            return Fault.PASS
        self._left -= 1
        if self._left > 0:
            return Fault.PASS
        self._left = self._chance.randint(1, 7)
        return next(self._kinds)


def write(kafka: EmbeddedKafka, topic: str, network: Network, settings: ProducerSettings, rows: int = 12_000) -> None:
    """Write as three tasks of one worker do."""
    place = cluster(kafka.bootstrap_servers, network.pool(), retry_backoff_max_ms=50)
    for first in range(0, rows, rows // 3):
        producer = BatchProducer(place, settings)
        for batch in batches(topic, numbered_rows(rows // 3, first=first), 6):
            producer.send(topic, batch)
        written = producer.flush()
        producer.close()
        assert sum(each.records for each in written.values()) == rows // 3


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_duplicated_or_reordered(kafka: EmbeddedKafka, make_topic: MakeTopic, seed: int) -> None:
    topic = make_topic(6)
    with Network(FaultSchedule(seed)) as network:
        write(kafka, topic, network, ProducerSettings(max_request_bytes=5_000))
        assert min(network.faults[each] for each in BROKEN) >= 3
    assert by_key(read_back(kafka.bootstrap_servers, topic, 6)) == rows_by_key(numbered_rows(12_000))


@pytest.mark.parametrize("broken", BROKEN)
def test_faults_of_the_first_request_and_of_the_producer_id(
    kafka: EmbeddedKafka, make_topic: MakeTopic, broken: Fault
) -> None:
    topic = make_topic(6)
    left = {PRODUCE: 2, INIT_PRODUCER_ID: 2}

    def fault(api_key: int) -> Fault:
        if left.get(api_key, 0) == 0:
            return Fault.PASS
        left[api_key] -= 1
        return broken

    with Network(fault) as network:
        write(kafka, topic, network, ProducerSettings(), 3_000)
        assert network.faults[broken] == 4
    assert by_key(read_back(kafka.bootstrap_servers, topic, 6)) == rows_by_key(numbered_rows(3_000))


@pytest.mark.parametrize("acks", [1, -1])
def test_without_sequence_numbers_nothing_is_lost_and_the_order_is_kept(
    kafka: EmbeddedKafka, make_topic: MakeTopic, acks: int
) -> None:
    topic = make_topic(6)
    settings = ProducerSettings(acks=acks, idempotent=False, max_request_bytes=5_000)  # type: ignore[arg-type]
    with Network(FaultSchedule(acks)) as network:
        write(kafka, topic, network, settings)
        assert min(network.faults[each] for each in BROKEN) >= 3
    found = by_key(read_back(kafka.bootstrap_servers, topic, 6))
    expected = rows_by_key(numbered_rows(12_000))
    assert found != expected  # retried records are duplicates
    assert {key: list(dict.fromkeys(values)) for key, values in found.items()} == expected
