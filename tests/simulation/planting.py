"""Plants bugs in the package and counts the seeds that the simulation needs to find each.

    python -m tests.simulation.planting [--scenario NAME] [--bug NAME] [--seeds 10000] [--processes 2] [--markdown]

A bug is a list of patches of the package's attributes, undone after each search. It counts as found by the first seed
whose history fails in another way than the recorded expected failures.
"""

from __future__ import annotations

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.expected import expected_failure
from tests.simulation.runner import draw_history, run_history
from tests.simulation.worker import limit_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MODULES: Final = (
    "planted_reads",
    "planted_endless_reads",
    "planted_connections",
    "planted_micro_batches",
    "planted_restarts",
    "planted_direct_batches",
    "planted_direct_plans",
    "planted_direct_streams",
    "planted_exactly_once",
    "planted_topics",
    "planted_shared_log",
    "planted_continuous",
    "planted_queries",
    "planted_independent",
    "planted_writers",
    "planted_readers",
    "planted_moments",
    "planted_producers",
)
"""Modules of this package with a tuple ``BUGS``."""
_FIRST_SEED = 1
_MISFITS: Final = ("TypeError", "AttributeError", "NameError")


class Patch(NamedTuple):
    """A replacement of an attribute: ``replacement`` takes the original and returns what takes its place."""

    owner: Any
    attribute: str
    replacement: Callable[[Any], Any]


@dataclass(frozen=True)
class PlantedBug:
    """A bug that a test plants.

    Attributes:
        name: A short name, unique among all bugs.
        scenario: The scenario that has to find it.
        effect: What goes wrong, in a sentence.
        patches: The patches; a function, so that a search imports only what it needs.
        was_real: Whether the package once had this bug.
    """

    name: str
    scenario: str
    effect: str
    patches: Callable[[], Sequence[Patch]]
    was_real: bool = False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug, and remove it at the end."""
        patches = self.patches()
        originals = [(patch, vars(patch.owner)[patch.attribute]) for patch in patches]
        for patch in patches:
            setattr(patch.owner, patch.attribute, patch.replacement(getattr(patch.owner, patch.attribute)))
        try:
            yield
        finally:
            for patch, original in originals:
                setattr(patch.owner, patch.attribute, original)


class BugsOf(NamedTuple):
    """Makes the bugs of a scenario."""

    scenario: str
    prefix: str = ""  # of their names

    def __call__(
        self, name: str, effect: str, patches: Callable[[], Sequence[Patch]], *, was_real: bool = False
    ) -> PlantedBug:
        return PlantedBug(self.prefix + name, self.scenario, effect, patches, was_real)

    def by_one_patch(
        self,
        name: str,
        effect: str,
        owner: Any,
        attribute: str,
        replacement: Callable[[Any], Any],
        *,
        was_real: bool = False,
    ) -> PlantedBug:
        return self(name, effect, lambda: [Patch(owner, attribute, replacement)], was_real=was_real)


def does_nothing(_: Any) -> Any:
    """Replace a function by one that does nothing."""
    return lambda *_args, **_named: None


class Found(NamedTuple):
    """The result of a search."""

    seeds: int | None  # None: not found
    message: str


def all_bugs() -> list[PlantedBug]:
    """Return the bugs of all modules, whose names are unique."""
    return [bug for name in MODULES for bug in import_module(f"tests.simulation.{name}").BUGS]


def search(bug: PlantedBug, seeds: int) -> Found:
    """Run histories of the bug's scenario until one fails."""
    for seed in range(_FIRST_SEED, _FIRST_SEED + seeds):
        history = draw_history(seed, bug.scenario)
        with bug.planted():
            failure = run_history(history).failure
        if failure is None or expected_failure(bug.scenario, failure.kind) is not None:
            continue
        if any(f": {name}: " in failure.kind for name in _MISFITS):
            return Found(None, f"the bug does not fit the package any more: {failure.message}")
        if run_history(history).failure is None:  # without the bug the history passes
            return Found(seed - _FIRST_SEED + 1, f"{failure.kind}")
    return Found(None, "not found")


def violates_soon(bug: PlantedBug, found_by: int, seeds: int) -> bool:
    """Return whether a short history of the first seeds shows a violation with the bug.

    ``found_by`` is the first seed that does. Its history runs first: the others run only if seeds draw other histories
    by now.
    """
    with bug.planted():
        for seed in (found_by, *range(_FIRST_SEED, _FIRST_SEED + seeds)):
            failure = run_history(draw_history(seed, bug.scenario, "short")).failure
            if failure is not None and ViolationError.__name__ in failure.kind:
                return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for planted bugs; return 1 if fewer than 95 % are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planting", description=__doc__.split("\n\n")[0])
    parser.add_argument("--scenario", help="only bugs that this scenario has to find")
    parser.add_argument("--bug", help="only bugs whose name contains this")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="print the rows of tests/evidence/planted-bugs.md")
    chosen = parser.parse_args(arguments)
    bugs = [
        bug
        for bug in all_bugs()
        if chosen.scenario in (None, bug.scenario) and (chosen.bug is None or chosen.bug in bug.name)
    ]
    found = 0
    with ProcessPoolExecutor(chosen.processes, initializer=limit_memory) as pool:
        results = pool.map(_search_by_name, [bug.name for bug in bugs], [chosen.seeds] * len(bugs))
        for bug, result in zip(bugs, results, strict=True):
            found += result.seeds is not None
            seeds = "not found" if result.seeds is None else str(result.seeds)
            if chosen.markdown:
                print(f"| {bug.effect} | {bug.scenario} | {'yes' if bug.was_real else ''} | {seeds} |", flush=True)
            else:
                print(f"{bug.scenario:15} {bug.name:40} {seeds:>9}  {result.message[:100]}", flush=True)
    print(f"{found} of {len(bugs)} bugs are found within {chosen.seeds} seeds", file=sys.stderr)
    return 0 if found >= 0.95 * len(bugs) else 1


def _search_by_name(name: str, seeds: int) -> Found:
    logging.getLogger("pyspark_kafka_direct").addHandler(logging.NullHandler())
    return search(next(bug for bug in all_bugs() if bug.name == name), seeds)


if __name__ == "__main__":
    sys.exit(main())
