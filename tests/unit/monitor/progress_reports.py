"""Progress reports in the format of Spark (recorded with PySpark 4.2)."""

from __future__ import annotations

import json
from typing import Any

SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@7ce8610"
OTHER_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"

Offsets = dict[str, dict[str, int]] | None


def source(
    start: Offsets, end: Offsets, latest: Offsets, *, rows: int = 10, description: str = SOURCE
) -> dict[str, Any]:
    def to_json(offsets: Offsets) -> str | None:
        return None if offsets is None else json.dumps(offsets)

    return {
        "description": description,
        "startOffset": to_json(start),
        "endOffset": to_json(end),
        "latestOffset": to_json(latest),
        "numInputRows": rows,
        "inputRowsPerSecond": 1.9,
        "processedRowsPerSecond": 26.3,
    }


def report(
    *sources: dict[str, Any],
    batch: int = 1,
    started: str = "2026-11-21T09:46:50.000Z",
    duration_ms: int = 2000,
    **fields: Any,
) -> dict[str, Any]:
    return {
        "id": "224fef92-3161-40e1-92f4-9e6d0453730e",
        "runId": "f66328ff-243c-4c12-9051-d5ffb53d8900",
        "name": None,
        "timestamp": started,
        "batchId": batch,
        "batchDuration": duration_ms,
        "durationMs": {"addBatch": duration_ms - 500, "latestOffset": 21, "triggerExecution": duration_ms},
        "sources": list(sources),
        **fields,
    }
