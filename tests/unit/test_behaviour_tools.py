"""The tools that record and compare behaviour report differences, and each mutant has one change."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.behaviour import differences, imports, option_outcomes, requests
from tests.behaviour.cases import Case
from tests.behaviour.contexts import given_options, spelled_name
from tests.behaviour.removed_tests import RemovedTest, main, removed_tests
from tests.mutants.changes import changes, mutant

if TYPE_CHECKING:
    from pathlib import Path

LINE = {
    "for": ["fetch.min.bytes"],
    "values": [["5"]],
    "context": "plain",
    "spelled": "k n",
    "apis": "batch direct",
    "seen": {"= fetch.fetch_min_bytes=5": "*"},
}


def test_an_option_with_another_outcome_is_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(option_outcomes, "FILE", tmp_path / "options.jsonl")
    monkeypatch.setattr(option_outcomes, "all_cases", lambda: [Case("client.id", "plain", ("x",), "k", "batch")])
    seen = {"= fetch.fetch_min_bytes=5": "batch direct:k", "= as without": "direct:n"}
    option_outcomes.FILE.write_text(json.dumps({**LINE, "seen": seen}) + "\n", "utf-8")
    differences = option_outcomes.compare()
    assert list(differences) == ["fetch.min.bytes (plain) '5' n at direct", "client.id (plain) 'x'"]
    assert "was = as without" in differences["fetch.min.bytes (plain) '5' n at direct"]
    assert differences["client.id (plain) 'x'"] == "not recorded"


def test_an_option_with_the_recorded_outcome_is_no_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(option_outcomes, "FILE", tmp_path / "options.jsonl")
    monkeypatch.setattr(option_outcomes, "all_cases", list)
    option_outcomes.FILE.write_text(json.dumps(LINE) + "\n", "utf-8")
    assert option_outcomes.compare() == {}


def test_other_bytes_are_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requests, "FILE", tmp_path / "requests.json")
    monkeypatch.setattr(requests, "sent_requests", lambda: {"Fetch": {"4": "00", "5": "01"}})
    requests.FILE.write_text('{"Fetch": {"4 5": "00", "6": "00"}}', "utf-8")
    assert list(requests.compare()) == ["Fetch 5", "Fetch 6"]


def test_other_imports_are_differences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(imports, "FILE", tmp_path / "imports.json")
    imports.write({"read": {"ours": ["a", "b"], "others": []}})
    imports.write({"plan": {"ours": ["c"], "others": []}})
    assert imports.compare({"plan": {"ours": ["c"], "others": []}}) == {}
    changed = {"read": {"ours": ["a"], "others": ["kafka"]}}
    assert imports.compare(changed) == {"read, b": "no longer imported", "read, kafka": "not imported before"}


BEFORE = """
@pytest.mark.parametrize("number", [1, 2, 3])
def test_weaker_cases(number): assert number
def test_weaker():
    assert 1
    with pytest.raises(ValueError): assert 2
class TestGroup:
    def test_removed(self): assert 1
