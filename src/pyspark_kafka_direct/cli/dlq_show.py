"""``kafka-direct dlq show``: prints dead letters with their errors, or counts them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.dlq_arguments import add_letter_arguments, letter_settings
from pyspark_kafka_direct.cli.output import column_widths, print_rows, terminal_width, utc_time
from pyspark_kafka_direct.cli.slice_arguments import open_slice, parse_bounds
from pyspark_kafka_direct.errors import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark_kafka_direct.cli.dead_letter import DeadLetter

DESCRIPTION: Final = "Print the dead letters of a topic with their errors, or count them."
EXAMPLES: Final = """
examples:
  kafka-direct dlq show flights-dlq -b localhost:9092
  kafka-direct dlq show flights-dlq -b localhost:9092 --count
  kafka-direct dlq show flights-dlq -b localhost:9092 -o @-1h --error Malformed --json
"""

_COLUMNS: Final = ("letter", "time", "original", "replays", "error", "message")
_COUNT_COLUMNS: Final = ("topic", "error", "letters", "first", "last", "message")
_MESSAGE_WIDTH: Final = 20  # at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    add_letter_arguments(parser, default_start="start")
    parser.add_argument("--error", metavar="TEXT", help="only those with this text in the error or its message")
    parser.add_argument("--count", action="store_true", help="count them by topic and error")


def run(arguments: argparse.Namespace) -> int:
    """Print the dead letters."""
    from pyspark_kafka_direct.cli.dead_letter import COLUMNS, read_letters

    settings = letter_settings(arguments)
    bounds = parse_bounds(arguments.offset or "start")
    letters = read_letters(open_slice([arguments.topic], settings, bounds, columns=COLUMNS))
    chosen = _chosen(letters, arguments.error, arguments.num)
    none = f"{arguments.topic} has no such dead letters."
    if arguments.json and not arguments.count:
        for letter in chosen:
            print(json.dumps(_json_object(letter)))
        return 0
    rows = _counts(chosen) if arguments.count else [_row(letter) for letter in chosen]
    columns = _COUNT_COLUMNS if arguments.count else _COLUMNS
    if not arguments.json:
        _shorten_messages(rows, columns)
    print_rows(rows, columns, as_json=arguments.json, if_none=none)
    return 0


def _chosen(letters: Iterable[DeadLetter], error: str | None, limit: int | None) -> Iterator[DeadLetter]:
    wanted = (error or "").lower()
    found = 0
    for letter in letters:
        if wanted in f"{letter.error or ''} {letter.message or ''}".lower():
            yield letter
            found += 1
            if found == limit:
                return


def _row(letter: DeadLetter) -> dict[str, object]:
    original = letter.original_topic
    if original is not None and letter.original_partition is not None:
        original = f"{original}-{letter.original_partition}@{letter.original_offset}"
    return {
        "letter": letter.place,
        "time": utc_time(letter.timestamp_ms),
        "original": original,
        "replays": letter.replays,
        "error": _short(letter.error),
        "message": letter.message,
    }


def _json_object(letter: DeadLetter) -> dict[str, object]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": utc_time(letter.timestamp_ms),
        "original_topic": letter.original_topic,
        "original_partition": letter.original_partition,
        "original_offset": letter.original_offset,
        "replays": letter.replays,
        "error": letter.error,
        "message": letter.message,
    }


def _counts(letters: Iterable[DeadLetter]) -> list[dict[str, object]]:
    """Count the dead letters by topic and error, with the times of the first and the last one, and one message."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    times: dict[tuple[str | None, str | None], list[int]] = {}
    messages: dict[tuple[str | None, str | None], str | None] = {}
    for letter in letters:
        kind = letter.original_topic, _short(letter.error)
        counts[kind] += 1
        messages.setdefault(kind, letter.message)
        if (time := letter.timestamp_ms) is not None:
            first, last = times.get(kind, (time, time))
            times[kind] = [min(first, time), max(last, time)]
    rows: list[dict[str, object]] = []
    for kind, count in counts.most_common():
        first_and_last = times.get(kind)
        rows.append(
            {
                "topic": kind[0],
                "error": kind[1],
                "letters": count,
                "first": utc_time(first_and_last[0]) if first_and_last else None,
                "last": utc_time(first_and_last[1]) if first_and_last else None,
                "message": messages[kind],
            }
        )
    return rows


def _short(error: str | None) -> str | None:
    """Return the name of a class without its package."""
    return None if error is None else error.rpartition(".")[2]


def _shorten_messages(rows: list[dict[str, object]], columns: Sequence[str]) -> None:
    """Shorten the messages, so that a row fits into a line of the terminal, unless too few characters are left."""
    terminal = terminal_width(sys.stdout)
    if terminal is None:
        return
    others = [column for column in columns if column != "message"]
    if (width := terminal - sum(column_widths(rows, others)) - 2 * len(others) - 1) < _MESSAGE_WIDTH:
        return
    for row in rows:
        text = printable(" ".join(str(row["message"] or "-").split()))
        row["message"] = text if len(text) <= width else f"{text[: width - 3]}..."
