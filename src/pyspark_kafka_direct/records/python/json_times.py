"""Dates and timestamps in strings, with the formats that Spark's ``from_json`` reads by default."""

from __future__ import annotations

import re
from calendar import monthrange
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.records.utc_offsets import utc_second

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRIMMED: Final = bytes([*range(0x21), 0x7F])  # blanks and control characters
_DATE: Final = re.compile(rb"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP: Final = re.compile(
    rb"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})"
    rb"(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?)?)?)?",
    re.DOTALL,
)
_DAYS: Final = re.compile(rb"[+-]?[0-9]+")
_OFFSET: Final = re.compile(rb"([+-])([0-9]{1,2})(?:(:?)([0-9]{2})(?:\3([0-9]{2}))?)?")
_SHORT_OFFSET: Final = {b"EST": b"-05:00", b"MST": b"-07:00", b"HST": b"-10:00"}  # Java's ids without daylight saving
_SINGLE_HOUR: Final = re.compile(rb"([+-])([0-9]):")
_SINGLE_MINUTE: Final = re.compile(rb"([+-][0-9][0-9]:)([0-9])\Z")

_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
_CYCLE_DAYS: Final = 146_097  # 400 years
_FIRST_GREGORIAN_DAY: Final = -141_427  # 1582-10-15
_MAX_OFFSET: Final = 18 * 3600


def days_of_date(text: bytes) -> int | None:
    """Return the days from 1970 to the date in a string, or None if there is none."""
    days = _days(text)
    if days is None and b"GMT" in text:
        days = _days(text.replace(b"GMT", b""))
    if days is None and _DAYS.fullmatch(text) is not None and len(text) < 64:
        number = int(text)
        days = _days_of_julian(number) if number in _INT32 else None
    return None if days is None or days not in _INT32 else days


def micros_of_timestamp(text: bytes, offsets: Sequence[tuple[int, int]]) -> int | None:
    """Return the microseconds from 1970 to the time in a string, or None if there is none.

    Offsets are those of the time zone of times without an offset.
    """
    micros = _instant(text, offsets)
    return _instant(text.replace(b"GMT", b""), offsets) if micros is None and b"GMT" in text else micros


def micros_without_zone(text: bytes) -> int | None:
    """Return the microseconds from 1970 to the time in a string, or None if it has none, or one with an offset."""
    local = _local_time(text)
    if local is None or local[2]:
        return None
    micros = local[0] * 1_000_000 + local[1]
    return micros if micros in _INT64 else None


def micros_of_seconds(seconds: int) -> int | None:
    """Return the microseconds of seconds, modulo 64 bits, as in Spark; None if the seconds have more."""
    if seconds not in _INT64:
        return None
    return (seconds * 1_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)


def _instant(text: bytes, offsets: Sequence[tuple[int, int]]) -> int | None:
    local = _local_time(text)
    if local is None:
        return None
    second, fraction, zone = local
    if zone:
        offset = _zone_offset(zone)
        if offset is None:
            return None
        second -= offset
    else:
        second = utc_second(offsets, second)
    micros = second * 1_000_000 + fraction
    return micros if micros in _INT64 else None


def _local_time(text: bytes) -> tuple[int, int, bytes] | None:
    """Return the second from 1970 without regard to a zone, the microseconds in it, and the text of the zone."""
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    year, month, day = int(found[1]), int(found[2] or b"1"), int(found[3] or b"1")
    hour, minute, second = int(found[4] or b"0"), int(found[5] or b"0"), int(found[6] or b"0")
    if hour > 23 or minute > 59 or second > 59:
        return None
    days = _days_of_civil(year, month, day)
    if days is None:
        return None
    fraction = int((found[7] or b"")[:6].ljust(6, b"0"))
    return ((days * 24 + hour) * 60 + minute) * 60 + second, fraction, found[8] or b""


def _zone_offset(text: bytes) -> int | None:
    """Return the offset of a zone in seconds; None for regions, too."""
    zone = text.strip(_TRIMMED[:-1])
    zone = _SINGLE_HOUR.sub(rb"\g<1>0\2:", zone, count=1)
    zone = _SINGLE_MINUTE.sub(rb"\g<1>0\2", zone, count=1)
    zone = _SHORT_OFFSET.get(zone, zone)
    for prefix in (b"UTC", b"GMT", b"UT"):
        if zone.startswith(prefix):
            zone = zone.removeprefix(prefix) or b"Z"
            if zone == b"Z" and text.strip(_TRIMMED[:-1]) != prefix:
                return None
            break
    if zone == b"Z":
        return 0
    found = _OFFSET.fullmatch(zone)
    if found is None or (len(found[2]) == 1 and found[4] is not None):
        return None
    hours, minutes, seconds = int(found[2]), int(found[4] or b"0"), int(found[5] or b"0")
    offset = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or offset > _MAX_OFFSET:
        return None
    return -offset if found[1] == b"-" else offset


def _days(text: bytes) -> int | None:
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    days = None if found is None else _days_of_civil(int(found[1]), int(found[2] or b"1"), int(found[3] or b"1"))
    return None if days is None or days not in _INT32 else days


def _days_of_civil(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970 to a date of the proleptic Gregorian calendar; Python's dates begin with year 1."""
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(2000 + year % 400, month)[1]:
        return None
    # Years begin in March, so that the leap day is the last one.
    year -= month < 3
    cycle, of_cycle = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return cycle * _CYCLE_DAYS + of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + of_year - 719_468


def _days_of_julian(days: int) -> int | None:
    """Return the day that has the same year, month and day as a day before 1582-10-15 of the Julian calendar."""
    if days >= _FIRST_GREGORIAN_DAY:
        return days
    cycle, of_cycle = divmod(days + 719_470, 1461)  # days since March 1 of the year 0
    year = min(of_cycle // 365, 3)
    of_year = of_cycle - year * 365
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    year += cycle * 4 + (month >= 10)
    first = _days_of_civil(year, month + 3 if month < 10 else month - 9, 1)
    return None if first is None else first + day
