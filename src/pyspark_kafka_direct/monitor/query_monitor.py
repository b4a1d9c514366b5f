"""``Monitor``, the state of a session's queries."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from pyspark_kafka_direct.monitor.consumer_lag import (
    LagTracker,
    QueryLag,
    SourceBatch,
    parse_source_progress,
)
from pyspark_kafka_direct.monitor.query_status import QueryHealth, QueryHealthTracker, SinkTotal, WriteTracker
from pyspark_kafka_direct.spark.loss_counts import LossTotal, MalformedTotal, load_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from pyspark_kafka_direct.monitor.measurement_writer import MeasurementWriter
    from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector
    from pyspark_kafka_direct.monitor.query_details import QueryDetails
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.spark.query_reports import BatchReport
    from pyspark_kafka_direct.spark.write_report import BatchWriteReport

    FetchEndOffsets: TypeAlias = Callable[[Mapping[str, str], Collection[TopicPartition]], Mapping[TopicPartition, int]]

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_MAX_QUERIES = 100
_STALE_AFTER_SECONDS = 15.0  # a usual scrape interval of Prometheus
_MIN_REFRESH_INTERVAL_SECONDS = 1.0
_IDLE_REFRESH_INTERVAL_SECONDS = 10.0  # Spark reports an idle query so often


class BatchObserver(Protocol):
    """Receives the events of queries and their batches.

    The methods are called on the listener's threads, so they must return quickly.
    """

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Handle the start of a query that commits for a group. The query waits for this call, before its planner runs.

        Args:
            run_id: The run of the query.
            sources: The options of those of its sources that commit for a group, as in ``batch_ended``.
        """

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """Handle the end of a batch that Spark has committed.

        Args:
            run_id: The run of the query.
            sources: The query's sources of this package with their options. ``end`` of a batch contains the next
                offsets to read. Option names are in lower case, and values may be secrets. The options are empty if
                they are not available.
        """

    def query_idle(self, run_id: str) -> None:
        """Handle a query that has found nothing to read for a while.

        Args:
            run_id: The run of the query.
        """

    def query_ended(self, run_id: str) -> None:
        """Handle the end of a run.

        Args:
            run_id: The run of the query.
        """


