"""The processes that Spark starts below a driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
_DAEMONS = ("pyspark.daemon", "pyspark_kafka_direct.daemon", "tests.shards.worker_daemon")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def task_workers(root: int) -> list[psutil.Process]:
    """Return the Python workers below a process, which a daemon forks."""
    return [each for each in _below(root) if _runs(each, *_DAEMONS) and _is_forked(each)]


def jvm_of(driver: int) -> psutil.Process:
    """Return the JVM that the driver's Python process has started."""
    return next(each for each in psutil.Process(driver).children() if "java" in each.name())


def planners(root: int) -> list[psutil.Process]:
    """Return the processes that plan batches, one for each source of a streaming query."""
    return [each for each in _below(root) if _runs(each, _PLANNER)]


def executors(root: int) -> list[psutil.Process]:
    """Return the executors of ``local-cluster``."""
    return [each for each in _below(root) if _runs(each, _EXECUTOR)]


def executor_of(process: int) -> psutil.Process | None:
    try:
        return next((each for each in psutil.Process(process).parents() if _runs(each, _EXECUTOR)), None)
    except psutil.NoSuchProcess:
        return None


def kill(processes: list[psutil.Process]) -> int:
    """``kill -9`` the processes; return how many still existed."""
    killed = 0
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        killed += 1
    return killed


def wait_until_ended(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until processes have ended; return the remaining ones.

    ``psutil.wait_procs`` raises if a process has just ended and the system reports a missing file.
    """
    deadline = time.monotonic() + seconds
    while (left := [each for each in processes if _is_running(each)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _below(root: int) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return children


def _runs(process: psutil.Process, *modules: str) -> bool:
    try:
        return not set(modules).isdisjoint(process.cmdline())
    except psutil.Error:
        return False


def _is_forked(process: psutil.Process) -> bool:
    """Return whether it is a worker, which the daemon forked, and not the daemon itself, which the JVM started."""
    try:
        parent = process.parent()
    except psutil.Error:
        return False
    return parent is not None and _runs(parent, *_DAEMONS)
