"""``kafka-direct consume``: prints records of topics, from a position on, up to another one or for ever."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, client_settings
from pyspark_kafka_direct.cli.record_lines import RecordLines
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.offsets import OffsetRange

DESCRIPTION: Final = "Print records of topics. Without an end, it waits for more until Ctrl-C."
EXAMPLES: Final = r"""
positions of -o (FROM, FROM:TO, :TO):
  start, end          the first record that exists, the end of the log
  47, +100, -10       an offset; 100 after the start of each partition, 10 before its end
  @-1h, @2026-11-28   a time before now, a day (UTC) or a time such as 2026-11-28T06:00Z, seconds or ms since 1970

examples:
  kafka-direct consume flights -b localhost:9092 -o -10 -e
  kafka-direct consume flights -b localhost:9092 -o @-1h:end -f '%t %p %o %k %s\n'
  kafka-direct consume flights -b localhost:9092 -n 10 --json
  kafka-direct consume flights -b localhost:9092 -e -X valueFormat=json -X 'valueSchema=carrier STRING, flight INT'
"""

_POLL_SECONDS: Final = 0.2  # between two plans, while there are no new records
_DEFAULT_FORMAT: Final = r"%s\n"
_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = 2**63 - 1  # an offset behind the end of each partition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics to read")
    parser.add_argument("--pattern", metavar="REGEX", help="read all topics whose names match as a whole")
    parser.add_argument("-o", "--offset", metavar="FROM:TO", default="start", help="where to start and end (start)")
    parser.add_argument("-n", "--num", type=_count, metavar="N", help="end after N records")
    parser.add_argument("-e", "--exit-at-end", action="store_true", help="end at the present end of the log")
    parser.add_argument("--read-committed", action="store_true", help="skip records of open and aborted transactions")
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        default=_DEFAULT_FORMAT,
        help="%%t topic, %%p partition, %%o offset, %%T timestamp in ms, %%k key, %%K its length, %%s value, %%S its "
        r"length, %%h headers, %%%%, \n, \t, \xHH (default: %%s\n)",
    )
    output.add_argument("--json", action="store_true", help="one JSON object per line")
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the records."""
    settings = client_settings(arguments)
    settings.setdefault("failOnDataLoss", "false")  # the losses are printed
    if arguments.read_committed:
        settings["isolation.level"] = "read_committed"
    lines = RecordLines(None if arguments.json else arguments.format, is_terminal=sys.stdout.isatty())
    bounds = parse_bounds(arguments.offset)
    if arguments.exit_at_end and bounds.end is None:
        bounds = bounds._replace(end="now")
    _Consumer(_topics(arguments), settings, lines, arguments.num).print_records(bounds)
    return 0


class Bounds(NamedTuple):
    """The start and the end: positions of ``read_arrow``, or a number of offsets after the start of each partition."""

    start: str | int
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
    if start in ("end", "newest"):
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


class _Consumer:
    """Reads slices of the topics one after the other, and prints them."""

    def __init__(
        self, topics: list[str] | re.Pattern[str], settings: Mapping[str, str], lines: RecordLines, limit: int | None
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._lines = lines
        self._left = limit

    def print_records(self, bounds: Bounds) -> None:
        """Print the records between two positions; without an end, wait for more."""
        start = bounds.start if isinstance(bounds.start, str) else "earliest"
        end = bounds.end if isinstance(bounds.end, str) else "now"
        found = self._slice(self._topics, start=start, end=end)
        if isinstance(bounds.start, int) or isinstance(bounds.end, int):
            found = self._slice([_within(each, bounds) for each in found.ranges])
        self._print(found)
        while bounds.end is None and self._left != 0:
            found = self._slice(self._topics, start=_ends(found.ranges), end="now")
            if not self._print(found):
                time.sleep(_POLL_SECONDS)

    def _slice(self, topics: Any, **bounds: Any) -> ArrowSlice:
        from pyspark_kafka_direct.arrow.reader import read_arrow

        return read_arrow(topics, self._settings, columns=self._lines.columns, limit=self._left, **bounds)

    def _print(self, records: ArrowSlice) -> int:
        """Print the records of a slice, and return their number."""
        printed = 0
        for batch in records:
            self._lines.write(batch, sys.stdout.buffer)
            printed += batch.num_rows
        sys.stdout.buffer.flush()
        if self._left is not None:
            self._left -= printed
        for loss in records.losses:
            print(
                f"{loss.topic}-{loss.partition}: {loss.offsets or 'an unknown number of'} offsets were skipped, whose "
                f"records are no longer available ({loss.cause})",
                file=sys.stderr,
            )
        return printed


def _within(planned: OffsetRange, bounds: Bounds) -> OffsetRange:
    """Return the part of all offsets of a partition that lies between the bounds."""
    start, end = planned.from_offset, planned.until_offset
    if isinstance(bounds.start, int):
        start = min(end, start + bounds.start if bounds.is_after_start else max(start, bounds.start))
    if isinstance(bounds.end, int):
        end = min(end, max(start, bounds.end))
    return replace(planned, from_offset=start, until_offset=end)


def _ends(ranges: Sequence[OffsetRange]) -> dict[str, Any]:
    """Return the ends of the ranges as positions; new partitions and topics start at their beginning."""
    ends: dict[str, Any] = {"*": "earliest"}
    for each in ranges:
        ends.setdefault(each.topic, {"*": "earliest"})[str(each.partition)] = each.until_offset
    return ends


def _topics(arguments: argparse.Namespace) -> list[str] | re.Pattern[str]:
    if bool(arguments.topics) == bool(arguments.pattern):
        raise OptionError(
            "Name topics, or set --pattern" if not arguments.topics else "Remove --pattern, or the topics"
        )
    if arguments.topics:
        return list(arguments.topics)
    try:
        return re.compile(f"^(?:{arguments.pattern})$")
    except re.error as error:
        raise OptionError(f"--pattern: {error}") from None


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number
