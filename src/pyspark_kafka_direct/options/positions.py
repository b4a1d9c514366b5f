"""Single positions in a partition, as users write them: keywords, times or numbers of offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from pyspark_kafka_direct.offsets import EARLIEST, LATEST, int64_from_json
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.options.time_positions import (
    check_before_now,
    format_relative_time,
    parse_iso_time,
    parse_relative_time,
)

# What a starting time means in a partition without a record that new.
NoMatchStrategy: TypeAlias = Literal["error", "latest"]

KEYWORDS: Final = {"earliest": EARLIEST, "latest": LATEST, "now": LATEST}
TIMES_FORM: Final = "a time such as 2026-11-28T06:00Z or -1h"

_LAST_OFFSETS: Final = re.compile(r"last(?: (.*)|([0-9].*))?")  # but not "lastest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of a partition with this timestamp or a later one."""

    timestamp: int  # ms since 1970
    on_no_match: NoMatchStrategy = "error"

    def __str__(self) -> str:
        return f"timestamp {self.timestamp}"


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """The first record of a partition that is not older than this."""

    milliseconds: int
    on_no_match: NoMatchStrategy = "latest"

    def __str__(self) -> str:
        return format_relative_time(self.milliseconds)


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """As many offsets before the end of a partition, or its log start."""

    count: int

    def __str__(self) -> str:
        return f"last {self.count}"


# An int is an offset, EARLIEST (the log start) or LATEST (the high watermark, or the last stable offset with
# ``read_committed``).
FixedPosition: TypeAlias = int | AtTime | LastOffsets
Position: TypeAlias = FixedPosition | BeforeNow


def parse_position(
    value: object, where: str = "", *, at_time: NoMatchStrategy = "latest", before_now: NoMatchStrategy = "latest"
) -> Position:
    """Parse a keyword, a time or ``last 1000``; in Python, a ``datetime`` or a negative ``timedelta`` is a time, too.

    Raises:
        ValueError: None of them; the message begins with the value and ``where``, such as ``" for t-0"``.
    """
    time = _parse_time_word(value, where, at_time=at_time, before_now=before_now)
    if time is not None:
        return time
    if not isinstance(value, str):
        raise ValueError(f"{value!r}{where} is not a position")
    word = _normalized(value)
    if word in KEYWORDS:
        return KEYWORDS[word]
    if match := _LAST_OFFSETS.fullmatch(word):
        count = int64_from_json(match[1] or match[2])
        if count is None or count < 1:
            raise ValueError(
                f"{value!r}{where} does not say how many offsets of each partition to read, such as 'last 1000'"
            )
        return LastOffsets(count)
    raise ValueError(
        f"{value!r}{where} is neither 'earliest' nor 'latest', nor 'now', {TIMES_FORM}, or 'last 1000'"
        f"{did_you_mean(value, KEYWORDS)}"
    )


def parse_time(value: object, where: str = "", *, on_no_match: NoMatchStrategy | None) -> AtTime | BeforeNow:
    """Parse a timestamp in ms or another time; raises ValueError, as ``parse_position``.

    Unless the user says it, only a time before now may be the end of a partition, as for Spark's timestamps.
    """
    timestamp = int64_from_json(value.strip() if isinstance(value, str) else value)
    if timestamp is not None and timestamp < 0:
        raise ValueError(f"{timestamp}{where} is before 1970, and a time before now needs a unit (-1h)")
    if timestamp is not None:
        return AtTime(timestamp, on_no_match or "error")
    time = _parse_time_word(value, where, at_time=on_no_match or "error", before_now=on_no_match or "latest")
    if time is None:
        raise ValueError(f"{value!r} is not a 64-bit integer{where}, nor {TIMES_FORM}")
    return time


def _parse_time_word(
    value: object, where: str, *, at_time: NoMatchStrategy, before_now: NoMatchStrategy
) -> AtTime | BeforeNow | None:
    """Parse a time that is no number; return ``None`` if the value does not have the form of a time."""
    shown = f"{value!r}{where}"
    if isinstance(value, timedelta):
        return BeforeNow(check_before_now(-value // timedelta(milliseconds=1), shown), before_now)
    text = value.isoformat() if isinstance(value, datetime) else value
    if not isinstance(text, str):
        return None
    word = _normalized(text)
    if (milliseconds := parse_relative_time(word, shown)) is not None:
        return BeforeNow(milliseconds, before_now)
    if (timestamp := parse_iso_time(word, shown)) is not None:
        return AtTime(timestamp, at_time)
    return None


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())
