"""The output of ``kafka-direct`` in a narrow terminal: no line is longer, and no word is torn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.test_checkpoint_command import write

from pyspark_kafka_direct.cli.live_table import LiveScreen, LiveTable
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.cli.output import print_rows, to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable
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
