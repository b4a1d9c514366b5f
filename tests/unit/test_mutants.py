"""The runner of mutants: which tests it chooses for a change, and whether it sees them fail."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.mutants import __main__ as mutants
from tests.mutants.changes import changes, mutant
from tests.mutants.reach import Reach
from tests.mutants.targets import PACKAGE, ROOT, TARGETS

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
    seconds = {"a.py::slow": 3.0, "a.py::quick": 1.0, "b.py::other": 2.0, "b.py::table": 0.5}
    tests = {(name, 4): {"a.py::slow"}, (name, 8): {"a.py"}, (name, 9): {"b.py::other", "a.py::quick"}}
    reach = Reach(seconds, tests)
    assert reach.of(file, 6) == ["a.py::slow"], "a decorator is where its function begins"
    assert reach.of(file, 11) == ["a.py::quick", "a.py::slow"], "run when the file of tests was imported"
    assert reach.of(file, 10) == ["a.py::quick", "b.py::other"], "the innermost function counts"
    uses = ["a.py::quick", "b.py::other", "a.py::slow"]
    assert reach.of(file, 1) == [*uses, "b.py::table"], "of the module: the users of its functions, then the others"
    assert Reach(seconds, {}).of(file, 1) == ["b.py::table", *uses]
    assert [reach.imports_run(file, line) for line in (1, 6, 10, 11)] == [True, False, False, True]
    assert Reach(seconds, {}).of(file, 6) == []


def test_what_only_the_type_checker_reads_is_not_changed() -> None:
    source = """__all__ = ["one"]
T = TypeVar("T")
if TYPE_CHECKING:
    LIMIT = 5
def one(count: Literal[3]) -> Literal[3]:
    count = 3
"""
    assert {line for line, _ in changes(source)} == {6}


def test_a_loop_ends_after_its_first_element() -> None:
    source = "for one in every:\n    if one:\n        continue\nfound = {two for two in every if two}\n"
    found = [(number, line) for number, (line, what) in enumerate(changes(source)) if what == "only the first of every"]
    assert [line for _, line in found] == [1, 4]
    seen: dict[str, Any] = {"every": [1, 2]}
    exec(mutant(source, found[0][0]).source, seen)
    assert (seen["one"], seen["found"]) == (1, {1, 2})
    exec(mutant(source, found[1][0]).source, seen)
    assert (seen["one"], seen["found"]) == (2, {1})


def test_what_makes_no_difference_has_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutants, "EQUIVALENT", tmp_path / "equivalent.txt")
    mutants.EQUIVALENT.write_text("# about\n\na.py :: x = 1 :: 1 to 2\nb.py :: y :: z\n    why\n", "utf-8")
    assert mutants.reasons() == {"a.py :: x = 1 :: 1 to 2": "why", "b.py :: y :: z": "why"}
    mutants.EQUIVALENT.write_text("a.py :: x = 1 :: 1 to 2\n", "utf-8")
    with pytest.raises(ValueError, match=r"no reason: a\.py"):
        mutants.reasons()


def test_what_is_accepted_is_not_noticed_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "EQUIVALENT", tmp_path / "equivalent.txt")
    chosen = mutants.sample("protocol", 4, None)
    told = [f"{chosen[0].name}\n    It is the same.\n", f"{chosen[1].name}\n    Accepted: too dear.\n"]
    mutants.EQUIVALENT.write_text("".join(told), "utf-8")
    assert not mutants.tell("protocol", chosen, {chosen[1].key: False, chosen[2].key: "slow", chosen[3].key: True})
    *survivors, _, score = capsys.readouterr().out.splitlines()
    assert score == "protocol: 1 of 3 noticed (33.3%), 1 accepted, 1 equal, 0 not tried"
    assert len(survivors) == 1
    assert survivors[0].startswith(f"{chosen[2].file}:{chosen[2].line} :: {chosen[2].text}")
    assert survivors[0].endswith(" (the tests pass, and take ten times as long)")


def test_changes_that_are_alike_have_names_of_their_own() -> None:
    for file in TARGETS["planning"].files():
        every = mutants.changes_of(file)
        assert len({change.name for change in every}) == len(every)
    alike = [change for change in mutants.sample("protocol", 1000, None) if change.nth == 2]
    assert alike
    assert all(change.name.endswith(" (the 2.)") for change in alike)


@pytest.mark.slow
def test_the_sample_is_the_same_again() -> None:
    assert mutants.sample("planning", 20, None) == mutants.sample("planning", 20, None)
    assert mutants.sample("planning", 20, None, 2) not in (mutants.sample("planning", 20, None), [])
    assert {change.file for change in mutants.sample("options", 9, ["hints.py"])} == {"options/hints.py"}
    assert all(change.what.startswith("only") for change in mutants.sample("options", 9, None, kind="only the first"))
    assert all(file.is_file() for target in TARGETS.values() for file in [*target.files(), *target.test_files()])


# The test calls the function five times, so a call that sleeps for 0.6 s makes it slow.
TRIAL = """
import ast

from tests.mutants import trial
from tests.mutants.loaded import Loaded
from tests.mutants.targets import PACKAGE
from tests.mutants.trial import outcome

file = PACKAGE / "options" / "hints.py"
source = file.read_text("utf-8")
test = "tests/unit/options/test_hints.py::test_lists_are_short"
print(outcome(file, source, {test: 0.1}))
print(outcome(file, source.replace("if len(strings) > limit", "if len(strings) >= limit"), {test: 0.1}))
trial._SECONDS = 0.5  # the next change never ends
print(outcome(file, source.replace("strings = [", "any(iter(int, 1)); strings = ["), {test: 0.01}))
trial._SECONDS = 5.0
print(outcome(file, source.replace("strings = [", "__import__('time').sleep(0.6); strings = ["), {test: 0.01}))

loaded = Loaded(["tests/unit/options/test_hints.py"])
for before, after in [
    ("if len(strings) > limit", "if len(strings) >= limit"),
    ("if len(strings) > limit", "if limit < len(strings)"),
    ("import difflib", "import difflib, gc"),
    ("strings = [", "__import__('time').sleep(0.6); strings = ["),
]:
    print(loaded.outcome(file, ast.parse(source.replace(before, after)), {test: 0.001}))
"""


@pytest.mark.slow
def test_a_change_is_seen_and_does_not_stay() -> None:
    assert (PACKAGE / "options" / "hints.py").read_text("utf-8").count("if len(strings) > limit") == 1
    # The files that are changed are this checkout's, also where the package that is tested is an installed one.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", TRIAL], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    in_a_process_each, loaded_once = done.stdout.split()[:4], done.stdout.split()[4:]
    assert in_a_process_each == ["False", "True", "True", "slow"], done.stderr
    assert loaded_once == ["True", "False", "None", "slow"], done.stderr
