"""Topics deleted and recreated at random during a query with ``failOnDataLoss=false``.

Records of deleted topics may be lost. No record may be read twice, the query must continue, and all records of the
topics that exist at the end must be read, because the query has seen the topic ids while it ran.
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


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [3, 10])
def test_topics_deleted_and_recreated_at_random(
    stream: Callable[..., Stream], kafka: EmbeddedKafka, put: Any, seed: int
) -> None:
    draw = random.Random(seed)
    admin = Admin(kafka.bootstrap_servers)
    names = [f"stress-{seed}-{number}" for number in range(4)]
    existing: dict[str, list[int]] = {}  # existing topics and their values
    written = itertools.count()

    def write(topic: str, count: int) -> None:
        values = list(itertools.islice(written, count))
        put(topic, values)
        existing[topic] += values

    def create(topic: str, partitions: int) -> None:
        admin.create(topic, partitions)
        existing[topic] = []

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
        if topic not in existing:
            create(topic, draw.randint(1, 4))
        elif draw.random() < 0.4:
            admin.delete(topic)
            del existing[topic]
            continue
        write(topic, draw.randint(1, 50))
        if number % 5 == 0:
            write(steady, 1)
            read_all(query, existing[steady])
    read_all(query, [value for values in existing.values() for value in values])
    query.stop()
    values = query.values
    assert len(values) == len(set(values)), "a record came twice"
    assert set(values) <= set(map(str, range(next(written))))


def read_all(query: Stream, values: list[int]) -> None:
    """Wait until these values, and maybe others, were read."""
    expected = set(map(str, values))
    query.wait(lambda: expected <= set(query.values), "the records of the existing topics")
