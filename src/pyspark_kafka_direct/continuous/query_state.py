"""The status and progress of a query, shared between the thread that runs it and the threads that use it."""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.client.system import wait_until
from pyspark_kafka_direct.offsets import partition_offsets_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryInfo:
    id: str  # stored in the checkpoint
    run_id: str  # of this start of the query
    name: str | None
    source: str
    sink: str


class QueryState:
    """The status, progress and offsets of a query, shared by its threads. Every change wakes the threads that wait."""

    def __init__(self, query_info: QueryInfo, max_progress: int, system: System) -> None:
        self.query_info = query_info
        self.stopping = False  # the query is requested to end
        self.ended = False
        self.error: KafkaDirectError | None = None  # why the query ended, unless it was stopped
        self.status: Mapping[str, Any] = {}
        self.offsets: Mapping[TopicPartition, int] = {}  # end of the last epoch, or start of the run
        self._progress: deque[dict[str, Any]] = deque(maxlen=max(max_progress, 1))
        self._system = system
        self._changed = system.condition()
        self._stop_run: Callable[[], None] | None = None
        self.set_status("Initializing", active=False)

    @property
    def recent_progress(self) -> list[dict[str, Any]]:
        """The latest progress reports, the oldest first."""
        with self._changed:
            return list(self._progress)

    def set_status(self, message: str, *, active: bool, has_data: bool = False) -> None:
        with self._changed:
            if not self.ended:  # a late commit may still report
                self.status = {"message": message, "isDataAvailable": has_data, "isTriggerActive": active}

    def set_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            self.offsets = offsets
            self._changed.notify_all()

    def add_progress(self, progress: dict[str, Any], offsets: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            self._progress.append(progress)
            self.offsets = offsets
            self._changed.notify_all()

    @contextmanager
    def calling_on_stop(self, stop_run: Callable[[], None]) -> Iterator[None]:
        """Within this context, stopping the query also calls ``stop_run``, at once if the query is already stopping."""
        with self._changed:
            self._stop_run = stop_run
            if self.stopping:
                stop_run()
        try:
            yield
        finally:
            with self._changed:
                self._stop_run = None

    def stop(self) -> None:
        """Request the end of the query."""
        with self._changed:
            self.stopping = True
            if self._stop_run is not None:
                self._stop_run()
            self._changed.notify_all()

    def end(self, error: KafkaDirectError | None) -> None:
        with self._changed:
            self.error = error
            message = "Stopped" if error is None else f"Terminated with exception: {error}"
            self.set_status(message, active=False)
            self.ended = True
            self._changed.notify_all()

    def wait_for_stop(self, seconds: float) -> None:
        self.wait(lambda: self.stopping, seconds)

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until a condition holds, which is checked after each state change; return whether it holds."""
        with self._changed:
            return wait_until(self._system, self._changed, condition, seconds)


def epoch_progress(
    query_info: QueryInfo,
    result: EpochResult,
    *,
    start_offsets: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],  # at the last check of the partitions
    ended_at: float,  # seconds since 1970
    seconds: float,
    commit_ms: float,
) -> dict[str, Any]:
    """Return a progress report with the keys of Spark's ``StreamingQueryProgress``."""
    rows = result.rows_read
    rate = rows / seconds if seconds > 0 else 0.0
    # The last check may be older than the epoch: an end below the offset that was read would be a negative lag.
    latest = {tp: max(end, result.offsets.get(tp, end)) for tp, end in latest.items()}
    rates = {"numInputRows": rows, "inputRowsPerSecond": rate, "processedRowsPerSecond": rate}
    return {
        "id": query_info.id,
        "runId": query_info.run_id,
        "name": query_info.name,
        "timestamp": datetime.fromtimestamp(ended_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "batchId": result.epoch,
        **rates,
        "durationMs": {
            "addBatch": round(result.flush_ms),
            "commitOffsets": round(commit_ms),
            "triggerExecution": round(seconds * 1000),
        },
        "sources": [
            {
                "description": query_info.source,
                "startOffset": _offsets_to_json(start_offsets),
                "endOffset": _offsets_to_json(result.offsets),
                "latestOffset": _offsets_to_json(latest) if latest else None,
                **rates,
            }
        ],
        "sink": {"description": query_info.sink, "numOutputRows": result.rows},
    }


def _offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    offsets_by_topic: dict[str, dict[str, int]] = json.loads(partition_offsets_to_json(offsets))
    return offsets_by_topic
