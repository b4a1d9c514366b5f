"""The query listener: takes Spark's events to the monitor, and keeps every failure to itself."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafka_direct.monitor._queries import QueryFacts, committing_sources, find_query, query_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_kafka_direct.monitor.monitor import Monitor

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_Event = TypeVar("_Event")


def _quietly(handle: Callable[[Any, _Event], None]) -> Callable[[Any, _Event], None]:
    # An exception that leaves a listener is a stack trace in the driver's log at every batch.
    @functools.wraps(handle)
    def guarded(self: Any, event: _Event) -> None:
        try:
            handle(self, event)
        except Exception as error:
            level = logging.DEBUG if self._complained else logging.WARNING
            self._complained = True
            _log.log(level, "the monitor missed an event; the query is not concerned: %r", error)

    return guarded


class ProgressListener(StreamingQueryListener):
    """Listens to the queries of one session; Spark calls it outside the queries' own threads, but for the start.

    Args:
        spark: The session.
        monitor: Who is told.
    """

    def __init__(self, spark: SparkSession, monitor: Monitor) -> None:
        self._session = spark
        self._monitor = monitor
        self._complained = False
        self._queries: dict[str, Any] = {}
        self._facts: dict[str, QueryFacts] = {}

    @_quietly
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names, so below)
        """Get hold of the query: a short one is over, and can't be found, before its first progress arrives."""
        run_id = str(event.runId)
        self._monitor.query_known(str(event.id), run_id, event.name)
        query = self._queries[run_id] = find_query(self._session, str(event.id))
        self._monitor.query_started(run_id, committing_sources(query))

    @_quietly
    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Tell the monitor that a batch is done."""
        progress = event.progress
        self._monitor.batch_ended(progress, self._facts_of(str(progress.runId), str(progress.id)))

    @_quietly
    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Tell the monitor that a query found nothing to read for 10 s; Spark calls this again and again."""
        self._monitor.query_idle(str(event.runId))

    @_quietly
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Tell the monitor that the query is over."""
        run_id = str(event.runId)
        self._queries.pop(run_id, None)
        self._facts.pop(run_id, None)
        self._monitor.query_ended(run_id)

    def _facts_of(self, run_id: str, query_id: str) -> QueryFacts:
        facts = self._facts.get(run_id)
        if facts is None:
            query = self._queries.pop(run_id, None) or find_query(self._session, query_id)
            try:
                facts = query_facts(query)
            except Exception as error:
                _log.warning(
                    "the monitor can't look into the query %s, so it doesn't know its options: %r", run_id, error
                )
                facts = QueryFacts()
            self._facts[run_id] = facts
        return facts
