"""Settings of the Spark configuration, by the names that Spark's connector gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._limits import gains_of
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from pyspark_kafka_direct.planning.backpressure import Gains
    from pyspark_kafka_direct.settings._reader import Read

_KAFKA: Final = "spark.streaming.kafka."
_BACKPRESSURE: Final = "spark.streaming.backpressure."
_GAINS: Final = ("backpressureProportional", "backpressureIntegral", "backpressureDerived")


class SparkConf(Protocol):
    """What is asked of Spark's configuration."""

    def get(self, key: str) -> str | None:
        """Return the text of a setting; ``None`` if it is not set."""


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """Limits that are the same for all partitions.

    Attributes:
        most: Most records per second; 0: no limit.
        least: Least number of records in a batch that is limited.
    """

    most: int
    least: int


@dataclass(frozen=True, slots=True)
class StreamBackpressure:
    """Spark Streaming's backpressure.

    Attributes:
        gains: The controller's settings.
        initial_rate: Records per second until batches were measured; 0: no limit.
    """

    gains: Gains
    initial_rate: int


def poll_timeout(conf: SparkConf) -> float:
    """Return how many seconds a task waits: ``spark.streaming.kafka.consumer.poll.ms``, else ``spark.network.timeout``.

    Raises:
        OptionError: The setting is no duration, or 0.
    """
    return _read(conf, _KAFKA + "consumer.poll.ms").decimal(_KAFKA + "consumer.poll.ms")


def assume_consecutive(conf: SparkConf) -> bool:
    """Tell whether the user vouches that offsets have no gaps: ``spark.streaming.kafka.assumeConsecutiveOffsets``.

    Spark's ``spark.streaming.kafka.allowNonConsecutiveOffsets`` is not asked: gaps are always allowed here.

    Raises:
        OptionError: The setting is neither true nor false.
    """
    return _read(conf, _KAFKA + "assumeConsecutiveOffsets").flag(_KAFKA + "assumeConsecutiveOffsets")


def partition_rates(conf: SparkConf) -> PartitionRates:
    """Return limits of partitions: ``spark.streaming.kafka.maxRatePerPartition`` (0) and ``minRatePerPartition`` (1).

    Raises:
        OptionError: One of them is not a whole number.
    """
    most, least = _KAFKA + "maxRatePerPartition", _KAFKA + "minRatePerPartition"
    given = _read(conf, most, least)
    return PartitionRates(given.whole(most), given.whole(least))


def stream_backpressure(conf: SparkConf) -> StreamBackpressure | None:
    """Return backpressure; ``None`` unless ``spark.streaming.backpressure.enabled``.

    Raises:
        OptionError: A setting of it cannot be used; the message names it.
    """
    if not _read(conf, _BACKPRESSURE + "enabled").flag(_BACKPRESSURE + "enabled"):
        return None
    initial, least = _BACKPRESSURE + "initialRate", _BACKPRESSURE + "pid.minRate"
    given = _read(conf, _BACKPRESSURE + "rateEstimator", initial, least, *_GAINS)
    try:
        gains = gains_of(given, given.decimal(least))
    except OptionError as error:
        raise OptionError(f"{error.message} ({given.name(least)})") from None
    return StreamBackpressure(gains, given.whole(initial))


def _read(conf: SparkConf, *settings: str) -> Read:
    """Read some settings, so that another one that cannot be used is no error of these."""
    texts: dict[str, str] = {}
    for setting in settings:
        ways = [way.name for way in TABLE.by_name[setting].origins if way.origin is Origin.SPARK]
        texts.update(next((((name, text),) for name in ways if (text := conf.get(name)) is not None), ()))
    return read(texts, door="direct", origin=Origin.SPARK)
