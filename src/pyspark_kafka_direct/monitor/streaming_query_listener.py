"""The query listener: passes Spark's events to the monitor, and logs every exception."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafka_direct.monitor.query_details import (
    QueryDetails,
    committing_sources,
    find_query,
    read_query_details,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_kafka_direct.monitor.query_monitor import Monitor

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_Event = TypeVar("_Event")


def _log_exceptions(handle: Callable[[Any, _Event], None]) -> Callable[[Any, _Event], None]:
    # If a listener raises an exception, Spark logs a stack trace at every batch. Warn once, because an error that does
    # not depend on the batch occurs at every batch.
    @functools.wraps(handle)
    def guarded(self: Any, event: _Event) -> None:
        try:
            handle(self, event)
        except Exception as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            _log.log(level, "the monitor failed to process an event; the query is not affected: %r", error)

    return guarded


class MonitorQueryListener(StreamingQueryListener):
    """Listens to the queries of one session; Spark calls it on its own threads, except at the start of a query."""

    def __init__(self, spark: SparkSession, monitor: Monitor) -> None:
        self._session = spark
        self._monitor = monitor
        self._warned = False
        # By run id: the JVM's query until its first batch ends, and then its details.
        self._queries: dict[str, Any] = {}
        self._details: dict[str, QueryDetails] = {}

    @_log_exceptions
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's spelling)
        """Find the query now, because a short query may end before its first progress report arrives."""
        run_id = str(event.runId)
        self._monitor.track_query(str(event.id), run_id, event.name)
        query = self._queries[run_id] = find_query(self._session, str(event.id))
        self._monitor.query_started(run_id, committing_sources(query))

    @_log_exceptions
    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the end of a batch to the monitor."""
        progress = event.progress
        self._monitor.batch_ended(progress, self._details_of(str(progress.runId), str(progress.id)))

    @_log_exceptions
    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Report an idle query to the monitor; Spark calls this every 10 s while the query finds nothing to read."""
        self._monitor.query_idle(str(event.runId))

    @_log_exceptions
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Report the end of a query to the monitor."""
        run_id = str(event.runId)
        self._queries.pop(run_id, None)
        self._details.pop(run_id, None)
        self._monitor.query_ended(run_id)

    def _details_of(self, run_id: str, query_id: str) -> QueryDetails:
        details = self._details.get(run_id)
        if details is None:
            # The listener may have been added after the query had started.
            query = self._queries.pop(run_id, None) or find_query(self._session, query_id)
            try:
                details = read_query_details(query)
            except Exception as error:
                _log.warning("the monitor can't read the options and the trigger of the query %s: %r", run_id, error)
                details = QueryDetails()
            self._details[run_id] = details
        return details
