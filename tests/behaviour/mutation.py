"""How many small changes of a file its unit tests notice.

    python -m tests.behaviour.mutation src/.../planning/ranges.py --tests tests/unit/planning/test_ranges.py
    python -m tests.behaviour.mutation --record [FILE...]  # the sample of data/mutation.json again: ten minutes

The changed files lie in a copy of the package in a temporary folder; the working tree is only read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.behaviour.mutants import changes, mutant

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "pyspark_kafka_direct"
RECORD = Path(__file__).parent / "data" / "mutation.json"
SEED = 20260101

# What is recorded: the files of a room that have tests, and how many changes to each are tried.
SAMPLE = {"planning": 4, "wire": 3}

# Files whose tests are named after another one.
_TESTED_WITH = {
    "_classes": "patterns",
    "_tokens": "patterns",
    "_translator": "patterns",
    "limits": "stream_limits",
    "stream_start": "stream",
    "_certificates": "tls",
    "_list_offsets": "cluster",
    "_socket": "connection",
    "tls_failures": "tls",
    "_token": "oauth",
    "_token_endpoint": "oauth",
    "_token_provider": "oauth",
    "_token_unsecured": "oauth",
    "_trouble": "connection",
    "metadata": "cluster",
}


class Score(NamedTuple):
    """What came of the changes to one file.

    Attributes:
        tried: How many changes.
        noticed: How many of them some test failed for, or did not end for.
        survivors: The others, as ``line: change``.
    """

    tried: int
    noticed: int
    survivors: tuple[str, ...]


class Workshop:
    """A copy of the package, whose files may be changed.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._sources = folder / "src"
        shutil.copytree(SOURCES, self._sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(self._sources),
            "PYTHONDONTWRITEBYTECODE": "1",  # a changed file may have the old one's size and time
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }

    def score(self, file: Path, tests: Sequence[str], most: int, seed: int) -> Score:
        """Try changes to a file.

        Args:
            file: In the working tree.
            tests: Test files that must notice.
            most: How many changes to try, chosen by ``seed``.
            seed: The same seed chooses the same changes, as long as the file is the same.

        Raises:
            RuntimeError: The tests fail without any change.
        """
        source = file.read_text("utf-8")
        changed = self._sources / file.resolve().relative_to(SOURCES)
        started = time.monotonic()
        if not self._pass(tests, 600):
            raise RuntimeError(f"the tests fail before anything is changed: {' '.join(tests)}")
        patience = 30 + 5 * (time.monotonic() - started)
        numbers = range(len(changes(source)))
        chosen = random.Random(f"{seed} {file.name}").sample(numbers, min(most, len(numbers)))
        survivors = []
        try:
            for number in sorted(chosen):
                line, what, text = mutant(source, number)
                changed.write_text(text, "utf-8")
                if self._pass(tests, patience):
                    survivors.append(f"{line}: {what}")
        finally:
            changed.write_text(source, "utf-8")
        return Score(len(chosen), len(chosen) - len(survivors), tuple(survivors))

    def _pass(self, tests: Sequence[str], patience: float) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=patience
            )
        except subprocess.TimeoutExpired:  # a change that makes a loop endless is noticed, too
            return False
        return done.returncode == 0


def tests_of(file: Path) -> list[str]:
    """The unit tests of a file, if they are in one file: ``wire/_retry.py`` has ``tests/unit/wire/test_retry.py``."""
    name = _TESTED_WITH.get(file.stem, file.stem.removeprefix("_"))
    found = ROOT / "tests" / "unit" / _room(file) / f"test_{name}.py"
    return [str(found.relative_to(ROOT))] if found.is_file() else []


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description="Mutation score of product files, by given unit tests.")
    parser.add_argument("files", nargs="*", type=Path, help="files of src/")
    parser.add_argument("--tests", nargs="+", help="test files; by default those named after each file")
    parser.add_argument("--most", type=int, default=1_000_000, help="changes per file, by default all")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--record", action="store_true", help="score the sample, or the files of it, and keep it in data"
    )
    given = parser.parse_args()
    files = given.files or [file for room in SAMPLE if given.record for file in sorted((PACKAGE / room).rglob("*.py"))]
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        for file in files:
            tests = given.tests or tests_of(file)
            if not tests:
                print(f"{file.stem}: no tests of that name")
                continue
            most = SAMPLE[_room(file)] if given.record else given.most
            score = workshop.score(file, tests, most, given.seed)
            name = str(file.resolve().relative_to(ROOT))
            print(f"{name}: {score.noticed} of {score.tried} noticed", *score.survivors, sep="\n    ", flush=True)
            if given.record:
                _record(name, {"tests": tests, **score._asdict()})


def _room(file: Path) -> str:
    """The folder of the package that a file lies in, however deep."""
    return file.resolve().relative_to(PACKAGE).parts[0]


def _record(name: str, score: dict[str, object]) -> None:
    """Put a file's score in the place of its last one; those of files that are gone go."""
    recorded = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    scores = {**recorded, name: score}
    kept = {name: scores[name] for name in sorted(scores) if (ROOT / name).is_file()}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
