"""Random queries of two sessions, which restart and share names and groups, against a plain model of their metrics."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.monitor.progress_reports import report, source

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor.query_details import QueryDetails
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.monitor import QueryLag
    from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector

PARTITIONS = [TopicPartition(topic, number) for topic in "tu" for number in range(2)]
DESCRIPTION = "PythonMicroBatchStreamWithTriggerAvailableNow@"

Offsets = dict[TopicPartition, int]
Labels = tuple[str, ...]  # in the order of their names


@dataclass(frozen=True)
class SourceBatch:
    """What the model knows of the last batch of a source."""

    group: str
    starts: Offsets
    ends: Offsets
    latest: Offsets  # not of partitions that were deleted


@dataclass(eq=False)
class Query:
    """A query, and what the model knows of its last run."""

    session: int
    id: str
    name: str | None
    sources: list[tuple[str | None, list[TopicPartition]]]  # the group, and what it reads
    runs: int = 0
    is_running: bool = False
    failed: bool = False
    batches: int = 0
    lag: list[SourceBatch] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return f"{self.id} run {self.runs}"

    @property
    def label(self) -> str:
        return self.name or self.id


class Sessions:
    """Two sessions that share a registry. Each batch takes a second, and each query has begun with known offsets."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._clock = 1_795_254_400.0  # in seconds since 1970
        self.registry = CollectorRegistry()
        collectors: dict[CollectorRegistry, LagCollector] = {}
        self.monitors = [Monitor(collectors=collectors) for _ in range(2)]
        for monitor in self.monitors:
            monitor.register_metrics(self.registry)
        self.queries = [self._query(number) for number in range(5)]
        self.started: list[list[Query]] = [[], []]  # by session; the one that started last is the last one
        self.reported: list[list[Query]] = [[], []]  # by session; the one whose lag was computed last is the last one

    def _query(self, number: int) -> Query:
        rng = self._rng
        sources = [
            (rng.choice([None, "g", "h"]), sorted(rng.sample(PARTITIONS, rng.randint(1, 3))))
            for _ in range(rng.randint(1, 3))
        ]
        return Query(rng.randrange(2), f"q{number}", rng.choice([None, "copies", "orders"]), sources)

    def step(self) -> None:
        query = self._rng.choice(self.queries)
        monitor = self.monitors[query.session]
        if not query.is_running:
            query.runs += 1
            query.is_running, query.failed = True, False
            monitor.track_query(query.id, query.run_id, query.name)
            _move_to_end(self.started[query.session], query)
        elif self._rng.random() < 0.7:
            self._report_batch(monitor, query)
        else:
            query.is_running, query.failed = False, self._rng.random() < 0.5
            monitor.query_ended(query.run_id, failed=query.failed)

    def _report_batch(self, monitor: Monitor, query: Query) -> None:
        rng = self._rng
        self._clock += 10
        query.batches += 1
        sources, options, lag = [], {}, []
        for number, (group, partitions) in enumerate(query.sources):
            starts = {tp: rng.randrange(50) for tp in partitions}
            ends = {tp: start + rng.randrange(50) for tp, start in starts.items()}
            latest = {tp: end + rng.randrange(50) for tp, end in ends.items() if rng.random() < 0.8}
            description = f"{DESCRIPTION}{query.id}{number}"
            sources.append(source(*map(_by_topic, (starts, ends, latest)), description=description))
            options[description] = {"subscribe": "t", **({} if group is None else {"commitgroupid": group})}
            if latest:
                lag.append(SourceBatch(group or query.label, starts, ends, latest))
        started = datetime.fromtimestamp(self._clock, UTC).isoformat()
        ids = {"id": query.id, "runId": query.run_id, "name": query.name}
        progress = report(*sources, batch=query.batches, started=started, duration_ms=1000, **ids)
        monitor.batch_ended(progress, QueryDetails(5000.0, options))
        if lag:
            query.lag = lag
            _move_to_end(self.reported[query.session], query)
            _check_lag(monitor.lags[-1], query)

    def samples(self, metric: str) -> dict[Labels, float]:
        found = [
            (tuple(value for _, value in sorted(sample.labels.items())), sample.value)
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == metric
        ]
        assert len(found) == len(dict(found)), "Prometheus rejects two series with the same labels"
        return dict(found)


