"""The tests that the documentation names exist."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

import pytest
from tests import documentation
from tests.documentation import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [ROOT / page for page in documentation.PAGES]
EVIDENCE = ROOT / "tests" / "evidence"

_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_TEST_ALONE = re.compile(r"`(test_\w+?)(\.py)?`")  # without its file, or without the file's folder
_ROW = re.compile(r'[Rr]ows?((?: ?"[^"]+",?)+)')


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, function in _TEST.findall(page.read_text("utf-8")):
        assert (ROOT / file).is_file(), file
        if function:
            assert function.startswith("test_")
            assert function in functions(ROOT / file), f"{file}::{function}"


@functools.cache
def all_tests() -> set[str]:
    """Return the names of all tests, and of their files."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    names = {
        name for file in files for name in re.findall(r"^ *def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)
    }
    return names | {file.name for file in files}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_is_named_without_its_file_exists(page: Path) -> None:
    named = {name + suffix for name, suffix in _TEST_ALONE.findall(page.read_text("utf-8"))}
    assert named <= all_tests()


def test_the_page_names_tests() -> None:
    """Guards the expression that finds them."""
    assert len(_TEST_ALONE.findall((EVIDENCE / "acceptance.md").read_text("utf-8"))) > 300
    assert len(_TEST.findall((EVIDENCE / "guarantees-evidence.md").read_text("utf-8"))) > 5
    assert len(_TEST_ALONE.findall((EVIDENCE / "guarantees-evidence.md").read_text("utf-8"))) > 40


def test_every_row_of_numbers_that_is_named_exists() -> None:
    page = (EVIDENCE / "acceptance.md").read_text("utf-8")
    ranges = (ROOT / "tests" / "unit" / "planning" / "test_offset_range_calculator.py").read_text("utf-8")
    names = [name for row in _ROW.findall(page) for name in re.findall(r'"([^"]+)"', row)]
    assert len(names) > 10
    for name in names:
        assert f'"{name.removesuffix(" ...")}' in ranges, name
