"""The PID controller and the division of a rate, by the numbers of Spark's PIDRateEstimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.backpressure import Gains, PIDRateEstimator, RateLimits, clamp, records_per_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def estimator(p: float = 1.0, i: float = 0.2, d: float = 0.0, least: float = 10.0) -> PIDRateEstimator:
    return PIDRateEstimator(20, Gains(p, i, d, least))


class TestRequirements:
    @pytest.mark.parametrize("interval", [0, -1])
    def test_interval(self, interval: int) -> None:
        with pytest.raises(OptionError, match=f"interval above 0 ms, got {interval}"):
            PIDRateEstimator(interval)

    @pytest.mark.parametrize("name", ["proportional", "integral", "derived"])
    def test_no_negative_weight(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"{name} term of backpressure must not be negative, got -0.1"):
            Gains(**{name: -0.1})

    @pytest.mark.parametrize("rate", [0, -1])
    def test_least_rate(self, rate: int) -> None:
        with pytest.raises(OptionError, match=f"above 0, got {rate}"):
            Gains(min_rate=rate)
        assert Gains(min_rate=0.5).min_rate == 0.5, "less than one record a second is a rate"

    def test_defaults_are_sparks(self) -> None:
        assert Gains() == Gains(1.0, 0.2, 0.0, 100.0)


class TestEstimator:
    def test_first_batch_says_nothing(self) -> None:
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
    def test_nothing_to_learn_from(self, time: int, elements: int, delay: int) -> None:
        controller = estimator()
        controller.compute(0, 10, 10, 0)
        assert controller.compute(time, elements, delay, 0) is None
        assert controller.compute(20, 10, 10, 0) == 1000  # and nothing was learnt

    def test_no_first_batch_without_records(self) -> None:
        controller = estimator()
        assert controller.compute(1, 0, 10, 0) is None
        assert controller.compute(2, 10, 10, 0) is None
        assert controller.compute(3, 20, 10, 0) == 2000

    def test_no_change_while_in_balance(self) -> None:
        # Spark: "no scheduling delay and processing rate equal to the last rate": published rates stay.
        controller = estimator()
        rates = [controller.compute(t, 10, 10, 0) for t in range(50)]
        assert rates == [None] + [1000] * 49

    def test_never_below_the_least(self) -> None:
        # Spark: a processing rate of 0.001 of the least.
        controller = estimator(least=5)
        rates = [controller.compute(t * 20, 1, 1000 * t, 0) for t in range(1, 50)]
        assert rates[0] is None
        assert set(rates[10:]) == {5}

    def test_follows_with_the_proportional_term_alone(self) -> None:
        controller = estimator(1.0, 0.0)
        assert controller.compute(1000, 100, 1000, 0) is None
        assert controller.compute(2000, 200, 1000, 0) == 200
        assert controller.compute(3000, 50, 1000, 0) == 50

    def test_half_way_with_half_the_weight(self) -> None:
        controller = estimator(0.5, 0.0)
        controller.compute(1000, 100, 1000, 0)
        assert controller.compute(2000, 200, 1000, 0) == 150

    def test_waiting_lowers_the_rate(self) -> None:
        # 100 - 0 - 0.2 * (10 ms * 100/s / 20 ms)
        controller = estimator()
        controller.compute(1000, 100, 1000, 0)
        assert controller.compute(2000, 100, 1000, 10) == 90

    def test_waiting_alone_leads_to_the_least(self) -> None:
        # Spark: "scheduling delay but no processing rate change": the rate goes down to the least.
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
        told = [rate for rate in rates if rate is not None]
        assert all(rate >= 100 for rate in told)
        learnt = [n for n, (_, elements, delay, _) in enumerate(batches) if elements > 0 and delay > 0]
        assert len(told) < max(len(learnt), 1)


class TestDivision:
    def test_by_lag(self) -> None:
        allowed = records_per_partition(100, 2.0, {A: 0, B: 0, C: 5}, {A: 30, B: 10, C: 5}, RateLimits())
        assert allowed == {A: 150, B: 50, C: 1}

    def test_partition_limits_hold(self) -> None:
        limits = RateLimits(max_rate=20, by_partition={B: 5})
        assert records_per_partition(100, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 20, B: 5}

    def test_a_share_below_the_limit_stays(self) -> None:
        assert records_per_partition(10, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, RateLimits(max_rate=20)) == {A: 5, B: 5}

    @pytest.mark.parametrize("rate", [None, 0, -1])
    def test_no_rate_leaves_the_limits(self, rate: float | None) -> None:
        limits = RateLimits(max_rate=20, by_partition={B: 5})
        assert records_per_partition(rate, 2.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 40, B: 10}

    def test_nothing_limits(self) -> None:
        assert records_per_partition(None, 2.0, {A: 0}, {A: 50}, RateLimits()) is None

    def test_no_lag_is_no_limit(self) -> None:
        # Spark's shares are then not numbers, and so no limit either.
        assert records_per_partition(100, 1.0, {A: 50}, {A: 50}, RateLimits(max_rate=20)) is None

    def test_least_number_is_per_batch_and_above_all(self) -> None:
        limits = RateLimits(max_rate=2, min_records=7)
        assert records_per_partition(100, 3.0, {A: 0}, {A: 50}, limits) == {A: 7}

    def test_the_least_number_of_a_partition_of_its_own(self) -> None:
        limits = RateLimits(max_rate=2, min_records=7, least_by_partition={B: 1})
        assert records_per_partition(None, 1.0, {A: 0, B: 0}, {A: 50, B: 50}, limits) == {A: 7, B: 2}

    def test_an_end_that_went_back_counts_as_no_lag(self) -> None:
        assert records_per_partition(10, 1.0, {A: 9, B: 0}, {A: 5, B: 5}, RateLimits()) == {A: 1, B: 10}

    def test_truncates(self) -> None:
        assert records_per_partition(10, 1.0, {A: 0, B: 0, C: 0}, {A: 1, B: 1, C: 1}, RateLimits()) == dict.fromkeys(
            (A, B, C), 3
        )

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
        limits = RateLimits(max_rate, least)
        allowed = records_per_partition(rate, seconds, dict.fromkeys(lags, 0), lags, limits)
        if not any(lags.values()):
            assert allowed is None
            return
        assert allowed is not None
        assert allowed.keys() == lags.keys()
        assert min(allowed.values()) >= least
        assert sum(allowed.values()) <= rate * seconds * 1.000001 + least * len(lags)
        if max_rate > 0:
            assert all(records <= max(max_rate * seconds, least) for records in allowed.values())


class TestClamp:
    def test_no_limit(self) -> None:
        assert clamp({A: 1, B: 2}, {A: 10, B: 20}, None) == {A: 10, B: 20}

    def test_so_many_records_or_what_there_is(self) -> None:
        assert clamp({A: 1, B: 2}, {A: 10, B: 20}, {A: 3, B: 30}) == {A: 4, B: 20}

    def test_an_end_that_went_back_stays(self) -> None:
        assert clamp({A: 10}, {A: 4}, {A: 3}) == {A: 4}
