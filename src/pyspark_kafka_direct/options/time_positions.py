"""Times as positions: ISO times with a zone, and times relative to now. Messages begin with what they show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark_kafka_direct.offsets import MAX_OFFSET

_MILLISECOND: Final = timedelta(milliseconds=1)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN_UNITS: Final = "ms, s, m, h and d"
_ISO_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)
_SIGNED_QUANTITY: Final = re.compile(r"([+-]?)([0-9]{1,19})([.,][0-9]+)? ?([a-z]*)", re.ASCII)


def parse_iso_time(text: str, shown: str) -> int | None:
    """Return milliseconds since 1970, rounded up; ``None`` if the text does not have the form of an ISO time.

    Raises:
        ValueError: A time that does not exist, lies outside 1970 to 2999, or has no zone.
    """
    upper = text.upper()
    if _ISO_TIME.fullmatch(upper) is None:
        return None
    try:
        time = datetime.fromisoformat(upper)
    except ValueError as error:
        raise ValueError(f"{shown} is not a time: {error}") from None
    if not 1970 <= time.year < 3000:  # so that no zone leads to a year that datetime lacks
        raise ValueError(f"{shown} is not a time from 1970 to 2999")
    if time.tzinfo is None:
        local = time.astimezone()
        raise ValueError(
            f"{shown} has no zone: write {_shown(time)}Z if it is in UTC, or {_shown(local)} if it is in the zone of "
            f"this machine ({local.tzname()})"
        )
    since_1970 = -((datetime.fromtimestamp(0, UTC) - time) // _MILLISECOND)
    if since_1970 < 0:  # 1970 in a zone east of Greenwich
        raise ValueError(f"{shown} is not a time from 1970 to 2999")
    return since_1970


def parse_relative_time(text: str, shown: str) -> int | None:
    """Return milliseconds before now of a time such as ``-1h``; ``None`` if the text is no number with a unit.

    Raises:
        ValueError: Without a minus sign or a known unit, not a whole number, 0, or too large.
    """
    match = _SIGNED_QUANTITY.fullmatch(text)
    if match is None:
        return None
    sign, number, fraction, unit = match.groups()
    if not unit:
        raise ValueError(f"{shown} has no unit; write a time before now such as -1h, -30m, -90s or -2d")
    if unit not in _UNIT_MS:
        raise ValueError(f"{shown} has an unknown unit; the units are {_SHOWN_UNITS}")
    if sign != "-":
        raise ValueError(f"{shown} is not before now; write -{number}{fraction or ''}{unit}")
    if fraction:
        raise ValueError(f"{shown} is not a whole number; use a smaller unit, such as -90m instead of -1.5h")
    return check_before_now(int(number) * _UNIT_MS[unit], shown)


def check_before_now(milliseconds: int, shown: str) -> int:
    """Return the time before now; raise ValueError if it is now, or not a 64-bit integer."""
    if milliseconds <= 0:
        raise ValueError(f"{shown} is not before now; write 'now' for the end of the log")
    if milliseconds > MAX_OFFSET:
        raise ValueError(f"{shown} is too long ago")
    return milliseconds


def format_relative_time(milliseconds: int) -> str:
    """Return a time before now in its largest whole unit, such as ``-90m``."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if milliseconds % _UNIT_MS[unit] == 0)
    return f"-{milliseconds // _UNIT_MS[unit]}{unit}"


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="auto" if time.second or time.microsecond else "minutes")
