"""The monitor with progress reports: its lag, its events, and its metrics."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.monitor.progress_reports import (
    OTHER_SOURCE,
    SOURCE,
    report,
    source,
)

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor import Monitor, query_monitor
from pyspark_kafka_direct.monitor.enable_monitor import _is_spark_alive
from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector
from pyspark_kafka_direct.monitor.query_details import QueryDetails
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_kafka_direct.monitor import SourceBatch

NO_DETAILS = QueryDetails()
DETAILS = QueryDetails(5000.0, {SOURCE: {"commitgroupid": "shop", "kafka.sasl.jaas.config": "secret"}})
A, U = TopicPartition("t", 0), TopicPartition("u", 0)


def report_at(end: int, latest: int, *, start: int = 0, **more: Any) -> dict[str, Any]:
    return report(source({"t": {"0": start}}, {"t": {"0": end}}, {"t": {"0": latest}}), **more)


class RecordingObserver:
    def __init__(self) -> None:
        self.batches: list[tuple[str, Mapping[TopicPartition, int], Mapping[str, str]]] = []
        self.ended: list[str] = []
        self.started: list[tuple[str, Sequence[Mapping[str, str]]]] = []
        self.idle: list[str] = []

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        self.started.append((run_id, sources))

    def query_idle(self, run_id: str) -> None:
        self.idle.append(run_id)

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        self.batches += [(run_id, batch.end, options) for batch, options in sources]

    def query_ended(self, run_id: str) -> None:
        self.ended.append(run_id)


class TestLag:
    def test_there_is_no_lag_before_a_batch(self) -> None:
        assert Monitor().lag() is None
        assert Monitor().lag("orders") is None

    def test_the_lag_of_the_last_batch_stays_after_the_query(self) -> None:
        monitor = Monitor()
        monitor.batch_ended(report_at(10, 30), NO_DETAILS)
        monitor.batch_ended(report_at(30, 30, start=10, batch=2), NO_DETAILS)
        monitor.query_ended(report_at(0, 0)["runId"])
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (2, 0)

    def test_lag_is_found_by_id_name_and_query(self) -> None:
        class Query:
            id = "b"

        monitor = Monitor()
        monitor.batch_ended(report_at(10, 30, id="a", runId="1"), NO_DETAILS)
        monitor.batch_ended(report_at(10, 30, id="b", runId="2", name="orders"), NO_DETAILS)
        assert [lag.query_id for lag in monitor.lags] == ["a", "b"]
        assert monitor.lag("a") == monitor.lags[0]
        assert monitor.lag("orders") == monitor.lag(Query()) == monitor.lags[1]
        with pytest.raises(LookupError, match="2: a, orders"):
            monitor.lag()

    def test_the_last_query_of_a_name_counts(self) -> None:
        """A query that starts again with a new checkpoint has another id."""
        monitor = Monitor()
        for query_id, end in (("a", 10), ("b", 20), ("a", 25)):
            monitor.batch_ended(report_at(end, 30, id=query_id, runId=query_id, name="orders"), NO_DETAILS)
            lag = monitor.lag("orders")
            assert lag is not None
            assert (lag.query_id, lag.sources[0].total) == (query_id, 30 - end)

    def test_other_sources_are_ignored(self) -> None:
        kafka_direct, other = (
            source(None, {"t": {"0": 5}}, {"t": {"0": 9}}),
            source(None, {"u": {"0": 5}}, {"u": {"0": 9}}, description=OTHER_SOURCE),
        )
        monitor = Monitor()
        monitor.batch_ended(report(other, kafka_direct), DETAILS)
        lag = monitor.lag()
        assert lag is not None
        assert [each.topic for each in lag.sources[0].partitions] == ["t"]

    def test_a_query_without_sources_of_this_package_is_ignored(self) -> None:
        monitor = Monitor()
        monitor.batch_ended(report(source(None, {"t": {"0": 5}}, None, description="FileStreamSource[x]")), NO_DETAILS)
        assert monitor.lags == ()

    def test_the_group_of_a_source(self) -> None:
        groups = []
        for details, name in ((DETAILS, "orders"), (NO_DETAILS, "orders"), (NO_DETAILS, None)):
            monitor = Monitor()
            monitor.batch_ended(report_at(1, 1, name=name, id="the-id"), details)
            groups.append(monitor.lags[0].sources[0].group)
        assert groups == ["shop", "orders", "the-id"]

    def test_one_log_line_per_batch(self, caplog: pytest.LogCaptureFixture) -> None:
        monitor = Monitor()
        with caplog.at_level(logging.INFO, "pyspark_kafka_direct.monitor"):
            monitor.batch_ended(report_at(10, 30, name="orders"), DETAILS)
        assert [record.getMessage() for record in caplog.records] == [monitor.lags[0].summary]
        assert "secret" not in caplog.text


class FakeEndOffsets:
    """Returns end offsets, while ``open`` is set."""

    def __init__(self, *ends: int | Exception) -> None:
        self.ends = list(ends)
        self.open = threading.Event()
        self.open.set()
        self.requests: list[str] = []
        self.requested = threading.Event()

    def fetch_end_offsets(
        self, options: Mapping[str, str], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self.requests.append(options["commitgroupid"])
        self.requested.set()
        assert self.open.wait(120)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return dict.fromkeys(partitions, end)


def wait_for_refreshes() -> None:
    for thread in threading.enumerate():
        if thread.name == "kafka-direct-ends":
            thread.join(120)


class TestIdle:
    def test_the_lag_of_an_idle_query_is_refreshed(self) -> None:
        brokers = FakeEndOffsets(30, 45)
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(30, 30, runId="r"), DETAILS)
        for latest, behind in ((30, 0), (45, 15)):
            monitor.query_idle("r")
            wait_for_refreshes()
            lag = monitor.lag()
            assert lag is not None
            (partition,) = lag.sources[0].partitions
            assert (partition.offset, partition.latest, partition.lag, partition.rate) == (30, latest, behind, 0.0)
            assert abs(lag.time - time.time()) < 60
            assert lag.batch_id == 1

    def test_all_sources_of_an_idle_query_are_refreshed(self) -> None:
        brokers = FakeEndOffsets(45, 46)
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        parts = [source(None, {each: {"0": 30}}, {each: {"0": 30}}, description=SOURCE + each) for each in "tuv"]
        # The options of the first source are not known.
        options = {SOURCE + "t": {}, **{SOURCE + each: {"commitgroupid": each} for each in "uv"}}
        monitor.batch_ended(report(*parts, runId="r"), QueryDetails(5000.0, options))
        monitor.query_idle("r")
        wait_for_refreshes()
        assert [each.total for each in monitor.lags[0].sources] == [0, 15, 16]

    def test_a_batch_that_ends_during_a_refresh_is_newer(self) -> None:
        brokers = FakeEndOffsets(99)
        brokers.open.clear()
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(10, 10, runId="r"), DETAILS)
        monitor.query_idle("r")
        assert brokers.requested.wait(120)  # otherwise the refresh starts after the batch
        monitor.query_idle("r")
        monitor.batch_ended(report_at(20, 25, start=10, batch=2, runId="r"), DETAILS)
        brokers.open.set()
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (2, 5)
        assert brokers.requests == ["shop"], "one refresh at a time"

    def test_a_refresh_of_an_ended_run_does_not_replace_the_lag_of_a_later_run(self) -> None:
        brokers = FakeEndOffsets(99)
        brokers.open.clear()
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(10, 10, runId="one"), DETAILS)
        monitor.query_idle("one")
        assert brokers.requested.wait(120)
        monitor.query_ended("one")
        monitor.batch_ended(report_at(20, 25, start=10, batch=2, runId="two"), DETAILS)
        brokers.open.set()
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.run_id, lag.batch_id, lag.sources[0].total) == ("two", 2, 5)

    def test_a_failed_refresh_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        brokers = FakeEndOffsets(BrokerTimeoutError("no response"), 12)
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(10, 11, runId="r"), DETAILS)
        before = monitor.lag()
        monitor.query_idle("r")
        wait_for_refreshes()
        assert monitor.lag() == before
        assert caplog.text == ""
        monitor.query_idle("r")
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        assert lag.sources[0].total == 2

    def test_a_refresh_without_a_thread_is_retried_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        brokers = FakeEndOffsets(12)
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(10, 11, runId="r"), DETAILS)
        with monkeypatch.context() as exhausted:
            exhausted.setattr(threading.Thread, "start", fail)
            monitor.query_idle("r")
        monitor.query_idle("r")
        wait_for_refreshes()
        assert brokers.requests == ["shop"]

    def test_ended_and_unknown_queries_are_not_refreshed(self) -> None:
        brokers = FakeEndOffsets()
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(report_at(10, 11, runId="unknown"), NO_DETAILS)
        monitor.batch_ended(report_at(10, 11, runId="ended"), DETAILS)
        monitor.query_ended("ended")
        for run in ("unknown", "ended", "never started"):
            monitor.query_idle(run)
        wait_for_refreshes()
        assert brokers.requests == []


class TestReportsWithoutEndOffsets:
    """Spark 4.0 and 4.1 report the end of the batch as ``latestOffset``, even if the log ends later."""

    DETAILS = QueryDetails(5000.0, {OTHER_SOURCE: {"commitgroupid": "shop"}})

    def batch(self, end: int, *, start: int = 0, **more: Any) -> dict[str, Any]:
        ends = {"t": {"0": end}}
        return report(source({"t": {"0": start}}, ends, ends, description=OTHER_SOURCE), **{"runId": "r", **more})

    def test_end_offsets_are_fetched_after_a_batch(self) -> None:
        brokers = FakeEndOffsets(1000)
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(self.batch(100), self.DETAILS)
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        (partition,) = lag.sources[0].partitions
        assert (partition.offset, partition.latest, partition.lag, partition.rate) == (100, 1000, 900, 50.0)
        assert abs(lag.time - time.time()) < 60

    def test_there_is_no_lag_without_end_offsets(self) -> None:
        monitor = Monitor(fetch_end_offsets=FakeEndOffsets(BrokerTimeoutError("no response")).fetch_end_offsets)
        monitor.batch_ended(self.batch(100), self.DETAILS)
        wait_for_refreshes()
        assert monitor.lag() is None
        monitor.batch_ended(self.batch(100, runId="no options"), NO_DETAILS)
        wait_for_refreshes()
        assert monitor.lag() is None

    def test_end_offsets_are_fetched_once_a_second_and_apply_to_the_newest_batch(self) -> None:
        brokers = FakeEndOffsets(1000, 1000)
        brokers.open.clear()
        monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
        monitor.batch_ended(self.batch(100), self.DETAILS)
        assert brokers.requested.wait(120)
        monitor.batch_ended(self.batch(300, start=100, batch=2), self.DETAILS)
        brokers.open.set()
        wait_for_refreshes()
        monitor.batch_ended(self.batch(400, start=300, batch=3), self.DETAILS)
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total, brokers.requests) == (2, 700, ["shop"])
        monitor.query_idle("r")
        wait_for_refreshes()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (3, 600)

    def test_end_offsets_apply_to_an_ended_run_unless_a_later_run_exists(self) -> None:
        for later in (False, True):
            brokers = FakeEndOffsets(1000)
            brokers.open.clear()
            monitor = Monitor(fetch_end_offsets=brokers.fetch_end_offsets)
            monitor.batch_ended(self.batch(5, id="another", runId="another"), NO_DETAILS)
            monitor.batch_ended(self.batch(100), self.DETAILS)
            assert brokers.requested.wait(120)
            monitor.query_ended("r")
            if later:
                monitor.batch_ended(self.batch(200, start=100, runId="later"), NO_DETAILS)
            brokers.open.set()
            wait_for_refreshes()
            assert (monitor.lag() is None) is later


class TestObservers:
    def test_observers_get_every_batch_and_the_end(self) -> None:
        observers = (RecordingObserver(), RecordingObserver())
        monitor = Monitor(observers=observers)
        parts = [source(None, {each: {"0": 10}}, None, description=SOURCE + each) for each in "tu"]
        options = {SOURCE + each: {"commitgroupid": each} for each in "tu"}
        monitor.batch_ended(report(*parts, runId="r"), QueryDetails(5000.0, options))
        monitor.query_ended("r")
        for observer in observers:
            assert observer.batches == [("r", {tp: 10}, {"commitgroupid": tp.topic}) for tp in (A, U)]
            assert observer.ended == ["r"]

    def test_observers_get_the_start_and_idle_events_before_any_batch(self) -> None:
        observers = (RecordingObserver(), RecordingObserver())
        monitor = Monitor(observers=observers)
        monitor.query_started("other", [])
        monitor.query_started("r", [{"subscribe": "t"}])
        monitor.query_idle("r")
        for observer in observers:
            assert observer.started == [("r", [{"subscribe": "t"}])], "not for queries without a group"
            assert observer.idle == ["r"]

    def test_secrets_are_not_in_the_repr(self) -> None:
        assert "secret" not in repr(DETAILS)


class TestMetrics:
    def metrics(self, monitor: Monitor) -> list[str]:
        registry = CollectorRegistry()
        collector = LagCollector()
        for each in (Monitor(), monitor):  # another session without queries comes first
            collector.add(each)
        registry.register(collector)
        return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    def test_there_are_no_metrics_before_a_batch(self) -> None:
        assert self.metrics(Monitor()) == []

    def test_the_metric_names_of_kafka_lag_exporter(self) -> None:
        monitor = Monitor()
        for end, latest, start, started in ((100, 100, 0, "46:40"), (150, 200, 100, "46:50")):
            for topic, group, partitions in (("t", "shop", "01"), ("u", "store", "0")):
                offsets = [{topic: dict.fromkeys(partitions, offset)} for offset in (start, end, latest)]
                progress = report(source(*offsets), id=group, runId=group, started=f"2026-11-21T09:{started}.000Z")
                monitor.batch_ended(progress, QueryDetails(5000.0, {SOURCE: {"commitgroupid": group}}))
        expected = []
        for group, topic, partition in (("shop", "t", 0), ("shop", "t", 1), ("store", "u", 0)):
            labels = f'{{group="{group}",partition="{partition}",topic="{topic}"}}'
            expected += [
                f"kafka_consumergroup_group_offset{labels} 150.0",
                f"kafka_consumergroup_group_lag{labels} 50.0",
                f"kafka_consumergroup_group_lag_seconds{labels} 7.0",
                f'kafka_partition_latest_offset{{partition="{partition}",topic="{topic}"}} 200.0',
            ]
        for group in ("shop", "store"):
            expected += [
                f'kafka_consumergroup_group_max_lag{{group="{group}"}} 50.0',
                f'kafka_consumergroup_group_max_lag_seconds{{group="{group}"}} 7.0',
            ]
        lines = self.metrics(monitor)
        assert sorted(line for line in lines if "kafka_direct_query" not in line) == sorted(expected)
        assert [f'kafka_direct_query_up{{query="{group}"}} 1.0' in lines for group in ("shop", "store")] == [True] * 2

    def test_an_ended_query_is_down_and_has_no_lag(self) -> None:
        monitor = Monitor()
        run = report_at(0, 0)
        name = run["name"] or run["id"]
        up = f'kafka_direct_query_up{{query="{name}"}}'
        last = f'kafka_direct_query_last_batch_timestamp_seconds{{query="{name}"}}'
        monitor.track_query(run["id"], run["runId"], run["name"])
        assert self.metrics(monitor) == [f"{up} 1.0"]
        started_at = time.time()
        monitor.batch_ended(report_at(10, 30), DETAILS)
        lines = self.metrics(monitor)
        assert f"{up} 1.0" in lines
        assert any("group_lag{" in line for line in lines)
        ended = next(line for line in lines if line.startswith(last))
        assert started_at <= float(ended.removeprefix(last)) <= time.time()
        monitor.query_ended(run["runId"])
        assert self.metrics(monitor) == [f"{up} 0.0", ended]
        monitor.track_query(run["id"], "next-run", run["name"])
        assert self.metrics(monitor)[:2] == [f"{up} 1.0", ended], "the last batch is that of the run before"
        monitor.query_ended(run["runId"])
        assert f"{up} 1.0" in self.metrics(monitor), "only an older run has ended"

    def test_lag_grows_while_a_batch_is_stuck(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ends = [40]
        monitor = Monitor(fetch_end_offsets=lambda options, partitions: {A: ends[0]})
        for run, details in (("another", NO_DETAILS), ("new", DETAILS), ("stuck", DETAILS)):
            monitor.batch_ended(report_at(10, 30, id=run, runId=run), details)
        metric = 'kafka_consumergroup_group_lag{group="shop",partition="0",topic="t"}'
        monkeypatch.setattr(query_monitor, "_STALE_AFTER_SECONDS", 3600.0)  # for a slow machine
        self.metrics(monitor)  # the batch of the report ended long ago
        deadline = time.monotonic() + 120
        while f"{metric} 30.0" not in self.metrics(monitor):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ends[0] = 50
        time.sleep(0.1)
        assert f"{metric} 30.0" in self.metrics(monitor), "end offsets are not fetched at each scrape"
        monkeypatch.setattr(query_monitor, "_STALE_AFTER_SECONDS", 0.0)
        while f"{metric} 40.0" not in self.metrics(monitor):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_a_second_registration_does_nothing(self) -> None:
        monitor, registry = Monitor(), CollectorRegistry()
        for _ in range(2):
            monitor.register_metrics(registry)
        monitor.batch_ended(report_at(10, 30), DETAILS)
        assert generate_latest(registry).decode().count("group_lag{") == 1

    def test_queries_are_down_if_spark_has_stopped(self) -> None:
        """There is no event if the SparkContext is stopped or the JVM exits."""
        is_spark_alive = [True]
        monitor = Monitor(
            is_spark_alive=lambda: is_spark_alive[0],
            fetch_end_offsets=lambda *_: pytest.fail("no end offsets are needed"),
        )
        run = report_at(0, 0)
        monitor.track_query("a", "a", "another")
        monitor.track_query(run["id"], run["runId"], "delays")
        assert 'kafka_direct_query_up{query="delays"} 1.0' in self.metrics(monitor)
        is_spark_alive[0] = False
        monitor.batch_ended(report_at(10, 30), DETAILS)
        lines = self.metrics(monitor)
        for name in ("another", "delays"):
            assert f'kafka_direct_query_up{{query="{name}"}} 0.0' in lines
        assert not any("group_lag{" in line for line in lines)
        assert [each.is_running for each in monitor.queries] == [False, False]
        is_spark_alive[0] = True
        assert [each.is_running for each in monitor.queries] == [False, False], "Spark is not checked again"

    def test_reading_the_queries_does_not_change_state(self) -> None:
        is_spark_alive = [False]
        monitor = Monitor(is_spark_alive=lambda: is_spark_alive[0])
        run = report_at(0, 0)
        monitor.track_query("a", "a", "ended")
        monitor.query_ended("a")
        monitor.track_query(run["id"], run["runId"], "delays")
        monitor.batch_ended(report_at(10, 30), DETAILS)
        runs = dict(monitor._runs)
        assert [each.is_running for each in monitor.queries] == [False, False]
        is_spark_alive[0] = True
        assert [each.is_running for each in monitor.queries] == [False, True]
        assert monitor._runs == runs
        assert runs

    def test_sessions_share_a_registry(self) -> None:
        """A duplicate metric name or series is an error for Prometheus."""
        registry: CollectorRegistry = CollectorRegistry()
        collectors: dict[CollectorRegistry, LagCollector] = {}
        for number in range(2):
            monitor = Monitor(collectors=collectors)
            monitor.register_metrics(registry)
            monitor.batch_ended(report_at(10, 30) | {"id": f"q{number}", "runId": f"r{number}"}, DETAILS)
        lines = generate_latest(registry).decode().splitlines()
        assert len(lines) == len({line.rpartition(" ")[0] for line in lines})
        assert 'kafka_direct_query_up{query="q0"} 1.0' in lines
        assert 'kafka_direct_query_up{query="q1"} 1.0' in lines
        assert sum("group_lag{" in line for line in lines) == 1

    def test_old_ended_queries_are_dropped(self) -> None:
        """Running queries are never dropped, and the lag of an ended query does not reappear."""
        monitor = Monitor()
        monitor.track_query("old", "r", "running")
        monitor.batch_ended(report_at(10, 30), DETAILS)
        monitor.query_ended(report_at(10, 30)["runId"])
        for number in range(200):
            monitor.track_query(f"q{number}", f"r{number}", None)
        assert len(monitor.queries) == 201
        for number in range(200):
            monitor.query_ended(f"r{number}")
        monitor.track_query("new", "r-new", None)
        lines = self.metrics(monitor)
        assert 'kafka_direct_query_up{query="running"} 1.0' in lines
        assert not any("group_lag{" in line for line in lines)
        newest = [f"q{number}" for number in range(102, 200)]
        assert [each.query_id for each in monitor.queries] == ["old", *newest, "new"]

    def test_the_lags_that_were_stored_longest_ago_are_dropped(self) -> None:
        monitor = Monitor()
        for number in (*range(100), 0, 100):
            monitor.batch_ended(report_at(10, 30, id=f"q{number}", runId=f"r{number}"), DETAILS)
        assert [monitor.lag(f"q{number}") is None for number in (0, 1, 2, 100)] == [False, True, False, False]

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_the_maxima_of_a_group_are_those_of_all_its_sources(self, order: tuple[int, ...]) -> None:
        monitor = Monitor()
        for number, seconds in enumerate(("46:30", "46:40", "46:50")):
            ends = [10 * number + 10, 40 * number + 20, 20 * number + 40]
            sources = [
                source({each: {"0": 0, "1": 0}}, {each: {"0": 10, "1": 5}}, {each: {"0": ends[index], "1": 10}})
                for index, each in enumerate("abc")
            ]
            progress = report(*(sources[index] for index in order), started=f"2026-11-21T09:{seconds}.000Z")
            monitor.batch_ended(progress, DETAILS)
        lines = self.metrics(monitor)
        assert 'kafka_consumergroup_group_max_lag{group="shop"} 90.0' in lines
        partition_lags = [float(line.split()[-1]) for line in lines if "group_lag_seconds{" in line]
        assert len(set(partition_lags)) > 2
        assert f'kafka_consumergroup_group_max_lag_seconds{{group="shop"}} {max(partition_lags)}' in lines

    def test_a_topic_read_twice_is_one_series(self) -> None:
        one, two = (source({"t": {"0": 0}}, {"t": {"0": end}}, {"t": {"0": 30}}) for end in (20, 10))
        monitor = Monitor()
        monitor.batch_ended(report(one, two), DETAILS)
        assert [line for line in self.metrics(monitor) if "group_lag{" in line] == [
            'kafka_consumergroup_group_lag{group="shop",partition="0",topic="t"} 20.0'
        ]


class FakeSparkContext:
    def __init__(self, stopped: bool | Exception) -> None:
        self.stopped = stopped

    def sc(self) -> FakeSparkContext:
        return self

    def isStopped(self) -> bool:
        if isinstance(self.stopped, Exception):
            raise self.stopped
        return self.stopped


@pytest.mark.parametrize(
    ("context", "is_spark_alive"),
    [
        (None, False),
        (FakeSparkContext(True), False),
        (FakeSparkContext(ConnectionError()), False),
        (FakeSparkContext(False), True),
    ],
    ids=["stopped in Python", "stopped in the JVM", "no JVM", "running"],
)
def test_is_spark_alive(context: FakeSparkContext | None, is_spark_alive: bool) -> None:
    session: Any = SimpleNamespace(_jsparkSession=1, sparkContext=SimpleNamespace(_jsc=context))
    assert _is_spark_alive(session) is is_spark_alive
    connect_session: Any = SimpleNamespace(is_stopped=not is_spark_alive)
    assert _is_spark_alive(connect_session) is is_spark_alive
