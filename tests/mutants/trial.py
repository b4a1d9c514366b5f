"""Runs tests in a separate process with one module of the package changed.

The caller has imported the large libraries (pytest, Arrow, hypothesis), so a fork need not import them. The package
itself is imported after the fork, so a change takes effect everywhere: in a table or a default as in a function.
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
from typing import TYPE_CHECKING, Any, Literal

import hypothesis
import pytest
from tests.mutants.targets import PACKAGE

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType

    from tests.mutants.reach import Watch

OPTIONS = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
Outcome = bool | Literal["slow"]  # whether a test fails; "slow" if all pass and one takes ten times as long as before
SLOW = 78  # exit code
_SECONDS = 5.0  # allowance for every test
_TIMES = 10
_NOISE = 2.0  # seconds that a passing test may take longer: fixtures of its module, imports, a busy machine
_IMPORTS = 3.0
_MEMORY = 8 << 30  # bytes; a change may cause an endless list


class Quick:
    """A plugin for fewer, fixed hypothesis examples without shrinking, because only the outcome of a test counts."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.default, max_examples=50, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


class Chosen:
    """Runs the selected tests in their order, with time limits.

    Attributes:
        slow: Whether a test took much longer than on the unchanged code.
    """

    def __init__(self, tests: Mapping[str, float]) -> None:
        self._seconds = tests
        self._place = {test: place for place, test in enumerate(tests)}
        self.slow = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda i: self._place[i.nodeid])

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seconds = self._seconds[item.nodeid]
        limit(seconds)
        item.add_marker(pytest.mark.timeout(60 + 2 * _TIMES * seconds))  # much more than what is slow
        started = time.monotonic()
        yield
        self.slow |= time.monotonic() - started > _TIMES * seconds + _NOISE

    def status(self, failed: int) -> int:
        """Return the exit code of the process, from that of pytest."""
        return failed or SLOW * self.slow


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


def outcome(file: Path, source: str | ast.Module, tests: Mapping[str, float]) -> Outcome:
    """Return whether tests fail with another source instead of a file.

    Args:
        file: A file of the package.
        source: The other source, as text or tree.
        tests: Seconds by test id. A test that never ends fails.
    """

    def run() -> int:
        limit(_IMPORTS)
        limit_memory()
        sys.meta_path.insert(0, _Finder(file, source))
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        chosen = Chosen(tests)
        return chosen.status(pytest.main([*OPTIONS, *files], [Quick(), chosen]))

    return outcome_of(in_child(run, most_seconds(tests)))


def outcome_of(status: int) -> Outcome:
    """Return the outcome that a status of ``waitpid`` stands for."""
    return "slow" if os.waitstatus_to_exitcode(status) == SLOW else status != 0


def most_seconds(tests: Mapping[str, float]) -> float:
    """Return after how many seconds the process of some tests is killed."""
    return 120 + 2 * _TIMES * sum(tests.values())


def observe(arguments: Sequence[str], watch: Watch, answer: Path) -> None:
    """Run tests on the unchanged code, and write what they reach to a file.

    Args:
        arguments: The tests.
        watch: The plugin that observes the run.
        answer: The file for the pickled result.

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
    """Limit the CPU time of the process from now on, to more than what is slow."""
    most = time.process_time() + _SECONDS + 2 * _TIMES * seconds
    resource.setrlimit(resource.RLIMIT_CPU, (int(most) + 1, resource.RLIM_INFINITY))


def limit_memory() -> None:
    """Limit the memory of the process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def in_child(run: Callable[[], int], timeout: float, log: Path = Path(os.devnull)) -> int:
    """Run a function in a separate process, and return the status as ``waitpid`` does.

    Args:
        run: The function. Processes that it started are killed when it ends.
        timeout: Seconds after which the process is killed.
        log: The file for its output.
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
        select.select([descriptor], [], [], timeout)
    finally:
        os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
