"""The function ``enable(spark)``, which attaches the listener."""

from __future__ import annotations

import atexit
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark_kafka_direct.monitor._commits import GroupCommitter
from pyspark_kafka_direct.monitor._feedback import FeedbackWriter
from pyspark_kafka_direct.monitor._writes import WriteLog
from pyspark_kafka_direct.monitor.monitor import Monitor
from pyspark_kafka_direct.runtime.shared_folder import make_folder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.monitor._metrics import LagCollector
    from pyspark_kafka_direct.runtime.commit_choice import QueryGroup
    from pyspark_kafka_direct.runtime.query_commits import GroupCommits

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_EVENTS_AT_EXIT_MS = 5000
_COMMITS_AT_EXIT = 10.0  # seconds

_lock = threading.Lock()
_enabled: dict[str, Monitor] = {}  # by Spark's id of the session: several Python objects may stand for one
_groups: dict[QueryGroup, GroupCommits] = {}  # of all sessions, so that no commit overtakes another of its group
_collectors: WeakKeyDictionary[CollectorRegistry, LagCollector] = WeakKeyDictionary()  # of all sessions, too


def enable(spark: SparkSession) -> Monitor:
    """Watch the streaming queries of a session: lag, metrics, committed offsets, and what backpressure needs.

    Once per session, before its queries start; called again, it returns the same monitor. It costs a query nothing but
    a few milliseconds at its start, and no failure within ever reaches a query.

    Args:
        spark: The session.
    """
    from pyspark_kafka_direct.monitor._listener import ProgressListener

    with _lock:
        session = _session_id(spark)
        if session not in _enabled:
            folder = make_folder(spark)
            committer = None if folder is None else GroupCommitter(folder, groups=_groups)
            feedback = None if folder is None else FeedbackWriter(folder)
            observers = () if committer is None else (committer,)
            lives = partial(_lives, spark)
            monitor = Monitor(feedback, observers, writes=WriteLog(folder), collectors=_collectors, lives=lives)
            spark.streams.addListener(ProgressListener(spark, monitor))
            if committer is not None:
                atexit.register(_finish, spark, committer)
            _enabled[session] = monitor
        return _enabled[session]


def _finish(spark: SparkSession, committer: GroupCommitter) -> None:
    # A script may end right after its query, while the report of the last batch is still on its way.
    try:
        context = getattr(spark.sparkContext, "_jsc", None)  # None once the session was stopped: all was reported then
        if context is not None:
            context.sc().listenerBus().waitUntilEmpty(_EVENTS_AT_EXIT_MS)
    except Exception as error:
        _log.debug("the last progress reports may be missing: %r", error)
    if not committer.flush(_COMMITS_AT_EXIT):
        _log.warning("the last offsets could not be committed before the end of the program")


def _lives(spark: SparkSession) -> bool:
    if getattr(spark, "_jsparkSession", None) is None:
        return not spark.is_stopped  # type: ignore[attr-defined] # Spark Connect
    try:
        context = spark.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except Exception:  # the JVM is gone
        return False


def _session_id(spark: SparkSession) -> str:
    session = getattr(spark, "_jsparkSession", None)
    # Spark Connect has no JVM at hand.
    return str(getattr(spark, "session_id", id(spark)) if session is None else session.sessionUUID())
