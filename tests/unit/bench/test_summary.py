from __future__ import annotations

import pytest
from bench.measure import Sample
from bench.summary import JVM, OURS, Series, find, ratio


def series(peer: str, records: int, *samples: Sample) -> Series:
    return Series("100 B none", "noop", peer, records, 100, "none", samples)


def test_figures_are_of_the_median_run() -> None:
    made = series(OURS, 1_000_000, Sample(3.0, 4.0), Sample(1.0, 0.5, 0.2), Sample(2.0, 1.0, 0.1))
    assert made.seconds == 2.0
    assert made.spread == (1.0, 3.0)
    assert made.records_per_second == 500_000
    assert made.megabytes_per_second == pytest.approx(50)
    assert made.core_us_per_record == pytest.approx(1.0)
    assert made.broker_core_us_per_record == pytest.approx(0.1)


def test_a_ratio_is_per_record_although_each_has_read_another_number() -> None:
    ours, theirs = series(OURS, 2_000_000, Sample(1.0, 1.0)), series(JVM, 1_000_000, Sample(1.0, 2.0))
    compared = ratio(ours, theirs)
    assert compared.speed == pytest.approx(2.0)
    assert compared.cpu == pytest.approx(0.25)


def test_find() -> None:
    ours = series(OURS, 1, Sample(1.0, 1.0))
    assert find([ours], "100 B none", "noop", OURS) is ours
    assert find([ours], "100 B none", "value", OURS) is None
