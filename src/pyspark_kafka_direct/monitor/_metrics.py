"""Lag for Prometheus, under the names that dashboards of kafka-lag-exporter know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableSet

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


def register(monitor: HasLags, registry: CollectorRegistry | None, registered: MutableSet[CollectorRegistry]) -> None:
    """Let a registry ask the monitor.

    Args:
        monitor: Who is asked.
        registry: Who asks; ``None`` for the library's default.
        registered: The registries that ask already; this one is added.

    Raises:
        ImportError: The library is not installed.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise ImportError(_MISSING) from error
    asks = registry or REGISTRY
    if asks not in registered:
        registered.add(asks)
        asks.register(LagCollector(monitor))


class LagCollector:
    """Makes the metrics when Prometheus asks, so nothing is to be kept up to date.

    Args:
        monitor: Where the lags are.
    """

    def __init__(self, monitor: HasLags) -> None:
        self._monitor = monitor

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: no metric is known before a query runs."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Return the metrics now."""
        self._monitor.look_again()
        yield from self._health()
        yield from self._lag()
        yield from self._written()

    def _health(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        up = GaugeMetricFamily("kafka_direct_query_up", "Whether the query runs", labels=["query"])
        last = GaugeMetricFamily(
            "kafka_direct_query_last_batch_timestamp_seconds", "When its last batch ended", labels=["query"]
        )
        # Of several queries of one name the last one started counts.
        for query in {each.query: each for each in self._monitor.queries}.values():
            up.add_metric([query.query], int(query.is_running))
            if query.last_batch is not None:
                last.add_metric([query.query], query.last_batch)
        yield from (up, last)

    def _written(self) -> Iterator[CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily

        labels = ["query", "topic"]
        records = CounterMetricFamily("kafka_direct_sink_records", "Records written", labels=labels)
        size = CounterMetricFamily("kafka_direct_sink_bytes", "Bytes written, as they were sent", labels=labels)
        for total in self._monitor.sink_totals:
            records.add_metric([total.query, total.topic], total.records)
            size.add_metric([total.query, total.topic], total.bytes)
        yield from (records, size)

    def _lag(self) -> Iterator[GaugeMetricFamily]:
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

        ended = {each.query_id for each in self._monitor.queries if not each.is_running}
        sources = [source for query in self._monitor.lags if query.query_id not in ended for source in query.sources]
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
