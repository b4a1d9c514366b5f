"""Suspends a process of the sink at a named step until it is resumed or killed. The package itself has no such hook.

Python imports a module of this name at the start of every process with its folder in ``PYTHONPATH``. If
``SOAK_BREAKPOINT`` names a folder, the functions below are wrapped when their modules are imported. The soak writes
the step to this folder (``breakpoints.py``), and the first process that reaches it is suspended.
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

VARIABLE = "SOAK_BREAKPOINT"
_MAX_SUSPENSION = 300.0  # seconds; the soak itself has ended by then


class Step(NamedTuple):
    """A point in the work of the sink."""

    places: str  # module:function below the package, separated by spaces
    when: Literal["before", "after"]
    where: Literal["plan", "task", "commit"]  # Spark retries tasks; another failed step fails the query

    def functions(self) -> list[tuple[str, str]]:
        return [(module, function) for module, _, function in (each.partition(":") for each in self.places.split())]


_COMMIT = "datasource.writers:KafkaDataSourceWriter.commit"

STEPS = {
    # At least once.
    "sending": Step("producer.batch_producer:BatchProducer.send", "before", "task"),
    "sent": Step("producer.batch_producer:BatchProducer.flush", "before", "task"),
    "acknowledged": Step("producer.batch_producer:BatchProducer.flush", "after", "task"),
    "written": Step("datasource.write_task:AtLeastOnceWriteTask.write", "after", "task"),
    # Exactly once, before the tasks.
    "before the ticket": Step("producer.sink_state_store:SinkStateStore.append_ticket", "before", "plan"),
    "after the ticket": Step("producer.sink_state_store:SinkStateStore.append_ticket", "after", "plan"),
    # Exactly once, in the tasks.
    "staging": Step("producer.row_writer:RowWriter.write", "before", "task"),
    "staged": Step("producer.row_writer:RowWriter.flush", "after", "task"),
    # Exactly once, in the commit step.
    "sink state read before fencing": Step("producer.sink_state_store:SinkStateStore.read", "after", "commit"),
    "before InitProducerId": Step(
        "producer.transactional_producer:TransactionalProducer.init_transactions", "before", "commit"
    ),
    "after InitProducerId": Step(
        "producer.transactional_producer:TransactionalProducer.init_transactions", "after", "commit"
    ),
    "sink state read": Step("producer.sink_state_store:SinkStateStore.read_decided", "after", "commit"),
    "sending in the transaction": Step(
        "producer.transactional_producer:TransactionalProducer.send", "before", "commit"
    ),
    "before the sink state": Step("producer.sink_state_store:SinkStateStore.encode", "before", "commit"),
    "after the sink state": Step("producer.transactional_producer:TransactionalProducer.flush", "after", "commit"),
    "before EndTxn": Step(
        "client.transaction_coordinator:TransactionCoordinatorClient.end_transaction", "before", "commit"
    ),
    "after EndTxn": Step(
        "client.transaction_coordinator:TransactionCoordinatorClient.end_transaction", "after", "commit"
    ),
    # Both.
    "committing": Step(_COMMIT, "before", "commit"),
    "committed": Step(_COMMIT, "after", "commit"),
}
_PACKAGE = "pyspark_kafka_direct"

_calls: dict[int, int] = {}


class _WrappingFinder(MetaPathFinder):
    """Wraps the functions of the steps when their modules are loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
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
            setattr(owner, name, _wrap(getattr(owner, name), step, when))

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _wrap(function: Callable[..., Any], step: str, when: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        if when == "before":
            _suspend_at(step)
        result = function(*args, **keywords)
        if when == "after":
            _suspend_at(step)
        return result

    return wrapper


def _suspend_at(step: str) -> None:
    """Suspend this process if it is the first one at the armed step."""
    folder = os.environ[VARIABLE]
    try:
        with open(f"{folder}/armed") as file:
            settings = json.load(file)
    except FileNotFoundError:
        return
    number = settings["number"]
    if settings["step"] != step:
        return
    _calls[number] = _calls.get(number, 0) + 1
    if _calls[number] <= settings["skip"]:
        return
    try:
        os.rename(f"{folder}/armed", f"{folder}/taken-{number}")
    except FileNotFoundError:  # another process was faster
        return
    if settings["outlives"]:
        with contextlib.suppress(PermissionError):  # it already leads a group
            os.setsid()  # so that a kill of the group of the driver or of the workers does not reach it
    with open(f"{folder}/reaching-{number}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/reaching-{number}", f"{folder}/reached-{number}")
    end = time.monotonic() + _MAX_SUSPENSION
    while not os.path.exists(f"{folder}/released-{number}"):
        if time.monotonic() > end:
            os._exit(1)
        time.sleep(0.005)


def _run_hidden_module() -> None:
    """Run the module of this name that this one hides, because Python imports only one."""
    for folder in sys.path:
        file = os.path.join(folder, "sitecustomize.py")
        if os.path.exists(file) and not os.path.samefile(file, __file__):
            runpy.run_path(file)
            return


if VARIABLE in os.environ:
    sys.meta_path.insert(0, _WrappingFinder())
    _run_hidden_module()
