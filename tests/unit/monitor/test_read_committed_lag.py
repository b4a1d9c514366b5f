"""The lag of ``read_committed`` queries counts the records behind an open transaction."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.monitor.progress_reports import OTHER_SOURCE, SOURCE, report, source
from tests.unit.monitor.test_query_monitor import A, wait_for_refreshes

from pyspark_kafka_direct.monitor import Monitor, PartitionLag, QueryLag, SourceLag, query_monitor
from pyspark_kafka_direct.monitor.prometheus_metrics import register_collector
from pyspark_kafka_direct.monitor.query_details import QueryDetails
from pyspark_kafka_direct.monitor.query_status import QueryHealth
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

B = TopicPartition("u", 0)
BASE_OPTIONS = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
LABELS = {"topic": "t", "partition": "0"}


def details(level: str, *, name: str = "kafka.isolation.level", description: str = SOURCE) -> QueryDetails:
    return QueryDetails(5000.0, {description: {"subscribe": "t", name: level}})


COMMITTED = details("read_committed")


class Brokers:
    """Returns high watermarks, and counts the requests."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.requests: list[list[TopicPartition]] = []

    def fetch(self, _: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.requests.append(sorted(partitions))
        return dict.fromkeys(partitions, self.ends.pop(0))


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self._may_end = threading.Event()
        self.resume()
        patched = SimpleNamespace(monotonic=lambda: self.now, time=time.time, sleep=self.sleep)
        monkeypatch.setattr(query_monitor, "time", patched)

    def sleep(self, seconds: float) -> None:
        assert self._may_end.wait(120)
        self.pauses.append(seconds)
        self.now += seconds

    def block(self) -> None:
        """Let pauses last until ``resume``."""
        self._may_end.clear()

    def resume(self) -> None:
        self._may_end.set()


def batch(end: int, stable: int, *, start: int = 0, number: int = 1) -> dict[str, Any]:
    progress = source({"t": {"0": start}}, {"t": {"0": end}}, {"t": {"0": stable}})
    return report(progress, batch=number, runId="r")


def partition(monitor: Monitor) -> PartitionLag:
    lag = monitor.lag()
    assert lag is not None
    ((found,),) = (each.partitions for each in lag.sources)
    return found


@pytest.mark.parametrize("level", ["read_committed", "Read_Committed", " read_committed "])
@pytest.mark.parametrize("name", ["kafka.isolation.level", "isolation.level", " kafka.isolation.level"])
def test_the_lag_counts_records_behind_an_open_transaction(
    name: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert parse_stream_options({**BASE_OPTIONS, name: level}).fetch.isolation_level == "read_committed"
    brokers = Brokers(511)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    monitor.track_query(report()["id"], "r", None)
    with caplog.at_level(logging.INFO, "pyspark_kafka_direct.monitor"):
        monitor.batch_ended(batch(10, 10), details(level, name=name))
        wait_for_refreshes()
    found = partition(monitor)
    assert (found.offset, found.latest, found.lag, found.last_stable_offset) == (10, 511, 501, 10)
    assert found.rate == 5.0, "the report is about the batch"
    assert str(monitor.lag()).splitlines()[1].endswith(", 5/s, last stable offset 10")
    assert [record.getMessage() for record in caplog.records] == [monitor.lags[0].summary]
    assert registry.get_sample_value("kafka_partition_latest_offset", LABELS) == 511
    assert registry.get_sample_value("kafka_partition_last_stable_offset", LABELS) == 10
    group = {"group": report()["id"], **LABELS}
    assert registry.get_sample_value("kafka_consumergroup_group_lag", group) == 501


@pytest.mark.parametrize("options", [details("read_uncommitted"), QueryDetails(5000.0, {SOURCE: {}})])
def test_other_reports_contain_the_high_watermark(options: QueryDetails) -> None:
    brokers = Brokers()
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    monitor.batch_ended(batch(10, 30), options)
    wait_for_refreshes()
    assert (partition(monitor).latest, partition(monitor).last_stable_offset, brokers.requests) == (30, None, [])
    assert "stable" not in str(monitor.lag())
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    assert registry.get_sample_value("kafka_partition_last_stable_offset", LABELS) is None


def test_high_watermarks_are_requested_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, brokers = Clock(monkeypatch), Brokers(100, 300, 400)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    monitor.batch_ended(batch(10, 20), COMMITTED)
    wait_for_refreshes()
    clock.now += 0.75
    clock.block()
    monitor.batch_ended(batch(20, 30, start=10, number=2), COMMITTED)
    found = partition(monitor)
    assert (monitor.lags[0].batch_id, found.offset, found.latest, found.lag) == (2, 20, 100, 80)
    monitor.batch_ended(batch(150, 150, start=20, number=3), COMMITTED)
    found = partition(monitor)
    assert (found.latest, found.lag, found.last_stable_offset) == (150, 0, 150), "the log ends there at least"
    clock.resume()
    wait_for_refreshes()
    assert (partition(monitor).latest, len(brokers.requests), clock.pauses) == (300, 2, [0.25])
    clock.now += 1.0
    monitor.batch_ended(batch(160, 170, start=150, number=4), COMMITTED)
    wait_for_refreshes()
    assert (partition(monitor).latest, len(brokers.requests), clock.pauses) == (400, 3, [0.25])


def test_known_high_watermarks_apply_to_each_partition_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, brokers = Clock(monkeypatch), Brokers(100, 200)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    other = SOURCE + "0"
    committed = {"kafka.isolation.level": "read_committed"}

    def reported(end: int) -> dict[str, Any]:
        ends = {"0": end, "1": end}
        sources = [
            source(None, {topic: ends}, {topic: ends}, description=of)
            for topic, of in zip("tu", (SOURCE, other), strict=True)
        ]
        return report(*sources, runId="r")

    for end in (10, 20):
        monitor.batch_ended(reported(end), QueryDetails(5000.0, {SOURCE: committed, other: committed}))
        if end == 10:
            wait_for_refreshes()
            clock.block()
    lag = monitor.lag()
    assert lag is not None
    assert [[each.lag for each in found.partitions] for found in lag.sources] == [[80, 80], [180, 180]]
    brokers.ends += [300, 400]
    clock.resume()
    wait_for_refreshes()


def test_the_lag_after_the_last_of_several_batches_counts_records_behind_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a second after a request the lag is not known at once. The idle query is reported 10 s later."""
    clock, brokers = Clock(monkeypatch), Brokers(10, 516)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    monitor.batch_ended(batch(10, 10), COMMITTED)
    wait_for_refreshes()
    clock.now += 0.5
    with caplog.at_level(logging.INFO, "pyspark_kafka_direct.monitor"):
        monitor.batch_ended(batch(15, 15, start=10, number=2), COMMITTED)
        wait_for_refreshes()
    found = partition(monitor)
    assert (found.offset, found.latest, found.lag, found.rate) == (15, 516, 501, 2.5)
    assert caplog.records[-1].getMessage() == monitor.lags[0].summary
    assert clock.pauses == [0.5]


def test_idle_events_within_a_second_cause_one_request_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """``spark.sql.streaming.noDataProgressEventInterval`` may be short."""
    clock, brokers = Clock(monkeypatch), Brokers(100, 200, 300)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    monitor.batch_ended(batch(10, 10), COMMITTED)
    wait_for_refreshes()
    for latest in (200, 300):
        clock.now += 0.25
        monitor.query_idle("r")
        wait_for_refreshes()
        assert partition(monitor).latest == latest
    assert clock.pauses == [0.75, 0.75]


def test_another_source_of_the_query_keeps_its_rate() -> None:
    """Only the ``read_committed`` source lacks its end offsets after a batch."""
    other = SOURCE + "0"
    brokers = Brokers(511)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    uncommitted = source({"u": {"0": 0}}, {"u": {"0": 10}}, {"u": {"0": 30}}, description=other)
    committed = source({"t": {"0": 0}}, {"t": {"0": 10}}, {"t": {"0": 10}})
    options = {other: {"subscribe": "u"}, SOURCE: {"kafka.isolation.level": "read_committed"}}
    monitor.batch_ended(report(uncommitted, committed), QueryDetails(5000.0, options))
    wait_for_refreshes()
    lag = monitor.lag()
    assert lag is not None
    first, second = (each.partitions[0] for each in lag.sources)
    assert (first.latest, first.rate, second.latest, second.rate) == (30, 5.0, 511, 5.0)
    assert abs(lag.time - time.time()) < 60, "the newest end offsets are those of the second source"
    assert brokers.requests == [[A]]


def test_spark_before_4_2_reports_no_last_stable_offset() -> None:
    brokers = Brokers(511)
    monitor = Monitor(fetch_end_offsets=brokers.fetch)
    ends = {"t": {"0": 10}}
    options = details("read_committed", description=OTHER_SOURCE)
    monitor.batch_ended(report(source(None, ends, ends, description=OTHER_SOURCE)), options)
    wait_for_refreshes()
    assert (partition(monitor).lag, partition(monitor).last_stable_offset) == (501, None)


@pytest.mark.parametrize("stable_ends", [(5, 9), (9, 5), (None, 9), (9, None)])
def test_the_newest_last_stable_offset_of_a_partition_is_shown(stable_ends: tuple[int | None, int | None]) -> None:
    """Several queries read it, of which one may be stuck, and another one read_uncommitted."""
    lags = [
        QueryLag(
            f"q{number}",
            f"r{number}",
            None,
            1,
            0.0,
            (SourceLag("g", (PartitionLag("t", 0, 1, 10, 9, None, 0.0, end),)),),
        )
        for number, end in enumerate(stable_ends)
    ]
    monitor: Any = SimpleNamespace(
        lags=lags,
        queries=[QueryHealth(lag.query_id, lag.query_id, lag.run_id) for lag in lags],
        refresh_stale_lags=lambda: None,
        sink_totals=(),
        shared_folder=None,
    )
    registry = CollectorRegistry()
    register_collector(monitor, registry, {})
    assert registry.get_sample_value("kafka_partition_last_stable_offset", LABELS) == 9
