"""The table of faults, requests and outcomes: how many histories have reached each combination.

The outcome is that of the scenario's operation in which the fault happened: ``completed``, ``failed`` (with an error
that the history justifies), or ``outside an operation``.

    python -m tests.simulation.coverage                # the table of tests/evidence/simulation-coverage.md
    python -m tests.simulation.coverage coverage.json  # the same table of what a run has reached
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.faults import CONNECT_FAULTS, CRASHES, REQUEST_FAULTS
from tests.simulation.wire import APIS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OUTCOMES: Final = ("completed", "failed")
WANTED_SHARE: Final = 100 / 100_000
"""How many histories should reach each cell, per seed."""
ENOUGH_SEEDS: Final = 100_000
"""From so many seeds on, a run fails if it reaches a cell too rarely."""

UNREACHABLE: Final[Mapping[str, str]] = {
    "* / Sasl* / *": "TLS and SASL are not simulated",
    "crash_* / * / completed": "the operation ends with its process",
    "error / ApiVersions / *": "brokers have no retriable error for it",
    "error / DescribeConfigs / *": "brokers have no retriable error for it",
}
"""Reasons for cells that cannot be reached, by ``fault / request / outcome`` with ``*`` as a wildcard."""

_LEFT_OUT: Final = frozenset(
    {
        "DescribeProducers",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "DescribeDelegationToken",
        "ListGroups",
        "ListTransactions",
        "DescribeTransactions",
        "WriteTxnMarkers",
    }
)
"""Requests that only a log line, a login or the command line needs; tests of those inject their faults."""


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
    """Return all cells that the kinds of faults and the requests of the package allow."""
    requests = sorted({api.name for api in APIS.values()} - _LEFT_OUT)
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


def report(
    coverage: Coverage, seeds: int, cells: list[Cell], unreachable: Mapping[str, str] = UNREACHABLE
) -> tuple[list[str], bool]:
    """Return the lines of a report, and whether the run fails: it is long, and cells are rare or reasons are wrong."""
    rare, wrong = rare_cells(coverage, seeds, cells, unreachable), wrong_reasons(coverage, unreachable)
    reached = sum(1 for cell in cells if coverage[cell])
    lines = [f"coverage: {reached} of {len(cells)} cells reached, {len(rare)} reached too rarely"]
    lines += [f"  WRONG REASON in coverage.UNREACHABLE: reached {coverage[cell]} times: {cell}" for cell in wrong]
    is_long = seeds >= ENOUGH_SEEDS
    if is_long and rare:
        lines.append(f"  RARE CELLS: each must be reached {seeds * WANTED_SHARE:.0f} times, or have a reason:")
        lines += [f"  {count:>5}  {cell}" for cell, count in rare]
    return lines, is_long and bool(rare or wrong)


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
    """Return the counts with a row for each fault and request, and a column for each outcome."""
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


def compact_markdown(rare: Iterable[Cell] = (), unreachable: Mapping[str, str] = UNREACHABLE) -> str:
    """Return a table with a row for each request and a column for each fault, and the reasons.

    A cell has a sign for each outcome: ``+`` if it is reached, ``-`` if it is rare, or the number of a reason.
    """
    cells, rarely = all_cells(), set(rare)
    reasons = sorted(set(unreachable.values()), key=[*unreachable.values()].index)
    faults, requests = ([*dict.fromkeys(cell[index] for cell in cells)] for index in (0, 1))
    known = set(cells)

    def sign(cell: Cell) -> str:
        reason = reason_for(cell, unreachable)
        return str(reasons.index(reason) + 1) if reason is not None else "-" if cell in rarely else "+"

    def signs(fault: str, request: str) -> str:
        of_outcomes = [Cell(fault, request, outcome) for outcome in OUTCOMES]
        return " ".join(sign(each) for each in of_outcomes if each in known)

    lines = [f"| request | {' | '.join(fault.replace('_', ' ') for fault in faults)} |"]
    lines.append(f"| --- |{' :-: |' * len(faults)}")
    lines += [
        f"| {request} | {' | '.join(signs(fault, request) for fault in faults)} |".replace("  |", " |")
        for request in requests
    ]
    lines += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Print the table of what must be reached, or of what the run in a file has reached."""
    rare: list[tuple[Cell, int]] = []
    if arguments:
        coverage, seeds = read(Path(arguments[0]))
        rare = rare_cells(coverage, seeds, all_cells())
    print(compact_markdown(cell for cell, _ in rare), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
