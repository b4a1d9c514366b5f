"""Settings of the Spark configuration."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.settings.spark_conf import assume_consecutive, poll_timeout

POLL = "spark.streaming.kafka.consumer.poll.ms"


class Conf(dict[str, str]):
    """What is asked of a SparkConf, without a JVM."""


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 120.0),
        ({"spark.network.timeout": "300s"}, 300.0),
        ({"spark.network.timeout": "5m"}, 300.0),
        ({"spark.network.timeout": "90"}, 90.0),
        ({POLL: "1500", "spark.network.timeout": "300s"}, 1.5),
        ({POLL: "2s"}, 2.0),
    ],
)
def test_how_long_a_task_waits(given: dict[str, str], seconds: float) -> None:
    assert poll_timeout(Conf(given)) == seconds


@pytest.mark.parametrize("text", ["soon", "0", "0s", "-1", "1.5s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(OptionError, match=rf"{POLL} must be a duration.*'{text}'"):
        poll_timeout(Conf({POLL: text}))


@pytest.mark.parametrize(("text", "expected"), [(None, False), ("true", True), ("False", False)])
def test_assume_consecutive(text: str | None, expected: bool) -> None:
    given = {} if text is None else {"spark.streaming.kafka.assumeConsecutiveOffsets": text}
    assert assume_consecutive(Conf(given)) is expected


def test_gaps_are_allowed_whatever_spark_is_told() -> None:
    assert not assume_consecutive(Conf({"spark.streaming.kafka.allowNonConsecutiveOffsets": "false"}))


def test_neither_true_nor_false() -> None:
    with pytest.raises(OptionError, match="true or false"):
        assume_consecutive(Conf({"spark.streaming.kafka.assumeConsecutiveOffsets": "maybe"}))
