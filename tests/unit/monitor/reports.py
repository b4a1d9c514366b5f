"""Progress reports as Spark writes them (seen with PySpark 4.2)."""

from __future__ import annotations

import json
from typing import Any

SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@7ce8610"
OTHER = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"

Offsets = dict[str, dict[str, int]] | None


def source(
    start: Offsets, end: Offsets, latest: Offsets, *, rows: int = 10, description: str = SOURCE
) -> dict[str, Any]:
    def text(offsets: Offsets) -> str | None:
        return None if offsets is None else json.dumps(offsets)

    return {
        "description": description,
        "startOffset": text(start),
        "endOffset": text(end),
        "latestOffset": text(latest),
        "numInputRows": rows,
        "inputRowsPerSecond": 1.9,
        "processedRowsPerSecond": 26.3,
    }


def report(
    *sources: dict[str, Any], batch: int = 1, at: str = "2026-11-21T09:46:50.000Z", took: int = 2000, **more: Any
) -> dict[str, Any]:
    return {
        "id": "224fef92-3161-40e1-92f4-9e6d0453730e",
        "runId": "f66328ff-243c-4c12-9051-d5ffb53d8900",
        "name": None,
        "timestamp": at,
        "batchId": batch,
        "batchDuration": took,
        "durationMs": {"addBatch": took - 500, "latestOffset": 21, "triggerExecution": took},
        "sources": list(sources),
        **more,
    }
