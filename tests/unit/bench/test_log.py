from __future__ import annotations

from bench.log import evaluate_goals, render
from bench.log_peers import LOG, TABLE, WAYS
from bench.log_writers import PRODUCE, PUT, SEND, WRITE_WAYS
from bench.measure import Sample
from bench.summary import KAFKA_PYTHON, Series


def series(ways: tuple[str, ...], **seconds: float) -> list[Series]:
    """One run of each way over 1 M records, a second long unless told otherwise."""
    return [
        Series("100 B none", "log", way, 1_000_000, 100, "none", (Sample(seconds.get(way, 1.0), 2.0),)) for way in ways
    ]


def test_goals_are_judged_by_ratios() -> None:
    writes = series(WRITE_WAYS, **{PUT: 10.0})
    equal = evaluate_goals({each.peer: each for each in [*series(WAYS), *writes]})
    assert [reached for *_, reached in equal] == [False, False, False, True]
    slower = [*series(WAYS, **{KAFKA_PYTHON: 12.0, LOG: 2.0}), *writes]
    assert evaluate_goals({each.peer: each for each in slower}) == [
        (f"{TABLE} against kafka-python", ">= 10x", "12.0x", True),
        (f"{LOG} against kafka-python", ">= 10x", "6.0x", False),
        (PUT, ">= 130,000 records/s", "100,000", False),
        (SEND, ">= 130,000 records/s", "1,000,000", True),
    ]


def test_the_table_names_every_way() -> None:
    text = render(series(WAYS, **{KAFKA_PYTHON: 12.5}), series(WRITE_WAYS, **{PRODUCE: 0.5}))
    assert all(f"| {way} |" in text for way in (*WAYS, *WRITE_WAYS))
    assert f"| {PUT} | 1.00 | 1,000,000 | 2.00 | 0.50x |" in text
    assert "1,000,000 keys, 100 B none, 1 runs each" in text
    assert f"| {TABLE} | 1.00 | 1.00 | 2.00 | 12.5x |" in text
