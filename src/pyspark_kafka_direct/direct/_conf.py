"""Settings of the Spark configuration that reading takes, by the names Spark's connector gave them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark import SparkConf

_POLL: Final = "spark.streaming.kafka.consumer.poll.ms"
_NETWORK: Final = "spark.network.timeout"
_CONSECUTIVE: Final = "spark.streaming.kafka.assumeConsecutiveOffsets"

_DURATION: Final = re.compile(r"([0-9]{1,18})(us|ms|s|m|min|h|d)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def poll_timeout(conf: SparkConf) -> float:
    """Seconds a task waits for records: ``spark.streaming.kafka.consumer.poll.ms``, else ``spark.network.timeout``.

    Raises:
        OptionError: The setting is no duration, or 0.
    """
    given = conf.get(_POLL)
    if given is not None:
        return _seconds(_POLL, given, "ms")
    return _seconds(_NETWORK, conf.get(_NETWORK, "120s") or "120s", "s")


def assume_consecutive(conf: SparkConf) -> bool:
    """Whether the user vouches that offsets have no gaps: ``spark.streaming.kafka.assumeConsecutiveOffsets``.

    Spark's ``spark.streaming.kafka.allowNonConsecutiveOffsets`` is not asked: gaps are always allowed here.

    Raises:
        OptionError: The setting is neither true nor false.
    """
    return flag(_CONSECUTIVE, conf.get(_CONSECUTIVE) or "false")


def flag(name: str, text: str) -> bool:
    """True or false, however it is capitalised.

    Raises:
        OptionError: It is neither; the message names the setting.
    """
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, got {text!r}")
    return word == "true"


def _seconds(name: str, text: str, unit: str) -> float:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise OptionError(f"{name} must be a duration above 0, such as 500ms or 120s, got {text!r}")
    return int(found[1]) * _SECONDS[found[2] or unit]
