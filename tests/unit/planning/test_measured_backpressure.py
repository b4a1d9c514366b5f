"""From measured batches to a limit: the rate converges to batches that take as long as their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains
from pyspark_kafka_direct.planning.backpressure import (
    BackpressureLimit,
    BatchMeasurement,
    PIDRateEstimator,
    measurement_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TP = TopicPartition("t", 0)


class Query:
    """A query with an endless backlog, a sink of known speed and its own clock."""

    def __init__(self, *, rate: float | None = 1000.0, interval_ms: float = 1000.0, late: bool = False) -> None:
        self.warnings: list[str] = []
        self._measurements: dict[str, BatchMeasurement] = {}
        self._limit = BackpressureLimit(BackpressureOptions(PIDGains(), rate), self._find, self.warnings.append)
        self._interval_ms = interval_ms
        self._late = late
        self._delayed: tuple[str, BatchMeasurement] | None = None
        self._position = 0
        self._now_ms = 1.0
        self._previous_ms = 0.0

    def _find(self, end: Mapping[TopicPartition, int]) -> BatchMeasurement | None:
        return self._measurements.pop(measurement_file_name(end), None)

    def batch(self, seconds: Callable[[int], float]) -> tuple[int, float]:
        """Run one batch; returns its records and its seconds."""
        max_offsets = self._limit.max_offsets({TP: self._position})
        records = 1_000_000 if max_offsets is None else max_offsets
        self._position += records
        took_ms = seconds(records) * 1000
        self._now_ms += max(took_ms, self._interval_ms)
        delay_ms = max(self._previous_ms - self._interval_ms, 0)
        measurement = (
            measurement_file_name({TP: self._position}),
            BatchMeasurement(self._now_ms, records, took_ms, delay_ms, self._interval_ms),
        )
        if self._delayed is not None:
            self._measurements.update([self._delayed])
            self._delayed = None
        if self._late:
            self._delayed = measurement
        else:
            self._measurements.update([measurement])
        self._previous_ms = took_ms
        return records, took_ms / 1000


def sink(per_second: float, overhead: float) -> Callable[[int], float]:
    return lambda records: overhead + records / per_second


@pytest.mark.parametrize("late", [False, True], ids=["in time", "a batch late"])
@pytest.mark.parametrize("interval", [1.0, 10.0])
@pytest.mark.parametrize("first", [100.0, 1_000_000.0, None])
def test_the_rate_converges_to_batches_as_long_as_the_interval(
    first: float | None, interval: float, late: bool
) -> None:
    query = Query(rate=first, interval_ms=interval * 1000, late=late)
    for _ in range(30):
        query.batch(sink(50_000, 0.2))
    converged = [query.batch(sink(50_000, 0.2)) for _ in range(10)]
    for records, seconds in converged:
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


def test_the_rate_never_drops_below_the_minimum() -> None:
    query = Query()
    sizes = [query.batch(sink(10, 5.0))[0] for _ in range(10)]
    assert sizes[0] == 1000
    assert sizes[-1] == 100


def test_no_limit_before_the_second_batch() -> None:
    query = Query(rate=None)
    assert [query.batch(sink(1_000_000, 0))[0] for _ in range(2)] == [1_000_000] * 2


def test_skipped_records_do_not_count_as_read() -> None:
    """A batch that spans more than its limit skipped records that were deleted."""
    ends = {measurement_file_name({TP: end}): end for end in (0, 1000, 1_002_000, 1_003_000)}
    measurements = {
        name: BatchMeasurement(1000.0 + number * 1000, end - (0, 0, 1000, 1_002_000)[number], 1000, 0, 1000)
        for number, (name, end) in enumerate(ends.items())
    }
    limit = BackpressureLimit(
        BackpressureOptions(PIDGains(), 1000.0), lambda end: measurements.get(measurement_file_name(end)), print
    )
    assert [limit.max_offsets({TP: end}) for end in ends.values()] == [1000, 1000, pytest.approx(1001, abs=1), 1000]


def test_measurements_that_arrive_together_all_change_the_rate() -> None:
    measurements = {
        measurement_file_name({TP: 1000 * number}): BatchMeasurement(1000.0 * number, 1000, took_ms, 0, 1000)
        for number, took_ms in ((1, 1000), (2, 800), (3, 2000))
    }
    arrived: dict[str, BatchMeasurement] = {}
    limit = BackpressureLimit(
        BackpressureOptions(PIDGains(), 1000.0), lambda end: arrived.get(measurement_file_name(end)), print
    )
    assert {limit.max_offsets({TP: end}) for end in (1000, 2000, 3000)} == {1000}
    arrived.update(measurements)
    estimator = PIDRateEstimator(1000, PIDGains())
    rates = [
        estimator.compute(each.ended_ms, each.records, each.processing_delay_ms, each.scheduling_delay_ms)
        for each in measurements.values()
    ]
    assert limit.max_offsets({TP: 4000}) == int(rates[-1] or 0)
    assert len({int(rate or 0) for rate in rates}) == 3


def test_missing_measurements_are_warned_about_once() -> None:
    warnings: list[str] = []
    limit = BackpressureLimit(BackpressureOptions(PIDGains(), 500.0), lambda _: None, warnings.append)
    assert {limit.max_offsets({TP: n}) for n in range(40)} == {500}
    assert len(warnings) == 1
    assert "enable(spark)" in warnings[0]


def test_the_eighth_batch_without_a_measurement_warns() -> None:
    warnings: list[str] = []
    limit = BackpressureLimit(BackpressureOptions(PIDGains(), 500.0), lambda _: None, warnings.append)
    for number in range(8):
        assert warnings == []
        limit.max_offsets({TP: number})
    assert [warning.partition(",")[0] for warning in warnings] == ["backpressure: no measurement arrived for 8 batches"]


def test_batches_older_than_the_newest_measured_one_are_not_looked_up_again() -> None:
    measurements: dict[str, BatchMeasurement] = {}
    looked_up: list[int] = []

    def find_measurement(end: Mapping[TopicPartition, int]) -> BatchMeasurement | None:
        looked_up.append(end[TP])
        return measurements.pop(measurement_file_name(end), None)

    limit = BackpressureLimit(BackpressureOptions(PIDGains(), 500.0), find_measurement, print)
    for number in range(4):
        limit.max_offsets({TP: number})
    for number in range(2):
        measurements[measurement_file_name({TP: number})] = BatchMeasurement(1000 + number, 100, 1000, 0, 1000)
    limit.max_offsets({TP: 4})
    assert looked_up[10:] == [0, 1, 2, 3, 4]
    limit.max_offsets({TP: 5})
    assert looked_up[15:] == [2, 3, 4, 5]


def test_at_most_sixteen_batches_are_pending() -> None:
    looked_up: list[int] = []

    def find_measurement(end: Mapping[TopicPartition, int]) -> None:
        looked_up.append(end[TP])

    limit = BackpressureLimit(BackpressureOptions(PIDGains(), 500.0), find_measurement, print)
    for number in range(18):
        looked_up.clear()
        limit.max_offsets({TP: number})
    assert looked_up == list(range(2, 18))


def test_the_rate_of_a_batch() -> None:
    assert BatchMeasurement(1, 500, 250, 0, 1000).rate == 2000
    assert BatchMeasurement(1, 500, 0, 0, 1000).rate == 500_000, "a batch takes at least a millisecond"


def test_idling_at_one_offset_is_not_a_batch() -> None:
    warnings: list[str] = []
    limit = BackpressureLimit(BackpressureOptions(PIDGains(), 500.0), lambda _: None, warnings.append)
    for _ in range(40):
        limit.max_offsets({TP: 5})
    assert warnings == []


def test_a_limit_is_never_zero_nor_beyond_offsets() -> None:
    assert BackpressureLimit(BackpressureOptions(PIDGains(), 0.001), lambda _: None, print).max_offsets({TP: 0}) == 1
    assert (
        BackpressureLimit(BackpressureOptions(PIDGains(), 1e300), lambda _: None, print).max_offsets({TP: 0})
        == 2**63 - 1
    )


def test_the_file_name_does_not_depend_on_order() -> None:
    other = TopicPartition("a", 10)
    assert (
        measurement_file_name({TP: 1, other: 2})
        == measurement_file_name({other: 2, TP: 1})
        != measurement_file_name({other: 1, TP: 2})
    )


@given(
    st.builds(BatchMeasurement, st.floats(0, 1e15), st.integers(0, 2**63 - 1), *[st.floats(0, 1e9)] * 2, st.just(1e3))
)
def test_measurements_survive_json(measurement: BatchMeasurement) -> None:
    assert BatchMeasurement.from_json(measurement.to_json()) == measurement


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "{}",
        '{"endedMs":1}',
        BatchMeasurement(1, 2, 3, 4, 0).to_json(),
        BatchMeasurement(1, -2, 3, 4, 5).to_json(),
    ],
)
def test_other_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a measurement|Expecting value"):
        BatchMeasurement.from_json(text)
