"""Measures how many small changes of the code its unit tests detect (mutation testing).

    python -m tests.mutants planning              # a sample of a target; continues where the last run stopped
    python -m tests.mutants planning --again      # retries undetected changes with all tests of the target
    python -m tests.mutants planning --files ranges.py --most 1000
    python -m tests.mutants planning --seed 2     # another sample, for which no tests were written
    python -m tests.mutants planning --kind "only the first"  # of one kind: loops that end after the first element

Results are stored in build/mutants and are valid until the file changes. tests/mutants/equivalent.txt lists changes
that make no difference, with the reason; they are not counted. If the reason begins with "Accepted", the difference is
not worth a test, and the change counts as undetected. A change with which the tests pass, but take ten times as long,
counts as undetected too. The working tree is not modified.
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
from tests.mutants.targets import PACKAGE, ROOT, TARGETS, MutationTarget
from tests.mutants.trial import observe, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutants.reach import Reach
    from tests.mutants.trial import Outcome

FOLDER = ROOT / "build" / "mutants"
EQUIVALENT = ROOT / "tests" / "mutants" / "equivalent.txt"
SEED = 20261122


class Change(NamedTuple):
    """A change of a file, with a name that stays valid when other parts of the file change.

    Attributes:
        file: The file, relative to the package.
        text: The line.
        what: The change.
        nth: Its number among those with the same text and change, from 1.
        number: Its index among all changes of the file.
        line: The line's number.
        version: The checksum of the file.
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
        """The name in equivalent.txt."""
        return f"{self.file} :: {self.described}"

    @property
    def described(self) -> str:
        """The name without the file."""
        return f"{self.text} :: {self.what}".rstrip() + (f" (the {self.nth}.)" if self.nth > 1 else "")

    @property
    def key(self) -> str:
        """The name in the log of results."""
        return f"{self.file} {self.version:08x} {self.number} {self.what}"


def reasons() -> dict[str, str]:
    """Return the reasons for undetected changes, by their names.

    Raises:
        ValueError: A name has no reason. The reason is the indented text below the names that it applies to.
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


def sample(target: str, most: int, files: list[str] | None, seed: int = SEED, kind: str = "") -> list[Change]:
    """Return a random sample of the changes of a target whose descriptions begin with ``kind``."""
    chosen = [file for file in TARGETS[target].files() if files is None or file.name in files]
    every = [change for file in chosen for change in changes_of(file) if change.what.startswith(kind)]
    return random.Random(f"{seed} {target}").sample(every, min(most, len(every)))


def changes_of(file: Path) -> list[Change]:
    """Return all changes of a file."""
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


def reach_of(name: str, target: MutationTarget) -> Reach:
    """Return which tests run which functions; runs the target's tests if files have changed since the last run."""
    kept = FOLDER / f"{name}.reach"
    files = [*target.files(), *target.test_files()]
    if not kept.exists() or any(file.stat().st_mtime > kept.stat().st_mtime for file in files):
        observe(target.arguments(), Watch(target.files()), kept)
    reach: Reach = pickle.loads(kept.read_bytes())
    return reach


def try_out(change: Change, reach: Reach, loaded: Loaded, every_test: bool) -> Outcome:
    """Return whether tests detect a change."""
    file = PACKAGE / change.file
    tests = reach.of(file, change.line)
    if every_test:
        tests += [test for test in reach.seconds if test not in set(tests)]
    if not tests:
        return False
    tree = mutant(file.read_text("utf-8"), change.number).tree
    seconds = {test: reach.seconds[test] for test in tests}
    found = None if reach.imports_run(file, change.line) else loaded.outcome(file, tree, seconds)
    return outcome(file, tree, seconds) if found is None else found


def tell(target: str, chosen: list[Change], noticed: dict[str, Outcome]) -> bool:
    """Print the score, and return whether it reaches the goal."""
    same, accepted = _listed()
    counted = [change for change in chosen if change.name not in same]
    tried = [change for change in counted if change.key in noticed]
    survivors = sorted(change for change in tried if noticed[change.key] is not True)
    new = [change for change in survivors if change.name not in accepted]
    for change in new:
        slow = " (the tests pass, and take ten times as long)" if noticed[change.key] == "slow" else ""
        print(f"{change.file}:{change.line} :: {change.described}{slow}")
    for file, count in sorted(Counter(change.file for change in new).items()):
        print(f"  {file}: {count} of {sum(change.file == file for change in tried)} not noticed")
    for gone in _gone(target, same | accepted):
        print(f"listed, and no change any more: {gone}")
    share = 1 - len(survivors) / len(tried) if tried else 0.0
    left = len(counted) - len(tried)
    print(
        f"{target}: {len(tried) - len(survivors)} of {len(tried)} noticed ({share:.1%}), {len(survivors) - len(new)} "
        f"accepted, {len(chosen) - len(counted)} equal, {left} not tried"
    )
    return share >= TARGETS[target].goal and not left


def main() -> None:
    """Try the changes of a target and print the score."""
    parser = argparse.ArgumentParser(description="Mutation score of a target, by its unit tests.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--most", type=int, default=300, help="how many changes to try")
    parser.add_argument("--files", nargs="+", help="change only these files, by their names without folders")
    parser.add_argument("--seed", type=int, default=SEED, help="which sample")
    parser.add_argument("--kind", default="", help="only changes whose descriptions begin with this text")
    parser.add_argument("--minutes", type=float, default=60, help="start no further change after this time")
    parser.add_argument("--again", action="store_true", help="retry undetected changes with all tests")
    parser.add_argument("--show", action="store_true", help="only print the known results")
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{given.target}.jsonl"
    noticed = dict(map(json.loads, log.read_text("utf-8").splitlines())) if log.exists() else {}
    chosen = sample(given.target, given.most, given.files, given.seed, given.kind)
    same, _ = _listed()
    todo = [
        change
        for change in chosen
        if change.name not in same and (change.key not in noticed or (given.again and noticed[change.key] is not True))
    ]
    if todo and not given.show:
        reach = reach_of(given.target, TARGETS[given.target])
        loaded = Loaded(TARGETS[given.target].arguments())
        with log.open("a", encoding="utf-8") as file:
            for change in todo:
                if time.monotonic() > ends:
                    break
                noticed[change.key] = try_out(change, reach, loaded, given.again)
                print(json.dumps([change.key, noticed[change.key]]), file=file, flush=True)
    sys.exit(not tell(given.target, chosen, noticed))


def _listed() -> tuple[set[str], set[str]]:
    """Return the names of changes that make no difference, and of those that are accepted."""
    found = reasons()
    accepted = {name for name, reason in found.items() if reason.startswith("Accepted")}
    return found.keys() - accepted, accepted


def _gone(target: str, names: set[str]) -> list[str]:
    """Return the names of changes of a target's files that no longer exist."""
    files = TARGETS[target].files()
    paths = {str(file.relative_to(PACKAGE)) for file in files}
    every = {change.name for file in files for change in changes_of(file)}
    return sorted(name for name in names - every if name.partition(" :: ")[0] in paths)


if __name__ == "__main__":
    main()
