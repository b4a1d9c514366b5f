"""The producer over an unclean network, read back by a client that is not ours: each record once, in order by key."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from tests.integration.writing import batches, by_key, cluster, numbered, read_back, rows_by_key
from tests.proxy import INIT_PRODUCER_ID, PRODUCE, Fate, Network

from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.writing.producer import Producer

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

BROKEN = (Fate.HALF_REQUEST, Fate.NO_ANSWER, Fate.HALF_ANSWER)


class Weather:
    """Every few Produce requests something bad happens, each kind in its turn."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._left = 0
        self._kinds = itertools.cycle(BROKEN)

    def __call__(self, api_key: int) -> Fate:
        if api_key != PRODUCE:
            return Fate.PASS
        self._left -= 1
        if self._left > 0:
            return Fate.PASS
        self._left = self._chance.randint(1, 7)
        return next(self._kinds)


def write(kafka: EmbeddedKafka, topic: str, network: Network, settings: ProduceSettings, rows: int = 12_000) -> None:
    """Write as three tasks of one worker do."""
    place = cluster(kafka.bootstrap_servers, network.pool(), retry_backoff_max_ms=50)
    for first in range(0, rows, rows // 3):
        producer = Producer(place, settings)
        for batch in batches(topic, numbered(rows // 3, first=first), 6):
            producer.send(topic, batch)
        written = producer.flush()
        producer.close()
        assert sum(each.records for each in written.values()) == rows // 3


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_doubled_or_reordered(kafka: EmbeddedKafka, make_topic: MakeTopic, seed: int) -> None:
    topic = make_topic(6)
    with Network(Weather(seed)) as network:
        write(kafka, topic, network, ProduceSettings(max_request_bytes=5_000))
        assert min(network.fates[each] for each in BROKEN) >= 3
    assert by_key(read_back(kafka.bootstrap_servers, topic, 6)) == rows_by_key(numbered(12_000))


@pytest.mark.parametrize("broken", BROKEN)
def test_the_first_request_and_the_producer_id_too(kafka: EmbeddedKafka, make_topic: MakeTopic, broken: Fate) -> None:
    topic = make_topic(6)
    left = {PRODUCE: 2, INIT_PRODUCER_ID: 2}

    def fate(api_key: int) -> Fate:
        if left.get(api_key, 0) == 0:
            return Fate.PASS
        left[api_key] -= 1
        return broken

    with Network(fate) as network:
        write(kafka, topic, network, ProduceSettings(), 3_000)
        assert network.fates[broken] == 4
    assert by_key(read_back(kafka.bootstrap_servers, topic, 6)) == rows_by_key(numbered(3_000))


@pytest.mark.parametrize("acks", [1, -1])
def test_without_sequence_numbers_nothing_is_lost_and_the_order_is_kept(
    kafka: EmbeddedKafka, make_topic: MakeTopic, acks: int
) -> None:
    topic = make_topic(6)
    settings = ProduceSettings(acks=acks, idempotent=False, max_request_bytes=5_000)  # type: ignore[arg-type]
    with Network(Weather(acks)) as network:
        write(kafka, topic, network, settings)
        assert min(network.fates[each] for each in BROKEN) >= 3
    found = by_key(read_back(kafka.bootstrap_servers, topic, 6))
    wanted = rows_by_key(numbered(12_000))
    assert found != wanted  # what was sent again is there twice
    assert {key: list(dict.fromkeys(values)) for key, values in found.items()} == wanted
