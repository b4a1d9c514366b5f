"""The record of tests: their ids, and the number of assertions in each test function.

``data/tests.json`` has, for each file and function, the number of assertions and then the ids of its parameters. An
assertion is an ``assert``, ``pytest.raises`` or ``pytest.warns`` in the function itself. Additional tests, ids and
assertions are not differences.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.behaviour.differences import DATA, Differences, report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import pytest

FILE = DATA / "tests.json"

_ROOT = Path(__file__).parents[2]
UNIT = ("tests/unit", "tests/simulation")
"""The folders of unit tests."""

_FOLDERS = ("tests/unit", "tests/simulation", "tests/integration")
_TIMEOUT_S = 600
_ASSERTING_CALLS = ("raises", "warns")

AssertionCounts = dict[str, dict[str, int]]
"""By file and function."""


def write() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *_FOLDERS]
    completed = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    parameters: dict[str, dict[str, list[str]]] = {}
    for node_id in completed.stdout.splitlines():
        if "::" in node_id:
            file, function, parameter = _split(node_id)
            ids = parameters.setdefault(file, {}).setdefault(function, [])
            ids += [parameter] if parameter else []
    counts = assertion_counts()
    record: dict[str, dict[str, list[int | str]]] = {
        file: {function: [counts[file][function], *sorted(ids)] for function, ids in functions.items()}
        for file, functions in parameters.items()
    }
    lines = [f"{json.dumps(file)}: {_json_lines(functions)}" for file, functions in record.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def compare_functions() -> Differences:
    """Test functions that are missing or have fewer assertions."""
    counts = assertion_counts()
    differences: Differences = {}
    for file, functions in _recorded().items():
        for function, (recorded_count, *_) in functions.items():
            count = counts.get(file, {}).get(function)
            if count is None:
                differences[f"{file}::{function}"] = "is missing"
            elif count < int(recorded_count):
                differences[f"{file}::{function}"] = f"had {recorded_count} assertions, has {count}"
    return differences


def compare_ids(collected: Iterable[str], folder: str) -> Differences:
    """Test ids below a folder that were not collected; ``compare_functions`` reports missing functions."""
    present = set(collected)
    present_functions = {node_id.partition("[")[0] for node_id in present}
    return {
        node_id: "is missing"
        for file, functions in _recorded().items()
        for function, (_, *parameters) in functions.items()
        for node_id in (f"{file}::{function}[{parameter}]" for parameter in parameters)
        if file.startswith(f"{folder}/") and f"{file}::{function}" in present_functions and node_id not in present
    }


def report_missing_ids(collected: Collection[str]) -> str:
    """Return the message about ids of unit tests that were not collected, or an empty string.

    Only functions that were collected are compared, so ``collected`` may be the ids of some modules.
    """
    return "\n".join(filter(None, (report("tests", compare_ids(collected, folder)) for folder in UNIT)))


def is_full_run(config: pytest.Config, folder: str) -> bool:
    """Whether pytest runs all tests below a folder."""
    narrowed = [
        config.getoption(name, None) for name in ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob")
    ]
    roots = [config.invocation_params.dir / argument for argument in config.args if "::" not in argument]
    return not any(narrowed) and any((_ROOT / folder).is_relative_to(root.resolve()) for root in roots)


def assertion_counts() -> AssertionCounts:
    return {
        path.relative_to(_ROOT).as_posix(): dict(_counts_below(ast.parse(path.read_text("utf-8")), ""))
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("test_*.py"))
    }


def _counts_below(tree: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _counts_below(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, _assertion_count(node)


def _assertion_count(function: ast.AST) -> int:
    count, to_visit = 0, [function]
    while to_visit:
        node = to_visit.pop()
        match node:
            case ast.Assert():
                count += 1
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr=attr)) if attr in _ASSERTING_CALLS:
                count += 1
        to_visit += ast.iter_child_nodes(node)
    return count


def _recorded() -> dict[str, dict[str, list[int | str]]]:
    recorded: dict[str, dict[str, list[int | str]]] = json.loads(FILE.read_text("utf-8"))
    return recorded


def _split(node_id: str) -> tuple[str, str, str]:
    name, _, parameter = node_id.partition("[")
    file, _, function = name.partition("::")
    return file, function, parameter.removesuffix("]")


def _json_lines(functions: dict[str, list[int | str]]) -> str:
    lines = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in functions.items()]
    return "{\n" + ",\n".join(lines) + "\n}"
