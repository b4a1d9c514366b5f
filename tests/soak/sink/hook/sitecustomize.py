"""Holds a process of the sink at a named step, until it is let go or killed. The product knows nothing of it.

Python imports a module of this name at the start of every process that has its folder on ``PYTHONPATH``. Where
``SOAK_HOLD`` names a folder, the functions below are wrapped when their modules are imported. The soak writes into that
folder at which step to hold (``hold.py``); of all processes that come there the first one stays.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "SOAK_HOLD"
_LONGEST = 300.0  # seconds; then the soak itself is gone, or forgot


class Step(NamedTuple):
    """A moment in the work of the sink.

    Attributes:
        place: The module, below the package, and the function in it; or several.
        when: Before or after the function.
        where: In a task, which Spark runs again, or in the commit step, without which the query fails.
    """

    place: str
    when: Literal["before", "after"]
    where: Literal["task", "commit"]

    def functions(self) -> list[tuple[str, str]]:
        """Return modules and functions."""
        return [(module, function) for module, _, function in (each.partition(":") for each in self.place.split())]


_COMMIT = "structured.sink:KafkaStreamWriter.commit structured.sink:ExactlyOnceStreamWriter.commit"

STEPS = {
    # At least once.
    "sending": Step("writing.producer:Producer.send", "before", "task"),
    "sent": Step("writing.producer:Producer.flush", "before", "task"),
    "acknowledged": Step("writing.producer:Producer.flush", "after", "task"),
    "written": Step("structured._write_task:AtLeastOnceTask.write", "after", "task"),
    # Exactly once, in the tasks.
    "staging": Step("writing.rows:RowWriter.write", "before", "task"),
    "staged": Step("writing.rows:RowWriter.flush", "after", "task"),
    # Exactly once, in the commit step.
    "before InitProducerId": Step("writing.session:TransactionalSession.init", "before", "commit"),
    "after InitProducerId": Step("writing.session:TransactionalSession.init", "after", "commit"),
    "marker read": Step("writing.markers:MarkerStore.find", "after", "commit"),
    "sending in the transaction": Step("writing.session:TransactionalSession.send", "before", "commit"),
    "before the marker": Step("writing.markers:MarkerStore.encode", "before", "commit"),
    "after the marker": Step("writing.session:TransactionalSession.flush", "after", "commit"),
    "before EndTxn": Step("wire.transactions:Transactions.end", "before", "commit"),
    "after EndTxn": Step("wire.transactions:Transactions.end", "after", "commit"),
    # Both.
    "committing": Step(_COMMIT, "before", "commit"),
    "committed": Step(_COMMIT, "after", "commit"),
}
_PACKAGE = "pyspark_kafka_direct"

_calls: dict[int, int] = {}


class _Wrapping(MetaPathFinder):
    """Finds the modules of the steps as they are found otherwise, and wraps functions once they are loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the steps; any other is not ours."""
        functions = [
            (function, step, each.when)
            for step, each in STEPS.items()
            for module, function in each.functions()
            if f"{_PACKAGE}.{module}" == name
        ]
        if not functions:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                _wrap_when_loaded(spec.loader, functions)
                return spec
        return None


def _wrap_when_loaded(loader: Loader, functions: Sequence[tuple[str, str, str]]) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        for function, step, when in functions:
            *classes, name = function.split(".")
            owner = functools.reduce(getattr, classes, module)
            setattr(owner, name, _wrapped(getattr(owner, name), step, when))

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _wrapped(function: Callable[..., Any], step: str, when: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **named: Any) -> Any:
        if when == "before":
            _stay(step)
        result = function(*args, **named)
        if when == "after":
            _stay(step)
        return result

    return wrapped


def _stay(step: str) -> None:
    """Wait here, if this step is the one, and nobody was here before."""
    folder = os.environ[VARIABLE]
    try:
        with open(f"{folder}/armed") as file:
            told = json.load(file)
    except FileNotFoundError:
        return
    number = told["number"]
    if told["step"] != step:
        return
    _calls[number] = _calls.get(number, 0) + 1
    if _calls[number] <= told["skip"]:
        return
    try:
        os.rename(f"{folder}/armed", f"{folder}/taken-{number}")
    except FileNotFoundError:  # another process was quicker
        return
    if told["outlives"]:
        with contextlib.suppress(PermissionError):  # it leads a group already
            os.setsid()  # so that what kills the group of the driver, or of the workers, does not kill it
    with open(f"{folder}/reaching-{number}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/reaching-{number}", f"{folder}/reached-{number}")
    until = time.monotonic() + _LONGEST
    while not os.path.exists(f"{folder}/released-{number}"):
        if time.monotonic() > until:
            os._exit(1)
        time.sleep(0.005)


def _run_the_next_one() -> None:
    """Python imports one module of this name only; run the one that this one hides, if there is one."""
    for place in sys.path:
        file = os.path.join(place, "sitecustomize.py")
        if os.path.exists(file) and not os.path.samefile(file, __file__):
            runpy.run_path(file)
            return


if VARIABLE in os.environ:
    sys.meta_path.insert(0, _Wrapping())
    _run_the_next_one()
