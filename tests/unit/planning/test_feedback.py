"""From measured batches to a limit: does the rate settle where batches take as long as their interval?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.backpressure import Gains
from pyspark_kafka_direct.planning.feedback import Backpressure, MeasuredLimit, Measurement, file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TP = TopicPartition("t", 0)


class Query:
    """A query over an endless backlog whose sink has a known speed; its clock is its own."""

    def __init__(self, *, rate: float | None = 1000.0, interval_ms: float = 1000.0, late: bool = False) -> None:
        self.warnings: list[str] = []
        self._found: dict[str, Measurement] = {}
        self._limit = MeasuredLimit(Backpressure(Gains(), rate), self._find, self.warnings.append)
        self._interval_ms = interval_ms
        self._late = late
        self._held_back: tuple[str, Measurement] | None = None
        self._at = 0
        self._now = 1.0
        self._before = 0.0

    def _find(self, end: Mapping[TopicPartition, int]) -> Measurement | None:
        return self._found.pop(file_name(end), None)

    def batch(self, seconds: Callable[[int], float]) -> tuple[int, float]:
        """Run one batch; returns its records and its seconds."""
        most = self._limit.most({TP: self._at})
        records = 1_000_000 if most is None else most
        self._at += records
        took = seconds(records) * 1000
        self._now += max(took, self._interval_ms)
        waited = max(self._before - self._interval_ms, 0)
        measured = (file_name({TP: self._at}), Measurement(self._now, records, took, waited, self._interval_ms))
        if self._held_back is not None:
            self._found.update([self._held_back])
            self._held_back = None
        if self._late:
            self._held_back = measured
        else:
            self._found.update([measured])
        self._before = took
        return records, took / 1000


def sink(per_second: float, overhead: float) -> Callable[[int], float]:
    return lambda records: overhead + records / per_second


@pytest.mark.parametrize("late", [False, True], ids=["in time", "a batch late"])
@pytest.mark.parametrize("interval", [1.0, 10.0])
@pytest.mark.parametrize("first", [100.0, 1_000_000.0, None])
def test_settles_where_a_batch_takes_its_interval(first: float | None, interval: float, late: bool) -> None:
    query = Query(rate=first, interval_ms=interval * 1000, late=late)
    for _ in range(30):
        query.batch(sink(50_000, 0.2))
    settled = [query.batch(sink(50_000, 0.2)) for _ in range(10)]
    for records, seconds in settled:
        assert records == pytest.approx(50_000 * (interval - 0.2), rel=0.1)
        assert 0.9 * interval < seconds <= 1.02 * interval


def test_follows_a_sink_that_slows_down_and_recovers() -> None:
    query = Query()
    sizes = []
    for speed in (50_000, 2_000, 50_000):
        for _ in range(20):
            query.batch(sink(speed, 0.1))
        sizes.append(query.batch(sink(speed, 0.1))[0])
    assert sizes == [pytest.approx(45_000, rel=0.1), pytest.approx(1_800, rel=0.1), pytest.approx(45_000, rel=0.1)]


def test_never_below_the_least_rate() -> None:
    query = Query()
    sizes = [query.batch(sink(10, 5.0))[0] for _ in range(10)]
    assert sizes[0] == 1000
    assert sizes[-1] == 100


def test_no_limit_before_the_second_batch() -> None:
    query = Query(rate=None)
    assert [query.batch(sink(1_000_000, 0))[0] for _ in range(2)] == [1_000_000] * 2


def test_records_that_were_passed_over_are_not_taken_for_records_that_were_read() -> None:
    """A batch that spans more than it was allowed has found the log to begin later."""
    ends = {file_name({TP: end}): end for end in (0, 1000, 1_002_000, 1_003_000)}
    found = {
        name: Measurement(1000.0 + number * 1000, end - (0, 0, 1000, 1_002_000)[number], 1000, 0, 1000)
        for number, (name, end) in enumerate(ends.items())
    }
    limit = MeasuredLimit(Backpressure(Gains(), 1000.0), lambda end: found.get(file_name(end)), print)
    assert [limit.most({TP: end}) for end in ends.values()] == [1000, 1000, pytest.approx(1001, abs=1), 1000]


def test_warns_once_when_nothing_is_measured() -> None:
    warnings: list[str] = []
    limit = MeasuredLimit(Backpressure(Gains(), 500.0), lambda _: None, warnings.append)
    assert {limit.most({TP: n}) for n in range(40)} == {500}
    assert len(warnings) == 1
    assert "enable(spark)" in warnings[0]


def test_the_warning_comes_with_the_eighth_batch() -> None:
    warnings: list[str] = []
    limit = MeasuredLimit(Backpressure(Gains(), 500.0), lambda _: None, warnings.append)
    for number in range(8):
        assert warnings == []
        limit.most({TP: number})
    assert [warning.partition(",")[0] for warning in warnings] == ["backpressure: nothing was measured for 8 batches"]


def test_what_is_older_than_the_newest_measured_is_not_looked_for_again() -> None:
    found: dict[str, Measurement] = {}
    asked: list[int] = []

    def find(end: Mapping[TopicPartition, int]) -> Measurement | None:
        asked.append(end[TP])
        return found.pop(file_name(end), None)

    limit = MeasuredLimit(Backpressure(Gains(), 500.0), find, print)
    for number in range(4):
        limit.most({TP: number})
    found[file_name({TP: 1})] = Measurement(1000, 100, 1000, 0, 1000)
    limit.most({TP: 4})
    assert asked[10:] == [0, 1, 2, 3, 4]
    limit.most({TP: 5})
    assert asked[15:] == [2, 3, 4, 5]


def test_no_more_than_sixteen_ends_are_remembered() -> None:
    asked: list[int] = []

    def find(end: Mapping[TopicPartition, int]) -> None:
        asked.append(end[TP])

    limit = MeasuredLimit(Backpressure(Gains(), 500.0), find, print)
    for number in range(18):
        asked.clear()
        limit.most({TP: number})
    assert asked == list(range(2, 18))


def test_the_rate_of_a_batch() -> None:
    assert Measurement(1, 500, 250, 0, 1000).rate == 2000
    assert Measurement(1, 500, 0, 0, 1000).rate == 500_000, "a millisecond is the least that it took"


def test_waiting_at_one_offset_is_not_a_batch() -> None:
    warnings: list[str] = []
    limit = MeasuredLimit(Backpressure(Gains(), 500.0), lambda _: None, warnings.append)
    for _ in range(40):
        limit.most({TP: 5})
    assert warnings == []


def test_a_limit_is_never_zero_nor_beyond_offsets() -> None:
    assert MeasuredLimit(Backpressure(Gains(), 0.001), lambda _: None, print).most({TP: 0}) == 1
    assert MeasuredLimit(Backpressure(Gains(), 1e300), lambda _: None, print).most({TP: 0}) == 2**63 - 1


def test_name_does_not_depend_on_order() -> None:
    other = TopicPartition("a", 10)
    assert file_name({TP: 1, other: 2}) == file_name({other: 2, TP: 1}) != file_name({other: 1, TP: 2})


@given(st.builds(Measurement, st.floats(0, 1e15), st.integers(0, 2**63 - 1), *[st.floats(0, 1e9)] * 2, st.just(1e3)))
def test_text(measured: Measurement) -> None:
    assert Measurement.from_text(measured.to_text()) == measured


@pytest.mark.parametrize(
    "text",
    ["", "5", "{}", '{"endedMs":1}', Measurement(1, 2, 3, 4, 0).to_text(), Measurement(1, -2, 3, 4, 5).to_text()],
)
def test_other_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a measurement|Expecting value"):
        Measurement.from_text(text)
