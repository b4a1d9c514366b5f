"""``enable(spark)``, which adds the query listener to a session."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import threading
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.monitor.group_committer import GroupCommitter
from pyspark_kafka_direct.monitor.measurement_writer import MeasurementWriter
from pyspark_kafka_direct.monitor.query_details import (
    QueryDetails,
    committing_sources,
    find_query,
    read_query_details,
)
from pyspark_kafka_direct.monitor.query_monitor import Monitor
from pyspark_kafka_direct.monitor.query_status import WriteTracker
from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens
from pyspark_kafka_direct.spark.listener_files import create_shared_folder
from pyspark_kafka_direct.spark.loss_channel import LossReceiver
from pyspark_kafka_direct.spark.query_reports import add_monitor, session_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector
    from pyspark_kafka_direct.spark.commit_offer import CommitGroup
    from pyspark_kafka_direct.spark.offset_committer import GroupOffsetCommitter

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_EVENT_TIMEOUT_AT_EXIT_MS = 5000
_COMMIT_TIMEOUT_AT_EXIT = 10.0  # seconds

_lock = threading.Lock()
_monitors: dict[str, Monitor] = {}  # by session
# Shared by all sessions, so that no commit overtakes another commit of its group.
_group_commits: WeakValueDictionary[CommitGroup, GroupOffsetCommitter] = WeakValueDictionary()
_loss_receivers: dict[Path, LossReceiver] = {}  # of each application, by its shared folder
_collectors: WeakKeyDictionary[CollectorRegistry, LagCollector] = WeakKeyDictionary()  # shared by all sessions


def enable(spark: SparkSession) -> Monitor:
    """Monitor the streaming queries of a session: lag, metrics, committed offsets, and measurements for backpressure.

    Continuous queries of the session and direct streams of the application are monitored, too. Call it once per
    session, before its queries start; further calls return the same monitor. It costs a query a few
    milliseconds at its start, and its errors never affect a query.

    It also obtains and renews the delegation tokens that the Spark configuration asks for
    (``spark.kafka.clusters.*``), for all queries of the application.

    Args:
        spark: The session.

    Returns:
        The monitor of the session.

    Raises:
        OptionError: A property ``spark.kafka.clusters.*`` is invalid.
    """
    with _lock:
        session = session_id(spark)
        if session not in _monitors:
            folder = create_shared_folder(spark)  # None with Spark Connect: then nothing is shared with planners
            if folder is not None:
                start_delegation_tokens(spark.sparkContext)
            committer = None if folder is None else GroupCommitter(folder, groups=_group_commits)
            measurement_writer = None if folder is None else MeasurementWriter(folder)
            observers = () if committer is None else (committer,)
            is_spark_alive = partial(_is_spark_alive, spark)
            monitor = Monitor(
                measurement_writer,
                observers=observers,
                write_tracker=WriteTracker(folder),
                collectors=_collectors,
                is_spark_alive=is_spark_alive,
                shared_folder=folder,
            )
            listener = MonitorQueryListener(spark, monitor)
            spark.streams.addListener(listener)
            add_monitor(session, monitor)
            if folder is None:
                _remove_when_main_thread_ends(spark, listener)
            else:
                _start_loss_receiver(spark, folder)
            if committer is not None:
                atexit.register(_flush_commits_at_exit, spark, committer)
            _monitors[session] = monitor
        return _monitors[session]


def _start_loss_receiver(spark: SparkSession, folder: Path) -> None:
    """Receive what tasks of the application skip; without a port for that, only what planners skip is counted."""
    # Spark deletes the folder of an application that has ended.
    for ended_folder in [each for each in _loss_receivers if not each.exists()]:
        _loss_receivers.pop(ended_folder).close()
    if folder in _loss_receivers:
        return
    conf = spark.sparkContext.getConf()
    host = (conf.get("spark.driver.host") or "localhost").strip("[]")  # Spark puts IPv6 addresses in brackets
    bind_host = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    try:
        _loss_receivers[folder] = LossReceiver(folder, bind_host, host, SYSTEM)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
        _log.warning("offsets that tasks skip are not counted, because the driver has no port for reports: %s", error)


def _remove_when_main_thread_ends(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """Remove a listener of Spark Connect, whose thread is not a daemon, so that the program can exit."""

    def remove() -> None:
        threading.main_thread().join()  # an ``atexit`` function would run only after the listener's thread has ended
        # Spark warns if the server has stopped; then its thread has ended, too.
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            if _is_spark_alive(spark):
                spark.streams.removeListener(listener)

    threading.Thread(target=remove, name="kafka-direct-listener-removal", daemon=True).start()


def _flush_commits_at_exit(spark: SparkSession, committer: GroupCommitter) -> None:
    # A script may exit right after its query, before the report of the last batch arrives.
    try:
        # None if the session is stopped: then all events were delivered.
        context = getattr(spark.sparkContext, "_jsc", None)
        if context is not None:
            context.sc().listenerBus().waitUntilEmpty(_EVENT_TIMEOUT_AT_EXIT_MS)
    except Exception as error:
        _log.debug("the last progress reports may be missing: %r", error)
    if not committer.flush(_COMMIT_TIMEOUT_AT_EXIT):
        _log.warning("the last offsets were not committed before the program exited")


def _is_spark_alive(spark: SparkSession) -> bool:
    if getattr(spark, "_jsparkSession", None) is None:
        return not spark.is_stopped  # type: ignore[attr-defined] # Spark Connect
    try:
        context = spark.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except Exception:  # the JVM has exited
        return False


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
        self._monitor.query_ended(run_id, failed=event.exception is not None)

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
