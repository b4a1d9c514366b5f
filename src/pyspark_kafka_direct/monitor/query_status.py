"""Whether queries are running, and how much they have written. The lag alone does not show that a query has failed."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.spark.listener_files import load_write_report

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.spark.write_report import BatchWriteReport

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_MAX_QUERIES: Final = 100
_MAX_SINK_QUERIES: Final = 100


@dataclass(frozen=True, slots=True)
class QueryHealth:
    """The state of a query."""

    query: str  # its name, or else its id
    query_id: str  # the same after a restart from a checkpoint
    run_id: str  # the last run
    is_running: bool = True
    last_batch: float | None = None  # when its last batch ended, in seconds since 1970


@dataclass(frozen=True, slots=True)
class SinkTotal:
    """The records and bytes that a query has written to a topic."""

    query: str  # its name, or else its id
    topic: str
    records: int
    bytes: int  # as sent


class QueryHealthTracker:
    """Tracks the queries of a session; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, QueryHealth] = OrderedDict()

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """All queries, including those that have ended."""
        with self._lock:
            return tuple(self._queries.values())

    @property
    def running(self) -> frozenset[str]:
        """The ids of the running queries."""
        return frozenset(query.query_id for query in self.queries if query.is_running)

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """Record the start of a query."""
        with self._lock:
            previous_run = self._queries.pop(query_id, None)
            last_batch = None if previous_run is None else previous_run.last_batch
            self._queries[query_id] = QueryHealth(name or query_id, query_id, run_id, last_batch=last_batch)
            ended_ids = [each_id for each_id, query in self._queries.items() if not query.is_running]
            for ended_id in ended_ids[: max(len(self._queries) - _MAX_QUERIES, 0)]:
                del self._queries[ended_id]

    def batch_ended(self, query_id: str, run_id: str, name: str | None, ended_at: float) -> None:
        """Record the end of a batch, in seconds since 1970."""
        with self._lock:
            query = self._queries.get(query_id) or QueryHealth(name or query_id, query_id, run_id)
            self._queries[query_id] = replace(query, last_batch=ended_at)

    def ended(self, run_id: str) -> None:
        """Record the end of a run."""
        with self._lock:
            for query_id, query in self._queries.items():
                if query.run_id == run_id:
                    self._queries[query_id] = replace(query, is_running=False)

    def all_ended(self) -> None:
        """Record the end of all queries."""
        with self._lock:
            for query_id, query in self._queries.items():
                self._queries[query_id] = replace(query, is_running=False)


class WriteTracker:
    """Reads the reports of batches on the records they wrote, and sums them by query and topic; thread-safe."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # where the commit step saves its reports; None with Spark Connect
        self._lock = threading.Lock()
        self._ids_by_name: dict[str, str] = {}
        self._totals: OrderedDict[str, dict[str, SinkTotal]] = OrderedDict()

    def last_batch(self, query: Any = None) -> BatchWriteReport | None:
        """Return the write report of the last batch of a query, given as a ``StreamingQuery``, an id or a name."""
        if self._folder is None:
            return None
        id_or_name = "" if query is None else str(getattr(query, "id", query))
        return load_write_report(self._folder, self._ids_by_name.get(id_or_name, id_or_name))

    @property
    def totals(self) -> tuple[SinkTotal, ...]:
        """The sums by query and topic."""
        with self._lock:
            return tuple(total for topics in self._totals.values() for total in topics.values())

    def batch_ended(self, query_id: str, name: str | None, batch_id: int) -> None:
        """Record the end of a micro-batch."""
        report = None if self._folder is None else load_write_report(self._folder, query_id, batch_id)
        if report is None:
            return
        query_name = name or query_id
        _log.info("%s, batch %d: wrote %d records, %d bytes", query_name, batch_id, report.records, report.bytes)
        with self._lock:
            self._ids_by_name[query_name] = query_id
            topics = self._totals.setdefault(query_id, {})
            for (topic, _), written in report.partitions.items():
                total = topics.get(topic, SinkTotal(query_name, topic, 0, 0))
                topics[topic] = SinkTotal(
                    query_name, topic, total.records + written.records, total.bytes + written.bytes
                )
            self._totals.move_to_end(query_id)
            while len(self._totals) > _MAX_SINK_QUERIES:
                self._totals.popitem(last=False)
