"""The tests that a branch removes or weakens, in comparison with its merge base with ``main``.

    python -m tests.behaviour.removed_tests
    python -m tests.behaviour.removed_tests --base REVISION

A message of a commit since then has to name each removed test, or its file, and say what still notices the bug that it
was for; otherwise the command fails. A test that moved to another file is not removed.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("tests/unit", "tests/simulation", "tests/integration")
_ASSERTING_CALLS: Final = ("raises", "warns")


class Strength(NamedTuple):
    assertions: int  # each ``assert``, ``pytest.raises`` and ``pytest.warns`` in the function itself
    cases: int  # of its literal parameters


class RemovedTest(NamedTuple):
    name: str  # as pytest shows it, without parameters
    what: str

    def is_named_in(self, text: str) -> bool:
        file, _, function = self.name.partition("::")
        names = (Path(file).name, function.rpartition("::")[2])
        return any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description="List the tests that a branch removes or weakens.")
    parser.add_argument("--base", help="a revision; by default the merge base with main")
    base = parser.parse_args().base or _git("merge-base", "HEAD", "main").decode().strip()
    messages = _git("log", "--format=%B", f"{base}..HEAD").decode()
    unexplained = 0
    for removed in removed_tests(_sources_at(base), _sources()):
        is_explained = removed.is_named_in(messages)
        unexplained += not is_explained
        print(f"{removed.name} {removed.what}{'' if is_explained else '; no commit message names it or its file'}")
    return 1 if unexplained else 0


def removed_tests(before: Mapping[str, str], after: Mapping[str, str]) -> list[RemovedTest]:
    """Compare the sources of tests, by their paths."""
    old, new = _strengths(before), _strengths(after)
    moved = {function for file in new for function in new[file].keys() - old.get(file, {}).keys()}
    removed = []
    for file, functions in old.items():
        for function, strength in functions.items():
            found = new.get(file, {}).get(function)
            if found is None and function not in moved:
                removed.append(RemovedTest(f"{file}::{function}", "is removed"))
            elif found is not None and (found.assertions < strength.assertions or found.cases < strength.cases):
                what = (
                    f"had {strength.assertions} assertions and {strength.cases} cases, and has {found.assertions} and "
                    f"{found.cases}"
                )
                removed.append(RemovedTest(f"{file}::{function}", what))
    return removed


def _strengths(sources: Mapping[str, str]) -> dict[str, dict[str, Strength]]:
    return {file: dict(_strengths_below(ast.parse(source), "")) for file, source in sources.items()}


def _strengths_below(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Strength]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _strengths_below(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assertions = sum(_is_assertion(each) for each in ast.walk(node))
            yield prefix + node.name, Strength(assertions, math.prod(map(_case_count, node.decorator_list)))


def _is_assertion(node: ast.AST) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr=attr)):
            return attr in _ASSERTING_CALLS
    return False


def _case_count(decorator: ast.expr) -> int:
    match decorator:
        case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, ast.List(elts) | ast.Tuple(elts), *_]):
            return len(elts)
    return 1


def _sources() -> dict[str, str]:
    files = (file for folder in _FOLDERS for file in sorted((_ROOT / folder).rglob("test_*.py")))
    return {file.relative_to(_ROOT).as_posix(): file.read_text("utf-8") for file in files}


def _sources_at(revision: str) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(_git("archive", revision, *_FOLDERS))) as archive:
        return {
            member.name: content.read().decode()
            for member in archive
            if Path(member.name).match("test_*.py") and (content := archive.extractfile(member)) is not None
        }


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=_ROOT, stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
