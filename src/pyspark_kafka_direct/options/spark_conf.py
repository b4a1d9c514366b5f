"""Parser of Spark configuration properties, which are named as in Spark's own connector."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.batch_limits import parse_gains
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config
from pyspark_kafka_direct.options.settings import BackpressureOptions

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.option_parser import ParsedConfig

_KAFKA: Final = "spark.streaming.kafka."
_BACKPRESSURE: Final = "spark.streaming.backpressure."
_GAIN_OPTIONS: Final = ("backpressureProportional", "backpressureIntegral", "backpressureDerived")


class SparkConfReader(Protocol):
    """The method of ``SparkConf`` that this module uses."""

    def get(self, key: str) -> str | None:
        """Return the value of a property, or None if it is not set."""


def poll_timeout_ms(conf: SparkConfReader) -> int:
    """Return how long a task waits for records."""
    return math.ceil(_parse(conf, _KAFKA + "consumer.poll.ms").get_double(_KAFKA + "consumer.poll.ms") * 1000)


def assume_consecutive(conf: SparkConfReader) -> bool:
    """Return whether the user guarantees that offsets have no gaps."""
    # Gaps are always allowed, so Spark's spark.streaming.kafka.allowNonConsecutiveOffsets has no effect here.
    return _parse(conf, _KAFKA + "assumeConsecutiveOffsets").get_boolean(_KAFKA + "assumeConsecutiveOffsets")


def warn_of_ignored_properties(conf: SparkConfReader) -> None:
    """Warn if a property of Spark's direct stream is set that has no effect."""
    if conf.get(_KAFKA + "maxRetries") is not None:
        warn_once(
            f"{_KAFKA}maxRetries is ignored, as in Spark since the connector for Kafka 0.8 was removed: requests for "
            "offsets are retried for default.api.timeout.ms"
        )


def partition_rates(conf: SparkConfReader) -> tuple[int, int]:
    """Return the limits of each partition: records per second (0: no limit), and the minimum of a limited batch."""
    max_rate, min_rate = _KAFKA + "maxRatePerPartition", _KAFKA + "minRatePerPartition"
    parsed = _parse(conf, max_rate, min_rate)
    return parsed.get_int(max_rate), parsed.get_int(min_rate)


def stream_backpressure(conf: SparkConfReader) -> BackpressureOptions | None:
    """Return the backpressure of a direct stream, or None if it is disabled."""
    if not _parse(conf, _BACKPRESSURE + "enabled").get_boolean(_BACKPRESSURE + "enabled"):
        return None
    initial_rate, min_rate = _BACKPRESSURE + "initialRate", _BACKPRESSURE + "pid.minRate"
    parsed = _parse(conf, _BACKPRESSURE + "rateEstimator", initial_rate, min_rate, *_GAIN_OPTIONS)
    try:
        gains = parse_gains(parsed, min_rate=parsed.get_double(min_rate))
    except OptionError as error:  # about the minimum rate, because the others are parsed as numbers of at least 0
        raise OptionError(f"{error.message} ({parsed.name_of(min_rate)})") from None
    return BackpressureOptions(gains, initial_rate=parsed.get_int(initial_rate) or None)


def _parse(conf: SparkConfReader, *option_names: str) -> ParsedConfig:
    """Parse only the named options, so that invalid values of other options cause no error."""
    properties: dict[str, str] = {}
    for option_name in option_names:
        for source_key in OPTION_TABLE.by_name[option_name].source_keys:
            value = conf.get(source_key.name) if source_key.source is ConfigSource.SPARK else None
            if value is not None:
                properties[source_key.name] = value
                break  # the first key that is set takes precedence
    return parse_config(properties, api="direct", source=ConfigSource.SPARK)
