"""How many tasks an application can run at the same time, as far as its settings tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_ONE_CORE_EACH = ("yarn", "k8s://")  # where executors have one core by default, and there are two of them


def most_tasks(master: str, conf: Callable[[str], str | None], processors: int) -> int | None:
    """Return how many tasks can ever run at the same time; ``None`` where that is not known.

    Args:
        master: ``spark.master``.
        conf: Returns what the application was started with: a setting by its name.
        processors: How many processors this machine has.
    """
    for_each = max(_number(conf("spark.task.cpus")) or 1, 1)
    if (local := _LOCAL.fullmatch(master)) is not None:
        cores = processors if local[1] == "*" else int(local[1] or 1)
        return cores // for_each
    if (cluster := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        return int(cluster[1]) * (int(cluster[2]) // for_each)
    if (most := _number(conf("spark.cores.max"))) is not None and master.startswith("spark://"):
        return most // for_each
    if not master.startswith(_ONE_CORE_EACH):
        return None
    cores = _number(conf("spark.executor.cores")) or 1
    if (conf("spark.dynamicAllocation.enabled") or "").lower() == "true":
        executors = _number(conf("spark.dynamicAllocation.maxExecutors"))
    else:
        executors = _number(conf("spark.executor.instances")) or 2
    return None if executors is None else executors * (cores // for_each)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text.strip()) else None
