"""The output of commands: aligned tables for people, and JSON with one object per line for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TextIO

_GAP: Final = 2  # blanks between two columns
_MAX_CELL: Final = 500  # characters


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that chooses the output."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool, if_none: str) -> None:
    """Print rows as JSON, or as a table with these columns; ``if_none`` is printed instead of an empty table.

    If the table is too wide for the terminal, each cell gets a line, as in the expanded display of other clients.
    """
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print(if_none)
        return
    widths = column_widths(rows, columns)
    is_too_wide = sum(widths) + _GAP * (len(widths) - 1) > (terminal_width(sys.stdout) or sys.maxsize)
    for line in _expanded_lines(rows, columns) if is_too_wide else aligned_lines(rows, columns, widths):
        print(line)


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal that a stream is, or None if it is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, stream: TextIO) -> str:
    """Return a text whose lines are wrapped between words if the stream is a terminal."""
    width = terminal_width(stream)
    if width is None:
        return text
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n")
    )


def column_widths(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> list[int]:
    """Return the width of each column of a table, in characters."""
    return [max([len(column), *(len(_shown(row[column])) for row in rows)]) for column in columns]


def aligned_lines(rows: Sequence[Mapping[str, object]], columns: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the header and the lines of a table; longer cells are shortened in the middle."""
    cells = [[_shown(row[column]) for column in columns] for row in rows]
    is_number = [all(isinstance(row[column], int | None) for row in rows) for column in columns]
    for line in [list(map(_title, columns)), *cells]:
        aligned = (
            _shortened(cell, width).rjust(width) if right else _shortened(cell, width).ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        yield (" " * _GAP).join(aligned).rstrip()


def utc_time(milliseconds: int | None) -> str | None:
    """Return a time of Kafka in ISO 8601, or None if it is unknown."""
    if milliseconds is None or milliseconds < 0:
        return None
    try:
        time = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may set any timestamp
        return f"{milliseconds} ms"
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _expanded_lines(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> Iterator[str]:
    """Yield a line for each cell, and an empty one between two rows."""
    width = max(map(len, columns))
    for index, row in enumerate(rows):
        if index:
            yield ""
        for column in columns:
            yield f"{_title(column):{width + _GAP}}{_shown(row[column])}"


def _title(column: str) -> str:
    return column.upper().replace("_", " ")


def _shortened(text: str, width: int) -> str:
    """Return a text with an ellipsis in its middle if it is too long: the ends of names differ most often."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _shown(value: object) -> str:
    from pyspark_kafka_direct.errors import printable

    if value is None:
        return "-"
    text = str(value)
    return printable(text, _MAX_CELL) + "…" * (len(text) > _MAX_CELL)  # names come from brokers


def to_stderr(text: str) -> None:
    """Print what is no result, such as a hint or an error, without control characters of foreign names."""
    from pyspark_kafka_direct.errors import printable

    lines = (printable(line, len(line)) for line in text.split("\n"))
    print(wrapped("\n".join(lines), sys.stderr), file=sys.stderr)
