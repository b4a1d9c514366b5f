"""What a continuous query tells of itself, with the keys that Spark's ``StreamingQuery`` has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.offsets import partition_offsets_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import EpochResult


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What does not change while a query runs.

    Attributes:
        id: Id of the query, the same for as long as its checkpoint lives.
        run_id: Id of this start of it.
        name: Its name, if it has one.
        source: Describes what is read.
        sink: Describes where its output goes.
    """

    id: str
    run_id: str
    name: str | None
    source: str
    sink: str


def progress(
    about: About,
    result: EpochResult,
    *,
    before: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    at: float,
    seconds: float,
    commit_ms: float,
) -> dict[str, Any]:
    """Return what is told of an epoch.

    Args:
        about: Whose.
        result: The epoch.
        before: Where it began.
        latest: The ends of the partitions, when they were last looked up.
        at: When it ended, in seconds since 1970.
        seconds: How long it took.
        commit_ms: How long its logs took, in milliseconds.
    """
    rows = result.rows_read
    rate = rows / seconds if seconds > 0 else 0.0
    rates = {"numInputRows": rows, "inputRowsPerSecond": rate, "processedRowsPerSecond": rate}
    return {
        "id": about.id,
        "runId": about.run_id,
        "name": about.name,
        "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "batchId": result.epoch,
        **rates,
        "durationMs": {
            "addBatch": round(result.flush_ms),
            "commitOffsets": round(commit_ms),
            "triggerExecution": round(seconds * 1000),
        },
        "sources": [
            {
                "description": about.source,
                "startOffset": _nested(before),
                "endOffset": _nested(result.offsets),
                "latestOffset": _nested(latest) if latest else None,
                **rates,
            }
        ],
        "sink": {"description": about.sink, "numOutputRows": result.rows},
    }


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = json.loads(partition_offsets_to_json(offsets))
    return nested
