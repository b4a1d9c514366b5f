"""How many small changes of the code its unit tests notice.

    python -m tests.mutants planning              # a sample of a room; goes on where the last run was stopped
    python -m tests.mutants planning --again      # what was not noticed is tried again, with all tests of the room
    python -m tests.mutants planning --files ranges.py --most 1000
    python -m tests.mutants planning --seed 2     # another sample: tests written for the first one do not know it

What was tried is kept in build/mutants, until the file changes. A change that makes no difference is listed in
tests/mutants/equivalent.txt, with the reason, and is not counted; one whose reason begins with "Accepted" makes one
that is not worth a test, and counts as not noticed. The working tree is only read.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import pyarrow as pa  # noqa: F401
import pyarrow.compute as pc  # noqa: F401
from tests.mutants.changes import changes, mutant
from tests.mutants.loaded import Loaded
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
    """A change of a file, by a name that outlives changes elsewhere in it.

    Attributes:
        file: Below the package.
        text: The line.
        what: The change.
        nth: Which of those with the same text and change, from 1 on.
        number: Which of all changes of the file.
        line: The line's number.
        version: Of the file.
    """

    file: str
    text: str
    what: str
    nth: int
    number: int
    line: int
    version: int

    @property
    def name(self) -> str:
        """As in equivalent.txt."""
        return f"{self.file} :: {self.described}"

    @property
    def described(self) -> str:
        """The change without its file."""
        return f"{self.text} :: {self.what}".rstrip() + (f" (the {self.nth}.)" if self.nth > 1 else "")

    @property
    def key(self) -> str:
        """As in the log of what was tried."""
        return f"{self.file} {self.version:08x} {self.number} {self.what}"


def reasons() -> dict[str, str]:
    """Return why changes are not to be noticed, by their names.

    Raises:
        ValueError: The last ones have no reason: the indented text below those that it is for.
    """
    found: dict[str, str] = {}
    names: list[str] = []
    for line in EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith(" "):
            found.update((name, f"{found.get(name, '')} {line.strip()}".strip()) for name in names)
        elif line and not line.startswith("#"):
            names = [line] if names and names[-1] in found else [*names, line]
    for name in names:
        if name not in found:
            raise ValueError(f"no reason: {name}")
    return found


def sample(room: str, most: int, files: list[str] | None, seed: int = SEED) -> list[Change]:
    """Return some of the changes that can be made to a room: the same ones, in the same order, for code and seed."""
    every = [
        change for file in ROOMS[room].files() if files is None or file.name in files for change in changes_of(file)
    ]
    return random.Random(f"{seed} {room}").sample(every, min(most, len(every)))


def changes_of(file: Path) -> list[Change]:
    """Return every change of a file."""
    source = file.read_text("utf-8")
    lines = source.splitlines()
    name, version = str(file.relative_to(PACKAGE)), crc32(source.encode())
    found = []
    alike: Counter[tuple[str, str]] = Counter()
    for number, (line, what) in enumerate(changes(source)):
        text = lines[line - 1].strip()
        alike[text, what] += 1
        found.append(Change(name, text, what, alike[text, what], number, line, version))
    return found


def reach_of(name: str, room: Room) -> Reach:
    """Return which tests run which functions, as a run of the room's tests has found since they last changed."""
    kept = FOLDER / f"{name}.reach"
    files = [*room.files(), *room.test_files()]
    if not kept.exists() or any(file.stat().st_mtime > kept.stat().st_mtime for file in files):
        observe(room.arguments(), Watch(room.files()), kept)
    reach: Reach = pickle.loads(kept.read_bytes())
    return reach


def try_out(change: Change, reach: Reach, loaded: Loaded, every_test: bool) -> bool:
    """Return whether tests notice a change."""
    file = PACKAGE / change.file
    tests = reach.of(file, change.line)
    if every_test:
        tests += [test for test in reach.seconds if test not in set(tests)]
    if not tests:
        return False
    tree = mutant(file.read_text("utf-8"), change.number).tree
    seconds = {test: reach.seconds[test] for test in tests}
    passed = None if reach.imports_run(file, change.line) else loaded.passes(file, tree, seconds)
    return not (passes(file, tree, seconds) if passed is None else passed)


def tell(room: str, chosen: list[Change], noticed: dict[str, bool]) -> bool:
    """Print the score, and return whether it is as good as it must be."""
    same, accepted = _listed()
    counted = [change for change in chosen if change.name not in same]
    tried = [change for change in counted if change.key in noticed]
    survivors = sorted(change for change in tried if not noticed[change.key])
    new = [change for change in survivors if change.name not in accepted]
    for change in new:
        print(f"{change.file}:{change.line} :: {change.described}")
    for file, count in sorted(Counter(change.file for change in new).items()):
        print(f"  {file}: {count} of {sum(change.file == file for change in tried)} not noticed")
    for gone in _gone(room, same | accepted):
        print(f"listed, and no change any more: {gone}")
    share = 1 - len(survivors) / len(tried) if tried else 0.0
    left = len(counted) - len(tried)
    print(
        f"{room}: {len(tried) - len(survivors)} of {len(tried)} noticed ({share:.1%}), {len(survivors) - len(new)} "
        f"accepted, {len(chosen) - len(counted)} equal, {left} not tried"
    )
    return share >= ROOMS[room].goal and not left


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description="Mutation score of a room, by its unit tests.")
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--most", type=int, default=300, help="how many changes to try")
    parser.add_argument("--files", nargs="+", help="of these files only, by their names without folders")
    parser.add_argument("--seed", type=int, default=SEED, help="which sample")
    parser.add_argument("--minutes", type=float, default=60, help="begin with no other change after that")
    parser.add_argument("--again", action="store_true", help="try again what was not noticed, with all tests")
    parser.add_argument("--show", action="store_true", help="try nothing, tell what is known")
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{given.room}.jsonl"
    noticed = dict(map(json.loads, log.read_text("utf-8").splitlines())) if log.exists() else {}
    chosen = sample(given.room, given.most, given.files, given.seed)
    same, _ = _listed()
    todo = [
        change
        for change in chosen
        if change.name not in same and (change.key not in noticed or (given.again and not noticed[change.key]))
    ]
    if todo and not given.show:
        reach = reach_of(given.room, ROOMS[given.room])
        loaded = Loaded(ROOMS[given.room].arguments())
        with log.open("a", encoding="utf-8") as file:
            for change in todo:
                if time.monotonic() > ends:
                    break
                noticed[change.key] = try_out(change, reach, loaded, given.again)
                print(json.dumps([change.key, noticed[change.key]]), file=file, flush=True)
    sys.exit(not tell(given.room, chosen, noticed))


def _listed() -> tuple[set[str], set[str]]:
    """Return the names of changes that make no difference, and of those that are accepted."""
    found = reasons()
    accepted = {name for name, reason in found.items() if reason.startswith("Accepted")}
    return found.keys() - accepted, accepted


def _gone(room: str, names: set[str]) -> list[str]:
    """Return the names of changes of a room's files that cannot be made any more."""
    files = ROOMS[room].files()
    paths = {str(file.relative_to(PACKAGE)) for file in files}
    every = {change.name for file in files for change in changes_of(file)}
    return sorted(name for name in names - every if name.partition(" :: ")[0] in paths)


if __name__ == "__main__":
    main()
