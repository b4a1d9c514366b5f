"""What a piece of work costs: time by the clock, and processor time of all processes that did it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SNAPSHOT_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run.

    Attributes:
        seconds: By the clock.
        cpu_seconds: Processor time of this process and all below it (Spark's JVM, its Python workers), user and system.
        broker_cpu_seconds: Processor time of the broker meanwhile.
    """

    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float = 0.0


def sample(work: Callable[[], T], broker_pid: int | None = None) -> tuple[T, Sample]:
    """Do the work once and say what it cost."""
    broker = process_cpu_seconds(broker_pid)
    cpu = tree_cpu_seconds()
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    cost = Sample(seconds, tree_cpu_seconds() - cpu, process_cpu_seconds(broker_pid) - broker)
    return result, cost


def tree_cpu_seconds(pid: int | None = None) -> float:
    """Return the processor time of a process (this one by default) and everything below it, the dead included.

    A process that ended and was waited for lives on in its parent's ``children_user`` and ``children_system``, so the
    sum over the living keeps it. One that ends between being listed and being read would be missed: then the whole
    tree is read again.
    """
    root = psutil.Process(pid)
    total = 0.0
    for _ in range(_SNAPSHOT_ATTEMPTS):
        tree = [root, *root.children(recursive=True)]
        try:
            total = float(sum(sum(process.cpu_times()[:4]) for process in tree))
        except psutil.NoSuchProcess:
            continue
        if [root, *root.children(recursive=True)] == tree:
            break
    return total


def process_cpu_seconds(pid: int | None) -> float:
    """Return the processor time of one process, 0 for none."""
    return float(sum(psutil.Process(pid).cpu_times()[:2])) if pid is not None else 0.0
