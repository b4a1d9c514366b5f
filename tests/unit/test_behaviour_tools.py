"""What records and compares behaviour: it notices differences, and changes to code are real changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.behaviour import imports, inventory, requests, settings, store
from tests.behaviour.cases import Case
from tests.behaviour.contexts import given, written
from tests.mutants.changes import changes, mutant

if TYPE_CHECKING:
    from pathlib import Path

LINE = {
    "for": ["fetch.min.bytes"],
    "values": [["5"]],
    "context": "plain",
    "spelled": "k n",
    "doors": "batch direct",
    "seen": {
        "= ConnectionSettings.fetch_min_bytes=5": "batch",
        "= KafkaParameters.settings.fetch_min_bytes=5": "direct",
    },
}


def test_a_setting_that_behaves_otherwise_is_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "FILE", tmp_path / "settings.jsonl")
    monkeypatch.setattr(settings, "all_cases", lambda: [Case("client.id", "plain", ("x",), "k", "batch")])
    seen = {
        "= ConnectionSettings.fetch_min_bytes=5": "batch",
        "= KafkaParameters.settings.fetch_min_bytes=5": "direct:k",
        "= as without": "direct:n",
    }
    settings.FILE.write_text(json.dumps({**LINE, "seen": seen}) + "\n", "utf-8")
    differences = settings.compare()
    assert list(differences) == ["fetch.min.bytes (plain) '5' n at direct", "client.id (plain) 'x'"]
    assert "was = as without" in differences["fetch.min.bytes (plain) '5' n at direct"]
    assert differences["client.id (plain) 'x'"] == "not recorded"


def test_a_setting_as_recorded_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "FILE", tmp_path / "settings.jsonl")
    monkeypatch.setattr(settings, "all_cases", list)
    settings.FILE.write_text(json.dumps(LINE) + "\n", "utf-8")
    assert settings.compare() == {}


def test_other_bytes_are_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requests, "FILE", tmp_path / "requests.json")
    monkeypatch.setattr(requests, "record", lambda: {"Fetch": {"4": "00", "5": "01"}})
    requests.FILE.write_text('{"Fetch": {"4 5": "00", "6": "00"}}', "utf-8")
    assert list(requests.compare()) == ["Fetch 5", "Fetch 6"]


def test_other_imports_are_differences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(imports, "FILE", tmp_path / "imports.json")
    imports.write({"read": {"ours": ["a", "b"], "others": []}})
    imports.write({"plan": {"ours": ["c"], "others": []}})
    assert imports.compare({"plan": {"ours": ["c"], "others": []}}) == {}
    found = {"read": {"ours": ["a"], "others": ["kafka"]}}
    assert imports.compare(found) == {"read, b": "no longer imported", "read, kafka": "not imported before"}


def test_tests_that_are_gone_or_weaker_are_differences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inventory, "FILE", tmp_path / "tests.json")
    monkeypatch.setattr(inventory, "assertions", lambda: {"tests/unit/a.py": {"same": 2, "weaker": 1, "new": 0}})
    record = {"tests/unit/a.py": {"same": [2, "x", "y"], "weaker": [2], "gone": [1, "z"]}}
    inventory.FILE.write_text(json.dumps(record), "utf-8")
    assert inventory.compare_functions() == {
        "tests/unit/a.py::weaker": "had 2 assertions, has 1",
        "tests/unit/a.py::gone": "is gone",
    }
    collected = ["tests/unit/a.py::same[x]", "tests/unit/a.py::same[new]", "tests/unit/a.py::weaker"]
    assert list(inventory.compare_ids(collected, "tests/unit")) == ["tests/unit/a.py::same[y]"]
    assert inventory.compare_ids(collected, "tests/integration") == {}


def test_a_difference_is_allowed_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "ALLOWED", tmp_path / "allowed.txt")
    store.ALLOWED.write_text("# why\n\nsettings: acks (plain) * -- it is a setting for the sink now\n", "utf-8")
    found = {"acks (plain) '1' k at batch": "", "retries (plain) '1' k at batch": "other"}
    said = store.complaint("settings", found)
    assert said.startswith("1 differences")
    assert "retries" in said
    assert "acks" not in said
    assert store.complaint("requests", {"acks (plain) 1": ""})
    assert not store.complaint("settings", dict(list(found.items())[:1]))
    store.ALLOWED.write_text("settings: acks (plain) *\n", "utf-8")
    with pytest.raises(AssertionError, match="no reason"):
        store.complaint("settings", found)


def test_how_a_setting_is_written() -> None:
    ways = [written("fetch.min.bytes", way) for way in ("n", "k", "N", "K", "_", "k_", "p", "t", "=other")]
    assert ways[:3] == ["fetch.min.bytes", "kafka.fetch.min.bytes", "FETCH.MIN.BYTES"]
    assert ways[3:6] == ["KAFKA.FETCH.MIN.BYTES", "fetch_min_bytes", "kafka.fetch_min_bytes"]
    assert ways[6:] == [" fetch.min.bytes ", "fetch.min.byte", "other"]


def test_the_context_makes_room_for_the_setting() -> None:
    brokers = {"bootstrap.servers": "b:9092"}
    assert given("direct", "plain", "client.id", "n+N", ("a", "b")) == {**brokers, "client.id": "a", "CLIENT.ID": "b"}
    assert given("direct", "plain", "metadata.broker.list", "n", ("a:1",)) == {"metadata.broker.list": "a:1"}
    assert given("batch", "plain", "subscribe") == {"kafka.bootstrap.servers": "b:9092"}


SOURCE = '''"""Text."""
def check(number: int = 3) -> bool:
    """Text."""
    if number < 5 and not number == 2:
        number += 1
    return True
'''


def test_each_change_changes_one_thing() -> None:
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
    made = [mutant(SOURCE, number) for number in range(len(changes(SOURCE)))]
    assert len({each.source for each in made}) == len(made)
    by_name = {each.what: each.source for each in made}
    assert "number <= 5 and (not number == 2)" in by_name["Lt to LtE"]
    assert "not (number < 5 and (not number == 2))" in by_name["condition negated: number < 5 and (not number == 2)"]
    assert "number += 1" not in by_name["removed: number += 1"]
