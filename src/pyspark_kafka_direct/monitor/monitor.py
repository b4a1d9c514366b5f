"""The lag of all queries of a session, and who else is told of finished batches."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from pyspark_kafka_direct.monitor._health import Health, QueryHealth
from pyspark_kafka_direct.monitor._lag import LagTracker, QueryLag, SourceBatch, source_batch
from pyspark_kafka_direct.monitor._writes import SinkTotal, WriteLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence

    from prometheus_client import CollectorRegistry

    from pyspark_kafka_direct.monitor._feedback import FeedbackWriter
    from pyspark_kafka_direct.monitor._metrics import LagCollector
    from pyspark_kafka_direct.monitor._queries import QueryFacts
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.written import BatchWritten

    LookUp: TypeAlias = Callable[[Mapping[str, str], Collection[TopicPartition]], Mapping[TopicPartition, int]]

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_KEPT = 100
_STALE_SECONDS = 15.0  # Prometheus usually asks so often
_PAUSE_SECONDS = 1.0  # between looks at a query whose reports do not tell where the logs end


class BatchObserver(Protocol):
    """Is told of queries and their finished batches, on the listener's threads: quick, or on a thread of its own."""

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Take note of a query that commits for a group; it waits for this, and its planner does not run yet.

        Args:
            run_id: Of the query's run.
            sources: The options, as ``batch_ended`` has them, of those of its sources that commit for a group.
        """

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        """Take note that a batch is done, and that Spark has logged it.

        Args:
            run_id: Of the query's run.
            sources: Of this package, with their options; a batch's ``end`` has the next offsets to read. The names of
                options are in lower case, and they may hold secrets. No options when they can't be found.
        """

    def query_idle(self, run_id: str) -> None:
        """Take note that the query found nothing to read for a while."""

    def query_ended(self, run_id: str) -> None:
        """Take note that the run is over."""


class Monitor:
    """The lag of a session's queries; ``enable(spark)`` returns it. Safe to use from several threads.

    Args:
        feedback: Takes the measurements for backpressure.
        observers: Are told of finished batches.
        look_up: Asks the brokers for the ends of partitions, from a source's options: of an idle query, and where
            reports do not tell them.
        writes: Knows what batches have written; by default nobody does.
        collectors: Who answers each Prometheus registry; shared by the monitors of all sessions.
        lives: Tells whether Spark still runs: of queries that end with it nobody is told.
    """

    def __init__(
        self,
        feedback: FeedbackWriter | None = None,
        observers: tuple[BatchObserver, ...] = (),
        look_up: LookUp | None = None,
        writes: WriteLog | None = None,
        collectors: MutableMapping[CollectorRegistry, LagCollector] | None = None,
        lives: Callable[[], bool] = lambda: True,
    ) -> None:
        self._feedback = feedback
        self._observers = observers
        self._look_up = look_up or _ends_now
        self._writes = writes or WriteLog(None)
        self._lock = threading.Lock()
        self._lags: OrderedDict[str, QueryLag] = OrderedDict()
        self._runs: dict[str, _Run] = {}
        self._health = Health()
        self._lives = lives
        self._collectors = WeakKeyDictionary() if collectors is None else collectors

    def lag(self, query: Any = None) -> QueryLag | None:
        """Return where a query is, after its last batch or a look at it while idle; known after the query's end, too.

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

    def written(self, query: Any = None) -> BatchWritten | None:
        """Return what a query's last batch, or a batch query, has written with this package: records, bytes, offsets.

        Args:
            query: A ``StreamingQuery``, its id or its name; or the job group (``SparkContext.setJobGroup``) that a
                batch query ran in. By default the last batch query that ran without one.

        Returns:
            ``None`` if it has written nothing, or is not known: with Spark Connect, and for what was written before
            ``enable(spark)``.
        """
        return self._writes.last(query)

    @property
    def sink_totals(self) -> tuple[SinkTotal, ...]:
        """What each query of this session has written since ``enable(spark)``, by topic."""
        return self._writes.totals

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """Every query of this session since ``enable(spark)``: whether it runs, and when its last batch ended."""
        known = self._health.queries
        if any(each.is_running for each in known) and not self._lives():
            return tuple(dataclasses.replace(each, is_running=False) for each in known)
        return known

    def look_again(self) -> None:
        """Look whether Spark still runs, and ask the brokers for the lag of queries whose last batch ended a while ago.

        Of queries that have ended with Spark nobody is told; others may be stuck.
        """
        if not self._health.running:
            return
        if not self._lives():
            self._health.all_ended()
            with self._lock:
                self._runs.clear()
            return
        before = time.time() - _STALE_SECONDS
        with self._lock:
            runs = [run for run in self._runs.values() if (lag := self._lags.get(run.query_id)) and lag.time < before]
        for run in runs:
            self._look_soon(run)

    def register_metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Offer all lags to Prometheus; they are looked at when it asks. Called again, it does nothing.

        Needs ``pip install pyspark-kafka-direct[prometheus]``. Serve them with
        ``prometheus_client.start_http_server(9108)``.

        Args:
            registry: Another than the library's default.

        Raises:
            ImportError: The library is not installed.
        """
        from pyspark_kafka_direct.monitor._metrics import register

        register(self, registry, self._collectors)

    def query_known(self, query_id: str, run_id: str, name: str | None) -> None:
        """Take in that a query begins, whatever it reads."""
        self._health.started(query_id, run_id, name)

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Take in the start of a query."""
        for observer in self._observers if sources else ():
            observer.query_started(run_id, sources)

    def batch_ended(self, progress: Mapping[str, Any], facts: QueryFacts) -> None:
        """Take in a progress report."""
        run_id, query_id, name = str(progress["runId"]), str(progress["id"]), progress["name"]
        self._writes.batch_ended(query_id, name, int(progress["batchId"]))
        self._health.batch_ended(query_id, run_id, name, time.time())
        sources: dict[int, _Source] = {}
        for number, source in enumerate(progress["sources"]):
            batch = source_batch(progress, source) if facts.ours(str(source["description"])) else None
            if batch is not None:
                options = (facts.options or {}).get(batch.description, {})
                group = facts.option(batch.description, "commitGroupId") or name or query_id
                sources[number] = _Source(batch, group, options)
        with self._lock:
            run = self._runs.setdefault(run_id, _Run(query_id, run_id, name))
            run.batch_id, run.sources = int(progress["batchId"]), sources
            lag = run.lag()
            if lag is not None:
                self._keep(lag)
        if lag is not None:
            _log.info("%s", lag.line)
        if run.ends_untold and time.monotonic() - run.asked >= _PAUSE_SECONDS:
            self._look_soon(run)
        # Last what may fail: observers, and then the disk.
        for observer in self._observers if sources else ():
            observer.batch_ended(run_id, [(each.batch, each.options) for each in sources.values()])
        for number, each in sources.items():
            if self._feedback is not None:
                self._feedback.batch_ended(f"{run_id} {number}", each.batch, facts.interval_ms)

    def query_idle(self, run_id: str) -> None:
        """Look at the ends of an idle query's partitions, on a thread of its own."""
        for observer in self._observers:
            observer.query_idle(run_id)
        with self._lock:
            run = self._runs.get(run_id)
        if run is not None:
            self._look_soon(run)

    def _look_soon(self, run: _Run) -> None:
        with self._lock:
            if run.looked_at or not any(each.options for each in run.sources.values()):
                return
            run.looked_at, run.asked = True, time.monotonic()
        try:
            threading.Thread(target=self._look, args=(run,), name="kafka-direct-ends", daemon=True).start()
        except RuntimeError as error:  # no thread is to be had now; what else a report is for goes on
            run.looked_at = False
            _log.debug("the lag of %s stays as it was: %s", run.name or run.query_id, error)

    def query_ended(self, run_id: str) -> None:
        """Let go of what only a running query needs."""
        self._health.ended(run_id)
        with self._lock:
            run = self._runs.pop(run_id, None)
        for number in run.trackers if run is not None else ():
            if self._feedback is not None:
                self._feedback.forget(f"{run_id} {number}")
        for observer in self._observers:
            observer.query_ended(run_id)

    def _look(self, run: _Run) -> None:
        sources = run.sources
        try:
            ends = {
                number: self._look_up(each.options, each.batch.end)
                for number, each in sources.items()
                if each.options and each.batch.end
            }
        except Exception as error:
            _log.debug("the lag of the idle query %s stays as it was: %s", run.name or run.query_id, error)
        else:
            with self._lock:
                if self._counts(run, sources):
                    run.sources = {
                        number: each.seen(ends[number], time.time() * 1000) if number in ends else each
                        for number, each in run.sources.items()
                    }
                    lag = run.lag()
                    if lag is not None:
                        self._keep(lag)
        finally:
            run.looked_at = False

    def _counts(self, run: _Run, sources: Mapping[int, _Source]) -> bool:
        """Tell whether what a look at these sources found is still the best that is known."""
        if run.ends_untold:
            return not any(other.query_id == run.query_id for other in self._runs.values() if other is not run)
        # A batch that ended meanwhile knows better.
        return run.sources is sources and self._runs.get(run.run_id) is run

    def _keep(self, lag: QueryLag) -> None:
        self._lags[lag.query_id] = lag
        self._lags.move_to_end(lag.query_id)
        while len(self._lags) > _KEPT:
            self._lags.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Source:
    batch: SourceBatch
    group: str
    options: Mapping[str, str] = field(repr=False)

    def seen(self, ends: Mapping[TopicPartition, int], now_ms: float) -> _Source:
        """Return the source with ends that were just seen; as if idle, if those at its last batch were known before."""
        batch = dataclasses.replace(self.batch, latest=ends, seen_ms=now_ms)
        if self.batch.latest:
            batch = dataclasses.replace(batch, began_ms=now_ms, ended_ms=now_ms, rows=0, start=self.batch.end)
        return dataclasses.replace(self, batch=batch)


