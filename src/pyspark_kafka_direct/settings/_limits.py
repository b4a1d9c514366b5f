"""Rules across settings that limit batches: fixed limits, and backpressure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.planning.backpressure import Gains
from pyspark_kafka_direct.planning.feedback import Backpressure
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.settings import _messages

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read

_PREFIX: Final = "backpressure"


def limits_of(given: Read) -> Limits:
    """Read the limits on a micro-batch.

    Raises:
        OptionError: The least is above the most.
    """
    limits = Limits(
        given.number("maxOffsetsPerTrigger"),
        given.number("minOffsetsPerTrigger"),
        given.decimal("maxTriggerDelay"),
        given.number("maxBytesPerTrigger"),
    )
    if (limits.min_offsets or 0) > (limits.max_offsets or MAX_OFFSET):
        raise OptionError(
            f"minOffsetsPerTrigger={limits.min_offsets} must be less than or equal to "
            f"maxOffsetsPerTrigger={limits.max_offsets}"
        )
    return limits


def backpressure_of(given: Read, warnings: list[str]) -> Backpressure | None:
    """Read the backpressure of a stream; ``None`` where it is off.

    Args:
        given: What was given.
        warnings: Gets a line for each option that means nothing without it.
    """
    if given.flag(_PREFIX):
        rate = given.number("backpressureInitialRate")
        return Backpressure(gains_of(given, given.whole("backpressureMinRate")), rate)
    others = [name for name in given.given if name.startswith(_PREFIX) and name != _PREFIX]
    warnings += [_messages.ignored(given.origin, name, "backpressure is not true") for name in others]
    return None


def gains_of(given: Read, min_rate: float) -> Gains:
    """Return the controller's settings, which the options and the Spark configuration share, and its least rate."""
    return Gains(
        proportional=given.decimal("backpressureProportional"),
        integral=given.decimal("backpressureIntegral"),
        derived=given.decimal("backpressureDerived"),
        min_rate=min_rate,
    )
