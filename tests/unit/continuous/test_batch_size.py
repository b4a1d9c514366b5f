"""How the size of a function's batches adapts to the time of its calls."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.continuous.batch_size import BatchSize


def run_backlog(fixed_seconds: float, seconds_per_row: float, calls: int = 40, first: int | None = None) -> list[int]:
    """Return the sizes of the batches of a backlog; ``first`` is a batch of live traffic before it."""
    size, sizes = BatchSize(8192), []
    if first is not None:
        size.adapt(first, 5.0, 5.0 + fixed_seconds + seconds_per_row * first)
    for _ in range(calls):
        sizes.append(size.rows)
        size.adapt(size.rows, 5.0, 5.0 + fixed_seconds + seconds_per_row * size.rows)
    return sizes


def test_a_fast_function_gets_large_batches_soon() -> None:
    assert run_backlog(0.0, 1e-6)[:11] == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 8192]


@pytest.mark.parametrize("seconds_per_row", [0.0074, 0.3, 2.0])
def test_a_slow_function_is_called_for_about_a_second(seconds_per_row: float) -> None:
    """A call with 8,192 rows took 60 s, so the epoch timed out at each restart."""
    sizes = run_backlog(0.0, seconds_per_row)
    assert sizes[0] * seconds_per_row < 60
    assert all(size * seconds_per_row <= max(1.0, 2 * seconds_per_row) for size in sizes[1:])
    assert sum(sizes[10:]) * seconds_per_row > 15


@pytest.mark.parametrize("first", [None, 1, 3, 16])
@pytest.mark.parametrize("fixed_seconds", [0.1, 1.5, 3.0, 20.0])
def test_batches_stay_large_if_a_call_always_takes_the_same_time(fixed_seconds: float, first: int | None) -> None:
    assert run_backlog(fixed_seconds, 0.0, first=first)[-1] == 8192


@pytest.mark.parametrize(("rate", "rows"), [(1, 1), (50, 5), (1000, 16), (1_000_000, 16)])
def test_a_rate_limits_batches_and_the_time_between_them(rate: float, rows: int) -> None:
    size = BatchSize(8192, rate)
    assert size.rows == rows
    size.adapt(rows, 10.0, 10.0)
    assert size.next_at == pytest.approx(10 + rows / rate)
    assert 1 <= size.rows <= max(1, rate / 10)
    size.adapt(rows, size.next_at, size.next_at + 1e-9)
    assert size.next_at == pytest.approx(10 + 2 * rows / rate)
    assert BatchSize(8192).next_at == 0.0


@pytest.mark.parametrize(("started_at", "next_at"), [(10.05, 10.2), (10.5, 10.6), (100.0, 100.1)])
def test_the_rate_does_not_make_up_for_time_without_calls(started_at: float, next_at: float) -> None:
    size = BatchSize(8192, 50)
    size.adapt(5, 10.0, 10.0)
    size.adapt(5, started_at, started_at)
    assert size.next_at == pytest.approx(next_at)


def test_the_time_of_a_call_is_a_part_of_its_interval() -> None:
    size = BatchSize(8192, 50)
    size.adapt(5, 10.0, 10.09)
    assert size.next_at == pytest.approx(10.1)
    size.adapt(5, 10.1, 15.0)
    assert size.next_at == pytest.approx(10.2), "the next call follows at once"


def test_a_call_may_take_twice_as_long_as_a_smaller_one_that_was_no_faster() -> None:
    size = BatchSize(8192)
    size.adapt(16, 0.0, 3.0)
    assert size.rows == 5
    size.adapt(5, 3.0, 6.0)
    assert size.rows == 10
    size.adapt(10, 6.0, 12.5)
    assert size.rows == 9, "6.5 seconds are too long: 9 rows take less than 6"
