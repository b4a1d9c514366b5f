"""Parser of the options that start or end at a timestamp, for the data source and the direct stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.options.offset_specs import (
    GlobalTimestamp,
    SpecificTimestamps,
    parse_global_timestamp,
    parse_timestamps_by_partition,
)
from pyspark_kafka_direct.options.option_messages import ignored_warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.offset_specs import NoMatchStrategy
    from pyspark_kafka_direct.options.option_parser import ParsedConfig

TimestampSpec: TypeAlias = GlobalTimestamp | SpecificTimestamps

STARTING_TIMESTAMP_OPTIONS: Final = ("startingTimestamp", "startingOffsetsByTimestamp")
STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"


def parse_timestamps(
    parsed: ParsedConfig, names: tuple[str, str], on_no_match: NoMatchStrategy
) -> TimestampSpec | None:
    """Parse one timestamp, or else timestamps by partition; return ``None`` if neither is given."""
    timestamp_option, timestamps_option = names
    if timestamp_option in parsed.given_names:
        return parse_global_timestamp(parsed.get_string(timestamp_option) or "", timestamp_option, on_no_match)
    if timestamps_option in parsed.given_names:
        return parse_timestamps_by_partition(parsed.get_string(timestamps_option) or "", timestamps_option, on_no_match)
    return None


def precedence_warnings(parsed: ParsedConfig, names: Sequence[str]) -> list[str]:
    """Return a warning for each given option after the first one, which takes precedence."""
    given_names = [name for name in names if name in parsed.given_names]
    return [ignored_warning(parsed.source, name, f"{given_names[0]} takes precedence") for name in given_names[1:]]
