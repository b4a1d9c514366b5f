"""The settings of the Spark configuration that the direct stream reads."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains
from pyspark_kafka_direct.options.spark_conf import (
    assume_consecutive,
    poll_timeout_ms,
    stream_backpressure,
    warn_of_ignored_properties,
)

POLL_TIMEOUT = "spark.streaming.kafka.consumer.poll.ms"


class Conf(dict[str, str]):
    """The part of SparkConf that is used, without a JVM."""


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 120.0),
        ({"spark.network.timeout": "300s"}, 300.0),
        ({"spark.network.timeout": "5m"}, 300.0),
        ({"spark.network.timeout": "90"}, 90.0),
        ({POLL_TIMEOUT: "1500", "spark.network.timeout": "300s"}, 1.5),
        ({POLL_TIMEOUT: "2s"}, 2.0),
    ],
)
def test_the_poll_timeout(settings: dict[str, str], seconds: float) -> None:
    assert poll_timeout_ms(Conf(settings)) == seconds * 1000


@pytest.mark.parametrize("value", ["soon", "0", "0s", "-1", "1.5s"])
def test_invalid_durations_are_rejected(value: str) -> None:
    with pytest.raises(OptionError, match=rf"{POLL_TIMEOUT} must be a duration.*'{value}'"):
        poll_timeout_ms(Conf({POLL_TIMEOUT: value}))


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("true", True), ("False", False)])
def test_assume_consecutive(value: str | None, expected: bool) -> None:
    settings = {} if value is None else {"spark.streaming.kafka.assumeConsecutiveOffsets": value}
    assert assume_consecutive(Conf(settings)) is expected


def test_each_property_of_backpressure_applies() -> None:
    names = {"enabled": "true", "initialRate": "50", "pid.minRate": "7"}
    names |= {"pid.proportional": "0.5", "pid.integral": "0.1", "pid.derived": "0.3"}
    conf = Conf({f"spark.streaming.backpressure.{name}": value for name, value in names.items()})
    assert stream_backpressure(conf) == BackpressureOptions(PIDGains(0.5, 0.1, 0.3, 7), 50)
    assert stream_backpressure(Conf()) is None


def test_allow_non_consecutive_offsets_is_ignored() -> None:
    assert not assume_consecutive(Conf({"spark.streaming.kafka.allowNonConsecutiveOffsets": "false"}))


def test_a_value_that_is_not_a_boolean_is_rejected() -> None:
    with pytest.raises(OptionError, match="true or false"):
        assume_consecutive(Conf({"spark.streaming.kafka.assumeConsecutiveOffsets": "maybe"}))


def test_the_property_of_the_old_connector_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    option_messages.warn_once.cache_clear()
    warn_of_ignored_properties(Conf())
    assert caplog.records == []
    for _ in range(2):
        warn_of_ignored_properties(Conf({"spark.streaming.kafka.maxRetries": "3"}))
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "spark.streaming.kafka.maxRetries is ignored"
    ]
