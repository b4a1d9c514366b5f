"""The examples of continuous queries, with fewer flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, *arguments: str) -> str:
    """Run an example, and return its output."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_late_flight_has_an_alert() -> None:
    output = run("continuous_flights.py", "--flights", "3000", "--rate", "1000")
    assert "188 flights were late, 188 alerts arrived: all equal" in output
    assert "From departure to alert, 188 flights: half within" in output


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_late_flight_is_stored() -> None:
    output = run("continuous_sqlite.py", "--flights", "3000")
    assert "188 flights were late, 188 are in the table: all equal" in output


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import continuous_sqlite

    yield continuous_sqlite
    for name in ("continuous_sqlite", "_flights", "_steps"):
        sys.modules.pop(name, None)


def test_a_task_beside_its_successor_stores_nothing(example: Any, tmp_path: Path) -> None:
    database = tmp_path / "flights.sqlite"
    example.create_tables(database)
    zero, one, two = (TopicPartition("flights", number) for number in range(3))

    def rows(*minutes: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [dict(zip(example.COLUMNS, ("JFK", "AA", 1, each), strict=True)) for each in minutes]
        )

    def open_sink() -> Any:
        sink = example.SqliteSink(str(database), "late_flights")
        return sink, dict(sink.stored_positions())

    first, stored = open_sink()
    assert stored == {}
    first.write(rows(61))
    first.flush({zero: 5, one: 7})
    second, stored = open_sink()
    assert stored == {zero: 5, one: 7}
    second.write(rows(62))
    second.flush({zero: 6, one: 7})
    first.write(rows(62, 63))
    for positions in ({zero: 7, one: 7, two: 1}, {zero: 6, one: 8}):
        with pytest.raises(RuntimeError, match="another task has stored"):
            first.flush(positions)
    assert [each[3] for each in example.stored_flights(database)] == [61, 62]
    assert open_sink()[1] == {zero: 6, one: 7}
