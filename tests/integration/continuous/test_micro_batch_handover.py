"""One checkpoint, used alternately by continuous and micro-batch queries with the same options."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries
    from tests.integration.stream_queries import Stream


@pytest.mark.parametrize(
    ("continuous_first", "start"),
    [
        pytest.param(True, "earliest", id="continuous first-earliest"),
        pytest.param(False, "latest", id="micro-batch first-latest"),
        pytest.param(True, "latest", id="continuous first-latest", marks=pytest.mark.soak),
        pytest.param(False, "earliest", id="micro-batch first-earliest", marks=pytest.mark.soak),
    ],
)
def test_alternating_queries(
    queries: Queries, stream: Callable[..., Stream], make_topic: MakeTopic, continuous_first: bool, start: str
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
    input_query = queries.read(subscribe=topic, startingOffsets=start).select("value")
    ids = set()
    pending = before if start == "earliest" else []
    for number in range(4):
        if (number % 2 == 0) is continuous_first:
            query = queries.start(input_query.to_kafka(output))
            query.processAllAvailable()
            written += pending + put(10)
            queries.expect(output, written, query)
            query.processAllAvailable()
            query.stop()
            ids.add(query.id)
        else:
            batches.run()
            assert batches.query is not None
            ids.add(str(batches.query.id))
            by_batches += pending
            assert batches.values == sorted(map(str, by_batches))
        pending = put(10)
    assert len(ids) == 1, "all of them are the same query"
    epochs = queries.epochs("offsets")
    assert epochs == list(range(len(epochs))) == queries.epochs("commits")


def test_an_incomplete_micro_batch(queries: Queries, stream: Callable[..., Stream], make_topic: MakeTopic) -> None:
    """With at-least-once delivery, its records are read again."""
    topic, output = make_topic(2), make_topic()
    queries.put(topic, range(10))
    batches = stream(subscribe=topic, startingOffsets="earliest")
    batches.run()
    queries.put(topic, range(10, 20))
    batches.run()
    batches.undo_commit()
    queries.folder = batches.folder
    input_query = queries.read(subscribe=topic).select("value")
    queries.expect(output, range(10, 20), queries.start(input_query.to_kafka(output)))
