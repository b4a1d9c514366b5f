"""Tables that are drawn again and again in a terminal: with rich if it is installed, or else with plain redraws."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.cli.output import aligned_lines, column_widths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_NAMES: Final = frozenset({"group", "checkpoint", "group or checkpoint", "partition", "query_id", "source"})
_MIN_NAME: Final = 8  # characters of a shortened name
_OPTIONAL: Final = ("query_id", "end", "offset", "rate")  # left out, in this order, if a terminal is too narrow
_GAP: Final = 2


class LiveTable(NamedTuple):
    """Rows with the same columns."""

    rows: Sequence[Mapping[str, object]]
    columns: Sequence[str]
    highlighted: frozenset[int] = frozenset()  # the rows in colour, by their indexes
    worst_first: Sequence[int] = ()  # the order in which rows are shown if they are too many


class LiveScreen(NamedTuple):
    """Tables, of which only the last one is shortened to the height, and notes below."""

    tables: Sequence[LiveTable]
    notes: Sequence[str]

    def lines(self, width: int, height: int) -> list[tuple[str, bool]]:
        """Return the lines that fit, and whether each is in colour."""
        *above, last = self.tables
        head = [line for table in above for line in (*_lines(table, width), ("", False))]
        notes = [(note[:width], False) for note in self.notes]
        return [*head, *_lines(last, width, height - len(head) - len(notes)), *notes][:height]


@contextmanager
def live_screen() -> Iterator[Callable[[LiveScreen], None]]:
    """Yield a function that draws a screen in place of the one before."""
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        yield _redraw
        return
    console = Console(highlight=False)
    if console.is_dumb_terminal:
        yield _redraw
        return
    with Live(console=console, screen=True, refresh_per_second=4) as live:  # a resized terminal is drawn again, too
        yield lambda screen: live.update(_Renderable(screen), refresh=True)


class _Renderable:
    """A screen as rich draws it."""

    def __init__(self, screen: LiveScreen) -> None:
        self._screen = screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for line, is_highlighted in self._screen.lines(options.max_width, options.max_height):
            yield Text(line, style="red" if is_highlighted else "", no_wrap=True, overflow="crop")


def _redraw(screen: LiveScreen) -> None:
    size = shutil.get_terminal_size()
    lines = [line for line, _ in screen.lines(size.columns, size.lines - 1)]
    if os.environ.get("TERM", "dumb") == "dumb":
        print("\n".join(lines))
    else:
        print("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="")
    sys.stdout.flush()


def _lines(table: LiveTable, width: int, height: int | None = None) -> list[tuple[str, bool]]:
    """Return the lines of a table: the worst rows, and a line that counts the others, if the height is too small."""
    shown: Sequence[int] = range(len(table.rows))
    left_out = 0
    if height is not None and len(table.rows) > height - 1:
        shown = table.worst_first[: max(height - 2, 1)]
        left_out = len(table.rows) - len(shown)
    rows = [table.rows[index] for index in shown]
    columns = list(table.columns)
    for name in _OPTIONAL:
        if sum(_widths(rows, columns, _MIN_NAME)) + _GAP * (len(columns) - 1) > width and name in columns:
            columns.remove(name)
    header, *lines = aligned_lines(rows, columns, _fitted_widths(rows, columns, width))
    shown_lines = [(line[:width], index in table.highlighted) for line, index in zip(lines, shown, strict=True)]
    count = [(f"{left_out:,} more partitions with less lag"[:width], False)] if left_out else []
    return [(header[:width], False), *shown_lines, *count]


def _fitted_widths(rows: Sequence[Mapping[str, object]], columns: Sequence[str], width: int) -> list[int]:
    """Return the widths of columns, of which the longest names are shortened as far as needed."""
    gaps = _GAP * (len(columns) - 1)
    limit = max(_widths(rows, columns), default=0)
    while limit > _MIN_NAME and sum(_widths(rows, columns, limit)) + gaps > width:
        limit -= 1
    return _widths(rows, columns, limit)


def _widths(rows: Sequence[Mapping[str, object]], columns: Sequence[str], max_name: int | None = None) -> list[int]:
    widths = column_widths(rows, columns)
    return [
        width if max_name is None or column not in _NAMES else min(width, max(max_name, len(column)))
        for column, width in zip(columns, widths, strict=True)
    ]
