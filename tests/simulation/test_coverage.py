"""The table of faults, requests and outcomes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.coverage import (
    UNREACHABLE,
    Cell,
    Coverage,
    all_cells,
    compact_markdown,
    main,
    markdown,
    merged,
    rare_cells,
    read,
    reason_for,
    report,
    write,
    wrong_reasons,
)

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
LOST = Cell("lose_request", "Fetch", "completed")
FAILED = Cell("lose_request", "Fetch", "failed")
TABLE: Coverage = Counter({LOST: 120, FAILED: 3})


def test_counts_of_seeds_are_added() -> None:
    table: Coverage = Counter()
    merged({("a", "Fetch", "failed"): 2}, table)
    merged({("a", "Fetch", "failed"): 3, ("b", "Fetch", "failed"): 1}, table)
    assert table == {Cell("a", "Fetch", "failed"): 5, Cell("b", "Fetch", "failed"): 1}


def test_cells_are_rare_in_relation_to_the_seeds() -> None:
    assert rare_cells(TABLE, 100_000, [LOST, FAILED], {}) == [(FAILED, 3)]
    assert rare_cells(TABLE, 3_000, [LOST, FAILED], {}) == []
    assert rare_cells(TABLE, 200_000, [LOST, FAILED], {}) == [(LOST, 120), (FAILED, 3)]
    assert rare_cells(TABLE, 200_000, [LOST, FAILED], {"lose_request / * / failed": "retries"}) == [(LOST, 120)]


def test_a_reason_for_a_cell_that_was_reached_is_wrong() -> None:
    reasons = {"lose_request / Fetch / failed": "retries", "stall_* / Produce / *": "no writes"}
    assert wrong_reasons(TABLE, reasons) == [FAILED]
    assert reason_for(Cell("stall_response", "Produce", "failed"), reasons) == "no writes"
    assert reason_for(LOST, reasons) is None


def test_all_faults_and_requests_have_cells() -> None:
    cells = all_cells()
    assert len(cells) == len(set(cells))
    assert {LOST, Cell("refuse_connect", "connect", "failed"), Cell("crash_after_request", "EndTxn", "completed")} <= {
        *cells
    }


def test_reasons_are_about_cells_that_exist() -> None:
    assert [
        pattern for pattern in UNREACHABLE if not any(reason_for(each, {pattern: ""}) == "" for each in all_cells())
    ] == []


def test_a_long_run_fails_if_cells_are_rare() -> None:
    lines, fails = report(TABLE, 100_000, [LOST, FAILED], {})
    assert lines == [
        "coverage: 2 of 2 cells reached, 1 reached too rarely",
        "  RARE CELLS: each must be reached 100 times, or have a reason:",
        "      3  lose_request / Fetch / failed",
    ]
    assert fails
    assert report(TABLE, 100_000, [LOST], {}) == (["coverage: 1 of 1 cells reached, 0 reached too rarely"], False)


def test_a_long_run_fails_if_a_reason_is_wrong() -> None:
    reasons = {"* / Fetch / failed": "retries"}
    lines, fails = report(TABLE, 100_000, [LOST, FAILED], reasons)
    assert lines[1:] == [
        "  WRONG REASON in coverage.UNREACHABLE: reached 3 times: lose_request / Fetch / failed",
    ]
    assert fails


def test_a_short_run_reports_coverage_and_passes() -> None:
    lines, fails = report(TABLE, 99_999, [LOST, FAILED], {"* / Fetch / failed": "retries"})
    assert lines == [
        "coverage: 2 of 2 cells reached, 0 reached too rarely",
        "  WRONG REASON in coverage.UNREACHABLE: reached 3 times: lose_request / Fetch / failed",
    ]
    assert not fails


def test_the_compact_table_has_a_sign_for_each_outcome() -> None:
    reasons = {"crash_* / * / completed": "it dies", "* / Sasl* / *": "no SASL"}
    lines = compact_markdown([LOST], reasons).splitlines()
    assert lines[0].startswith("| request | lose request | lose response |")
    fetch = next(line for line in lines if line.startswith("| Fetch |")).split(" | ")
    assert fetch[1:3] == ["- +", "+ +"]
    assert "1 +" in fetch
    sasl = next(line for line in lines if line.startswith("| SaslHandshake |"))
    assert set(sasl.removeprefix("| SaslHandshake |").split()) == {"2", "|", "1"}
    assert lines[-2:] == ["1. it dies", "2. no SASL"]


def test_the_documentation_has_the_table_of_what_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    table = capsys.readouterr().out
    page = (ROOT / "tests" / "evidence" / "simulation-coverage.md").read_text("utf-8")
    assert table in page, "python -m tests.simulation.coverage prints the table of this page"


def test_the_compact_table_of_a_file_shows_rare_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(TABLE, 100_000, tmp_path / "coverage.json")
    main([str(tmp_path / "coverage.json")])
    fetch = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| Fetch |"))
    assert fetch.startswith("| Fetch | + - | - - |")


def test_the_table_is_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "build" / "coverage.json"
    write(TABLE, 1000, file)
    assert read(file) == (TABLE, 1000)
    assert file.with_suffix(".md").read_text("utf-8").startswith("Reached in 1,000 seeds.")


def test_markdown_has_a_column_for_each_outcome() -> None:
    table: Coverage = Counter({LOST: 1200, Cell("throttle", "Fetch", "outside an operation"): 4})
    assert markdown(table, 100_000, {"a / b / c": "a reason"}).splitlines() == [
        "Reached in 100,000 seeds.",
        "",
        "| fault | request | completed | failed | outside an operation |",
        "| --- | --- | ---: | ---: | ---: |",
        "| lose_request | Fetch | 1,200 | 0 | 0 |",
        "| throttle | Fetch | 0 | 0 | 4 |",
        "",
        "| cannot be reached | reason |",
        "| --- | --- |",
        "| a / b / c | a reason |",
    ]
