"""The output of ``kafka-direct`` in a narrow terminal: no line is longer, and no word is torn."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.test_checkpoint_command import write

from pyspark_kafka_direct.cli.live_table import LiveScreen, LiveTable, live_screen
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.cli.output import print_rows, to_stderr, utc_time
from pyspark_kafka_direct.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WIDTH = 80


@pytest.fixture
def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets the streams of the test be a terminal; those of its fixtures are other ones."""

    def use() -> None:
        monkeypatch.setenv("COLUMNS", str(WIDTH))
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)

    return use


def test_a_table_that_does_not_fit_has_a_line_for_each_cell(
    capsys: pytest.CaptureFixture[str], use_terminal: Callable[[], None]
) -> None:
    use_terminal()
    rows = [{"transactional_id": f"{letter * 76}", "epoch": number} for number, letter in enumerate("ab")]
    print_rows(rows, ("transactional_id", "epoch"), as_json=False, if_none="")
    assert capsys.readouterr().out.splitlines() == [
        f"TRANSACTIONAL ID  {'a' * 76}",
        "EPOCH             0",
        "",
        f"TRANSACTIONAL ID  {'b' * 76}",
        "EPOCH             1",
    ]
    print_rows(
        [{**row, "transactional_id": "c" * 80} for row in rows], ("transactional_id",), as_json=False, if_none=""
    )
    assert capsys.readouterr().out.splitlines() == ["TRANSACTIONAL ID", "c" * 80, "c" * 80]


def test_columns_are_as_wide_as_their_longest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"id": "a", "n": 1}, {"id": "long", "n": 1000}], ("id", "n"), as_json=False, if_none="")
    assert capsys.readouterr().out.splitlines() == ["ID       N", "a        1", "long  1000"]
    print_rows([{"n": 1}, {"n": "x" * 5}, {"n": 2}], ("n",), as_json=False, if_none="")
    assert capsys.readouterr().out.splitlines() == ["N", "1", "xxxxx", "2"]


def test_tables_and_names_are_shortened_to_a_narrow_terminal() -> None:
    queries = [{"checkpoint": "abcdefghijklmnopqrstuvwxyz", "query_id": name * 30, "batch": 7} for name in "pq"]
    rows = [
        {
            "group": "abcdefghijklmnopqrstuvwxyz",
            "partition": f"topic-name-{n}",
            "offset": n,
            "end": n,
            "lag": n,
            "rate": n,
        }
        for n in range(3)
    ]
    tables = [
        LiveTable(queries, ("checkpoint", "query_id", "batch")),
        LiveTable(queries, ("checkpoint", "batch")),
        LiveTable(rows, ("group", "partition", "offset", "end", "lag", "rate"), frozenset({1}), (2, 1, 0)),
    ]
    screen = LiveScreen(tables, ["a note that is longer than the line", "another note"])
    lines = [line for line, _ in screen.lines(24, 40)]
    assert lines == [
        *["CHECKPOINT         BATCH", *["abcdefgh…stuvwxyz      7"] * 2, ""] * 2,
        "GROUP     PARTITION  LAG",
        *(f"abc…wxyz  topi…me-{n}    {n}" for n in range(3)),
        "a note that is longer th",
        "another note",
    ]
    assert [line for line, is_red in screen.lines(24, 40) if is_red] == [lines[10]]
    short = [line for line, _ in screen.lines(24, 13)]
    assert short[8:] == [lines[8], lines[11], "2 more partitions with l", *lines[12:]]
    assert [line for line, _ in screen.lines(24, 3)] == lines[:3]
    assert [line for line, _ in screen.lines(12, 40)][8:10] == ["GROUP     PA", "abc…wxyz  to"]
    wider = [line.split() for line, _ in screen.lines(30, 40)]
    assert (wider[0], wider[8]) == (["CHECKPOINT", "QUERY", "ID", "BATCH"], ["GROUP", "PARTITION", "LAG", "RATE"])
    widest = [line.split() for line, _ in screen.lines(60, 40)]
    assert widest[8] == ["GROUP", "PARTITION", "OFFSET", "END", "LAG", "RATE"]


