"""The record limits of a batch, with the numbers of Spark's DirectKafkaStreamSuite, and the rate controller."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf

from pyspark_kafka_direct.direct.rate_controller import (
    PerPartitionConfig,
    RateController,
    create_rate_controller,
    default_per_partition_config,
    max_messages_per_partition,
)
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import PIDGains
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator, clamp_ends

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B, C, D = (TopicPartition("backpressure", number) for number in range(4))
START = dict.fromkeys((A, B), 0)
MANY_RECORDS = dict.fromkeys((A, B), 100_000)

ON = {"spark.streaming.backpressure.enabled": "true"}
KAFKA = "spark.streaming.kafka."
BACKPRESSURE = "spark.streaming.backpressure."


def configured(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    # Without a JVM, SparkConf stores its settings in Python.
    for key, value in settings.items():
        conf.set(key, value)
    return conf


class CustomLimits(PerPartitionConfig):
    """Another limit for each partition, as in a user's subclass."""

    def __init__(
        self, max_rates: Mapping[TopicPartition, Any], min_records: Mapping[TopicPartition, Any] | None = None
    ) -> None:
        self.max_rates = max_rates
        self.min_records = min_records or {}

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        max_rate: float = self.max_rates.get(topicPartition, 0)
        return max_rate

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N803
        min_records: int = self.min_records.get(topicPartition, super().minRatePerPartition(topicPartition))
        return min_records


def limit_ends(
    current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], **limits: Any
) -> dict[TopicPartition, int]:
    """The end offsets of a batch, computed as in the planner."""
    return clamp_ends(current, latest, max_messages_per_partition(current, latest, **limits))


def record_counts(
    latest: Mapping[TopicPartition, int],
    *,
    rate: float | None,
    seconds: float,
    config: PerPartitionConfig,
    initial_rate: float = 0,
) -> dict[TopicPartition, int]:
    """The record count of each partition in a batch that starts at offset 0."""
    return limit_ends(
        dict.fromkeys(latest, 0),
        latest,
        rate=rate,
        initial_rate=initial_rate,
        batch_seconds=seconds,
        config=config,
    )


class TestSparkSuite:
    def test_without_backpressure_only_the_partition_limit_applies(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "maxRatePerPartition": "100"}))
        assert record_counts(MANY_RECORDS, rate=None, seconds=0.1, config=config) == {A: 10, B: 10}

    def test_without_lag_there_is_no_limit(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "maxRatePerPartition": "100"}))
        ends = {A: 7, B: 9}
        assert max_messages_per_partition(ends, ends, rate=1000, batch_seconds=0.1, config=config) is None
        assert limit_ends(ends, ends, rate=1000, batch_seconds=0.1, config=config) == ends

    @pytest.mark.parametrize("rate", [150, 1_000_000], ids=["the sum of the limits", "far more"])
    def test_the_maximum_rate_of_each_partition_is_applied(self, rate: int) -> None:
        config = CustomLimits({A: 50, B: 100})
        assert record_counts({A: 1000, B: 2000}, rate=rate, seconds=0.1, config=config) == {A: 5, B: 10}

    def test_batches_follow_the_estimated_rate(self) -> None:
        config = default_per_partition_config(configured({}))
        for rate in (100, 50, 20):
            assert record_counts({A: 100_000}, rate=rate, seconds=0.5, config=config) == {A: rate // 2}

    def test_an_initial_rate_below_the_maximum(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "maxRatePerPartition": "1000"}))
        assert record_counts({A: 100_000}, rate=-1, initial_rate=500, seconds=0.5, config=config) == {A: 250}

    def test_an_initial_rate_above_the_maximum(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "maxRatePerPartition": "300"}))
        assert record_counts({A: 100_000}, rate=-1, initial_rate=1000, seconds=0.5, config=config) == {A: 150}

    def test_the_minimum_applies_if_the_rate_is_lower(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "minRatePerPartition": "5"}))
        lags = {A: 0, B: 100, C: 200, D: 300}
        current = dict.fromkeys(lags, 0)
        allowed = max_messages_per_partition(current, lags, rate=1, batch_seconds=60, config=config)
        assert allowed == {A: 5, B: 10, C: 20, D: 30}
        assert record_counts(lags, rate=1, seconds=60, config=config) == {A: 0, B: 10, C: 20, D: 30}, (
            "no more records than exist"
        )


