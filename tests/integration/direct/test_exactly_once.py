"""examples/exactly_once_sqlite.py: results and offsets in one transaction, whatever dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.soak.direct import ExactlyOnceRun

from pyspark_kafka_direct.direct import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import EmbeddedKafka

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.timeout(1200)
def test_the_database_is_exact_after_three_kills(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """A short form of ``make soak-direct``."""
    outcome = ExactlyOnceRun(kafka.bootstrap_servers, tmp_path, seed=1, say=print).run(kills=3)
    assert outcome.kills.total() == 3
    assert outcome.kills["running"] >= 1, "no kill came while batches were stored"
    assert outcome.records > 0


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import exactly_once_sqlite

    yield exactly_once_sqlite
    for name in ("exactly_once_sqlite", "_flights", "_steps"):
        sys.modules.pop(name, None)


def test_a_batch_that_begins_elsewhere_stores_nothing(example: Any, tmp_path: Path) -> None:
    database = tmp_path / "delays.sqlite"
    example.create_tables(database)
    zero, one = TopicPartition("flights", 0), TopicPartition("flights", 1)
    begins = {zero: 0, one: 7}
    example.store(database, begins, [OffsetRange(*zero, 0, 5), OffsetRange(*one, 7, 9)], {"JFK": (7, 6, 60)})
    before = ({zero: 5, one: 9}, {"JFK": (7, 6, 60)})
    assert (example.stored_offsets(database), example.stored_delays(database)) == before
    for again in (OffsetRange(*one, 7, 9), OffsetRange(*one, 10, 12)):
        with pytest.raises(RuntimeError, match="the database is elsewhere"):
            example.store(database, begins, [OffsetRange(*zero, 5, 8), again], {"JFK": (1, 1, 1), "LGA": (1, 1, 1)})
        assert (example.stored_offsets(database), example.stored_delays(database)) == before
    example.store(database, begins, [OffsetRange(*zero, 5, 8), OffsetRange(*one, 9, 9)], {"JFK": (3, 3, -10)})
    assert example.stored_offsets(database) == {zero: 8, one: 9}
    assert example.stored_delays(database) == {"JFK": (10, 9, 50)}


def test_a_batch_after_a_first_one_that_failed_stores_nothing(example: Any, tmp_path: Path) -> None:
    """Spark runs it all the same, and the database knows nothing yet."""
    database = tmp_path / "delays.sqlite"
    example.create_tables(database)
    one = TopicPartition("flights", 1)
    with pytest.raises(RuntimeError, match="the database is elsewhere"):
        example.store(database, {one: 7}, [OffsetRange(*one, 9, 12)], {"JFK": (3, 3, 30)})
    assert (example.stored_offsets(database), example.stored_delays(database)) == ({}, {})
