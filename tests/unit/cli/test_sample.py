"""The flights of the sample."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.cli import sample
from pyspark_kafka_direct.cli.sample import BACKLOG, Flights, flight

if TYPE_CHECKING:
    import pytest


class Writer:
    """Counts what is written."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def write(self, batch: Any) -> None:
        self.rows.append(batch.num_rows)

    def flush(self) -> None:
        pass


def test_after_a_night_asleep_the_flights_of_the_night_are_written_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer()
    monkeypatch.setattr(sample, "_writer", lambda servers, topic: (writer, writer))
    flights = Flights("b:1")
    flights.write_due()
    flights._began -= 8 * 3600
    for _ in range(2):
        flights.write_due()
    assert writer.rows == [BACKLOG] * 3
    assert flights.written == 3 * BACKLOG


def test_a_number_has_always_the_same_flight() -> None:
    assert flight(7) == flight(7)
    assert flight(7) != {**flight(8), "number": 7}
    assert flight(0) == {
        "number": 0,
        "carrier": "US",
        "flight": 1991,
        "origin": "LGA",
        "dest": "SFO",
        "distance": 2586,
        "dep_delay": 118,
    }


def test_flights_are_plausible() -> None:
    flights = [flight(number) for number in range(3000)]
    carriers, origins = (Counter(each[name] for each in flights) for name in ("carrier", "origin"))
    assert len(carriers) == 10
    assert carriers["UA"] > carriers["VX"] > 0
    assert set(origins) == {"EWR", "JFK", "LGA"}
    delays = [each["dep_delay"] for each in flights]
    assert 0 < sum(delay is None for delay in delays) < 150
    late = sum(delay is not None and delay > 0 for delay in delays)
    assert 0.25 < late / len(flights) < 0.45
