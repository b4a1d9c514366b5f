"""Exactly-once delivery by brokers of Kafka 3.9: producer epochs move with each run there, not each transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.test_transactions import STEPS, Query, crash

from pyspark_kafka_direct.errors import CheckpointTakenError, FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def query(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], tmp_path: Path) -> Iterator[Query]:
    servers = kafka39.bootstrap_servers
    make_topic = topics_on(servers)
    made = Query(servers, tmp_path / "checkpoint", make_topic(2), make_topic(2))
    yield made
    made.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_neither_loses_nor_repeats(query: Query, step: str) -> None:
    first = query.start()
    assert first.sinks[0]._session._started is not None
    assert not first.sinks[0]._session._started.bumps_epochs
    first.run_epoch(3)
    first.run_epoch(2)
    crash(first, step)
    second = query.start()
    ended = STEPS.index(step) - STEPS.index("offsets")
    reached = [5 + 4 if ended >= 1 else 5, 5 + 5 if ended >= 2 else 5]
    assert list(second.positions.values()) == reached
    second.run_epoch(2)
    assert query.published() == [each + 2 for each in reached]
    for task in range(2):
        first.write(task, 1)
        with pytest.raises(FencedError):
            first.end(task)
    with pytest.raises(CheckpointTakenError, match="has taken the query over"):
        first.start()
    second.run_epoch(2)
    assert query.published() == [each + 4 for each in reached]
