"""``kafka-direct consume``: prints records of topics, from a position on, up to another one or for ever."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, client_settings
from pyspark_kafka_direct.cli.slice_arguments import fixed_start, open_slice, parse_bounds
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.cli.record_lines import RecordLines
    from pyspark_kafka_direct.cli.slice_arguments import Bounds

DESCRIPTION: Final = "Print records of topics. Without an end, it waits for more until Ctrl-C."
EXAMPLES: Final = r"""
positions of -o (FROM, FROM:TO, :TO):
  start, end          the first record that exists, the end of the log
  47, +100, -10       an offset; 100 after the start of each partition, 10
                      before its end
  @-1h, @2026-11-28   a time before now, a day (UTC), or a time such as
                      2026-11-28T06:00Z, seconds or ms since 1970

examples:
  kafka-direct consume flights -b localhost:9092 -o -10 -e
  kafka-direct consume flights -b localhost:9092 -o @-1h:end -f '%t %p %o %k %s\n'
  kafka-direct consume flights -b localhost:9092 -n 10 --json
  kafka-direct consume flights -b localhost:9092 -e -X valueFormat=json -X 'valueSchema=carrier STRING, flight INT'
"""

_POLL_SECONDS: Final = 0.2  # between two plans, while there are no new records
_MAX_DIGITS: Final = 18
_DEFAULT_FORMAT: Final = r"%s\n"


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
    from pyspark_kafka_direct.cli.record_lines import RecordLines  # imports PyArrow, which is slow

    lines = RecordLines(None if arguments.json else arguments.format, is_terminal=sys.stdout.isatty())
    bounds = parse_bounds(arguments.offset)
    if arguments.exit_at_end and bounds.end is None:
        bounds = bounds._replace(end="now")
    _Consumer(_topics(arguments), settings, lines, arguments.num).print_records(bounds)
    return 0


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
        columns = self._lines.columns
        if bounds.end is None:
            bounds = fixed_start(self._topics, self._settings, bounds)
        found = open_slice(self._topics, self._settings, bounds, columns=columns, limit=self._left)
        self._print(found)
        while bounds.end is None and self._left != 0:
            found = open_slice(
                self._topics, self._settings, bounds, columns=columns, limit=self._left, after=found.ranges
            )
            if not self._print(found):
                time.sleep(_POLL_SECONDS)

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
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise ArgumentTypeError(f"a number of records is needed, got {text!r}")
    return int(text)
