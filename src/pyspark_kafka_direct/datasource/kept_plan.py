"""The plan of a batch, which Spark 4.1 and later keep for all actions on a DataFrame, and a warning of such actions."""

from __future__ import annotations

import functools
import logging
from typing import Final, NamedTuple

_log = logging.getLogger("pyspark_kafka_direct.datasource")

# Local properties of tasks. The first one is the same for the nested executions of one action, such as those of a
# command that writes; the second one is set as well.
_EXECUTION_IDS: Final = ("spark.sql.execution.root.id", "spark.sql.execution.id")


class KeptPlan(NamedTuple):
    """The identity of a plan that another action would make again if Spark did not keep it."""

    id: str
    selection: str  # what is read, for the warning

    def warn_if_reused(self) -> None:
        """Log a warning in a task of the second action that this worker runs with the plan."""
        from pyspark import TaskContext

        context = TaskContext.get()
        properties = [] if context is None else [context.getLocalProperty(name) for name in _EXECUTION_IDS]
        execution = next((value for value in properties if value is not None), None)
        executions = _executions(self.id)
        # None: an action on `df.rdd`. Tasks of one execution can be many, and retried.
        if execution is None or execution in executions or len(executions) == 2:
            return
        executions.add(execution)
        if len(executions) == 2:
            _log.warning(
                "this action reads %s up to the offsets that were planned for an earlier action on the same DataFrame "
                "or view, because Spark keeps the plan of a Python data source. To read newer records, call load() "
                "again (in foreachBatch: for each batch), or CREATE OR REPLACE TEMPORARY VIEW",
                self.selection,
            )


@functools.lru_cache(maxsize=1000)  # Spark reuses a worker for many plans
def _executions(_plan_id: str) -> set[str]:
    """Return the first two executions in which this process ran tasks of a plan; the caller adds them."""
    return set()
