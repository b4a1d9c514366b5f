"""Refuses what the first form of the checkpoint held."""

from __future__ import annotations

from typing import Any

from pyspark_kafka_direct.errors import OffsetPlanError


class StreamPlanner:
    """Stands where a checkpoint of version 1 looks for its stream.

    That form knew nothing of generations that fail (``_graph.py``): its graph has no marks, and none can be added
    to a graph that comes from a checkpoint.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Refuse a checkpoint of the old form; unpickling it calls this.

        Raises:
            OffsetPlanError: Always.
        """
        raise OffsetPlanError(
            f"the checkpoint holds a direct stream of version {state.get('version')}, from before streams could tell a "
            "batch that Spark failed to generate. Finish with the release that has written it, or start with another "
            "checkpoint folder: from the offsets the group has committed, or from those of your own store"
        )