class Monitor:
    """The state of a session's queries; ``enable(spark)`` returns it. It is thread-safe.

    Args:
        measurement_writer: Writes the measurements for backpressure.
        observers: Receive the events of queries.
        fetch_end_offsets: Requests the high watermarks of partitions from the brokers, with a source's options. It is
            called for idle queries, and for queries whose reports do not contain them.
        write_tracker: Returns what batches have written; by default nothing.
        collectors: The collector of each Prometheus registry; shared by the monitors of all sessions.
        is_spark_alive: Returns whether Spark still runs. If Spark stops, queries end without an event.
        shared_folder: Where planners save what they have skipped; ``None`` with Spark Connect.
    """

    def __init__(
        self,
        measurement_writer: MeasurementWriter | None = None,
        *,
        observers: tuple[BatchObserver, ...] = (),
        fetch_end_offsets: FetchEndOffsets | None = None,
        write_tracker: WriteTracker | None = None,
        collectors: MutableMapping[CollectorRegistry, LagCollector] | None = None,
        is_spark_alive: Callable[[], bool] = lambda: True,
        shared_folder: Path | None = None,
    ) -> None:
        self.shared_folder = shared_folder
        self._measurement_writer = measurement_writer
        self._observers = observers
        self._fetch_end_offsets = fetch_end_offsets or _fetch_end_offsets
        self._write_tracker = write_tracker or WriteTracker(None)
        self._lock = threading.Lock()
        self._lags: OrderedDict[str, QueryLag] = OrderedDict()  # by query id
        self._runs: dict[str, _MonitoredRun] = {}  # by run id
        self._health = QueryHealthTracker()
        self._is_spark_alive = is_spark_alive
        self._collectors = WeakKeyDictionary() if collectors is None else collectors

    def lag(self, query: Any = None) -> QueryLag | None:
        """Return the lag of a query after its last batch, or after a later refresh; also if the query has ended.

        Args:
            query: A ``StreamingQuery``, its id or its name. Optional if there is only one query.

        Returns:
            The lag; ``None`` before the first batch.

        Raises:
            LookupError: No query was given, and there are several.
        """
        lags = self.lags
        if query is None:
            if len(lags) > 1:
                raise LookupError(f"lag() needs a query, because there are {len(lags)}: {', '.join(_names(lags))}")
            return lags[0] if lags else None
        id_or_name = str(getattr(query, "id", query))
        return next((lag for lag in reversed(lags) if id_or_name in (lag.query_id, lag.name)), None)

    @property
    def lags(self) -> tuple[QueryLag, ...]:
        """The lag of every query of this session that has read with this package."""
        with self._lock:
            return tuple(self._lags.values())

    def written(self, query: Any = None) -> BatchWriteReport | None:
        """Return what a query's last batch, or a batch query, has written with this package: records, bytes, offsets.

        The reports of the 100 streaming queries and of the 100 job groups that wrote last are retained.

        Args:
            query: A ``StreamingQuery``, its id or its name; or the job group (``SparkContext.setJobGroup``) in which a
                batch query ran. By default the last batch query that ran without a job group.

        Returns:
            The report; ``None`` if the query has written nothing or is not known, that is with Spark Connect, and for
            writes before ``enable(spark)``.
        """
        return self._write_tracker.last_batch(query)

    @property
    def sink_totals(self) -> tuple[SinkTotal, ...]:
        """The records and bytes that each query of this session has written since ``enable(spark)``, by topic."""
        return self._write_tracker.totals

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """Every query of this session since ``enable(spark)``: whether it runs or has failed, and its last batch."""
        queries = self._health.queries
        if any(query.is_running for query in queries) and not self._is_spark_alive():
            return tuple(dataclasses.replace(query, is_running=False) for query in queries)
        return queries

    def refresh_stale_lags(self) -> None:
        """Check whether Spark still runs, and refresh the lag of running queries whose last batch ended a while ago.

        If Spark has stopped, its queries ended without an event. Other queries may be stuck in a batch.
        """
        if not self._health.running:
            return
        if not self._is_spark_alive():
            self._health.all_ended()
            with self._lock:
                self._runs.clear()
            return
        stale_before = time.time() - _STALE_AFTER_SECONDS
        with self._lock:
            runs = [
                run for run in self._runs.values() if (lag := self._lags.get(run.query_id)) and lag.time < stale_before
            ]
        for run in runs:
            self._start_refresh(run)

    @property
    def losses(self) -> tuple[LossTotal, ...]:
        """Records skipped with ``failOnDataLoss=false``: one total for each partition and cause."""
        return () if self.shared_folder is None else load_totals(self.shared_folder).losses

    @property
    def malformed_records(self) -> tuple[MalformedTotal, ...]:
        """Malformed records that were read or dropped: one total for each partition and mode.

        ``schema_errors`` counts records that may be valid, because their schema could not be used.
        """
        return () if self.shared_folder is None else load_totals(self.shared_folder).malformed

    def register_metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Register all metrics with Prometheus; they are computed at each scrape. A second call does nothing.

        It needs ``pip install pyspark-kafka-direct[prometheus]``. Serve the metrics with
        ``prometheus_client.start_http_server(9108, addr="127.0.0.1")``; without ``addr`` it listens on all interfaces.

        Args:
            registry: A registry other than the default of the library.

        Raises:
            ImportError: The library is not installed.
        """
        from pyspark_kafka_direct.monitor.prometheus_metrics import register_collector

        register_collector(self, registry, self._collectors)

    def track_query(self, query_id: str, run_id: str, name: str | None) -> None:
        """Record the start of a query, with or without a source of this package; the listener calls this."""
        self._health.started(query_id, run_id, name)

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Notify the observers of a query with committing sources; the listener calls this."""
        if sources:
            for observer in self._observers:
                observer.query_started(run_id, sources)

    def batch_ended(self, progress: Mapping[str, Any], details: QueryDetails) -> None:
        """Handle a progress report; the listener calls this."""
        run_id, query_id, name = str(progress["runId"]), str(progress["id"]), progress["name"]
        self._write_tracker.batch_ended(query_id, name, int(progress["batchId"]))
        self._health.batch_ended(query_id, run_id, name, time.time())
        sources = self._parse_sources(progress, details, default_group=name or query_id)
        self._update_run(_MonitoredRun(query_id, run_id, name), int(progress["batchId"]), sources)
        # Run the steps that can fail last: observers, and then the disk.
        if sources:
            batches = [(source.batch, source.options) for source in sources.values()]
            for observer in self._observers:
                observer.batch_ended(run_id, batches)
        for index, source in sources.items():
            if self._measurement_writer is not None:
                self._measurement_writer.batch_ended(f"{run_id} {index}", source.batch, details.interval_ms)

    def _parse_sources(
        self, progress: Mapping[str, Any], details: QueryDetails, default_group: str
    ) -> dict[int, _MonitoredSource]:
        """Return the sources of this package by their index in a progress report."""
        sources: dict[int, _MonitoredSource] = {}
        for index, source in enumerate(progress["sources"]):
            description = str(source["description"])
            if not details.is_kafka_direct(description):
                continue
            isolation_level = details.option(description, "isolation.level") or ""
            read_committed = isolation_level.lower() == "read_committed"
            batch = parse_source_progress(progress, source, read_committed=read_committed)
            if batch is not None:
                options = (details.options or {}).get(description, {})
                group = details.option(description, "commitGroupId") or default_group
                fetch_end_offsets = partial(self._fetch_end_offsets, options) if options else None
                sources[index] = _MonitoredSource(batch, group, options, fetch_end_offsets)
        return sources

    def report_batch(self, query_id: str, run_id: str, name: str | None, report: BatchReport) -> None:
        """Handle a batch of a query that Spark's listeners do not hear of; the query calls this."""
        self._health.batch_ended(query_id, run_id, name, time.time())
        batch = SourceBatch(
            description=report.source,
            began_ms=report.began_ms,
            ended_ms=report.ended_ms,
            rows=report.rows,
            start=report.start,
            end=report.end,
            latest={},  # `fetch_end_offsets` fetches them
        )
        source = _MonitoredSource(
            batch, report.group or name or query_id, options={}, fetch_end_offsets=report.fetch_end_offsets
        )
        self._update_run(_MonitoredRun(query_id, run_id, name), report.batch_id, {0: source})

    def report_idle(self, run_id: str) -> None:
        """Refresh the end offsets of an idle query that Spark's listeners do not hear of; may be called often."""
        with self._lock:
            run = self._runs.get(run_id)
        if run is None:
            return
        interval = _MIN_REFRESH_INTERVAL_SECONDS if run.lacks_end_offsets else _IDLE_REFRESH_INTERVAL_SECONDS
        if time.monotonic() - run.last_refresh_at >= interval:
            self._start_refresh(run)

    def _update_run(self, new_run: _MonitoredRun, batch_id: int, sources: Mapping[int, _MonitoredSource]) -> None:
        """Compute the lag after a batch; ``new_run`` is used if the run is not known yet."""
        with self._lock:
            run = self._runs.setdefault(new_run.run_id, new_run)
            is_refresh_due = time.monotonic() - run.last_refresh_at >= _MIN_REFRESH_INTERVAL_SECONDS
            if not is_refresh_due:  # compute the lag with the end offsets that were fetched last
                sources = {
                    index: source.with_known_end_offsets(run.sources.get(index)) for index, source in sources.items()
                }
            run.batch_id, run.sources = batch_id, sources
            lag = run.lag()
            if lag is not None:
                self._store_lag(lag)
        if lag is not None:
            _log.info("%s", lag.summary)
        if run.lacks_end_offsets and (is_refresh_due or lag is not None):  # a lag of earlier end offsets is too low
            self._start_refresh(run)

    def query_idle(self, run_id: str) -> None:
        """Refresh the end offsets of an idle query, on another thread; the listener calls this."""
        for observer in self._observers:
            observer.query_idle(run_id)
        with self._lock:
            run = self._runs.get(run_id)
        if run is not None:
            self._start_refresh(run)

    def _start_refresh(self, run: _MonitoredRun) -> None:
        with self._lock:
            if run.is_refreshing or not any(source.fetch_end_offsets for source in run.sources.values()):
                return
            now = time.monotonic()
            delay = max(run.last_refresh_at + _MIN_REFRESH_INTERVAL_SECONDS - now, 0.0)  # spares the brokers
            run.is_refreshing, run.last_refresh_at = True, now + delay
        try:
            threading.Thread(
                target=self._refresh_end_offsets, args=(run, delay), name="kafka-direct-ends", daemon=True
            ).start()
        except RuntimeError as error:  # no thread could be started; the rest of the report is still processed
            run.is_refreshing = False
            _log.debug("could not refresh the lag of the query %s: %s", run.name or run.query_id, error)

    def query_ended(self, run_id: str, *, failed: bool = False) -> None:
        """Release the state of a running query; the listener calls this."""
        self._health.ended(run_id, failed=failed)
        with self._lock:
            run = self._runs.pop(run_id, None)
        for index in run.trackers if run is not None else ():
            if self._measurement_writer is not None:
                self._measurement_writer.forget(f"{run_id} {index}")  # the key of `batch_ended`
        for observer in self._observers:
            observer.query_ended(run_id)

    def _refresh_end_offsets(self, run: _MonitoredRun, delay: float) -> None:
        """Request the end offsets of the run's sources, and update its lag; a failure is only logged."""
        if delay > 0:
            time.sleep(delay)
        sources = run.sources
        try:
            end_offsets = _fetch_source_ends(sources)
        except Exception as error:
            _log.debug("could not refresh the lag of the query %s: %s", run.name or run.query_id, error)
        else:
            with self._lock:
                if self._is_current(run, sources):
                    self._update_end_offsets(run, end_offsets)
        finally:
            run.is_refreshing = False

    def _update_end_offsets(self, run: _MonitoredRun, end_offsets: Mapping[int, Mapping[TopicPartition, int]]) -> None:
        """Compute the lag of a run with the end offsets of its sources; requires the lock."""
        is_first_lag = run.lacks_end_offsets  # since the batch; later ones are not logged
        now_ms = time.time() * 1000
        run.sources = {
            index: source.with_end_offsets(end_offsets[index], now_ms) if index in end_offsets else source
            for index, source in run.sources.items()
        }
        lag = run.lag()
        if lag is not None:
            self._store_lag(lag)
            if is_first_lag:
                _log.info("%s", lag.summary)

    def _is_current(self, run: _MonitoredRun, sources: Mapping[int, _MonitoredSource]) -> bool:
        """Return whether end offsets that were fetched for these sources are newer than all known ones."""
        if run.lacks_end_offsets:  # any end offsets are newer, unless the query was restarted
            return not any(other.query_id == run.query_id for other in self._runs.values() if other is not run)
        # If a batch has ended since the request, its report contains newer end offsets.
        return run.sources is sources and self._runs.get(run.run_id) is run

    def _store_lag(self, lag: QueryLag) -> None:
        """Store the lag of a query, and evict the least recently stored ones; requires the lock."""
        self._lags[lag.query_id] = lag
        self._lags.move_to_end(lag.query_id)
        while len(self._lags) > _MAX_QUERIES:
            self._lags.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _MonitoredSource:
    batch: SourceBatch
    group: str
    options: Mapping[str, str] = field(repr=False)
    # None if the options are not known.
    fetch_end_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]] | None = field(repr=False)
    has_earlier_end_offsets: bool = False  # fetched before the batch ended

    @property
    def lacks_end_offsets(self) -> bool:
        """Whether the end offsets are unknown since the last batch."""
        return self.has_earlier_end_offsets or not self.batch.latest

    def with_known_end_offsets(self, previous: _MonitoredSource | None) -> _MonitoredSource:
        """Return a ``read_committed`` source with the high watermarks of the batch before, if these were fetched."""
        last_stable_offsets = self.batch.last_stable_offsets
        if previous is None or not last_stable_offsets:
            return self
        known = previous.batch
        latest = {tp: max(end, last_stable_offsets.get(tp, end)) for tp, end in known.latest.items()}
        batch = dataclasses.replace(self.batch, latest=latest, latest_fetched_ms=known.latest_fetched_ms)
        return dataclasses.replace(self, batch=batch, has_earlier_end_offsets=True)

    def with_end_offsets(self, end_offsets: Mapping[TopicPartition, int], now_ms: float) -> _MonitoredSource:
        """Return the source with newly fetched end offsets."""
        batch = dataclasses.replace(self.batch, latest=end_offsets, latest_fetched_ms=now_ms)
        if not self.lacks_end_offsets:  # the lag after the batch was already reported: the query has been idle since
            batch = dataclasses.replace(batch, began_ms=now_ms, ended_ms=now_ms, rows=0, start=self.batch.end)
        return dataclasses.replace(self, batch=batch, has_earlier_end_offsets=False)


