"""Lag for Prometheus, under the names that dashboards of kafka-lag-exporter know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence, Set

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    from pyspark_kafka_direct.monitor._health import QueryHealth
    from pyspark_kafka_direct.monitor._lag import QueryLag
    from pyspark_kafka_direct.monitor._writes import SinkTotal

_MISSING = (
    "the Prometheus client is not installed: pip install 'pyspark-kafka-direct[prometheus]' (or prometheus-client)"
)


class HasLags(Protocol):
    """Knows where queries are, and what they have written; ``Monitor`` does."""

    @property
    def lags(self) -> tuple[QueryLag, ...]:
        """The lag of every query."""

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """Every query, and whether it runs."""

    def look_again(self) -> None:
        """Ask brokers where nothing was heard of a running query for a while; waits for no answer."""

    @property
    def sink_totals(self) -> tuple[SinkTotal, ...]:
        """What every query has written."""


def register(
    monitor: HasLags,
    registry: CollectorRegistry | None,
    collectors: MutableMapping[CollectorRegistry, LagCollector],
) -> None:
    """Let a registry ask the monitor.

    Args:
        monitor: Who is asked.
        registry: Who asks; ``None`` for the library's default.
        collectors: Who answers the registries that ask already; that of this one is added.

    Raises:
        ImportError: The library is not installed.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise ImportError(_MISSING) from error
    asks = registry or REGISTRY
    if asks not in collectors:
        collectors[asks] = LagCollector()
        asks.register(collectors[asks])
    collectors[asks].add(monitor)


class LagCollector:
    """Makes the metrics when Prometheus asks, so nothing is to be kept up to date.

    One for all sessions: a name may be there once, with all its series, and two sessions may have the same ones.
    """

    def __init__(self) -> None:
        self._monitors: list[HasLags] = []

    def add(self, monitor: HasLags) -> None:
        """Ask this monitor, too."""
        if monitor not in self._monitors:
            self._monitors.append(monitor)

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: no metric is known before a query runs."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Return the metrics now."""
        for monitor in self._monitors:
            monitor.look_again()
        # Once: each look asks the JVM whether Spark still runs.
        queries = [query for monitor in self._monitors for query in monitor.queries]
        yield from self._health(queries)
        yield from self._lag({each.query_id for each in queries if each.is_running})
        yield from self._written()

    def _health(self, queries: Sequence[QueryHealth]) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        up = GaugeMetricFamily("kafka_direct_query_up", "Whether the query runs", labels=["query"])
        last = GaugeMetricFamily(
            "kafka_direct_query_last_batch_timestamp_seconds", "When its last batch ended", labels=["query"]
        )
        # Of several queries of one name the one that runs counts, else the last one started.
        ordered = sorted(queries, key=lambda each: each.is_running)
        for query in {each.query: each for each in ordered}.values():
            up.add_metric([query.query], int(query.is_running))
            if query.last_batch is not None:
                last.add_metric([query.query], query.last_batch)
        yield from (up, last)

    def _written(self) -> Iterator[CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily

        labels = ["query", "topic"]
        records = CounterMetricFamily("kafka_direct_sink_records", "Records written", labels=labels)
        size = CounterMetricFamily("kafka_direct_sink_bytes", "Bytes written, as they were sent", labels=labels)
        sums: dict[tuple[str, str], tuple[int, int]] = {}  # several queries may have had one name
        for total in (total for monitor in self._monitors for total in monitor.sink_totals):
            before = sums.get((total.query, total.topic), (0, 0))
            sums[total.query, total.topic] = (before[0] + total.records, before[1] + total.bytes)
        for names, (of_records, of_bytes) in sums.items():
            records.add_metric(names, of_records)
            size.add_metric(names, of_bytes)
        yield from (records, size)

    def _lag(self, running: Set[str]) -> Iterator[GaugeMetricFamily]:
        """Return where queries are that run. One that reads a topic twice shows the reader that is further behind."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ["group", "topic", "partition"]
        offset = GaugeMetricFamily("kafka_consumergroup_group_offset", "Next offset to read", labels=labels)
        lag = GaugeMetricFamily("kafka_consumergroup_group_lag", "Offsets behind the end", labels=labels)
        seconds = GaugeMetricFamily("kafka_consumergroup_group_lag_seconds", "Seconds behind the end", labels=labels)
        most = GaugeMetricFamily(
            "kafka_consumergroup_group_max_lag", "Offsets behind, of the last partition", labels=["group"]
        )
        longest = GaugeMetricFamily(
            "kafka_consumergroup_group_max_lag_seconds", "Seconds behind, of the last partition", labels=["group"]
        )
        latest = GaugeMetricFamily("kafka_partition_latest_offset", "The partition's end", labels=labels[1:])

        lags = [lag for monitor in self._monitors for lag in monitor.lags if lag.query_id in running]
        sources = [source for lag in lags for source in lag.sources]
        partitions = sorted(
            ((source.group, each) for source in sources for each in source.partitions),
            key=lambda pair: pair[1].lag,
        )
        behind = {(group, each.topic, str(each.partition)): each for group, each in partitions}
        ends: dict[tuple[str, str], int] = {}
        for (group, topic, partition), each in behind.items():
            names = [group, topic, partition]
            offset.add_metric(names, each.offset)
            lag.add_metric(names, each.lag)
            if each.seconds is not None:
                seconds.add_metric(names, each.seconds)
            ends[topic, partition] = max(ends.get((topic, partition), 0), each.latest)
        for (topic, partition), end in ends.items():
            latest.add_metric([topic, partition], end)
        for group in sorted({source.group for source in sources}):
            of_group = [source for source in sources if source.group == group]
            most.add_metric([group], max(source.max_offsets_behind for source in of_group))
            known = [source.max_seconds_behind for source in of_group if source.max_seconds_behind is not None]
            if known:
                longest.add_metric([group], max(known))
        yield from (offset, lag, seconds, most, longest, latest)