@pytest.mark.parametrize("seed", range(15))
def test_the_metrics_of_many_queries(seed: int) -> None:
    sessions = Sessions(seed)
    for _ in range(6):
        for _ in range(8):
            sessions.step()
        _check_health(sessions)
        _check_lag_metrics(sessions)
        for monitor, reported in zip(sessions.monitors, sessions.reported, strict=True):
            assert [lag.query_id for lag in monitor.lags] == [query.id for query in reported]
            last_of_label = {query.label: query.id for query in reported}
            assert {label: monitor.lag(label) for label in last_of_label} == {
                label: monitor.lag(query_id) for label, query_id in last_of_label.items()
            }


def _check_health(sessions: Sessions) -> None:
    shown: dict[str, Query] = {}
    for is_running in (False, True):
        for started in sessions.started:
            shown.update((query.label, query) for query in started if query.is_running is is_running)
    assert sessions.samples("kafka_direct_query_up") == {(name,): query.is_running for name, query in shown.items()}
    failed = {(name,): 1 for name, query in shown.items() if query.failed}
    assert sessions.samples("kafka_direct_query_failed") == failed
    with_batches = {(name,) for name, query in shown.items() if query.batches}
    assert sessions.samples("kafka_direct_query_last_batch_timestamp_seconds").keys() == with_batches
    for monitor, started in zip(sessions.monitors, sessions.started, strict=True):
        found = [(each.query_id, each.run_id, each.is_running, each.failed) for each in monitor.queries]
        assert found == [(each.id, each.run_id, each.is_running, each.failed) for each in started]


def _check_lag_metrics(sessions: Sessions) -> None:
    """If several sources of a group read a partition, the largest lag counts."""
    lags, group_lags, ends = (defaultdict[Labels, list[int]](list) for _ in range(3))
    for query in (each for reported in sessions.reported for each in reported if each.is_running):
        for batch in query.lag:
            for tp, end in batch.latest.items():
                lags[batch.group, str(tp.partition), tp.topic].append(end - batch.ends[tp])
                group_lags[(batch.group,)].append(end - batch.ends[tp])
                ends[str(tp.partition), tp.topic].append(end)
    for metric, values in (
        ("kafka_consumergroup_group_lag", lags),
        ("kafka_consumergroup_group_max_lag", group_lags),
        ("kafka_partition_latest_offset", ends),
    ):
        assert sessions.samples(metric) == {labels: max(each) for labels, each in values.items()}, metric


def _check_lag(lag: QueryLag, query: Query) -> None:
    assert (lag.query_id, lag.run_id, lag.name) == (query.id, query.run_id, query.name)
    assert (lag.batch_id, [each.group for each in lag.sources]) == (query.batches, [each.group for each in query.lag])
    for found, batch in zip(lag.sources, query.lag, strict=True):
        ends = {TopicPartition(each.topic, each.partition): (each.offset, each.latest) for each in found.partitions}
        assert ends == {tp: (batch.ends[tp], end) for tp, end in batch.latest.items()}
        rates = [batch.ends[tp] - batch.starts[tp] for tp in sorted(batch.latest)]
        assert [each.rate for each in found.partitions] == pytest.approx(rates)
        behind = [end - batch.ends[tp] for tp, end in batch.latest.items()]
        assert (found.total, found.min_offsets_behind, found.max_offsets_behind) == (
            sum(behind),
            min(behind),
            max(behind),
        )
    assert lag.summary.count(" offsets behind in ") == len(query.lag)
    assert len(str(lag).splitlines()) == 1 + sum(len(batch.latest) for batch in query.lag)


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(number)] = offset
    return by_topic


def _move_to_end(found: list[Any], item: Any) -> None:
    if item in found:
        found.remove(item)
    found.append(item)
