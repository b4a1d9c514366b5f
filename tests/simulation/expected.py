"""Failures of known defects: they are counted, and they do not fail a run until the defect is fixed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.history import Size


class ExpectedFailure(NamedTuple):
    """A known defect.

    Attributes:
        scenario: The name of the scenario.
        kind: The failure's kind (``runner.Failure.kind``), with ``*`` as a wildcard.
        issue: The title of the issue that fixes it.
        seeds: Examples, with their sizes. A run reports those that pass, because then this entry must be removed.
    """

    scenario: str
    kind: str
    issue: str
    seeds: tuple[tuple[int, Size], ...]


EXPECTED_FAILURES: Final[tuple[ExpectedFailure, ...]] = ()


def expected_failure(
    scenario: str, kind: str, table: Iterable[ExpectedFailure] = EXPECTED_FAILURES
) -> ExpectedFailure | None:
    """Return the known defect behind a failure, if there is one."""
    return next((each for each in table if each.scenario == scenario and fnmatchcase(kind, each.kind)), None)
