"""Each test is in one shard, and the Makefile runs every shard."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.shards.assignment import (
    SHARDS,
    missing_records,
    modules_of_unit_part,
    modules_to_import,
    of_part,
    of_shard,
    shard_of,
)
from tests.shards.durations import ROOT, all_durations, durations_of, read_reports

if TYPE_CHECKING:
    from pathlib import Path

MAKEFILE = ROOT / "Makefile"


def item(file: str, *fixtures: str, mark: str = "", module: Any = None) -> Any:
    """As much of a test as is looked at."""
    return SimpleNamespace(
        path=ROOT / file,
        fixturenames=fixtures,
        module=module,
        get_closest_marker=lambda name: name if name == mark else None,
    )


@pytest.mark.parametrize(
    ("test", "shard"),
    [
        (item("a", "kafka", "make_topic"), "plain"),
        (item("a"), "plain"),
        (item("a", "kafka", "three_brokers"), "cluster"),
        (item("a", "kafka", "spark", "make_spark"), "spark"),
        (item("a", "make_spark"), "spark"),
        (item("integration/direct/a", "make_spark"), "direct"),
        (item("integration/direct/a", "kafka"), "plain"),
        (item("a", "kafka", mark="spark_app"), "apps"),
        (item("a", "kafka", "stoppable_kafka"), "broker"),
        (item("a", "make_spark", mark="spark_app"), "apps"),
        (item("integration/direct/a", "make_spark", mark="soak"), "soak"),
    ],
)
def test_the_shard_of_a_test(test: Any, shard: str) -> None:
    assert shard_of(test) == shard


def test_modules_with_special_sessions_come_last() -> None:
    own_fixture = SimpleNamespace(spark=None)
    special = [item("b", "spark", "make_spark", module=own_fixture), item("c", "make_spark")]
    plain = [item("a", "spark", "make_spark"), item("d", "spark", "make_spark"), item("e", "kafka")]
    first, second = special
    mixed = item("c", "kafka")
    items = [plain[0], first, second, mixed, plain[1], plain[2]]
    assert of_shard(items, None) == [*plain, first, second, mixed]
    other_jvm = item("0", "session", "make_spark")
    assert of_shard([other_jvm, *items], None) == [*plain, first, second, mixed, other_jvm]


def test_each_module_is_in_the_part_with_the_least_work() -> None:
    a, b, again, c, d = items = [item("a"), item("b"), item("b"), item("c"), item("d")]
    durations = {"a": 2.5, "c": 4.0}  # b counts 2 s, and d 1 s
    assert of_part(items, None, durations) == items
    assert [of_part(items, f"{number}/2", durations) for number in (1, 2)] == [[c, d], [a, b, again]]
    assert [of_part(items, f"{number}/3", durations) for number in (1, 2, 3)] == [[c], [a], [b, again, d]]


def test_modules_with_other_jars_are_in_one_part() -> None:
    a, b, c, d = items = [item("a", "session"), item("b", "session"), item("c"), item("d")]
    durations = {"a": 1.0, "b": 1.0, "c": 1.5, "d": 1.2}
    assert [of_part(items, f"{number}/2", durations) for number in (1, 2)] == [[a, b], [c, d]]


RECORDED = {"cluster": ["a", "b"], "spark": ["b", "c"], "unit": ["u"]}


def test_a_shard_imports_its_recorded_modules_and_new_ones() -> None:
    a, b, c, new = files = [ROOT / name for name in ("a", "b", "c", "new")]
    assert modules_to_import(files, "cluster", RECORDED) == {a, b, new}
    assert modules_to_import(files, "spark", RECORDED) == {b, c, new}
    assert modules_to_import(files, "soak", RECORDED) == {a, b, c, new}


def test_tests_that_no_shard_would_import_are_found() -> None:
    recorded = [item("a", "three_brokers"), item("b", "three_brokers"), item("b", "make_spark"), item("a", mark="soak")]
    new = [item("new", "three_brokers"), item("new", "make_spark")]
    assert missing_records(recorded + new, RECORDED) == []
    moved = [item("a", "make_spark"), item("b"), item("c", "three_brokers"), item("c", "make_spark")]
    recorded_too = {"plain": ["d"]}
    assert missing_records(moved, RECORDED | recorded_too) == [("a", "spark"), ("b", "plain"), ("c", "cluster")]


def test_one_shard_imports_all_modules() -> None:
    """It checks the shards of all tests, so it also finds each test without a record."""
    files = set((ROOT / "tests" / "integration").rglob("test_*.py"))
    all_imported = [shard for shard in all_durations() if modules_to_import(files, shard, all_durations()) == files]
    assert "plain" in all_imported
    assert "spark" not in all_imported


def test_durations_are_read_from_the_newest_reports_of_all_parts(tmp_path: Path) -> None:
    in_a_class = "tests.unit.shards.test_assignment.TestSomething"
    for report, tests in (
        ("shard-plain-1-2", [("tests.unit.shards.test_jvm", "1.25"), ("tests.unit.shards.test_jvm", "2")]),
        ("shard-plain-2-2", [(in_a_class, "0.5")]),
        ("shard-direct-1-2", [("tests.unit.shards.test_deleted", "9")]),  # before the shard had one part only
        ("shard-direct", [("tests.unit.shards.test_jvm", "4")]),
    ):
        cases = "".join(f'<testcase classname="{name}" name="test" time="{seconds}" />' for name, seconds in tests)
        tmp_path.joinpath(f"{report}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    os.utime(tmp_path / "shard-direct-1-2.xml", (1, 1))
    assert read_reports(tmp_path) == {
        "plain": {"tests/unit/shards/test_jvm.py": 3.2, "tests/unit/shards/test_assignment.py": 0.5},
        "direct": {"tests/unit/shards/test_jvm.py": 4.0},
    }


def test_unit_parts_are_packed_by_durations() -> None:
    slow, quick, new, other = files = [ROOT / "tests" / f"test_{name}.py" for name in ("slow", "quick", "new", "other")]
    durations = {"tests/test_slow.py": 2.5, "tests/test_quick.py": 0.1}  # the others count 1 s each
    assert modules_of_unit_part(files, "1/2", durations) == {slow}
    assert modules_of_unit_part(files, "2/2", durations) == {quick, new, other}


def test_unit_parts_have_all_modules() -> None:
    unit = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    parts = [modules_of_unit_part(unit, f"{number}/2", durations_of(None)) for number in (1, 2)]
    assert set(unit) == parts[0] | parts[1]
    assert not parts[0] & parts[1]


def test_recorded_modules_exist() -> None:
    for shard in (*SHARDS, None):
        modules = durations_of(shard)
        assert (shard == "soak") == (not modules)
        assert [module for module in modules if not (ROOT / module).exists()] == []
    without_slow = durations_of(None, without_slow=True)
    assert [module for module in without_slow if not (ROOT / module).exists()] == []
    assert (
        without_slow["tests/unit/protocol/test_messages.py"]
        < durations_of(None)["tests/unit/protocol/test_messages.py"]
    )


def test_all_parts_are_checked() -> None:
    text = MAKEFILE.read_text("utf-8")
    assert "UNIT := tests/unit tests/simulation\n" in text
    parts = "unit-1 unit-2 unit-3 unit-4 unit-5 unit-6"
    assert f"@$(ALL_AT_ONCE) lint {parts}\n" in text
    command = "$(PYTEST) -m 'not slow' --junitxml build/tests/shard-check-$*-6.xml --part $*/6 tests/unit"
    assert f"{parts}: unit-%: $(VENV)\n\t{command}\n" in text


def test_each_part_is_tested_with_the_newest_spark() -> None:
    text = MAKEFILE.read_text("utf-8")
    parts = " ".join(f"newest-unit-{number}" for number in (1, 2, 3, 4))
    assert f"@$(SHARDS) $(INTEGRATION) {parts} " in text
    assert f"{parts}: newest-unit-%: $(NEWEST)\n" in text
    command = "$(dir $(NEWEST))bin/python -m pytest --junitxml build/tests/shard-unit-$*-4.xml --part $*/4 $(UNIT)"
    assert f"\t{command}\n" in text


def test_each_part_of_each_shard_is_run() -> None:
    text = MAKEFILE.read_text("utf-8")
    for target in ("test", "integration"):
        recipe = re.search(rf"^{target}: .*\n((?:\t.*\n)+)", text, re.MULTILINE)
        assert recipe is not None
        assert "\t@$(SHARDS) $(INTEGRATION)" in recipe[1]
    variable = re.search(r"^INTEGRATION := ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert variable is not None
    parts: dict[str, list[tuple[int, int]]] = {}
    for shard, part, of in re.findall(r"\bshard-([a-z]+)(?:-(\d)-(\d))?", variable[1]):
        parts.setdefault(shard, []).append((int(part or 1), int(of or 1)))
    assert sorted(parts) == sorted(set(SHARDS) - {"soak"})
    assert "\nsoak-short: shard-soak " in text
    for found in parts.values():
        assert sorted(found) == [(number, len(found)) for number in range(1, len(found) + 1)]
