from __future__ import annotations

from bench import client_peers
from bench.arrow import (
    BATCH_QUERY,
    CASES,
    FIRST_BATCH,
    IMPORT,
    PARTITIONS,
    READ,
    START,
    WRITE,
    Way,
    evaluate_goals,
    render,
)
from bench.log_writers import PRODUCE
from bench.measure import Sample
from bench.summary import CONFLUENT, KAFKARROW, READ_ARROW


def ways(**seconds: float) -> list[Way]:
    """One run of each way over 1 M records, 10 s long unless set, with two seconds of processor time per second."""
    return [
        Way(case, name, 1_000_000, (Sample(took, 2 * took),))
        for case, names in CASES.items()
        for name in names
        for took in [seconds.get(f"{case} {name}", 10.0)]
    ]


def test_goals_are_judged_by_ratios_of_one_run() -> None:
    goals = evaluate_goals(ways(**{f"{READ} {READ_ARROW}": 1.5, f"{WRITE} {PRODUCE}": 50.0}))
    assert goals == [
        (f"{READ}: processor time per record, against {KAFKARROW}", "<= 0.2x", "0.15x", True),
        (f"{READ}: time, against {KAFKARROW}", "<= 0.1x", "0.15x", False),
        (f"{START}: time, against {IMPORT}", "<= 3x", "1.00x", True),
        (f"{WRITE}: time, against {PRODUCE}", "<= 0.2x", "0.20x", True),
        (f"{PARTITIONS}: time, against {BATCH_QUERY}", "<= 0.7x", "1.00x", False),
    ]


def test_ways_that_read_different_numbers_of_records_are_compared_per_record() -> None:
    fewer = [Way(READ, READ_ARROW, 1000, (Sample(1.0, 1.0),)), Way(READ, KAFKARROW, 100, (Sample(1.0, 1.0),))]
    assert [measured for _, _, measured, _ in evaluate_goals(fewer)] == ["0.10x", "0.10x"]


def test_a_client_that_is_not_installed_has_no_goal() -> None:
    without = [each for each in ways() if each.name != KAFKARROW]
    assert [name for name, *_ in evaluate_goals(without) if KAFKARROW in name] == []
    assert KAFKARROW not in render(without)
    assert client_peers.is_installed(CONFLUENT)


def test_the_table_names_every_way() -> None:
    text = render(ways(**{f"{START} {FIRST_BATCH}": 0.25}))
    assert all(f"| {case} | {name} |" in text for case, names in CASES.items() for name in names)
    assert f"| {START} | {FIRST_BATCH} | 0.25 | - | - |" in text
    assert f"| {READ} | {READ_ARROW} | 10.00 | 0.10 | 20.00 |" in text