@dataclass(slots=True)
class _Run:
    query_id: str
    run_id: str
    name: str | None
    batch_id: int = 0
    sources: Mapping[int, _Source] = field(default_factory=dict)
    trackers: dict[int, LagTracker] = field(default_factory=dict)
    looked_at: bool = False
    asked: float = float("-inf")  # when brokers were asked last, on the clock that never goes back

    @property
    def ends_untold(self) -> bool:
        """Whether nobody has told where the logs of some source end since its last batch."""
        return any(not each.batch.latest for each in self.sources.values())

    def lag(self) -> QueryLag | None:
        lags = [
            self.trackers.setdefault(number, LagTracker()).after(each.batch, each.group)
            for number, each in self.sources.items()
        ]
        known = tuple(lag for lag in lags if lag.partitions)
        if not known:
            return None
        seen = max(max(each.batch.ended_ms, each.batch.seen_at_ms) for each in self.sources.values()) / 1000
        return QueryLag(self.query_id, self.run_id, self.name, self.batch_id, seen, known)


def _names(lags: tuple[QueryLag, ...]) -> list[str]:
    return [lag.name or lag.query_id for lag in lags]


def _ends_now(options: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends as the source sees them: with ``read_committed`` the last stable offsets."""
    from pyspark_kafka_direct.runtime.cluster import ends_now

    return ends_now(options, partitions)
