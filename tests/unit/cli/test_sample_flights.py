"""The flights sample."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pyspark_kafka_direct.cli import sample_flights
from pyspark_kafka_direct.cli.sample_flights import INITIAL_RECORDS, FlightsProducer, flight_record
from pyspark_kafka_direct.errors import BrokerTimeoutError


class FakeWriter:
    """Counts the rows of each write."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def write(self, keys: Any, values: Any, timestamps: Any) -> None:
        assert len(keys) == len(values) == len(timestamps)
        self.rows.append(len(keys))


def test_after_a_pause_the_flights_due_are_produced_in_several_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = FakeWriter()
    monkeypatch.setattr(sample_flights, "TopicWriter", lambda servers, topic: writer)
    flights = FlightsProducer("b:1")
    flights.produce_due()
    flights._started_at -= 8 * 3600
    for _ in range(2):
        flights.produce_due()
    assert writer.rows == [INITIAL_RECORDS] * 3
    assert flights.written == 3 * INITIAL_RECORDS


def test_after_an_error_the_same_flights_are_produced_by_another_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = writers = [FakeWriter(), FakeWriter()]
    remaining = iter(writers)
    monkeypatch.setattr(sample_flights, "TopicWriter", lambda servers, topic: next(remaining))

    def fail(keys: Any, values: Any, timestamps: Any) -> None:
        raise BrokerTimeoutError("Records were not acknowledged within 30 s.")

    monkeypatch.setattr(first, "write", fail)
    flights = FlightsProducer("b:1")
    with pytest.raises(BrokerTimeoutError):
        flights.produce_due()
    flights.reconnect()
    flights.produce_due()
    assert first.closed
    assert (second.rows, flights.written) == ([INITIAL_RECORDS], INITIAL_RECORDS)


def test_a_number_always_has_the_same_flight() -> None:
    assert flight_record(7) == flight_record(7)
    assert flight_record(7) != {**flight_record(8), "number": 7}
    assert flight_record(0) == {
        "number": 0,
        "carrier": "US",
        "flight": 1991,
        "origin": "LGA",
        "dest": "SFO",
        "distance": 2586,
        "dep_delay": 118,
    }


def test_flights_are_plausible() -> None:
    flights = [flight_record(number) for number in range(3000)]
    carriers, source_keys = (Counter(each[name] for each in flights) for name in ("carrier", "origin"))
    assert len(carriers) == 10
    assert carriers["UA"] > carriers["VX"] > 0
    assert set(source_keys) == {"EWR", "JFK", "LGA"}
    delays = [each["dep_delay"] for each in flights]
    assert 0 < sum(delay is None for delay in delays) < 150
    delayed = sum(delay is not None and delay > 0 for delay in delays)
    assert 0.25 < delayed / len(flights) < 0.45
