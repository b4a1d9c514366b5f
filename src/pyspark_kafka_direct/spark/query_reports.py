"""Reports of queries that Spark's query listeners do not hear of: continuous queries and direct streams.

They run in the Python process of the driver, as the monitor behind ``enable(spark)`` does. The packages of both may not
import each other, so the monitor of each session is registered here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.monitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A completed batch of a stream, or an epoch of a continuous query."""

    batch_id: int
    source: str  # a description
    group: str | None  # for which its offsets are committed
    began_ms: float  # since 1970
    ended_ms: float
    rows: int  # read
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    fetch_end_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]] = field(repr=False)


class QueryMonitor(Protocol):
    """The part of a session's ``Monitor`` that queries need."""

    def track_query(self, query_id: str, run_id: str, name: str | None) -> None:
        """Record the start of a query."""

    def report_batch(self, query_id: str, run_id: str, name: str | None, report: BatchReport) -> None:
        """Record a completed batch."""

    def report_idle(self, run_id: str) -> None:
        """Record that a query has found nothing to read."""

    def query_ended(self, run_id: str, *, failed: bool = False) -> None:
        """Record the end of a query, which was stopped unless it has failed."""


_monitors: dict[str, QueryMonitor] = {}  # by session


def add_monitor(session: str, monitor: QueryMonitor) -> None:
    """Report the queries of a session to this monitor from now on."""
    _monitors[session] = monitor


def session_id(spark: Any) -> str:
    """Return Spark's id of a session, because several Python objects may represent one session."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:  # Spark Connect has no access to the JVM
        return str(getattr(spark, "session_id", id(spark)))
    return str(session.sessionUUID())


class QueryReporter:
    """Reports one query to the monitors; an error of a monitor never affects the query."""

    def __init__(
        self,
        query_id: str,
        run_id: str,
        name: str | None,
        session: str | None = None,  # None: all sessions, because the stream belongs to the SparkContext
    ) -> None:
        self._query_id = query_id
        self._run_id = run_id
        self._name = name
        self._session = session

    @property
    def is_monitored(self) -> bool:
        """Whether there is a monitor, so that reports are not created for nothing."""
        return bool(self._targets())

    def started(self) -> None:
        """Report the start of the query."""
        self._notify(lambda monitor: monitor.track_query(self._query_id, self._run_id, self._name))

    def batch_ended(self, report: BatchReport) -> None:
        """Report a completed batch."""
        self._notify(lambda monitor: monitor.report_batch(self._query_id, self._run_id, self._name, report))

    def idle(self) -> None:
        """Report an epoch without new offsets."""
        self._notify(lambda monitor: monitor.report_idle(self._run_id))

    def ended(self, *, failed: bool = False) -> None:
        """Report the end of the query, which was stopped unless it has failed."""
        self._notify(lambda monitor: monitor.query_ended(self._run_id, failed=failed))

    def _targets(self) -> list[QueryMonitor]:
        return [monitor for session, monitor in list(_monitors.items()) if self._session in (None, session)]

    def _notify(self, call: Callable[[QueryMonitor], None]) -> None:
        for monitor in self._targets():
            try:
                call(monitor)
            except Exception as error:
                _log.warning("the monitor failed to process a report; the query is not affected: %r", error)