class TestLimits:
    def test_there_is_no_limit_by_default(self) -> None:
        assert (
            record_counts(MANY_RECORDS, rate=None, seconds=1, config=default_per_partition_config(configured({})))
            == MANY_RECORDS
        )

    def test_without_any_rate_the_maximum_applies(self) -> None:
        config = default_per_partition_config(configured({KAFKA + "maxRatePerPartition": "7"}))
        assert record_counts(MANY_RECORDS, rate=-1, seconds=2, config=config) == {A: 14, B: 14}

    def test_the_initial_rate_is_ignored_without_backpressure(self) -> None:
        assert (
            record_counts(MANY_RECORDS, rate=None, initial_rate=5, seconds=1, config=CustomLimits({})) == MANY_RECORDS
        )

    def test_an_estimated_rate_replaces_the_initial_rate(self) -> None:
        assert record_counts({A: 500}, rate=20, initial_rate=100, seconds=1, config=CustomLimits({})) == {A: 20}

    def test_a_batch_ends_at_the_end_of_the_log(self) -> None:
        ends = limit_ends(
            {A: 10, B: 10}, {A: 12, B: 100}, rate=None, batch_seconds=1, config=CustomLimits({A: 5, B: 5})
        )
        assert ends == {A: 12, B: 15}

    def test_a_new_partition(self) -> None:
        ends = limit_ends({A: 10, B: 0}, {A: 30, B: 60}, rate=8, batch_seconds=1, config=CustomLimits({}))
        assert ends == {A: 12, B: 6}

    def test_the_minimum_of_each_partition(self) -> None:
        assert record_counts(MANY_RECORDS, rate=2, seconds=1, config=CustomLimits({}, {B: 30})) == {A: 1, B: 30}

    def test_a_partition_without_a_limit_next_to_one_with_a_limit(self) -> None:
        def ends(max_rate: float) -> dict[TopicPartition, int]:
            return limit_ends(
                START, MANY_RECORDS, rate=None, batch_seconds=1, config=CustomLimits({A: 100, B: max_rate})
            )

        assert ends(0) == {A: 100, B: 1}  # Spark's rule, which is surprising
        assert ends(-200) == {A: 100, B: 1}  # not unlimited, although the sum is negative
        assert ends(float("inf")) == {A: 100, B: 100_000}

    @pytest.mark.parametrize("limit", ["5", None, float("nan"), True])
    def test_a_limit_that_is_not_a_number_is_rejected(self, limit: object) -> None:
        with pytest.raises(
            OptionError, match=r"maxRatePerPartition .* must return a number.*topic backpressure, partition"
        ):
            record_counts({A: 5}, rate=None, seconds=1, config=CustomLimits({A: limit}))
        with pytest.raises(OptionError, match=r"minRatePerPartition .* must return a number"):
            record_counts({A: 5}, rate=None, seconds=1, config=CustomLimits({}, {A: limit}))

    def test_a_subclass_must_implement_the_maximum(self) -> None:
        with pytest.raises(TypeError, match="maxRatePerPartition"):
            PerPartitionConfig()  # type: ignore[abstract]

    def test_the_default_config_can_be_pickled(self) -> None:
        config = default_per_partition_config(
            configured({KAFKA + "maxRatePerPartition": "7", KAFKA + "minRatePerPartition": "3"})
        )
        restored = pickle.loads(pickle.dumps(config))
        assert (restored.maxRatePerPartition(A), restored.minRatePerPartition(A)) == (7, 3)

    @pytest.mark.parametrize("name", ["maxRatePerPartition", "minRatePerPartition"])
    def test_settings_that_are_not_numbers_are_rejected(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"^spark.streaming.kafka.{name} must be an integer, got 'many'"):
            default_per_partition_config(configured({KAFKA + name: "many"}))


def controller(**settings: str) -> RateController:
    keys = {BACKPRESSURE + name.replace("_", "."): value for name, value in settings.items()}
    created = create_rate_controller(configured({**ON, **keys}), 1000)
    assert created is not None
    return created


