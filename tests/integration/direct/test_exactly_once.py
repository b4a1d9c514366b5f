"""Each record exactly once although processes are killed, and examples/exactly_once_sqlite.py, which does the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.soak.direct_run import DirectPlan, DirectRun

from pyspark_kafka_direct.direct import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import EmbeddedKafka

FAILING = 0.2  # the share of generations that fail

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "plan",
    [
        DirectPlan(seed=2, offsets="checkpoint", kills=2, failing=FAILING, grows=1),
        DirectPlan(seed=1, offsets="database", kills=2, failing=FAILING, grows=0, deletes=1),
    ],
    ids=lambda plan: f"{plan.offsets}-{plan.kills}",
)
@pytest.mark.soak  # test_stream_restarts.py kills a direct stream, too
def test_each_record_is_there_once_after_kills(kafka: EmbeddedKafka, tmp_path: Path, plan: DirectPlan) -> None:
    """A short form of ``make soak-direct``."""
    outcome = DirectRun(plan, kafka.bootstrap_servers, tmp_path, report=print).run()
    assert outcome.kills.total() == plan.kills
    assert outcome.changes["created"] == 1
    assert outcome.records > 0


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import exactly_once_sqlite

    yield exactly_once_sqlite
    for name in ("exactly_once_sqlite", "_flights", "_steps"):
        sys.modules.pop(name, None)


def test_a_batch_with_other_start_offsets_stores_nothing(example: Any, tmp_path: Path) -> None:
    database = tmp_path / "delays.sqlite"
    example.create_tables(database)
    zero, one = TopicPartition("flights", 0), TopicPartition("flights", 1)
    first_offsets = {zero: 0, one: 7}
    example.store(database, first_offsets, [OffsetRange(*zero, 0, 5), OffsetRange(*one, 7, 9)], {"JFK": (7, 6, 60)})
    before = ({zero: 5, one: 9}, {"JFK": (7, 6, 60)})
    assert (example.stored_offsets(database), example.stored_delays(database)) == before
    for second_range in (OffsetRange(*one, 7, 9), OffsetRange(*one, 10, 12)):
        with pytest.raises(RuntimeError, match="but the database contains another offset"):
            example.store(
                database, first_offsets, [OffsetRange(*zero, 5, 8), second_range], {"JFK": (1, 1, 1), "LGA": (1, 1, 1)}
            )
        assert (example.stored_offsets(database), example.stored_delays(database)) == before
    example.store(database, first_offsets, [OffsetRange(*zero, 5, 8), OffsetRange(*one, 9, 9)], {"JFK": (3, 3, -10)})
    assert example.stored_offsets(database) == {zero: 8, one: 9}
    assert example.stored_delays(database) == {"JFK": (10, 9, 50)}


def test_a_batch_after_a_failed_first_batch_stores_nothing(example: Any, tmp_path: Path) -> None:
    """Spark runs the second batch anyway, and the database is still empty."""
    database = tmp_path / "delays.sqlite"
    example.create_tables(database)
    one = TopicPartition("flights", 1)
    with pytest.raises(RuntimeError, match="but the database contains another offset"):
        example.store(database, {one: 7}, [OffsetRange(*one, 9, 12)], {"JFK": (3, 3, 30)})
    assert (example.stored_offsets(database), example.stored_delays(database)) == ({}, {})
