"""Parser of the limits of micro-batches: fixed limits and backpressure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains, ReadLimits

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.option_parser import ParsedConfig

_PREFIX: Final = "backpressure"


def parse_batch_limits(parsed: ParsedConfig) -> ReadLimits:
    """Parse the fixed limits of a micro-batch."""
    check_min_and_max(parsed)
    return ReadLimits(
        max_offsets=parsed.get_optional_int("maxOffsetsPerTrigger"),
        min_offsets=parsed.get_optional_int("minOffsetsPerTrigger"),
        max_delay=parsed.get_double("maxTriggerDelay"),
        max_bytes=parsed.get_optional_int("maxBytesPerTrigger"),
    )


def check_min_and_max(parsed: ParsedConfig) -> None:
    """Reject a minimum that exceeds the maximum."""
    min_offsets = parsed.get_optional_int("minOffsetsPerTrigger")
    max_offsets = parsed.get_optional_int("maxOffsetsPerTrigger")
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger={min_offsets} must be less than or equal to maxOffsetsPerTrigger={max_offsets}"
        )


def parse_backpressure(parsed: ParsedConfig, warnings: list[str]) -> BackpressureOptions | None:
    """Return the backpressure options, or None and warnings about options that have no effect without it."""
    if parsed.get_boolean(_PREFIX):
        gains = parse_gains(parsed, min_rate=parsed.get_int("backpressureMinRate"))
        return BackpressureOptions(gains, initial_rate=parsed.get_optional_int("backpressureInitialRate"))
    ignored_names = [name for name in parsed.given_names if name.startswith(_PREFIX) and name != _PREFIX]
    warnings += [
        option_messages.ignored_warning(parsed.source, name, "backpressure is not true") for name in ignored_names
    ]
    return None


def parse_gains(parsed: ParsedConfig, min_rate: float) -> PIDGains:
    """Return the gains of the PID controller, which can come from options or from the Spark configuration."""
    return PIDGains(
        proportional=parsed.get_double("backpressureProportional"),
        integral=parsed.get_double("backpressureIntegral"),
        derived=parsed.get_double("backpressureDerived"),
        min_rate=min_rate,
    )