def test_moved(): assert 1
def test_same(): assert 1
def helper(): assert 1
"""

AFTER = """
@pytest.mark.parametrize("number", [1, 2])
def test_weaker_cases(number): assert number
def test_weaker(): assert 1 and 2
def test_same(): assert 1 and 2
"""

REMOVED = [
    RemovedTest("tests/unit/test_a.py::test_weaker_cases", "had 1 assertions and 3 cases, and has 1 and 2"),
    RemovedTest("tests/unit/test_a.py::test_weaker", "had 3 assertions and 1 cases, and has 1 and 1"),
    RemovedTest("tests/unit/test_a.py::TestGroup::test_removed", "is removed"),
]


def test_removed_and_weaker_tests_are_listed() -> None:
    after = {"tests/unit/test_a.py": AFTER, "tests/unit/test_b.py": "def test_moved(): ..."}
    assert removed_tests({"tests/unit/test_a.py": BEFORE}, after) == REMOVED
    assert removed_tests({"tests/unit/test_a.py": BEFORE}, {"tests/unit/test_a.py": BEFORE}) == []


def test_a_commit_message_names_a_test_or_its_file() -> None:
    *_, removed = REMOVED
    assert removed.is_named_in("Remove test_removed: test_same notices the bug")
    assert removed.is_named_in("Move all of test_a.py")
    assert not removed.is_named_in("Remove test_removed_things of test_aa.py")


def test_removed_tests_need_a_commit_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def commit(source: str, message: str) -> None:
        (tmp_path / "tests/unit/test_a.py").write_text(source)
        git("add", "-A")
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", message)

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)

    for folder in ("unit", "simulation", "integration"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "conftest.py").write_text("")
    git("init", "-q", "-b", "main")
    commit(BEFORE, "Begin")
    git("checkout", "-q", "-b", "branch")
    monkeypatch.setattr("tests.behaviour.removed_tests._ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["removed_tests"])
    assert (main(), capsys.readouterr().out) == (0, "")
    commit(BEFORE.replace("test_same", "test_other"), "Rename a test")
    assert main() == 1
    assert capsys.readouterr().out == (
        "tests/unit/test_a.py::test_same is removed; no commit message names it or its file\n"
    )
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--amend", "-m", "Rename test_same")
    assert (main(), capsys.readouterr().out) == (0, "tests/unit/test_a.py::test_same is removed\n")


def test_a_difference_is_allowed_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(differences, "ALLOWED", tmp_path / "allowed.txt")
    differences.ALLOWED.write_text("# why\n\noptions: acks (plain) * -- it is a sink option now\n", "utf-8")
    changed = {"acks (plain) '1' k at batch": "", "retries (plain) '1' k at batch": "other"}
    message = differences.report("options", changed)
    assert message.startswith("1 differences")
    assert "retries" in message
    assert "acks" not in message
    assert differences.report("requests", {"acks (plain) 1": ""})
    assert not differences.report("options", dict(list(changed.items())[:1]))
    differences.ALLOWED.write_text("options: acks (plain) *\n", "utf-8")
    with pytest.raises(AssertionError, match="no reason"):
        differences.report("options", changed)


def test_spellings_of_a_name() -> None:
    spellings = [
        spelled_name("fetch.min.bytes", spelling) for spelling in ("n", "k", "N", "K", "_", "k_", "p", "t", "=other")
    ]
    assert spellings[:3] == ["fetch.min.bytes", "kafka.fetch.min.bytes", "FETCH.MIN.BYTES"]
    assert spellings[3:6] == ["KAFKA.FETCH.MIN.BYTES", "fetch_min_bytes", "kafka.fetch_min_bytes"]
    assert spellings[6:] == [" fetch.min.bytes ", "fetch.min.byte", "other"]


def test_the_option_replaces_itself_in_the_context() -> None:
    brokers = {"bootstrap.servers": "b:9092"}
    assert given_options("direct", "plain", "client.id", "n+N", ("a", "b")) == {
        **brokers,
        "client.id": "a",
        "CLIENT.ID": "b",
    }
    assert given_options("direct", "plain", "metadata.broker.list", "n", ("a:1",)) == {"metadata.broker.list": "a:1"}
    assert given_options("batch", "plain", "subscribe") == {"kafka.bootstrap.servers": "b:9092"}


SOURCE = '''"""Text."""
def check(number: int = 3) -> bool:
    """Text."""
    if number < 5 and not number == 2:
        number += 1
    return True
'''


def test_each_mutant_has_one_change() -> None:
    assert sorted(changes(SOURCE)) == [
        (2, "3 to 2"),
        (2, "3 to 4"),
        (4, "2 to 1"),
        (4, "2 to 3"),
        (4, "5 to 4"),
        (4, "5 to 6"),
        (4, "And to Or"),
        (4, "Eq to NotEq"),
        (4, "Lt to GtE"),
        (4, "Lt to LtE"),
        (4, "condition negated: number < 5 and (not number == 2)"),
        (4, "not removed"),
        (5, "1 to 0"),
        (5, "1 to 2"),
        (5, "Add to Sub"),
        (5, "removed: number += 1"),
        (6, "True to False"),
        (6, "removed: return True"),
    ]
    mutants = [mutant(SOURCE, number) for number in range(len(changes(SOURCE)))]
    assert len({each.source for each in mutants}) == len(mutants)
    by_change = {each.what: each.source for each in mutants}
    assert "number <= 5 and (not number == 2)" in by_change["Lt to LtE"]
    assert "not (number < 5 and (not number == 2))" in by_change["condition negated: number < 5 and (not number == 2)"]
    assert "number += 1" not in by_change["removed: number += 1"]
