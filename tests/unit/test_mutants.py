"""The runner of mutants: which tests it chooses for a change, and whether it sees them fail."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.mutants import __main__ as mutants
from tests.mutants.reach import Reach
from tests.mutants.rooms import PACKAGE, ROOMS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """TABLE = {1: 2}

class Thing:
    @property
    def one(self):
        return 1

def two():
    def inner():
        return 2
    return inner()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "module.py"
    made.write_text(SOURCE, "utf-8")
    return made


def test_the_tests_that_run_the_function_the_quick_ones_first(file: Path) -> None:
    name = str(file)
    seconds = {"a.py::slow": 3.0, "a.py::quick": 1.0, "b.py::other": 2.0}
    tests = {(name, 4): {"a.py::slow"}, (name, 8): {"a.py"}, (name, 9): {"b.py::other", "a.py::quick"}}
    reach = Reach(seconds, tests)
    assert reach.of(file, 6) == ["a.py::slow"], "a decorator is where its function begins"
    assert reach.of(file, 11) == ["a.py::quick", "a.py::slow"], "run when the file of tests was imported"
    assert reach.of(file, 10) == ["a.py::quick", "b.py::other"], "the innermost function counts"
    assert reach.of(file, 1) == ["a.py::quick", "b.py::other", "a.py::slow"], "of the module: whoever uses it"
    assert Reach(seconds, {}).of(file, 1) == ["a.py::quick", "b.py::other", "a.py::slow"]
    assert Reach(seconds, {}).of(file, 6) == []


def test_what_makes_no_difference_has_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutants, "EQUIVALENT", tmp_path / "equivalent.txt")
    mutants.EQUIVALENT.write_text("# about\n\na.py :: x = 1 :: 1 to 2\nb.py :: y :: z\n    why\n", "utf-8")
    assert mutants.equivalents() == {"a.py :: x = 1 :: 1 to 2", "b.py :: y :: z"}
    mutants.EQUIVALENT.write_text("a.py :: x = 1 :: 1 to 2\n", "utf-8")
    with pytest.raises(ValueError, match=r"no reason: a\.py"):
        mutants.equivalents()


def test_the_sample_is_the_same_again() -> None:
    assert mutants.sample("planning", 20, None) == mutants.sample("planning", 20, None)
    assert {change.file for change in mutants.sample("planning", 9, ["slots.py"])} == {"planning/slots.py"}
    assert all(file.is_file() for room in ROOMS.values() for file in [*room.files(), *room.test_files()])


TRIAL = """
from tests.mutants.changes import changes, mutant
from tests.mutants.rooms import PACKAGE
from tests.mutants.trial import passes

file = PACKAGE / "planning" / "hints.py"
source = file.read_text("utf-8")
test = "tests/unit/planning/test_hints.py::test_lists_stay_short"
print(passes(file, source, {test: 0.1}))
print(passes(file, source.replace("if len(texts) > most", "if len(texts) >= most"), {test: 0.1}))
print(passes(file, source.replace("texts = [", "any(iter(int, 1)); texts = ["), {test: 0.1}))
print(passes(file, source, {test: 0.1}))
"""


def test_a_change_is_seen_and_does_not_stay() -> None:
    assert (PACKAGE / "planning" / "hints.py").read_text("utf-8").count("if len(texts) > most") == 1
    done = subprocess.run([sys.executable, "-c", TRIAL], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "False", "False", "True"], done.stderr
