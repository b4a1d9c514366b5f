"""One checkpoint, read in turn by continuous and by micro-batch queries of the same options."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic
    from tests.integration.continuous.queries import Queries
    from tests.integration.stream_queries import Stream


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("continuous_first", [True, False], ids=["continuous first", "micro-batch first"])
def test_in_turn(
    queries: Queries, stream: Callable[..., Stream], make_topic: MakeTopic, start: str, continuous_first: bool
) -> None:
    topic, output = make_topic(2), make_topic()
    numbers = itertools.count()
    written: list[int] = []
    by_batches: list[int] = []

    def put(count: int) -> list[int]:
        some = list(itertools.islice(numbers, count))
        queries.put(topic, some)
        return some

    before = put(10)
    batches = stream(subscribe=topic, startingOffsets=start)
    queries.folder = batches.folder
    reading = queries.read(subscribe=topic, startingOffsets=start).select("value")
    ids = set()
    waiting = before if start == "earliest" else []
    for turn in range(4):
        if (turn % 2 == 0) is continuous_first:
            query = queries.start(reading.to_kafka(output))
            query.processAllAvailable()
            written += waiting + put(10)
            queries.expect(output, written, query)
            query.processAllAvailable()
            query.stop()
            ids.add(query.id)
        else:
            batches.run()
            assert batches.query is not None
            ids.add(str(batches.query.id))
            by_batches += waiting
            assert batches.values == sorted(map(str, by_batches))
        waiting = put(10)
    assert len(ids) == 1, "it is one query to all of them"
    epochs = queries.entries("offsets")
    assert epochs == list(range(len(epochs))) == queries.entries("commits")


def test_a_batch_that_was_planned_and_not_finished(
    queries: Queries, stream: Callable[..., Stream], make_topic: MakeTopic
) -> None:
    """At least once: its records are read again."""
    topic, output = make_topic(2), make_topic()
    queries.put(topic, range(10))
    batches = stream(subscribe=topic, startingOffsets="earliest")
    batches.run()
    queries.put(topic, range(10, 20))
    batches.run()
    batches.undo_commit()
    queries.folder = batches.folder
    reading = queries.read(subscribe=topic).select("value")
    queries.expect(output, range(10, 20), queries.start(reading.to_kafka(output)))
