"""How many small changes of the code its unit tests notice.

    python -m tests.mutants planning              # a sample of a room; goes on where the last run was stopped
    python -m tests.mutants planning --again      # what was not noticed is tried again, with all tests of the room
    python -m tests.mutants planning --files ranges.py --most 1000

What was tried is kept in build/mutants, until the file changes. A change that makes no difference is listed in
tests/mutants/equivalent.txt, with the reason, and is not counted. The working tree is only read.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import pyarrow as pa  # noqa: F401
import pyarrow.compute as pc  # noqa: F401
from tests.mutants.changes import changes, mutant
from tests.mutants.reach import Watch
from tests.mutants.rooms import PACKAGE, ROOMS, ROOT, Room
from tests.mutants.trial import observe, passes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutants.reach import Reach

FOLDER = ROOT / "build" / "mutants"
EQUIVALENT = ROOT / "tests" / "mutants" / "equivalent.txt"
SEED = 20261122


class Change(NamedTuple):
    """A change of a file, by a name that outlives changes elsewhere in it."""

    file: str
    text: str
    what: str
    number: int
    line: int
    version: int

    @property
    def name(self) -> str:
        """As in equivalent.txt."""
        return f"{self.file} :: {self.text} :: {self.what}"

    @property
    def key(self) -> str:
        """As in the log of what was tried."""
        return f"{self.file} {self.version:08x} {self.number} {self.what}"


def equivalents() -> set[str]:
    """Return the names of changes that make no difference.

    Raises:
        ValueError: The last ones have no reason: the indented text below those that it is for.
    """
    lines = [line for line in EQUIVALENT.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    names = set()
    for line, following in pairwise([*lines, ""]):
        if not line.startswith(" "):
            names.add(line)
            if not following:
                raise ValueError(f"no reason: {line}")
    return names


def sample(room: str, most: int, files: list[str] | None) -> list[Change]:
    """Return some of the changes that can be made to a room: the same ones, in the same order, for the same code."""
    every = [
        change for file in ROOMS[room].files() if files is None or file.name in files for change in changes_of(file)
    ]
    return random.Random(f"{SEED} {room}").sample(every, min(most, len(every)))


def changes_of(file: Path) -> list[Change]:
    """Return every change of a file."""
    source = file.read_text("utf-8")
    lines = source.splitlines()
    name, version = str(file.relative_to(PACKAGE)), crc32(source.encode())
    return [
        Change(name, lines[line - 1].strip(), what, number, line, version)
        for number, (line, what) in enumerate(changes(source))
    ]


def reach_of(name: str, room: Room) -> Reach:
    """Return which tests run which functions, as a run of the room's tests has found since they last changed."""
    kept = FOLDER / f"{name}.reach"
    files = [*room.files(), *room.test_files()]
    if not kept.exists() or any(file.stat().st_mtime > kept.stat().st_mtime for file in files):
        observe(room.arguments(), Watch(room.files()), kept)
    reach: Reach = pickle.loads(kept.read_bytes())
    return reach


def try_out(change: Change, reach: Reach, every_test: bool) -> bool:
    """Return whether tests notice a change."""
    file = PACKAGE / change.file
    tests = reach.of(file, change.line)
    if every_test:
        tests += [test for test in reach.seconds if test not in set(tests)]
    if not tests:
        return False
    changed = mutant(file.read_text("utf-8"), change.number)
    return not passes(file, changed.source, {test: reach.seconds[test] for test in tests})


def tell(name: str, chosen: list[Change], noticed: dict[str, bool]) -> bool:
    """Print the score, and return whether it is as good as it must be."""
    same = equivalents()
    tried = [change for change in chosen if change.key in noticed and change.name not in same]
    survivors = sorted(change for change in tried if not noticed[change.key])
    for change in survivors:
        print(f"{change.file}:{change.line} :: {change.text} :: {change.what}")
    for file, count in sorted(Counter(change.file for change in survivors).items()):
        print(f"  {file}: {count} of {sum(change.file == file for change in tried)} not noticed")
    share = 1 - len(survivors) / len(tried) if tried else 0.0
    every = {change.name for file in ROOMS[name].files() for change in changes_of(file)}
    files = {str(file.relative_to(PACKAGE)) for file in ROOMS[name].files()}
    for gone in sorted(each for each in same - every if each.partition(" :: ")[0] in files):
        print(f"listed as equal, and no change any more: {gone}")
    left = sum(change.key not in noticed for change in chosen)
    equal = len(chosen) - left - len(tried)
    print(
        f"{name}: {len(tried) - len(survivors)} of {len(tried)} noticed ({share:.1%}), {equal} equal, {left} not tried"
    )
    return share >= ROOMS[name].goal and not left


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description="Mutation score of a room, by its unit tests.")
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--most", type=int, default=300, help="how many changes to try")
    parser.add_argument("--files", nargs="+", help="of these files only, by their names without folders")
    parser.add_argument("--minutes", type=float, default=60, help="begin with no other change after that")
    parser.add_argument("--again", action="store_true", help="try again what was not noticed, with all tests")
    parser.add_argument("--show", action="store_true", help="try nothing, tell what is known")
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{given.room}.jsonl"
    noticed = dict(map(json.loads, log.read_text("utf-8").splitlines())) if log.exists() else {}
    chosen = sample(given.room, given.most, given.files)
    same = equivalents()
    todo = [
        change
        for change in chosen
        if change.name not in same and (change.key not in noticed or (given.again and not noticed[change.key]))
    ]
    if todo and not given.show:
        reach = reach_of(given.room, ROOMS[given.room])
        with log.open("a", encoding="utf-8") as file:
            for change in todo:
                if time.monotonic() > ends:
                    break
                noticed[change.key] = try_out(change, reach, given.again)
                print(json.dumps([change.key, noticed[change.key]]), file=file, flush=True)
    sys.exit(not tell(given.room, chosen, noticed))


if __name__ == "__main__":
    main()