class Terminal(io.StringIO):
    """Collects what is printed, and interprets the escapes that ``lag --watch`` prints without rich."""

    def isatty(self) -> bool:
        return True

    def screen(self, height: int) -> list[str]:
        """Return the lines that a terminal of this height shows."""
        shown, line, column = [""] * height, 0, 0
        for part in re.findall(r"\x1b\[[HKJ]|\n|[^\x1b\n]+", self.getvalue()):
            if part == "\x1b[H":
                line = column = 0
            elif part == "\n":
                line, column = line + 1, 0
            elif part in ("\x1b[K", "\x1b[J"):
                shown[line] = shown[line][:column]
                shown[line + 1 :] = shown[line + 1 :] if part[-1] == "K" else [""] * (height - line - 1)
            else:
                shown[line] = shown[line][:column] + part + shown[line][column + len(part) :]
                column += len(part)
        return shown


COLUMNS = ("name", "long_title", "n")
CELLS = st.none() | st.integers(-1, 10**6) | st.text(st.sampled_from("ab \x1b\n"), max_size=10)


@given(st.lists(st.tuples(CELLS, CELLS, st.none() | st.integers(0, 10**6)), min_size=1, max_size=4), st.integers(-2, 2))
def test_a_table_of_any_cells_is_aligned_if_it_fits(cells: Sequence[Sequence[object]], more: int) -> None:
    """Otherwise, each cell has a line; the width of the terminal is about that of the table."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in cells]
    titles = ["NAME", "LONG TITLE", "N"]
    shown = [["-" if cell is None else printable(str(cell)) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(titles, *shown, strict=True)]
    width = sum(widths) + 4 + more
    with mock.patch.dict(os.environ, COLUMNS=str(width)), redirect_stdout(Terminal()) as terminal:
        print_rows(rows, COLUMNS, as_json=False, if_none="")
    if more < 0:
        expected = ["\n".join(f"{title:12}{cell}" for title, cell in zip(titles, row, strict=True)) for row in shown]
        assert terminal.getvalue() == "\n\n".join(expected) + "\n"
        return
    is_right = [not any(isinstance(row[index], str) for row in cells) for index in range(3)]
    lines = [
        "  ".join(
            cell.rjust(size) if right else cell.ljust(size)
            for cell, size, right in zip(row, widths, is_right, strict=True)
        )
        for row in (titles, *shown)
    ]
    assert terminal.getvalue() == "".join(f"{line.rstrip()}\n" for line in lines)


def test_a_cell_that_is_cut_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["x" * 500, "x" * 501, " ".join(f"t-{number}" for number in range(1000))]
    print_rows([{"id": text} for text in texts], ("id",), as_json=False, if_none="")
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == [texts[0], *(f"{text[:500]}…" for text in texts[1:])]


@given(st.integers(-(2**63), 2**63) | st.integers(-2, 2) | st.integers(0, 10**13))
def test_times_of_records(milliseconds: int) -> None:
    shown = utc_time(milliseconds)
    if milliseconds < 0:
        assert shown is None
    elif milliseconds < 253_402_300_800_000:  # of the year 10000
        assert shown is not None
        assert datetime.fromisoformat(shown) == datetime.fromtimestamp(milliseconds // 1000, UTC)
    else:
        assert shown == f"{milliseconds} ms"


def live_table(lags: Sequence[int], highlighted: frozenset[int] = frozenset()) -> LiveTable:
    """Return the table of partitions, whose names have one character, with lags of one digit."""
    rows = [{"partition": chr(ord("A") + number), "lag": lag} for number, lag in enumerate(lags)]
    worst_first = sorted(range(len(lags)), key=lambda index: -lags[index])
    return LiveTable(rows, ("partition", "lag"), highlighted, worst_first)


LAGS = st.lists(st.integers(0, 9), max_size=7)
NOTES = st.lists(st.sampled_from(["a note", "another note"]), max_size=2)


def test_columns_are_left_out_one_by_one_if_the_terminal_is_narrower() -> None:
    names = ("query_id", "partition", "offset", "end", "lag", "rate")
    row: dict[str, object] = dict.fromkeys(names, 1)
    table = LiveTable([row], names, frozenset(), (0,))
    shown = [LiveScreen([table], []).lines(width, 9)[0][0].split() for width in range(60, 20, -1)]
    left = [*dict.fromkeys(" ".join(titles) for titles in shown)]
    assert left == [
        "QUERY ID PARTITION OFFSET END LAG RATE",
        "PARTITION OFFSET END LAG RATE",
        "PARTITION OFFSET LAG RATE",
        "PARTITION LAG RATE",
    ]


LENGTHS = st.integers(1, 40) | st.integers(20, 40)


@pytest.mark.parametrize("reader", ["group", "checkpoint", "group or checkpoint"])
@given(
    has_source=st.booleans(),
    lengths=st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=3),
    more=st.integers(0, 2) | st.integers(0, 60),
)
def test_names_are_shortened_only_as_far_as_needed(
    reader: str, has_source: bool, lengths: list[tuple[int, int]], more: int
) -> None:
    columns = [reader, *(["source"] if has_source else []), "partition", "lag"]
    rows = [{reader: "r" * one, "source": "flights", "partition": "p" * two, "lag": 5} for one, two in lengths]
    gaps = 2 * (len(columns) - 1)
    full = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    width = sum(min(size, max(8, len(column))) for size, column in zip(full, columns, strict=True)) + gaps + more
    lines = [line for line, _ in LiveScreen([LiveTable(rows, columns)], []).lines(width, 9)]
    assert {len(line) for line in lines} == {min(len(lines[0]), width)}
    assert [line.split()[-1] for line in lines] == ["LAG", *["5"] * len(rows)]
    is_short = any("…" in line for line in lines)
    assert is_short == (sum(full) + gaps > width)
    if is_short:  # with one more character, at most two names are longer
        assert width - len(lines[0]) < 2


@given(LAGS, st.frozensets(st.integers(0, 6)), NOTES, st.booleans(), st.integers(1, 40), st.integers(1, 14))
def test_any_screen_has_the_worst_rows_in_their_colours(
    lags: list[int], highlighted: frozenset[int], notes: list[str], has_queries: bool, width: int, height: int
) -> None:
    table = live_table(lags, highlighted)
    above = [LiveTable([{"batch": 7}, {"batch": 8}], ("batch",))] if has_queries else []
    head = ["BATCH", "    7", "    8", ""] if has_queries else []
    left = height - len(head) - len(notes) - 1  # without the line of titles
    order = [*range(len(lags))] if len(lags) <= left else [*table.worst_first[: max(left - 1, 1)]]
    rows = [(f"{table.rows[index]['partition']:9}  {lags[index]:3}", index in highlighted) for index in order]
    more = len(lags) - len(order)
    count = [f"{more} more partitions with less lag"] if more else []
    expected = [
        *((line, False) for line in (*head, "PARTITION  LAG")),
        *rows,
        *((line, False) for line in (*count, *notes)),
    ]
    lines = LiveScreen([*above, table], notes).lines(width, height)
    assert lines == [(line[:width], is_red) for line, is_red in expected][:height]


@given(st.lists(st.tuples(LAGS, NOTES), min_size=2, max_size=4), st.integers(3, 12), st.integers(4, 12))
def test_a_screen_replaces_the_one_before_without_rich(
    screens: list[tuple[list[int], list[str]]], width: int, height: int
) -> None:
    environment = {"TERM": "xterm", "COLUMNS": str(width), "LINES": str(height)}
    modules: dict[str, Any] = {"rich.console": None}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.dict(sys.modules, modules),
        redirect_stdout(Terminal()) as terminal,
        live_screen() as draw,
    ):
        for lags, notes in screens:
            screen = LiveScreen([live_table(lags)], notes)
            draw(screen)
            lines = [line for line, _ in screen.lines(width, height - 1)]
            assert terminal.screen(height) == [*lines, *[""] * (height - len(lines))]


def test_a_terminal_without_escapes_gets_one_screen_below_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    tables = [live_table(lags) for lags in ([1, 2], [3])]
    with redirect_stdout(Terminal()) as terminal, live_screen() as draw:
        for table in tables:
            draw(LiveScreen([table], ["a note"]))
    lines = [line for table in tables for line, _ in LiveScreen([table], ["a note"]).lines(80, 24)]
    assert terminal.getvalue().splitlines() == lines


@pytest.mark.parametrize("highlighted", [set(), {0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {0, 3}, {1, 2, 3}, {0, 1, 2, 3}])
def test_highlighted_rows_stay_highlighted_if_rows_are_reordered_and_cut(highlighted: set[int]) -> None:
    worst_first = (2, 0, 3, 1)
    above = LiveTable([{"query_id": "q"}], ("query_id",))
    table = LiveTable([{"partition": f"t-{n}"} for n in range(4)], ("partition",), frozenset(highlighted), worst_first)
    expected = {
        height: [*worst_first[: height - 2], f"{6 - height} more partitions with less lag"] for height in (3, 4)
    } | {height: [*range(4)] for height in (5, 6, 10)}
    for height, rows in expected.items():
        lines = [
            ("PARTITION", False),
            *((f"t-{n}", n in highlighted) if isinstance(n, int) else (n, False) for n in rows),
        ]
        assert LiveScreen([table], []).lines(80, height) == lines
        screen = LiveScreen([above, table], ["a note"])
        assert screen.lines(80, height + 4)[3:] == [*lines, ("a note", False)]


def test_each_line_of_a_message_is_wrapped(
    capsys: pytest.CaptureFixture[str], use_terminal: Callable[[], None]
) -> None:
    use_terminal()
    to_stderr("first\nsecond " + "word " * 20 + "\nthird")
    first, *seconds, third = capsys.readouterr().err.splitlines()
    assert (first, seconds[0][:11], len(seconds), third) == ("first", "second word", 2, "third")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_long_message_is_complete(
    capsys: pytest.CaptureFixture[str], use_terminal: Callable[[], None], is_terminal: bool
) -> None:
    if is_terminal:
        use_terminal()
    words = [f"departures-{'by-' * (number % 7)}airport-{number}" for number in range(200)]
    to_stderr(" ".join(words))
    assert capsys.readouterr().err.split() == words


@pytest.mark.parametrize("batches", [2, 4000])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_output_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, batches: int, more: tuple[str]
) -> None:
    """The reader of a pipe may end before all is read, as head does, and a disk may be full, at any time."""
    for batch in range(2):
        write(tmp_path, batch, json.dumps({"t": {str(number): number for number in range(batches)}}))
    command = ["checkpoint", "show", str(tmp_path), *more]

    def code_with(file: int | str) -> int:
        with open(file, "w") as stream, monkeypatch.context() as patched:  # it is closed as at the exit of Python
            patched.setattr(sys, "stdout", stream)
            return main(command)

    reader, writer = os.pipe()
    os.close(reader)
    assert (code_with(writer), capsys.readouterr().err) == (0, "")
    assert code_with("/dev/full") == 3
    assert capsys.readouterr().err == "kafka-direct checkpoint: OSError: [Errno 28] No space left on device\n"


def test_the_offsets_of_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], use_terminal: Callable[[], None]
) -> None:
    use_terminal()
    for batch in range(2):
        write(tmp_path, batch, f'{{"departures-by-airport":{{"0":{batch},"1":1000000}},"flights":{{"0":7}}}}')
    assert main(["checkpoint", "show", str(tmp_path), "--batches", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.startswith("SOURCE  PARTITION ") for line in lines) == 2


def test_messages_are_wrapped_between_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], use_terminal: Callable[[], None]
) -> None:
    use_terminal()
    write(tmp_path, 7, '{"flights":{"0":5}}', commit=False)
    target = '{"flights":{"0":1}}'
    assert main(["checkpoint", "rewind", str(tmp_path), "--to-offsets", target]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("Nothing was changed. The query has state or a watermark, ")
    assert others
    assert all(len(line) <= WIDTH and line == line.strip() for line in (first, *others))
