"""Topics deleted and created again at random under a query with ``failOnDataLoss=false``.

What a topic held that was deleted may be lost. Nothing may come twice, the query must go on, and what the topics hold
that are there in the end must have been read, as the query has seen their ids while it ran.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.topics import Admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka

OPERATIONS = 30


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [3, 10])
def test_topics_deleted_and_recreated_at_random(
    stream: Callable[..., Stream], kafka: EmbeddedKafka, put: Any, seed: int
) -> None:
    draw = random.Random(seed)
    admin = Admin(kafka.bootstrap_servers)
    names = [f"stress-{seed}-{number}" for number in range(4)]
    alive: dict[str, list[int]] = {}  # topics that are there, and what they hold
    written = itertools.count()

    def write(topic: str, count: int) -> None:
        values = list(itertools.islice(written, count))
        put(topic, values)
        alive[topic] += values

    def create(topic: str, partitions: int) -> None:
        admin.create(topic, partitions)
        alive[topic] = []

    query = stream(
        subscribePattern=f"stress-{seed}-.*",
        startingOffsets="earliest",
        failOnDataLoss="false",
        fetchOffset_retryIntervalMs="100",
    )
    steady = f"stress-{seed}-steady"
    create(steady, 3)
    write(steady, 3)
    query.start()
    query.wait_for(range(3))
    for number in range(OPERATIONS):
        topic = draw.choice(names)
        if topic not in alive:
            create(topic, draw.randint(1, 4))
        elif draw.random() < 0.4:
            admin.delete(topic)
            del alive[topic]
            continue
        write(topic, draw.randint(1, 50))
        if number % 5 == 0:
            write(steady, 1)
            read_all(query, alive[steady])
    read_all(query, [value for values in alive.values() for value in values])
    query.stop()
    values = query.values
    assert len(values) == len(set(values)), "a record came twice"
    assert set(values) <= set(map(str, range(next(written))))


def read_all(query: Stream, values: list[int]) -> None:
    """Wait until these, and maybe others, have been read."""
    wanted = set(map(str, values))
    query.wait(lambda: wanted <= set(query.values), "what the topics hold that are there")
