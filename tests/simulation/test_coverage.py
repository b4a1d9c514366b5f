"""The table of faults, requests and outcomes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.coverage import (
    UNREACHABLE,
    Cell,
    Coverage,
    all_cells,
    markdown,
    merged,
    rare_cells,
    read,
    reason_for,
    write,
    wrong_reasons,
)

if TYPE_CHECKING:
    from pathlib import Path

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
