"""The flights of the sample."""

from __future__ import annotations

from collections import Counter

from pyspark_kafka_direct.cli.sample import flight


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
