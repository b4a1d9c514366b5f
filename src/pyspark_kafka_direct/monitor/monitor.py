"""The lag of all queries of a session, and who else is told of finished batches."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafka_direct.monitor._lag import LagTracker, QueryLag, SourceBatch, SourceLag, source_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from pyspark_kafka_direct.monitor._feedback import FeedbackWriter
    from pyspark_kafka_direct.monitor._queries import QueryFacts

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_KEPT = 100


class BatchObserver(Protocol):
    """Is told of each finished batch, on the listener's thread: quick, or on a thread of its own."""

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """A batch is done, and Spark has logged it.

        Args:
            run_id: Of the query's run.
            sources: Of this package, with their options; a batch's ``end`` has the next offsets to read. The names of
                options are in lower case, and they may hold secrets. No options when they can't be found.
        """

    def query_ended(self, run_id: str) -> None:
        """The run is over."""


class Monitor:
    """What ``enable(spark)`` returns. Safe to use from several threads.

    Args:
        feedback: Takes the measurements for backpressure.
        observers: Are told of finished batches.
    """

    def __init__(self, feedback: FeedbackWriter | None = None, observers: tuple[BatchObserver, ...] = ()) -> None:
        self._feedback = feedback
        self._observers = observers
        self._lock = threading.Lock()
        self._lags: OrderedDict[str, QueryLag] = OrderedDict()
        self._trackers: dict[str, dict[int, LagTracker]] = {}

    def lag(self, query: Any = None) -> QueryLag | None:
        """Where a query is after its last batch; it stays known after the query's end.

        Args:
            query: A ``StreamingQuery``, its id or its name; may be left out when there is only one.

        Returns:
            ``None`` before its first batch.

        Raises:
            LookupError: No query was given, and there are several.
        """
        lags = self.lags
        if query is None:
            if len(lags) > 1:
                raise LookupError(f"lag() of which query? There are {len(lags)}: {', '.join(_names(lags))}")
            return lags[0] if lags else None
        wanted = str(getattr(query, "id", query))
        return next((lag for lag in reversed(lags) if wanted in (lag.query_id, lag.name)), None)

    @property
    def lags(self) -> tuple[QueryLag, ...]:
        """The same for every query of this session that read with this package."""
        with self._lock:
            return tuple(self._lags.values())

    def register_metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Offer all lags to Prometheus; they are looked at when it asks.

        Needs ``pip install pyspark-kafka-direct[prometheus]``. Serve them with
        ``prometheus_client.start_http_server(9108)``.

        Args:
            registry: Another than the library's default.

        Raises:
            ImportError: The library is not installed.
        """
        from pyspark_kafka_direct.monitor._metrics import register

        register(self, registry)

    def batch_ended(self, progress: Mapping[str, Any], facts: QueryFacts) -> None:
        """Take in a progress report."""
        run_id, query_id = str(progress["runId"]), str(progress["id"])
        trackers = self._trackers.setdefault(run_id, {})
        batches: dict[int, SourceBatch] = {}
        lags: list[SourceLag] = []
        for number, source in enumerate(progress["sources"]):
            batch = source_batch(progress, source) if facts.ours(str(source["description"])) else None
            if batch is None:
                continue
            batches[number] = batch
            group = facts.option(batch.description, "commitGroupId") or progress["name"] or query_id
            lag = trackers.setdefault(number, LagTracker()).after(batch, group)
            if lag.partitions:
                lags.append(lag)
        if lags:
            ended = max(batch.ended_ms for batch in batches.values()) / 1000
            self._keep(QueryLag(query_id, run_id, progress["name"], int(progress["batchId"]), ended, tuple(lags)))
        # Last what may fail: observers, and then the disk.
        options = facts.options or {}
        sources = [(batch, options.get(batch.description, {})) for batch in batches.values()]
        for observer in self._observers if sources else ():
            observer.batch_ended(run_id, sources)
        for number, batch in batches.items():
            if self._feedback is not None:
                self._feedback.batch_ended(f"{run_id} {number}", batch, facts.interval_ms)

    def query_ended(self, run_id: str) -> None:
        """Let go of what only a running query needs."""
        for number in self._trackers.pop(run_id, {}):
            if self._feedback is not None:
                self._feedback.forget(f"{run_id} {number}")
        for observer in self._observers:
            observer.query_ended(run_id)

    def _keep(self, lag: QueryLag) -> None:
        with self._lock:
            self._lags[lag.query_id] = lag
            self._lags.move_to_end(lag.query_id)
            while len(self._lags) > _KEPT:
                self._lags.popitem(last=False)
        _log.info("%s", lag.line)


def _names(lags: tuple[QueryLag, ...]) -> list[str]:
    return [lag.name or lag.query_id for lag in lags]
