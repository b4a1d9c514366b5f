"""Rules across options that say what to read: which topics, from where, to where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import offset_ranges_from_json
from pyspark_kafka_direct.planning.hints import listed
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    Latest,
    check_batch_end,
    check_batch_start,
    check_pair,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from pyspark_kafka_direct.planning.select import Assign, parse_assign, parse_subscribe, parse_subscribe_pattern
from pyspark_kafka_direct.planning.stream_start import Committed
from pyspark_kafka_direct.settings import _messages
from pyspark_kafka_direct.settings._rows_read import NO_GROUP

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.planning.positions import NoMatch, Position
    from pyspark_kafka_direct.planning.select import Selection
    from pyspark_kafka_direct.planning.stream_start import StreamStart
    from pyspark_kafka_direct.settings._reader import Read

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_FALLBACK: Final = "committedOffsetsFallback"
_FALLBACKS: Final = {"error": Committed(), "earliest": Committed(Earliest()), "latest": Committed(Latest())}
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_RANGES_FORM: Final = 'a JSON list such as [{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]'


def selection_of(given: Read) -> Selection:
    """Read which topic-partitions to read.

    Raises:
        OptionError: None or several of the options that say it are given, or the one cannot be used.
    """
    named = [name for name in _SELECTIONS if name in given.given]
    if len(named) != 1:
        raise OptionError(
            f"exactly one of the options {', '.join(_SELECTIONS)} must be given (or offsetRanges), "
            f"got {listed(named)}: they say which topics to read"
        )
    text = given.text(named[0]) or ""
    match named[0]:
        case "assign":
            return parse_assign(text)
        case "subscribe":
            return parse_subscribe(text)
    return parse_subscribe_pattern(text)


def selection_of_ranges(ranges: tuple[OffsetRange, ...]) -> Selection:
    """Return the topic-partitions of some ranges."""
    return Assign(tuple(sorted({each.topic_partition for each in ranges})))


def batch_positions(given: Read, warnings: list[str]) -> tuple[Position, Position]:
    """Read where a batch begins and stops.

    Args:
        given: What was given.
        warnings: Gets a line for each option that another one takes precedence over.

    Raises:
        OptionError: A position cannot be used.
        OffsetPlanError: Start and end contradict each other.
    """
    start = _start(given, warnings)
    end = _position(given, _ENDS, "latest", warnings)
    check_batch_start(start, "startingOffsets")
    check_batch_end(end, "endingOffsets")
    check_pair(start, end)
    return start, end


def stream_start(given: Read, warnings: list[str]) -> tuple[StreamStart, str | None]:
    """Read where a new stream begins, and by the committed offsets of which group, if by any.

    Raises:
        OptionError: The position cannot be used, or no group is named.
    """
    by_offsets = not any(name in given.given for name in _STARTS[:2])
    committed = by_offsets and (given.text("startingOffsets") or "").strip().lower() == "committed"
    group = given.text("commitGroupId")
    if "group.id" in given.given and (group or not committed):
        warnings.append(_messages.ignored(given.origin, given.name("group.id"), NO_GROUP))
    if committed:
        group = group or given.text("group.id")
        if group is None:
            raise OptionError("startingOffsets=committed needs the group that has committed: set commitGroupId")
        return _FALLBACKS[given.text(_FALLBACK) or "error"], group
    if _FALLBACK in given.given:
        warnings.append(_messages.ignored(given.origin, _FALLBACK, "startingOffsets is not committed"))
    return _start(given, warnings), None


def offset_ranges(given: Read) -> tuple[OffsetRange, ...] | None:
    """Read ``offsetRanges``; ``None`` where it is not given.

    Raises:
        OptionError: It cannot be used, or another option says what to read.
    """
    if "offsetRanges" not in given.given:
        return None
    others = [name for name in (*_SELECTIONS, *_STARTS, *_ENDS, _STRATEGY) if name in given.given]
    if others:
        raise OptionError(f"offsetRanges says exactly what to read; leave out {listed(others)}")
    text = given.text("offsetRanges") or ""
    try:
        return offset_ranges_from_json(text)
    except ValueError as error:
        raise OptionError(f"offsetRanges must be {_RANGES_FORM}, got {text!r}: {error}") from None


def _start(given: Read, warnings: list[str]) -> Position:
    return _position(given, _STARTS, cast("NoMatch", given.text(_STRATEGY)), warnings)


def _position(given: Read, names: tuple[str, str, str], on_no_match: NoMatch, warnings: list[str]) -> Position:
    """Return the position that takes precedence: one timestamp, then timestamps per partition, then offsets."""
    timestamp, timestamps, offsets = names
    named = [name for name in names if name in given.given] or [offsets]
    precedence = f"{named[0]} takes precedence"
    warnings += [_messages.ignored(given.origin, name, precedence) for name in named[1:]]
    text = given.text(named[0]) or ""
    if named[0] == timestamp:
        return parse_timestamp(text, timestamp, on_no_match)
    if named[0] == timestamps:
        return parse_timestamps(text, timestamps, on_no_match)
    return parse_offsets(text, offsets)
