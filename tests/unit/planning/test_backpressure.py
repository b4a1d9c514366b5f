"""The PID controller and the split of a rate, with the numbers of Spark's PIDRateEstimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import PIDGains
from pyspark_kafka_direct.planning.backpressure import (
    PartitionRateLimits,
    PIDRateEstimator,
    clamp_ends,
    records_per_partition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def estimator(p: float = 1.0, i: float = 0.2, d: float = 0.0, least: float = 10.0) -> PIDRateEstimator:
    return PIDRateEstimator(20, PIDGains(p, i, d, least))


class TestRequirements:
    @pytest.mark.parametrize("interval", [0, -1])
    def test_interval(self, interval: int) -> None:
        with pytest.raises(OptionError, match=f"interval above 0 ms, got {interval}"):
            PIDRateEstimator(interval)

    @pytest.mark.parametrize("name", ["proportional", "integral", "derived"])
    def test_no_negative_weight(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"{name} term of backpressure must not be negative, got -0.1"):
            PIDGains(**{name: -0.1})

    @pytest.mark.parametrize("rate", [0, -1])
    def test_the_minimum_rate_must_be_positive(self, rate: int) -> None:
        with pytest.raises(OptionError, match=f"above 0, got {rate}"):
            PIDGains(min_rate=rate)
        assert PIDGains(min_rate=0.5).min_rate == 0.5, "less than one record a second is a rate"

    def test_defaults_are_sparks(self) -> None:
        assert PIDGains() == PIDGains(1.0, 0.2, 0.0, 100.0)


class TestEstimator:
    def test_the_first_batch_gives_no_rate(self) -> None:
        assert estimator().compute(0, 10, 10, 0) is None

    def test_second_batch_gives_a_rate(self) -> None:
        controller = estimator()
        controller.compute(0, 10, 10, 0)
        assert controller.compute(10, 10, 10, 0) == 1000

    @pytest.mark.parametrize(
        ("time", "elements", "delay"),
        [(0, 10, 10), (-5, 10, 10), (10, 0, 10), (10, 10, 0), (10, 10, -1)],
        ids=["not newer", "older", "empty", "no time", "negative time"],
    )
    def test_a_batch_without_a_measurable_rate_is_ignored(self, time: int, elements: int, delay: int) -> None:
        controller = estimator()
        controller.compute(0, 10, 10, 0)
        assert controller.compute(time, elements, delay, 0) is None
        assert controller.compute(20, 10, 10, 0) == 1000  # the batch was ignored

    def test_no_first_batch_without_records(self) -> None:
        controller = estimator()
        assert controller.compute(1, 0, 10, 0) is None
        assert controller.compute(2, 10, 10, 0) is None
        assert controller.compute(3, 20, 10, 0) == 2000

    def test_a_steady_rate_does_not_change(self) -> None:
        # Spark: "no scheduling delay and processing rate equal to the last rate": published rates stay.
        controller = estimator()
        rates = [controller.compute(t, 10, 10, 0) for t in range(50)]
        assert rates == [None] + [1000] * 49

    def test_the_rate_never_drops_below_the_minimum(self) -> None:
        # Spark: a processing rate of 0.001 of the minimum.
        controller = estimator(least=5)
        rates = [controller.compute(t * 20, 1, 1000 * t, 0) for t in range(1, 50)]
        assert rates[0] is None
        assert set(rates[10:]) == {5}

    def test_the_proportional_term_alone_follows_the_measured_rate(self) -> None:
        controller = estimator(1.0, 0.0)
        assert controller.compute(1000, 100, 1000, 0) is None
        assert controller.compute(2000, 200, 1000, 0) == 200
        assert controller.compute(3000, 50, 1000, 0) == 50

    def test_half_the_weight_moves_the_rate_half_way(self) -> None:
        controller = estimator(0.5, 0.0)
        controller.compute(1000, 100, 1000, 0)
        assert controller.compute(2000, 200, 1000, 0) == 150

    def test_scheduling_delay_lowers_the_rate(self) -> None:
        # 100 - 0 - 0.2 * (10 ms * 100/s / 20 ms)
        controller = estimator()
        controller.compute(1000, 100, 1000, 0)
        assert controller.compute(2000, 100, 1000, 10) == 90

    def test_scheduling_delay_alone_lowers_the_rate_to_the_minimum(self) -> None:
        # Spark: "scheduling delay but no processing rate change": the rate drops to the minimum.
        controller = estimator(1.0, 1.0)
        rates = [controller.compute(t * 20, 20, 20, 20 * t) for t in range(1, 20)]
        assert rates[-1] == 10

    def test_the_derived_term_counts_the_change_per_second(self) -> None:
        # error -100 (was 0) within 2 s: 100 + 100 - 0.5 * (-100 / 2)
        controller = estimator(1.0, 0.0, 0.5)
        controller.compute(1000, 100, 1000, 0)
        assert controller.compute(3000, 200, 1000, 0) == 225

    @given(
        st.lists(
            st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5)),
            max_size=30,
        )
    )
    def test_any_batches(self, batches: list[tuple[int, int, int, int]]) -> None:
        controller = PIDRateEstimator(1000)
        rates = [controller.compute(*batch) for batch in batches]
        known_rates = [rate for rate in rates if rate is not None]
        assert all(rate >= 100 for rate in known_rates)
        measurable = [n for n, (_, elements, delay, _) in enumerate(batches) if elements > 0 and delay > 0]
        assert len(known_rates) < max(len(measurable), 1)


class TestRecordsPerPartition:
    def test_by_lag(self) -> None:
        limits_by_partition = records_per_partition(
            100, 2.0, {A: 0, B: 0, C: 5}, {A: 30, B: 10, C: 5}, PartitionRateLimits()
        )
        assert limits_by_partition == {A: 150, B: 50, C: 1}

    def test_partition_limits_hold(self) -> None:
        limits = PartitionRateLimits(max_rate=20, max_rate_by_partition={B: 5})
        assert records_per_partition(100, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 20, B: 5}

    def test_a_partition_may_be_without_the_limit_of_the_others(self) -> None:
        limits = PartitionRateLimits(max_rate=20, max_rate_by_partition={B: 0})
        assert records_per_partition(100, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 20, B: 50}

    def test_a_share_below_the_limit_is_kept(self) -> None:
        assert records_per_partition(10, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, PartitionRateLimits(max_rate=20)) == {
            A: 5,
            B: 5,
        }

    @pytest.mark.parametrize("rate", [None, 0, -1])
    def test_without_a_rate_only_the_limits_of_partitions_apply(self, rate: float | None) -> None:
        limits = PartitionRateLimits(max_rate=20, max_rate_by_partition={B: 5})
        assert records_per_partition(rate, 2.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 40, B: 10}

    def test_without_rate_and_limits_there_is_no_limit(self) -> None:
        assert records_per_partition(None, 2.0, {A: 0}, {A: 50}, PartitionRateLimits()) is None

    def test_no_lag_is_no_limit(self) -> None:
        # Spark's shares are then not numbers, and so no limit either.
        assert records_per_partition(100, 1.0, {A: 50}, {A: 50}, PartitionRateLimits(max_rate=20)) is None

    def test_the_minimum_number_of_records_is_per_batch_and_overrides_limits(self) -> None:
        limits = PartitionRateLimits(max_rate=2, min_records=7)
        assert records_per_partition(100, 3.0, {A: 0}, {A: 50}, limits) == {A: 7}

    def test_a_partition_may_have_its_own_minimum_number_of_records(self) -> None:
        limits = PartitionRateLimits(max_rate=2, min_records=7, min_records_by_partition={B: 1})
        assert records_per_partition(None, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 7, B: 2}

    def test_an_end_before_the_start_counts_as_no_lag(self) -> None:
        assert records_per_partition(10, 1.0, {A: 9, B: 0}, {A: 5, B: 5}, PartitionRateLimits()) == {A: 1, B: 10}

    def test_truncates(self) -> None:
        assert records_per_partition(
            10, 1.0, {A: 0, B: 0, C: 0}, {A: 1, B: 1, C: 1}, PartitionRateLimits()
        ) == dict.fromkeys((A, B, C), 3)

    @given(
        st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 10**12), min_size=1),
        st.floats(0.001, 1e9),
        st.floats(0.001, 3600),
        st.floats(0, 1e9),
        st.integers(0, 100),
    )
    def test_shares(
        self, lags: Mapping[TopicPartition, int], rate: float, seconds: float, max_rate: float, least: int
    ) -> None:
        limits = PartitionRateLimits(max_rate, least)
        limits_by_partition = records_per_partition(rate, seconds, dict.fromkeys(lags, 0), lags, limits)
        if not any(lags.values()):
            assert limits_by_partition is None
            return
        assert limits_by_partition is not None
        assert limits_by_partition.keys() == lags.keys()
        assert min(limits_by_partition.values()) >= least
        assert sum(limits_by_partition.values()) <= rate * seconds * 1.000001 + least * len(lags)
        if max_rate > 0:
            assert all(records <= max(max_rate * seconds, least) for records in limits_by_partition.values())


class TestClamp:
    def test_no_limit(self) -> None:
        assert clamp_ends({A: 1, B: 2}, {A: 10, B: 20}, None) == {A: 10, B: 20}

    def test_a_batch_ends_at_the_limit_or_at_the_end_of_the_log(self) -> None:
        assert clamp_ends({A: 1, B: 2}, {A: 10, B: 20}, {A: 3, B: 30}) == {A: 4, B: 20}

    def test_an_end_before_the_start_is_kept(self) -> None:
        assert clamp_ends({A: 10}, {A: 4}, {A: 3}) == {A: 4}
