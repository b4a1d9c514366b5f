"""Whether queries are running, and how much they have written. The lag alone does not show that a query has failed."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.spark.listener_files import delete_write_reports, load_write_report

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
    failed: bool = False  # whether the last run has ended with an error
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
            previous_run = self._queries.pop(query_id, None)  # to add the query at the end, as the newest
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

    def ended(self, run_id: str, *, failed: bool) -> None:
        """Record the end of a run, which was stopped unless it has failed."""
        with self._lock:
            for query_id, query in self._queries.items():
                if query.run_id == run_id:
                    self._queries[query_id] = replace(query, is_running=False, failed=failed)

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
        # By query id. The query that wrote last is the last one.
        self._queries: OrderedDict[str, _WritingQuery] = OrderedDict()

    def last_batch(self, query: Any = None) -> BatchWriteReport | None:
        """Return the write report of the last batch of a query, given as a ``StreamingQuery``, an id or a name."""
        if self._folder is None:
            return None
        id_or_name = "" if query is None else str(getattr(query, "id", query))  # "": a batch query without a job group
        with self._lock:
            ids = (query_id for query_id, each in reversed(self._queries.items()) if each.name == id_or_name)
            query_id = next(ids, id_or_name)
        return load_write_report(self._folder, query_id)

    @property
    def totals(self) -> tuple[SinkTotal, ...]:
        """The sums by query and topic."""
        with self._lock:
            return tuple(total for query in self._queries.values() for total in query.totals.values())

    def batch_ended(self, query_id: str, name: str | None, batch_id: int) -> None:
        """Record the end of a micro-batch."""
        folder = self._folder
        report = None if folder is None else load_write_report(folder, query_id, batch_id)
        if folder is None or report is None:
            return
        query_name = name or query_id
        _log.info("%s, batch %d: wrote %d records, %d bytes", query_name, batch_id, report.records, report.bytes)
        with self._lock:
            query = self._queries.setdefault(query_id, _WritingQuery(query_name))
            query.name = query_name
            for (topic, _), written in report.partitions.items():
                total = query.totals.get(topic, SinkTotal(query_name, topic, 0, 0))
                query.totals[topic] = SinkTotal(
                    query_name, topic, total.records + written.records, total.bytes + written.bytes
                )
            self._queries.move_to_end(query_id)
            evicted_ids = list(self._queries)[:-_MAX_SINK_QUERIES]
            for evicted_id in evicted_ids:
                del self._queries[evicted_id]
        for evicted_id in evicted_ids:
            delete_write_reports(folder, evicted_id)


@dataclass(slots=True)
class _WritingQuery:
    name: str  # or else the id
    totals: dict[str, SinkTotal] = field(default_factory=dict)  # by topic
