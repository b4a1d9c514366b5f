"""Exactly-once delivery with Kafka 3.9, where producer epochs change with each run, not with each transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.test_transactions import STEPS, Query, crash

from pyspark_kafka_direct.errors import CheckpointFencedError, ProducerFencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def query(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], tmp_path: Path) -> Iterator[Query]:
    servers = kafka39.bootstrap_servers
    make_topic = topics_on(servers)
    created = Query(servers, tmp_path / "checkpoint", make_topic(2), make_topic(2))
    yield created
    created.close()


@pytest.mark.parametrize(
    "step",  # test_transactions.py tries all steps with the newest Kafka
    [step if step in ("written", "one ended") else pytest.param(step, marks=pytest.mark.soak) for step in STEPS],
)
def test_a_crash_at_any_step_neither_loses_nor_repeats(query: Query, step: str) -> None:
    first = query.start()
    assert first.sinks[0]._producer._init_result is not None
    assert not first.sinks[0]._producer._init_result.transaction_v2
    first.run_epoch(3)
    first.run_epoch(2)
    crash(first, step)
    second = query.start()
    ended = STEPS.index(step) - STEPS.index("offsets")
    expected = [5 + 4 if ended >= 1 else 5, 5 + 5 if ended >= 2 else 5]
    assert list(second.positions.values()) == expected
    second.run_epoch(2)
    assert query.committed_counts() == [each + 2 for each in expected]
    for task in range(2):
        first.write(task, 1)
        with pytest.raises(ProducerFencedError):
            first.end(task)
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        first.start()
    second.run_epoch(2)
    assert query.committed_counts() == [each + 4 for each in expected]
