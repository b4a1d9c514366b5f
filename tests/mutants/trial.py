"""One run of tests in a process of its own, with one module of the package changed.

Whoever calls has imported what is large and not ours (pytest, Arrow, hypothesis), so a fork begins with it. The package
itself is imported after the fork: so a change counts wherever it stands, in a table or a default as in a function.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from tests.mutants.rooms import PACKAGE

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType

    from tests.mutants.reach import Watch

OPTIONS = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
_SECONDS = 5.0  # that every test may need, however quick it is
_IMPORTS = 3.0
_MEMORY = 8 << 30  # bytes; a change may make a list endless


class Quick:
    """The plugin for fewer examples, always the same, and no smaller ones: whether a test fails is all that counts."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.default, max_examples=50, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


class _Chosen:
    """Runs the chosen tests in their order, with limits of their time."""

    def __init__(self, tests: Mapping[str, float]) -> None:
        self._seconds = tests
        self._place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda i: self._place[i.nodeid])
        for item in items:
            let_wait(item, self._seconds[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        limit(self._seconds[item.nodeid])


class _Changed(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str | ast.Module) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, file: Path, source: str | ast.Module) -> None:
        names = file.relative_to(PACKAGE.parent).with_suffix("").parts
        self._name = ".".join(names[:-1] if names[-1] == "__init__" else names)
        self._loader = _Changed(self._name, str(file), source)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._loader.path, loader=self._loader)


def passes(file: Path, source: str | ast.Module, tests: Mapping[str, float]) -> bool:
    """Return whether tests pass with another source in the place of a file.

    Args:
        file: Of the package.
        source: What it has instead, as text or tree.
        tests: Seconds by ids of tests. Who takes far more of the processor's time does not pass; nor does who waits
            for ever.
    """

    def run() -> int:
        limit(_IMPORTS)
        limit_memory()
        sys.meta_path.insert(0, _Finder(file, source))
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        return pytest.main([*OPTIONS, *files], [Quick(), _Chosen(tests)])

    return in_child(run, 60 + 10 * sum(tests.values())) == 0


def observe(arguments: Sequence[str], watch: Watch, answer: Path) -> None:
    """Run tests as they are, and write what was seen to a file.

    Args:
        arguments: The tests.
        watch: Looks on.
        answer: Gets its reach, pickled.

    Raises:
        RuntimeError: The tests fail.
    """
    log = answer.with_suffix(".log")

    def run() -> int:
        failed = pytest.main([*OPTIONS, *arguments], [Quick(), watch])
        if not failed:
            answer.write_bytes(pickle.dumps(watch.reach))
        return failed

    if in_child(run, 3600, log):
        raise RuntimeError(f"the tests fail before anything is changed:\n{log.read_text('utf-8')[-3000:]}")


def limit(seconds: float) -> None:
    """Let the process be killed when it needs five times so much of the processor's time from now on."""
    most = time.process_time() + _SECONDS + 5 * seconds
    resource.setrlimit(resource.RLIMIT_CPU, (int(most) + 1, resource.RLIM_INFINITY))


def let_wait(item: pytest.Item, seconds: float) -> None:
    """Let a test fail that takes far more than so many seconds, on a busy machine."""
    item.add_marker(pytest.mark.timeout(20 + 20 * seconds))


def limit_memory() -> None:
    """Let the process have no more memory than tests need."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def in_child(run: Callable[[], int], patience: float, log: Path = Path(os.devnull)) -> int:
    """Return the status, as ``waitpid`` does, of a function in a process of its own.

    Args:
        run: The function; what it has started is ended with it.
        patience: Seconds after which it is killed.
        log: Gets what it prints.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            status = int(run())
        finally:
            os._exit(status)
    descriptor = os.pidfd_open(child)
    try:
        select.select([descriptor], [], [], patience)
    finally:
        os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
