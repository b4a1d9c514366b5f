"""The benchmark of typed JSON: its data, its ratios and its goals."""

from __future__ import annotations

import json
from itertools import islice

from bench.measure import Sample
from bench.summary import JVM, OURS, Series
from bench.typed import (
    ALL_FIELDS,
    ALL_MALFORMED,
    DECODER_GOALS,
    GROUPED,
    SOME_MALFORMED,
    DecoderCase,
    damaged,
    decoder_rates,
    evaluate_goals,
    flights,
    render,
)

RATES = {**dict.fromkeys(DECODER_GOALS, 9e6), SOME_MALFORMED: 4e6}


def series(job: str, peer: str, seconds: float) -> Series:
    return Series("flights-0", job, peer, 3_000_000, 254, "lz4", (Sample(seconds, 2 * seconds),))


RUN = [
    series(GROUPED, JVM, 5.0),
    series(GROUPED, OURS, 0.5),
    series(ALL_FIELDS, JVM, 6.0),
    series(ALL_FIELDS, OURS, 2.0),
    series(SOME_MALFORMED, JVM, 6.0),
    series(SOME_MALFORMED, OURS, 2.5),
]


def test_flights_have_fourteen_fields() -> None:
    first, second = islice(flights(), 2)
    assert len(first) == len(second) == 14
    assert (first["carrier"], first["flight"], first["dep_delay"]) == ("UA", 1545, 2)


def test_one_of_a_hundred_values_is_malformed() -> None:
    value = json.dumps(next(flights())).encode()
    values = [damaged(value, number, 0.01) for number in range(1000)]
    assert sum(not _is_json(each) for each in values) == 10
    assert not any(_is_json(damaged(value, number, 1.0)) for number in range(10))
    assert damaged(value, 0, 0.0) == value


def test_goals_compare_each_job_with_the_jvm_connector() -> None:
    reached = {name: result for name, _, _, result in evaluate_goals(RUN, RATES)}
    assert reached == {
        f"{GROUPED}: records/s": True,
        f"{GROUPED}: processor time": True,
        f"{ALL_FIELDS}: records/s": False,
        f"{ALL_FIELDS}: processor time": False,
        SOME_MALFORMED: False,
        "decoder alone, 3 of 14 fields": True,
        "decoder alone, 14 fields": True,
        "decoder alone, 14 fields, keys in random order": True,
        f"decoder alone, {ALL_MALFORMED}": True,
    }


def test_the_tables_have_each_run_and_each_goal() -> None:
    text = render(RUN, RATES)
    assert f"| {GROUPED} | {OURS} | 6.00 | 0.33 | 10.00x | 0.10x |" in text
    assert f"| {GROUPED} | {JVM} | 0.60 | 3.33 | | |" in text
    assert f"| {SOME_MALFORMED} | >= 0.9x of clean | 0.80x | no |" in text


def test_decoders_are_measured_in_turn() -> None:
    calls: list[tuple[str, int]] = []

    def case(name: str, values: int) -> DecoderCase:
        return DecoderCase(lambda batch: calls.append((name, len(batch))), [b"{}"] * values)

    rates = decoder_rates({"one": case("one", 15_000), "two": case("two", 3)})
    assert rates.keys() == {"one", "two"}
    assert calls[:6] == [("one", 10_000), ("one", 5_000), ("two", 3)] * 2


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True
