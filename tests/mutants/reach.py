"""Records which tests run which functions: a pytest plugin for one run, whose result selects the tests to run."""

from __future__ import annotations

import ast
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import FrameType


class Reach(NamedTuple):
    """The time of each test, and the functions that it runs.

    Attributes:
        seconds: Elapsed time by test id.
        tests: Tests by file and first line of a function; line 0 stands for the module itself. A test is an id, or a
            test file that runs the function while it is imported.
    """

    seconds: dict[str, float]
    tests: dict[tuple[str, int], set[str]]

    def of(self, file: Path, line: int) -> list[str]:
        """Return the tests that may detect a change of a line, the fastest ones first.

        For lines of the module itself these are all tests, first those that run functions of the module.
        """
        place = _function_at(file, line)
        found = self.tests.get((str(file), place), set())
        if place == 0:
            found = {test for (path, _), tests in self.tests.items() if path == str(file) for test in tests}
        quick = sorted(self.seconds, key=lambda test: self.seconds[test])
        chosen = dict.fromkeys(test for test in quick if test in found or test.split("::")[0] in found)
        return list(chosen | dict.fromkeys(quick) if place == 0 else chosen)

    def imports_run(self, file: Path, line: int) -> bool:
        """Return whether a line also runs while files are imported, not only in tests."""
        place = _function_at(file, line)
        return place == 0 or any("::" not in name for name in self.tests.get((str(file), place), set()))


class Watch:
    """The pytest plugin.

    Args:
        files: The files whose functions are observed.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {str(file) for file in files}
        self._current: str | None = None
        self.reach = Reach({}, defaultdict(set))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Record what a test file runs when it is imported."""
        with _Traced(self, collector.nodeid.split("::")[0]):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record what a test runs."""
        started = time.monotonic()
        with _Traced(self, item.nodeid):
            yield
        self.reach.seconds[item.nodeid] = time.monotonic() - started

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call; this is a trace function for ``sys.settrace``."""
        code = frame.f_code
        if self._current is not None and code.co_filename in self._files:
            line = 0 if code.co_name == "<module>" else code.co_firstlineno
            self.reach.tests[code.co_filename, line].add(self._current)


class _Traced:
    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    def __enter__(self) -> None:
        self._before = self._watch._current
        self._watch._current = self._name
        threading.settrace(self._watch.note)  # for threads that the test starts
        sys.settrace(self._watch.note)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)
        self._watch._current = self._before


def _function_at(file: Path, line: int) -> int:
    """Return the first line (``co_firstlineno``) of the innermost function around a line; 0 if there is none."""
    place = 0
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or line):
            place = max(place, min([node.lineno, *(each.lineno for each in node.decorator_list)]))
    return place