@dataclass(slots=True)
class _MonitoredRun:
    query_id: str
    run_id: str
    name: str | None
    batch_id: int = 0
    sources: Mapping[int, _MonitoredSource] = field(default_factory=dict)
    trackers: dict[int, LagTracker] = field(default_factory=dict)
    is_refreshing: bool = False
    last_refresh_at: float = float("-inf")  # the time of the last broker request, on the monotonic clock

    @property
    def lacks_end_offsets(self) -> bool:
        """Whether the end offsets of a source are unknown since the last batch."""
        return any(source.lacks_end_offsets for source in self.sources.values())

    def lag(self) -> QueryLag | None:
        """Return the lag of the run's sources; ``None`` if no end offsets are known."""
        lags = [
            self.trackers.setdefault(index, LagTracker()).update(source.batch, source.group)
            for index, source in self.sources.items()
        ]
        known_lags = tuple(lag for lag in lags if lag.partitions)
        if not known_lags:
            return None
        as_of = max(max(source.batch.ended_ms, source.batch.latest_as_of_ms) for source in self.sources.values()) / 1000
        return QueryLag(self.query_id, self.run_id, self.name, self.batch_id, as_of, known_lags)


def _names(lags: tuple[QueryLag, ...]) -> list[str]:
    return [lag.name or lag.query_id for lag in lags]


def _fetch_source_ends(sources: Mapping[int, _MonitoredSource]) -> dict[int, Mapping[TopicPartition, int]]:
    """Request the end offsets of sources: of those that lack them, or else of all."""
    lacking = {index: source for index, source in sources.items() if source.lacks_end_offsets}
    return {
        index: source.fetch_end_offsets(source.batch.end)
        for index, source in (lacking or sources).items()
        if source.fetch_end_offsets is not None and source.batch.end
    }


def _fetch_end_offsets(options: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    from pyspark_kafka_direct.consumer.query_metadata import fetch_end_offsets
    from pyspark_kafka_direct.spark.token_file import token_clusters

    return fetch_end_offsets(options, partitions, token_clusters())
