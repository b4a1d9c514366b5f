"""The argument ``-o FROM:TO``, and the slice of topics that it means."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_NONE_BEFORE_END: Final = re.compile(r"-0{1,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = 2**63 - 1  # an offset behind the end of each partition


class Bounds(NamedTuple):
    """The start and the end: positions of ``read_arrow``, or offsets, for all partitions or for those of a mapping."""

    start: str | int | Mapping[TopicPartition, int]
    end: str | int | None  # None: wait for more records
    is_after_start: bool = False  # whether `start` counts from the start of each partition


def parse_bounds(text: str) -> Bounds:
    """Parse the argument ``-o`` (the forms of ``rpk topic consume``)."""
    if text.startswith("@"):
        for colon in re.finditer(":", text):  # times contain some, too
            try:
                return _time_bounds(text[1 : colon.start()], text[colon.end() :])
            except OptionError:
                continue
        return Bounds(_time(text[1:]), None)
    start, separator, end = text.partition(":")
    if not separator:
        return _offset_bounds(start, None)
    if not start and end.startswith("@"):
        return Bounds("earliest", _time(end[1:]))
    return _offset_bounds(start or "start", end)


def fixed_start(topics: list[str] | re.Pattern[str], settings: Mapping[str, str], bounds: Bounds) -> Bounds:
    """Return bounds whose start no longer depends on the starts of the partitions, but is an offset in each."""
    from pyspark_kafka_direct.arrow.reader import read_arrow

    if not bounds.is_after_start:
        return bounds
    assert isinstance(bounds.start, int)  # parse_bounds has created it
    ranges = read_arrow(topics, settings, columns=["offset"]).ranges
    starts = {each.topic_partition: each.from_offset + bounds.start for each in ranges}
    return bounds._replace(start=starts, is_after_start=False)


def open_slice(
    topics: list[str] | re.Pattern[str],
    settings: Mapping[str, str],
    bounds: Bounds,
    *,
    columns: Sequence[str],
    limit: int | None = None,
    after: Sequence[OffsetRange] | None = None,
) -> ArrowSlice:
    """Plan the records between two positions; without an end, up to the present end of the log.

    ``after`` are the ranges of the slice before, at whose ends this one starts. A start that was behind the end of the
    log then still applies, if it is a ``fixed_start``.
    """
    from pyspark_kafka_direct.arrow.reader import read_arrow

    start: Any = bounds.start if isinstance(bounds.start, str) else "earliest"
    if after is not None:
        start = _ends(after)
        if bounds.start == _END:  # of the log as it was then
            bounds = bounds._replace(start="earliest")
    end = bounds.end if isinstance(bounds.end, str) else "now"
    found = read_arrow(topics, settings, columns=columns, limit=limit, start=start, end=end)
    if not found.ranges or (isinstance(bounds.start, str) and not isinstance(bounds.end, int)):
        return found
    ranges = [_within(each, bounds) for each in found.ranges]
    return read_arrow(ranges, settings, columns=columns, limit=limit)


def _ends(ranges: Sequence[OffsetRange]) -> dict[str, Any]:
    """Return the ends of the ranges as positions; new partitions and topics start at their beginning."""
    ends: dict[str, Any] = {"*": "earliest"}
    for each in ranges:
        ends.setdefault(each.topic, {"*": "earliest"})[str(each.partition)] = each.until_offset
    return ends


def _time_bounds(start: str, end: str) -> Bounds:
    if not end:
        return Bounds(_time(start), None)
    stop = "now" if end == "end" else _time(end.removeprefix("@"))
    return Bounds(_time(start) if start else "earliest", stop)


def _offset_bounds(start: str, end: str | None) -> Bounds:
    match end:
        case None | "":
            stop: str | int | None = None
        case "end":
            stop = "now"
        case number if _INTEGER.fullmatch(number):
            stop = int(number)
        case _:
            raise _invalid(f"{start}:{end}")
    if start in ("start", "oldest", "beginning"):
        return Bounds("earliest", stop)
    if start in ("end", "newest") or _NONE_BEFORE_END.fullmatch(start):
        return Bounds(_END, stop)
    if start[:1] in "+-" and _INTEGER.fullmatch(start[1:]):
        return (
            Bounds(int(start[1:]), stop, is_after_start=True) if start[0] == "+" else Bounds(f"last {start[1:]}", stop)
        )
    if _INTEGER.fullmatch(start):
        return Bounds(int(start), stop)
    raise _invalid(start)


def _time(text: str) -> str:
    """Return a time as ``read_arrow`` takes it."""
    from pyspark_kafka_direct.options.positions import parse_time

    try:
        if _INTEGER.fullmatch(text):  # as rpk: seconds have ten digits
            milliseconds = int(text) * (1000 if len(text) == 10 else 1)
            return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
        text = f"{date.fromisoformat(text)}T00:00Z" if len(text) == 10 else text
        parse_time(text, on_no_match="latest")
    except (ValueError, OverflowError) as error:
        raise OptionError(f"-o: {error}") from None
    return text


def _invalid(text: str) -> OptionError:
    return OptionError(
        f"-o: {text!r} is no position; use start, end, an offset, +N, -N, or @ and a time, and FROM:TO for both ends"
    )


def _within(planned: OffsetRange, bounds: Bounds) -> OffsetRange:
    """Return the part of all offsets of a partition that lies between the bounds."""
    start, end = planned.from_offset, planned.until_offset
    if not isinstance(bounds.start, str):
        wanted = bounds.start if isinstance(bounds.start, int) else bounds.start.get(planned.topic_partition, start)
        start = min(end, start + wanted if bounds.is_after_start else max(start, wanted))
    if isinstance(bounds.end, int):
        end = min(end, max(start, bounds.end))
    return replace(planned, from_offset=start, until_offset=end)
