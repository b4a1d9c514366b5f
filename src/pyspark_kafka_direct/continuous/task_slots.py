"""The number of tasks that an application can run concurrently, derived from its configuration."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_MIN_TASK_CPUS = Decimal("1e-9")  # as in Spark
_ONE_CORE_EXECUTORS = ("yarn", "k8s://")  # masters whose default is two executors with one core each


def max_concurrent_tasks(master: str, conf: Callable[[str], str | None], processors: int) -> int | None:
    """Return the maximum number of concurrent tasks, or ``None`` if it is unknown."""
    cpus_per_task = _parse_cpus(conf("spark.task.cpus"))
    if (local_match := _LOCAL.fullmatch(master)) is not None:
        cores = processors if local_match[1] == "*" else int(local_match[1] or 1)
        return int(cores // cpus_per_task)
    if (cluster_match := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        return int(cluster_match[1]) * int(int(cluster_match[2]) // cpus_per_task)
    if (max_cores := _parse_count(conf("spark.cores.max"))) is not None and master.startswith("spark://"):
        return int(max_cores // cpus_per_task)
    if not master.startswith(_ONE_CORE_EXECUTORS):
        return None  # for example a standalone cluster without a limit: the number of its cores is not known here
    cores = _parse_count(conf("spark.executor.cores")) or 1
    if (conf("spark.dynamicAllocation.enabled") or "").lower() == "true":
        executors = _parse_count(conf("spark.dynamicAllocation.maxExecutors"))  # None: no limit
    else:
        executors = _parse_count(conf("spark.executor.instances")) or 2
    return None if executors is None else executors * int(cores // cpus_per_task)


def _parse_cpus(text: str | None) -> Decimal:
    """Return the CPUs of a task, which may be a fraction since Spark 4.3; 1 if the value is not valid."""
    try:
        cpus = Decimal(text or "1")  # exact, because 1.0 // 0.1 is 9
    except InvalidOperation:
        return Decimal(1)
    return cpus if cpus.is_finite() and cpus >= _MIN_TASK_CPUS else Decimal(1)


def _parse_count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text.strip()) else None
