"""Loads the tests of a target once. A change inside functions is tried in a fork of that process.

The fork replaces the code of the existing function objects and runs tests. Values that were computed while the package
was imported, such as tables, stay unchanged: a change of these needs ``trial.outcome``.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import pytest
from tests.mutants.trial import OPTIONS, Chosen, Outcome, Quick, in_child, limit_memory, most_seconds, outcome_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

_NOT_HERE = 77  # exit code if the code cannot be replaced in place


class Loaded:
    """A process that has loaded the tests and waits for changes.

    Args:
        arguments: The tests, as arguments of pytest.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        fork = multiprocessing.get_context("fork")
        self._pipe, theirs = fork.Pipe()
        fork.Process(target=_serve, args=(self._pipe, theirs, arguments), daemon=True).start()
        theirs.close()

    def outcome(self, file: Path, tree: ast.Module, tests: Mapping[str, float]) -> Outcome | None:
        """Return whether tests fail with another tree instead of a file, as ``trial.outcome`` does.

        Returns ``None`` if the file has to be imported again for the change to take effect.
        """
        self._pipe.send((str(file), tree, dict(tests)))
        status: int = self._pipe.recv()
        return None if os.waitstatus_to_exitcode(status) == _NOT_HERE else outcome_of(status)


def replace(file: str, tree: ast.Module) -> bool:
    """Replace the code of a file's existing functions with that of another tree; return whether any code changed.

    Raises:
        ValueError: A function has other free variables than before.
    """
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, file, "exec"))}
    changed = False
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == file:
            code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None and code != function.__code__:
                function.__code__ = code
                changed = True
    return changed


def _serve(ours: Connection, theirs: Connection, arguments: Sequence[str]) -> None:
    ours.close()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    pytest.main([*OPTIONS, *arguments], [Quick(), _Server(theirs)])


class _Server:
    """A pytest plugin that runs only the requested tests, in forks."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()  # otherwise a collection in a fork copies all memory pages
        while True:
            try:
                file, tree, tests = self._pipe.recv()
            except EOFError:
                return True

            def run(file: str = file, tree: ast.Module = tree, tests: dict[str, float] = tests) -> int:
                return _run(session, file, tree, [items[test] for test in tests], Chosen(tests))

            self._pipe.send(in_child(run, most_seconds(tests)))


def _run(session: pytest.Session, file: str, tree: ast.Module, items: list[pytest.Item], chosen: Chosen) -> int:
    gc.unfreeze()
    limit_memory()
    try:
        if not replace(file, tree):
            return _NOT_HERE
    except ValueError:
        return _NOT_HERE
    session.config.pluginmanager.register(chosen)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return chosen.status(0)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
