"""The output of commands: aligned tables for people, and JSON with one object per line for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that chooses the output."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool, if_none: str) -> None:
    """Print rows as JSON, or as a table with these columns; ``if_none`` is printed instead of an empty table."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print(if_none)
        return
    for line in aligned_lines(rows, columns, column_widths(rows, columns)):
        print(line)


def column_widths(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> list[int]:
    """Return the width of each column of a table, in characters."""
    return [max([len(column), *(len(_shown(row[column])) for row in rows)]) for column in columns]


def aligned_lines(rows: Sequence[Mapping[str, object]], columns: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the header and the lines of a table; longer cells are shortened in the middle."""
    cells = [[_shown(row[column]) for column in columns] for row in rows]
    is_number = [all(isinstance(row[column], int | None) for row in rows) for column in columns]
    for line in [[column.upper().replace("_", " ") for column in columns], *cells]:
        aligned = (
            _shortened(cell, width).rjust(width) if right else _shortened(cell, width).ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        yield "  ".join(aligned).rstrip()


def utc_time(milliseconds: int | None) -> str | None:
    """Return a time of Kafka in ISO 8601, or None if it is unknown."""
    if milliseconds is None or milliseconds < 0:
        return None
    try:
        time = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may set any timestamp
        return f"{milliseconds} ms"
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _shortened(text: str, width: int) -> str:
    """Return a text with an ellipsis in its middle if it is too long: the ends of names differ most often."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _shown(value: object) -> str:
    from pyspark_kafka_direct.errors import printable

    return "-" if value is None else printable(str(value))  # names come from brokers


def to_stderr(text: str) -> None:
    """Print what is no result, such as a hint or an error, without control characters of foreign names."""
    from pyspark_kafka_direct.errors import printable

    print(*(printable(line, len(line)) for line in text.split("\n")), sep="\n", file=sys.stderr)
