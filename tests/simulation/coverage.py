"""The table of faults, requests and outcomes: how often each combination was reached.

The outcome is that of the scenario's operation in which the fault happened: ``completed``, ``failed`` (with an error
that the history justifies), or ``outside an operation``.
"""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OUTCOMES: Final = ("completed", "failed")
WANTED_SHARE: Final = 100 / 100_000
"""How often each cell should be reached, per seed."""

UNREACHABLE: Final[Mapping[str, str]] = {
    "crash_* / * / completed": "the operation ends with its process",
    "error / ApiVersions / *": "brokers have no retriable error for it",
    "* / AddOffsetsToTxn / *": "the package commits no offsets in transactions, so it never sends it",
    "* / TxnOffsetCommit / *": "the package commits no offsets in transactions, so it never sends it",
}
"""Reasons for cells that cannot be reached, by ``fault / request / outcome`` with ``*`` as a wildcard."""


class Cell(NamedTuple):
    """A combination of a fault, a request and the outcome of an operation."""

    fault: str
    request: str
    outcome: str

    def __str__(self) -> str:
        return " / ".join(self)


Coverage = Counter[Cell]


def merged(coverage: Mapping[tuple[str, str, str], int], into: Coverage) -> None:
    """Add the counts of some seeds to a table."""
    for (fault, request, outcome), count in coverage.items():
        into[Cell(fault, request, outcome)] += count


def all_cells() -> list[Cell]:
    """Return all cells that the kinds of faults and requests allow."""
    from tests.simulation.faults import CONNECT_FAULTS, CRASHES, REQUEST_FAULTS, RETRIABLE_ERRORS

    requests = ["ApiVersions", *RETRIABLE_ERRORS]
    pairs = [(fault, request) for fault in (*REQUEST_FAULTS, *CRASHES) for request in requests]
    pairs += [(fault, "connect") for fault in CONNECT_FAULTS]
    return [Cell(fault, request, outcome) for fault, request in pairs for outcome in OUTCOMES]


def rare_cells(
    coverage: Coverage, seeds: int, cells: list[Cell], unreachable: Mapping[str, str] = UNREACHABLE
) -> list[tuple[Cell, int]]:
    """Return the cells that were reached less often than wanted and have no reason for it, with their counts."""
    wanted = seeds * WANTED_SHARE
    return [
        (cell, coverage[cell]) for cell in cells if coverage[cell] < wanted and reason_for(cell, unreachable) is None
    ]


def wrong_reasons(coverage: Coverage, unreachable: Mapping[str, str] = UNREACHABLE) -> list[Cell]:
    """Return the cells that were reached although a reason says that they cannot be."""
    return sorted(cell for cell, count in coverage.items() if count and reason_for(cell, unreachable) is not None)


def reason_for(cell: Cell, unreachable: Mapping[str, str] = UNREACHABLE) -> str | None:
    return next((reason for pattern, reason in unreachable.items() if fnmatchcase(str(cell), pattern)), None)


def write(coverage: Coverage, seeds: int, file: Path) -> None:
    """Write the table as JSON, and beside it as Markdown."""
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {"seeds": seeds, "cells": [[*cell, count] for cell, count in sorted(coverage.items())]}
    file.write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    file.with_suffix(".md").write_text(markdown(coverage, seeds), "utf-8")


def read(file: Path) -> tuple[Coverage, int]:
    """Return a table that was written as JSON, and its number of seeds."""
    values = json.loads(file.read_text("utf-8"))
    cells = Counter({Cell(fault, request, outcome): count for fault, request, outcome, count in values["cells"]})
    return cells, values["seeds"]


def markdown(coverage: Coverage, seeds: int, unreachable: Mapping[str, str] = UNREACHABLE) -> str:
    """Return the table with a row for each fault and request, and a column for each outcome."""
    outcomes = [*OUTCOMES, *sorted({cell.outcome for cell in coverage}.difference(OUTCOMES))]
    rows = sorted({(cell.fault, cell.request) for cell in coverage})
    lines = [f"| fault | request | {' | '.join(outcomes)} |", f"| --- | --- | {' | '.join('---:' for _ in outcomes)} |"]
    for fault, request in rows:
        counts = [f"{coverage[Cell(fault, request, outcome)]:,}" for outcome in outcomes]
        lines.append(f"| {fault} | {request} | {' | '.join(counts)} |")
    text = f"Reached in {seeds:,} seeds.\n\n" + "\n".join(lines) + "\n"
    if unreachable:
        text += "\n| cannot be reached | reason |\n| --- | --- |\n"
        text += "".join(f"| {pattern} | {reason} |\n" for pattern, reason in unreachable.items())
    return text
