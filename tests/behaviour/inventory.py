"""The record of tests: their ids, and how many assertions each test function has.

``data/tests.json`` has for each file and function the number of assertions, then the ids of its parameters. An
assertion is an ``assert``, or a ``pytest.raises`` or ``pytest.warns``, in the function itself. More of anything is
never a difference.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.behaviour.store import DATA, Differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

FILE = DATA / "tests.json"

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests/unit", "tests/integration")
_SECONDS = 600
_RAISES = ("raises", "warns")

Counts = dict[str, dict[str, int]]
"""Assertions by file and function."""


def write() -> None:
    """Make the record; imports every test."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *_FOLDERS]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    parameters: dict[str, dict[str, list[str]]] = {}
    for node in done.stdout.splitlines():
        if "::" in node:
            file, function, parameter = _split(node)
            ids = parameters.setdefault(file, {}).setdefault(function, [])
            ids += [parameter] if parameter else []
    counts = assertions()
    record: dict[str, dict[str, list[int | str]]] = {
        file: {function: [counts[file][function], *sorted(ids)] for function, ids in functions.items()}
        for file, functions in parameters.items()
    }
    lines = [f"{json.dumps(file)}: {_lines(functions)}" for file, functions in record.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def compare_functions() -> Differences:
    """Test functions that are gone or have fewer assertions."""
    now = assertions()
    differences: Differences = {}
    for file, functions in _recorded().items():
        for function, (before, *_) in functions.items():
            count = now.get(file, {}).get(function)
            if count is None:
                differences[f"{file}::{function}"] = "is gone"
            elif count < int(before):
                differences[f"{file}::{function}"] = f"had {before} assertions, has {count}"
    return differences


def compare_ids(collected: Iterable[str], folder: str) -> Differences:
    """Ids below a folder that were not collected; for functions that are gone ``compare_functions`` speaks.

    Args:
        collected: All ids of a run of the whole folder.
        folder: ``tests/unit`` for instance.
    """
    present = set(collected)
    functions = {node.partition("[")[0] for node in present}
    return {
        node: "is gone"
        for file, functions_there in _recorded().items()
        for function, (_, *parameters) in functions_there.items()
        for node in (f"{file}::{function}[{parameter}]" for parameter in parameters)
        if file.startswith(f"{folder}/") and f"{file}::{function}" in functions and node not in present
    }


def is_whole_run(config: pytest.Config, folder: str) -> bool:
    """Whether pytest was told to run all tests below a folder."""
    narrowed = [
        config.getoption(name, None) for name in ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob")
    ]
    roots = [config.invocation_params.dir / argument for argument in config.args if "::" not in argument]
    return not any(narrowed) and any((_ROOT / folder).is_relative_to(root.resolve()) for root in roots)


def assertions() -> Counts:
    """Of all test functions there are, as the source has them."""
    return {
        path.relative_to(_ROOT).as_posix(): dict(_counts(ast.parse(path.read_text("utf-8")), ""))
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("*.py"))
    }


def _counts(tree: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _counts(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, sum(map(_is_assertion, ast.walk(node)))


def _is_assertion(node: ast.AST) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr=attr)):
            return attr in _RAISES
    return False


def _recorded() -> dict[str, dict[str, list[int | str]]]:
    recorded: dict[str, dict[str, list[int | str]]] = json.loads(FILE.read_text("utf-8"))
    return recorded


def _split(node: str) -> tuple[str, str, str]:
    name, _, parameter = node.partition("[")
    file, _, function = name.partition("::")
    return file, function, parameter.removesuffix("]")


def _lines(functions: dict[str, list[int | str]]) -> str:
    rows = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in functions.items()]
    return "{\n" + ",\n".join(rows) + "\n}"
