"""Metrics for Prometheus, under the names that dashboards of kafka-lag-exporter use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.spark.loss_counts import load_totals, sum_totals

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence, Set
    from pathlib import Path

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    from pyspark_kafka_direct.monitor.consumer_lag import PartitionLag, QueryLag, SourceLag
    from pyspark_kafka_direct.monitor.query_status import QueryHealth, SinkTotal

_CLIENT_MISSING = (
    "the Prometheus client is not installed: pip install 'pyspark-kafka-direct[prometheus]' (or prometheus-client)"
)


class LagSource(Protocol):
    """The part of ``Monitor`` that the metrics need."""

    @property
    def lags(self) -> tuple[QueryLag, ...]:
        """The lag of every query."""

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """Every query, and whether it is running or has failed."""

    def refresh_stale_lags(self) -> None:
        """Start to refresh the lag of running queries without a recent report."""

    @property
    def sink_totals(self) -> tuple[SinkTotal, ...]:
        """The totals that every query has written."""

    @property
    def shared_folder(self) -> Path | None:
        """The folder where planners save what they have skipped."""


def register_collector(
    monitor: LagSource,
    registry: CollectorRegistry | None,
    collectors: MutableMapping[CollectorRegistry, LagCollector],
) -> None:
    """Add the monitor to the collector of a registry; ``None`` is the default registry."""
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise ImportError(_CLIENT_MISSING) from error
    target = registry or REGISTRY
    if target not in collectors:
        collectors[target] = LagCollector()
        target.register(collectors[target])
    collectors[target].add(monitor)


class LagCollector:
    """Computes the metrics at each scrape."""

    # All sessions share one collector, because Prometheus requires that each metric name occurs once, with all of its
    # series. Two sessions may have the same series.

    def __init__(self) -> None:
        self._monitors: list[LagSource] = []

    def add(self, monitor: LagSource) -> None:
        """Add a monitor."""
        if monitor not in self._monitors:
            self._monitors.append(monitor)

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the metrics are not known before a query runs."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Return the current metrics."""
        for monitor in self._monitors:
            monitor.refresh_stale_lags()
        # Monitor.queries is read once, because each access calls the JVM to check whether Spark still runs.
        queries = [query for monitor in self._monitors for query in monitor.queries]
        yield from self._health(queries)
        yield from self._lag({query.query_id for query in queries if query.is_running})
        yield from self._written()
        yield from self._skipped_and_malformed()

    def _health(self, queries: Sequence[QueryHealth]) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        up = GaugeMetricFamily("kafka_direct_query_up", "1 if the query is running", labels=["query"])
        failed = GaugeMetricFamily(
            "kafka_direct_query_failed", "1 if the last run of the query has ended with an error", labels=["query"]
        )
        last_batch = GaugeMetricFamily(
            "kafka_direct_query_last_batch_timestamp_seconds", "When its last batch ended", labels=["query"]
        )
        # If several queries have the same name, the running one is shown, or else the one that started last.
        ordered = sorted(queries, key=lambda query: query.is_running)
        shown_queries = {query.query: query for query in ordered}
        for name, query in shown_queries.items():
            up.add_metric([name], int(query.is_running))
            if query.failed:
                failed.add_metric([name], 1)
            if query.last_batch is not None:
                last_batch.add_metric([name], query.last_batch)
        yield from (up, failed, last_batch)

    def _written(self) -> Iterator[CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily

        labels = ["query", "topic"]
        records = CounterMetricFamily("kafka_direct_sink_records", "Records written", labels=labels)
        size = CounterMetricFamily("kafka_direct_sink_bytes", "Bytes written, as sent", labels=labels)
        sums: dict[tuple[str, str], tuple[int, int]] = {}  # several queries may have had the same name
        for total in (total for monitor in self._monitors for total in monitor.sink_totals):
            record_sum, byte_sum = sums.get((total.query, total.topic), (0, 0))
            sums[total.query, total.topic] = (record_sum + total.records, byte_sum + total.bytes)
        for label_values, (record_sum, byte_sum) in sums.items():
            records.add_metric(label_values, record_sum)
            size.add_metric(label_values, byte_sum)
        yield from (records, size)

    def _skipped_and_malformed(self) -> Iterator[CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily

        labels = ["topic", "partition", "cause"]
        losses = CounterMetricFamily("kafka_direct_data_losses", "Data losses that were skipped", labels=labels)
        offsets = CounterMetricFamily(
            "kafka_direct_skipped_offsets", "Offsets that were skipped, as far as their number is known", labels=labels
        )
        malformed = CounterMetricFamily(
            "kafka_direct_malformed_records", "Malformed records", labels=["topic", "partition", "mode"]
        )
        # Of other records than those that `malformed` counts.
        schema_errors = CounterMetricFamily(
            "kafka_direct_schema_error_records",
            "Records that may be valid, because their schema could not be used",
            labels=["topic", "partition", "mode"],
        )
        folders = {monitor.shared_folder for monitor in self._monitors}  # the sessions of an application share one
        totals = sum_totals(load_totals(folder) for folder in folders if folder is not None)
        for loss in totals.losses:
            label_values = [loss.topic, str(loss.partition), loss.cause]
            losses.add_metric(label_values, loss.losses)
            offsets.add_metric(label_values, loss.offsets)
        for total in totals.malformed:
            label_values = [total.topic, str(total.partition), total.mode]
            malformed.add_metric(label_values, total.records)
            schema_errors.add_metric(label_values, total.schema_errors)
        yield from (losses, offsets, malformed, schema_errors)

    def _lag(self, running: Set[str]) -> Iterator[GaugeMetricFamily]:
        """Return the lag of running queries; if two sources read a partition, the larger lag."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ["group", "topic", "partition"]
        offset = GaugeMetricFamily("kafka_consumergroup_group_offset", "Next offset to read", labels=labels)
        lag = GaugeMetricFamily("kafka_consumergroup_group_lag", "Lag in offsets", labels=labels)
        seconds = GaugeMetricFamily("kafka_consumergroup_group_lag_seconds", "Lag in seconds", labels=labels)
        max_lag = GaugeMetricFamily(
            "kafka_consumergroup_group_max_lag", "Largest lag of a partition in offsets", labels=["group"]
        )
        max_seconds = GaugeMetricFamily(
            "kafka_consumergroup_group_max_lag_seconds", "Largest lag of a partition in seconds", labels=["group"]
        )
        partition_labels = ["topic", "partition"]
        latest = GaugeMetricFamily(
            "kafka_partition_latest_offset", "End of the log (high watermark)", labels=partition_labels
        )
        last_stable = GaugeMetricFamily(
            "kafka_partition_last_stable_offset", "Offset up to which read_committed reads", labels=partition_labels
        )

        query_lags = [each for monitor in self._monitors for each in monitor.lags if each.query_id in running]
        sources = [source for query_lag in query_lags for source in query_lag.sources]
        ends: dict[tuple[str, str], int] = {}  # by topic and partition, which several sources may read
        stable_ends: dict[tuple[str, str], int] = {}
        for (group, topic, partition), partition_lag in _largest_lags(sources).items():
            label_values = [group, topic, partition]
            offset.add_metric(label_values, partition_lag.offset)
            lag.add_metric(label_values, partition_lag.lag)
            if partition_lag.seconds is not None:
                seconds.add_metric(label_values, partition_lag.seconds)
        for partition_lag in (each for source in sources for each in source.partitions):
            label = partition_lag.topic, str(partition_lag.partition)
            ends[label] = max(ends.get(label, 0), partition_lag.latest)
            if (stable_end := partition_lag.last_stable_offset) is not None:
                stable_ends[label] = max(stable_ends.get(label, 0), stable_end)
        for family, offsets in ((latest, ends), (last_stable, stable_ends)):
            for (topic, partition), end in offsets.items():
                family.add_metric([topic, partition], end)
        for group in sorted({source.group for source in sources}):
            group_sources = [source for source in sources if source.group == group]
            max_lag.add_metric([group], max(source.max_offsets_behind for source in group_sources))
            lags_in_seconds = [source.max_seconds_behind for source in group_sources]
            known_seconds = [lag_seconds for lag_seconds in lags_in_seconds if lag_seconds is not None]
            if known_seconds:
                max_seconds.add_metric([group], max(known_seconds))
        yield from (offset, lag, seconds, max_lag, max_seconds, latest, last_stable)


def _largest_lags(sources: Sequence[SourceLag]) -> dict[tuple[str, str, str], PartitionLag]:
    """Return the largest lag of each partition, by group, topic and partition."""
    lags = [(source.group, partition_lag) for source in sources for partition_lag in source.partitions]
    lags.sort(key=lambda group_and_lag: group_and_lag[1].lag)
    # The largest lag of a partition is the last one, so it replaces the others in the dict.
    return {(group, each.topic, str(each.partition)): each for group, each in lags}