class TestController:
    @pytest.mark.parametrize("settings", [{}, {BACKPRESSURE + "enabled": "false"}])
    def test_there_is_a_controller_only_if_backpressure_is_enabled(self, settings: Mapping[str, str]) -> None:
        assert create_rate_controller(configured(settings), 1000) is None

    def test_there_is_no_rate_before_the_second_batch(self) -> None:
        created = controller()
        assert (created.latest_rate(), created.initial_rate) == (-1, 0)
        created.batch_completed(1000, 500, 1000, 0)
        assert created.latest_rate() == -1
        created.batch_completed(2000, 400, 1000, 0)
        assert created.latest_rate() == 400

    def test_unusable_batches_do_not_change_the_rate(self) -> None:
        created = controller()
        for ended, records in ((1000, 500), (2000, 400), (3000, 0), (1500, 9)):
            created.batch_completed(ended, records, 1000, 0)
        assert created.latest_rate() == 400

    def test_the_rate_is_an_integer(self) -> None:
        created = controller(pid_minRate="0.5", pid_integral="0")
        created.batch_completed(1000, 10, 1000, 0)
        created.batch_completed(2000, 10, 3000, 0)
        assert created.latest_rate() == 3

    def test_the_controller_uses_the_settings(self) -> None:
        gains = {"pid_proportional": "0.5", "pid_integral": "0", "pid_derived": "0.5", "pid_minRate": "7"}
        created = controller(initialRate="50", rateEstimator="pid", **gains)
        assert created.initial_rate == 50
        created.batch_completed(1000, 100, 1000, 0)
        created.batch_completed(3000, 200, 1000, 400)  # 100 + 0.5 * 100 + 0.5 * 100 / 2, and 0 for the scheduling delay
        assert created.latest_rate() == 175
        created.batch_completed(4000, 1, 1000, 0)
        created.batch_completed(5000, 1, 1000, 0)
        created.batch_completed(6000, 1, 1000, 0)
        assert created.latest_rate() >= 7

    def test_the_rate_survives_a_restart(self) -> None:
        created = controller(initialRate="50")
        created.batch_completed(1000, 500, 1000, 0)
        created.batch_completed(2000, 400, 1000, 0)
        restored = pickle.loads(pickle.dumps(created))
        assert (restored.latest_rate(), restored.initial_rate) == (400, 50)
        for each in (created, restored):
            each.batch_completed(3000, 300, 1000, 100)
        assert restored.latest_rate() == created.latest_rate() == 294  # 400 - 100 - 0.2 * 100 ms * 300 / 1000 ms

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("enabled", "yes", "enabled must be true or false, got 'yes'"),
            ("initialRate", "1.5", "initialRate must be an integer, got '1.5'"),
            ("rateEstimator", "mine", "rateEstimator must be pid, got 'mine'"),
            ("pid.proportional", "a lot", "pid.proportional must be a number of at least 0, such as 0.2, got 'a lot'"),
            ("pid.integral", "-1", "backpressure.pid.integral must be a number of at least 0, such as 0.2, got '-1'"),
            ("pid.minRate", "0", "the minimum rate .* above 0, got 0.0 .spark.streaming.backpressure.pid"),
        ],
    )
    def test_invalid_settings_are_rejected(self, name: str, value: str, message: str) -> None:
        with pytest.raises(OptionError, match=message):
            create_rate_controller(configured({**ON, BACKPRESSURE + name: value}), 1000)


class FakeContext:
    """A StreamingContext without a JVM."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addStreamingListener(self, listener: Any) -> None:
        self.listeners.append(listener)


def completed(stream_id: int, records: int, ended_ms: int, processing: int = 500, scheduling: int = 0) -> Any:
    """Return Spark's event of a batch."""
    info = SimpleNamespace(numRecords=lambda: records)
    batch = SimpleNamespace(
        streamIdToInputInfo=lambda: {stream_id: info},
        processingDelay=lambda: processing,
        schedulingDelay=lambda: scheduling,
        processingEndTime=lambda: ended_ms,
    )
    return SimpleNamespace(batchInfo=lambda: batch)


class TestListener:
    def test_the_rate_follows_the_batches_of_the_stream(self) -> None:
        controller, context = RateController(PIDRateEstimator(1000, PIDGains())), FakeContext()
        ssc: Any = context
        for _ in range(2):
            controller.listen_to(ssc, 7)
        (listener,) = context.listeners
        ignored = [
            completed(8, 100, 1000),  # another stream
            completed(7, 100, 1000, processing=-1),  # no job of the batch has started
            completed(7, 100, 1000, scheduling=-1),
        ]
        for event in ignored:
            listener.onBatchCompleted(event)
        listener.onBatchCompleted(completed(7, 100, 2000))
        assert controller.latest_rate() == -1, "the first batch of the stream"
        listener.onBatchCompleted(completed(7, 100, 3000))
        assert controller.latest_rate() == 200, "100 records in half a second"
        other: Any = FakeContext()
        controller.listen_to(other, 7)
        controller.listen_to(other, 8)
        assert len(other.listeners) == 2

    def test_a_batch_that_cannot_be_read_is_ignored(self, caplog: pytest.LogCaptureFixture) -> None:
        context: Any = FakeContext()
        RateController(PIDRateEstimator(1000, PIDGains())).listen_to(context, 7)
        context.listeners[0].onBatchCompleted(None)
        (message,) = caplog.messages
        assert message.startswith("backpressure ignores a batch: ")
