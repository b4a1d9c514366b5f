"""The offsets of a time zone from UTC as a table."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import tzinfo

_FIXED: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d))?(?::?(\d\d))?")
_UTC_NAMES: Final = frozenset({"UTC", "Z", "GMT", "UT", "Etc/UTC", "Etc/GMT"})
# Java's ZoneId.SHORT_IDS, which Spark accepts as time zones.
_SHORT_IDS: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_START: Final = int(datetime(1800, 1, 1, tzinfo=UTC).timestamp())
_END: Final = int(datetime(2500, 1, 1, tzinfo=UTC).timestamp())
_STEP: Final = 3 * 86_400  # no zone has changed its offset twice within this time


@functools.lru_cache(maxsize=16)
def utc_offsets(name: str) -> tuple[tuple[int, int], ...]:
    """Return UTC seconds in ascending order with the offset, in seconds, from then on.

    The last entry is the end of the table: later times have the offset of the time 400 years before, or 800. If there
    is one entry, its offset always applies.
    """
    name = _SHORT_IDS.get(name, name)
    if name in _UTC_NAMES:
        return ((0, 0),)
    fixed = _FIXED.fullmatch(name)
    if fixed is not None:
        hours, minutes, seconds = (int(digits or 0) for digits in fixed.groups()[1:])
        offset = (hours * 60 + minutes) * 60 + seconds
        return ((0, -offset if fixed[1] == "-" else offset),)
    return _offsets_of_zone(_zone(name))


def _offsets_of_zone(zone: tzinfo) -> tuple[tuple[int, int], ...]:
    """Return the table of a zone whose offset changes, for example in summer."""
    offset = _offset(zone, _START)
    offsets = [(_START, offset)]
    for second in range(_START, _END, _STEP):
        if (next_offset := _offset(zone, second + _STEP)) != offset:
            offsets.append((_transition(zone, second, second + _STEP), next_offset))
            offset = next_offset
    return (*offsets, (_END, offset))


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # KeyError: there is no such file. ValueError: the name is not within the folder of zones, or the file is not one of
    # a zone. OSError: the name is that of a folder, such as America.
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"the time zone {name!r} is unknown on this host; install the package tzdata, or set "
            "spark.sql.session.timeZone=UTC"
        ) from None


def _offset(zone: tzinfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _transition(zone: tzinfo, before: int, after: int) -> int:
    """Return the first second with the offset of ``after``."""
    offset = _offset(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (before, middle) if _offset(zone, middle) == offset else (middle, after)
    return after
