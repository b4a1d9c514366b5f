"""Lag in seconds by interpolation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.monitor._history import EndHistory


def history(*points: tuple[int, float], kept: int = 60) -> EndHistory:
    made = EndHistory(kept)
    for offset, time in points:
        made.add(offset, time)
    return made


def test_nothing_seen() -> None:
    assert EndHistory().seconds_behind(5, 10.0) is None


def test_one_end_tells_only_whether_it_was_reached() -> None:
    assert history((100, 10.0)).seconds_behind(100, 11.0) == 0
    assert history((100, 10.0)).seconds_behind(99, 11.0) is None


def test_between_two_ends() -> None:
    assert history((100, 10.0), (200, 20.0)).seconds_behind(150, 21.0) == 6.0


def test_finds_the_right_stretch() -> None:
    seen = history((0, 0.0), (100, 10.0), (110, 20.0), (1000, 30.0))
    assert seen.seconds_behind(105, 30.0) == 15.0
    assert seen.seconds_behind(50, 30.0) == 25.0


def test_older_than_all_goes_on_along_the_line() -> None:
    assert history((100, 10.0), (200, 20.0)).seconds_behind(50, 20.0) == 15.0


def test_waiting_begins_when_the_quiet_ends() -> None:
    # The end stood at 100 until 50 s: a reader at 100 was not behind until then.
    seen = history((100, 10.0), (100, 30.0), (100, 50.0), (110, 60.0))
    assert seen.seconds_behind(100, 61.0) == 11.0


def test_a_quiet_stretch_takes_no_room() -> None:
    seen = history((0, 0.0), (10, 1.0), *[(10, 2.0 + n) for n in range(100)], (20, 200.0), kept=4)
    assert seen.seconds_behind(5, 200.0) == 199.5


def test_oldest_is_forgotten() -> None:
    seen = history((0, 0.0), (10, 100.0), (20, 101.0), kept=2)
    assert seen.seconds_behind(0, 101.0) == 2.0


def test_an_end_that_went_back_begins_anew() -> None:
    seen = history((100, 10.0), (200, 20.0), (5, 30.0), (15, 40.0))
    assert seen.seconds_behind(10, 40.0) == 5.0
    assert seen.seconds_behind(15, 41.0) == 0.0


@pytest.mark.parametrize("time", [20.0, 15.0])
def test_time_does_not_go_back(time: float) -> None:
    seen = history((100, 10.0), (200, 20.0), (300, time))
    assert seen.seconds_behind(200, 21.0) == 0


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1e6)), max_size=80), st.integers(0, 1100))
def test_never_negative(points: list[tuple[int, float]], offset: int) -> None:
    seconds = history(*points).seconds_behind(offset, 1e6)
    assert seconds is None or seconds >= 0
