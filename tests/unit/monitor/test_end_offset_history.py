"""Lag in seconds, interpolated from earlier end offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.monitor.consumer_lag import EndOffsetHistory


def history(*points: tuple[int, float], max_points: int = 60) -> EndOffsetHistory:
    result = EndOffsetHistory(max_points)
    for offset, time in points:
        result.add(offset, time)
    return result


def test_without_points() -> None:
    assert EndOffsetHistory().seconds_behind(5, 10.0) is None


def test_one_point_shows_only_whether_its_offset_was_reached() -> None:
    assert history((100, 10.0)).seconds_behind(100, 11.0) == 0
    assert history((100, 10.0)).seconds_behind(99, 11.0) is None


def test_between_two_points() -> None:
    assert history((100, 10.0), (200, 20.0)).seconds_behind(150, 21.0) == 6.0


def test_between_the_nearest_points() -> None:
    ends = history((0, 0.0), (100, 10.0), (110, 20.0), (1000, 30.0))
    assert ends.seconds_behind(105, 30.0) == 15.0
    assert ends.seconds_behind(50, 30.0) == 25.0


def test_an_offset_before_all_points_is_extrapolated() -> None:
    assert history((100, 10.0), (200, 20.0)).seconds_behind(50, 20.0) == 15.0


def test_lag_starts_after_the_end_offset_stopped_changing() -> None:
    # The end offset was 100 until 50 s, so a reader at 100 had no lag until then.
    ends = history((100, 10.0), (100, 30.0), (100, 50.0), (110, 60.0))
    assert ends.seconds_behind(100, 61.0) == 11.0


def test_an_unchanged_offset_takes_two_points() -> None:
    ends = history((0, 0.0), (10, 1.0), *[(10, 2.0 + second) for second in range(100)], (20, 200.0), max_points=4)
    assert ends.seconds_behind(5, 200.0) == 199.5


def test_the_oldest_point_is_dropped() -> None:
    ends = history((0, 0.0), (10, 100.0), (20, 101.0), max_points=2)
    assert ends.seconds_behind(0, 101.0) == 2.0


def test_a_lower_end_offset_resets_the_history() -> None:
    ends = history((100, 10.0), (200, 20.0), (5, 30.0), (15, 40.0))
    assert ends.seconds_behind(10, 40.0) == 5.0
    assert ends.seconds_behind(15, 41.0) == 0.0
    assert ends.seconds_behind(3, 40.0) == 12.0, "extrapolated without the earlier points"


@pytest.mark.parametrize("time", [20.0, 15.0])
def test_an_earlier_time_is_ignored(time: float) -> None:
    ends = history((100, 10.0), (200, 20.0), (300, time))
    assert ends.seconds_behind(200, 21.0) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=30), st.integers(50, 250))
def test_all_points_of_a_growing_log_count(steps: list[tuple[int, int]], offset: int) -> None:
    """The lag is the time since the last moment when the offset was the end, on straight lines between the points."""
    points = [(100, 5)]
    for growth, seconds in steps:
        points.append((points[-1][0] + growth, points[-1][1] + seconds))
    (first, first_time), (last, last_time), now = points[0], points[-1], points[-1][1] + 3
    expected: float | None = None
    if offset >= last:
        expected = 0.0
    elif offset < first and first < last:
        expected = now - (first_time + (offset - first) * (last_time - first_time) / (last - first))
    for (earlier, start), (later, end) in pairwise(points):
        if earlier <= offset < later:
            expected = now - (start + (offset - earlier) * (end - start) / (later - earlier))
    assert history(*points).seconds_behind(offset, now) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1e6)), max_size=80), st.integers(0, 1100))
def test_lag_is_never_negative(points: list[tuple[int, float]], offset: int) -> None:
    seconds = history(*points).seconds_behind(offset, 1e6)
    assert seconds is None or seconds >= 0
