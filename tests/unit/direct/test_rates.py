"""How much a batch may hold, by the numbers of Spark's DirectKafkaStreamSuite, and the controller."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf

from pyspark_kafka_direct.direct.rates import (
    PerPartitionConfig,
    RateController,
    max_messages_per_partition,
    per_partition_config,
    rate_controller,
)
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.backpressure import clamp

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B, C, D = (TopicPartition("backpressure", number) for number in range(4))
START = dict.fromkeys((A, B), 0)
PLENTY = dict.fromkeys((A, B), 100_000)

ON = {"spark.streaming.backpressure.enabled": "true"}
KAFKA = "spark.streaming.kafka."
BACKPRESSURE = "spark.streaming.backpressure."


def configured(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    # Without a JVM it keeps what it is given in Python, and asks Java for nothing.
    for key, text in settings.items():
        conf.set(key, text)
    return conf


class Given(PerPartitionConfig):
    """Another limit for each partition, as a user writes it."""

    def __init__(self, most: Mapping[TopicPartition, Any], least: Mapping[TopicPartition, Any] | None = None) -> None:
        self.most = most
        self.least = least or {}

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        most: float = self.most.get(topicPartition, 0)
        return most

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N803
        least: int = self.least.get(topicPartition, super().minRatePerPartition(topicPartition))
        return least


def limit_ends(
    current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], **limits: Any
) -> dict[TopicPartition, int]:
    """Where a batch ends, put together as the planner does."""
    return clamp(current, latest, max_messages_per_partition(current, latest, **limits))


def sizes(
    latest: Mapping[TopicPartition, int],
    *,
    rate: float | None,
    seconds: float,
    config: PerPartitionConfig,
    initial_rate: float = 0,
) -> dict[TopicPartition, int]:
    """How many records each partition has in a batch that begins at 0."""
    return limit_ends(
        dict.fromkeys(latest, 0),
        latest,
        rate=rate,
        initial_rate=initial_rate,
        batch_seconds=seconds,
        config=config,
    )


class TestSparksNumbers:
    def test_without_backpressure_the_limit_of_partitions_counts(self) -> None:
        config = per_partition_config(configured({KAFKA + "maxRatePerPartition": "100"}))
        assert sizes(PLENTY, rate=None, seconds=0.1, config=config) == {A: 10, B: 10}

    def test_no_lag_is_no_limit(self) -> None:
        config = per_partition_config(configured({KAFKA + "maxRatePerPartition": "100"}))
        ends = {A: 7, B: 9}
        assert max_messages_per_partition(ends, ends, rate=1000, batch_seconds=0.1, config=config) is None
        assert limit_ends(ends, ends, rate=1000, batch_seconds=0.1, config=config) == ends

    @pytest.mark.parametrize("rate", [150, 1_000_000], ids=["just enough", "far more"])
    def test_the_maximum_of_each_partition_is_respected(self, rate: int) -> None:
        config = Given({A: 50, B: 100})
        assert sizes({A: 1000, B: 2000}, rate=rate, seconds=0.1, config=config) == {A: 5, B: 10}

    def test_batches_follow_the_rate(self) -> None:
        config = per_partition_config(configured({}))
        for rate in (100, 50, 20):
            assert sizes({A: 100_000}, rate=rate, seconds=0.5, config=config) == {A: rate // 2}

    def test_the_initial_rate_is_below_the_maximum(self) -> None:
        config = per_partition_config(configured({KAFKA + "maxRatePerPartition": "1000"}))
        assert sizes({A: 100_000}, rate=-1, initial_rate=500, seconds=0.5, config=config) == {A: 250}

    def test_the_maximum_is_below_the_initial_rate(self) -> None:
        config = per_partition_config(configured({KAFKA + "maxRatePerPartition": "300"}))
        assert sizes({A: 100_000}, rate=-1, initial_rate=1000, seconds=0.5, config=config) == {A: 150}

    def test_the_least_number_where_the_rate_gives_less(self) -> None:
        config = per_partition_config(configured({KAFKA + "minRatePerPartition": "5"}))
        lags = {A: 0, B: 100, C: 200, D: 300}
        current = dict.fromkeys(lags, 0)
        allowed = max_messages_per_partition(current, lags, rate=1, batch_seconds=60, config=config)
        assert allowed == {A: 5, B: 10, C: 20, D: 30}
        assert sizes(lags, rate=1, seconds=60, config=config) == {A: 0, B: 10, C: 20, D: 30}, "no more than there is"


class TestLimits:
    def test_none_by_default(self) -> None:
        assert sizes(PLENTY, rate=None, seconds=1, config=per_partition_config(configured({}))) == PLENTY

    def test_no_rate_yet_and_no_initial_one_leave_the_maximum(self) -> None:
        config = per_partition_config(configured({KAFKA + "maxRatePerPartition": "7"}))
        assert sizes(PLENTY, rate=-1, seconds=2, config=config) == {A: 14, B: 14}

    def test_the_initial_rate_means_nothing_without_backpressure(self) -> None:
        assert sizes(PLENTY, rate=None, initial_rate=5, seconds=1, config=Given({})) == PLENTY

    def test_the_initial_rate_ends_when_there_is_a_rate(self) -> None:
        assert sizes({A: 500}, rate=20, initial_rate=100, seconds=1, config=Given({})) == {A: 20}

    def test_no_more_than_there_is(self) -> None:
        ends = limit_ends({A: 10, B: 10}, {A: 12, B: 100}, rate=None, batch_seconds=1, config=Given({A: 5, B: 5}))
        assert ends == {A: 12, B: 15}

    def test_a_partition_that_appears(self) -> None:
        ends = limit_ends({A: 10, B: 0}, {A: 30, B: 60}, rate=8, batch_seconds=1, config=Given({}))
        assert ends == {A: 12, B: 6}

    def test_the_least_number_of_each_partition(self) -> None:
        assert sizes(PLENTY, rate=2, seconds=1, config=Given({}, {B: 30})) == {A: 1, B: 30}

    def test_no_limit_beside_a_limit(self) -> None:
        def ends(most: float) -> dict[TopicPartition, int]:
            return limit_ends(START, PLENTY, rate=None, batch_seconds=1, config=Given({A: 100, B: most}))

        assert ends(0) == {A: 100, B: 1}  # Spark's rule, and a trap
        assert ends(-200) == {A: 100, B: 1}  # and not: none for all, because the sum is negative
        assert ends(float("inf")) == {A: 100, B: 100_000}

    @pytest.mark.parametrize("given", ["5", None, float("nan"), True])
    def test_what_is_not_a_number(self, given: object) -> None:
        with pytest.raises(
            OptionError, match=r"maxRatePerPartition .* must give a number.*topic backpressure, partition"
        ):
            sizes({A: 5}, rate=None, seconds=1, config=Given({A: given}))
        with pytest.raises(OptionError, match=r"minRatePerPartition .* must give a number"):
            sizes({A: 5}, rate=None, seconds=1, config=Given({}, {A: given}))

    def test_the_maximum_has_to_be_written(self) -> None:
        with pytest.raises(TypeError, match="maxRatePerPartition"):
            PerPartitionConfig()  # type: ignore[abstract]

    def test_the_default_is_pickled(self) -> None:
        config = per_partition_config(
            configured({KAFKA + "maxRatePerPartition": "7", KAFKA + "minRatePerPartition": "3"})
        )
        again = pickle.loads(pickle.dumps(config))
        assert (again.maxRatePerPartition(A), again.minRatePerPartition(A)) == (7, 3)

    @pytest.mark.parametrize("name", ["maxRatePerPartition", "minRatePerPartition"])
    def test_settings_that_are_no_numbers(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"^spark.streaming.kafka.{name} must be a whole number, got 'many'"):
            per_partition_config(configured({KAFKA + name: "many"}))


def controller(**settings: str) -> RateController:
    keys = {BACKPRESSURE + name.replace("_", "."): text for name, text in settings.items()}
    made = rate_controller(configured({**ON, **keys}), 1000)
    assert made is not None
    return made


class TestController:
    @pytest.mark.parametrize("settings", [{}, {BACKPRESSURE + "enabled": "false"}])
    def test_only_if_asked_for(self, settings: Mapping[str, str]) -> None:
        assert rate_controller(configured(settings), 1000) is None

    def test_no_rate_before_the_second_batch(self) -> None:
        made = controller()
        assert (made.latest_rate(), made.initial_rate) == (-1, 0)
        made.batch_completed(1000, 500, 1000, 0)
        assert made.latest_rate() == -1
        made.batch_completed(2000, 400, 1000, 0)
        assert made.latest_rate() == 400

    def test_a_batch_that_says_nothing_leaves_the_rate(self) -> None:
        made = controller()
        for ended, records in ((1000, 500), (2000, 400), (3000, 0), (1500, 9)):
            made.batch_completed(ended, records, 1000, 0)
        assert made.latest_rate() == 400

    def test_whole_records(self) -> None:
        made = controller(pid_minRate="0.5", pid_integral="0")
        made.batch_completed(1000, 10, 1000, 0)
        made.batch_completed(2000, 10, 3000, 0)
        assert made.latest_rate() == 3

    def test_settings_reach_the_controller(self) -> None:
        gains = {"pid_proportional": "0.5", "pid_integral": "0", "pid_derived": "0.5", "pid_minRate": "7"}
        made = controller(initialRate="50", rateEstimator="pid", **gains)
        assert made.initial_rate == 50
        made.batch_completed(1000, 100, 1000, 0)
        made.batch_completed(3000, 200, 1000, 400)  # 100 + 0.5 * 100 + 0.5 * 100 / 2, and nothing for waiting
        assert made.latest_rate() == 175
        made.batch_completed(4000, 1, 1000, 0)
        made.batch_completed(5000, 1, 1000, 0)
        made.batch_completed(6000, 1, 1000, 0)
        assert made.latest_rate() >= 7

    def test_it_goes_on_after_a_restart(self) -> None:
        made = controller(initialRate="50")
        made.batch_completed(1000, 500, 1000, 0)
        made.batch_completed(2000, 400, 1000, 0)
        again = pickle.loads(pickle.dumps(made))
        assert (again.latest_rate(), again.initial_rate) == (400, 50)
        for each in (made, again):
            each.batch_completed(3000, 300, 1000, 100)
        assert again.latest_rate() == made.latest_rate() == 294  # 400 - 100 - 0.2 * 100 ms * 300 / 1000 ms

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("enabled", "yes", "enabled must be true or false, got 'yes'"),
            ("initialRate", "1.5", "initialRate must be a whole number, got '1.5'"),
            ("rateEstimator", "mine", "rateEstimator must be pid, got 'mine'"),
            ("pid.proportional", "a lot", "pid.proportional must be a number from 0 such as 0.2, got 'a lot'"),
            ("pid.integral", "-1", "backpressure.pid.integral must be a number from 0 such as 0.2, got '-1'"),
            ("pid.minRate", "0", "the least rate .* above 0, got 0.0 .spark.streaming.backpressure.pid"),
        ],
    )
    def test_settings_that_cannot_be_used(self, name: str, text: str, message: str) -> None:
        with pytest.raises(OptionError, match=message):
            rate_controller(configured({**ON, BACKPRESSURE + name: text}), 1000)
