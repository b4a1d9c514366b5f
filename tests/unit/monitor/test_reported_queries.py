"""The monitor with continuous queries and direct streams, which Spark's listeners do not hear of."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.monitor.test_query_monitor import A, RecordingObserver, wait_for_refreshes

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor import Monitor, query_monitor
from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector
from pyspark_kafka_direct.spark import query_reports
from pyspark_kafka_direct.spark.query_reports import BatchReport, QueryReporter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition


def batch(end: int, fetch_end_offsets: Any, group: str | None = None) -> BatchReport:
    return BatchReport(
        batch_id=7,
        source="KafkaDirect[Subscribe[t]]",
        group=group,
        began_ms=1e12,
        ended_ms=1e12 + 1000,
        rows=end,
        start={A: 0},
        end={A: end},
        fetch_end_offsets=fetch_end_offsets,
    )


@pytest.mark.parametrize(("group", "shown"), [("g", "g"), (None, "copies")])
def test_the_lag_is_computed_with_fetched_end_offsets(group: str | None, shown: str) -> None:
    observer = RecordingObserver()
    monitor = Monitor(observers=(observer,))
    monitor.track_query("q", "r", "copies")
    monitor.report_batch("q", "r", "copies", batch(10, lambda partitions: dict.fromkeys(partitions, 30), group))
    wait_for_refreshes()
    lag = monitor.lag("copies")
    assert lag is not None
    (source,) = lag.sources
    assert (lag.batch_id, source.group, source.total, source.rate) == (7, shown, 20, 10)
    (health,) = monitor.queries
    assert health.is_running
    assert health.last_batch is not None
    monitor.query_ended("r")
    assert not monitor.queries[0].is_running
    monitor.report_batch("q", "r", "copies", batch(10, dict, group))  # by a job that outlives the stream
    wait_for_refreshes()
    assert not monitor.queries[0].is_running
    assert (observer.started, observer.batches) == ([], []), "the query commits its offsets itself"


def test_the_lag_of_an_idle_query_is_refreshed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = 100.0, [20, 30, 40]
    monkeypatch.setattr(query_monitor, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    monitor = Monitor()

    def fetch(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, ends.pop(0))

    def lag_after_idle() -> int:
        monitor.report_idle("r")
        wait_for_refreshes()
        lag = monitor.lag("q")
        assert lag is not None
        return lag.sources[0].total

    monitor.report_idle("r")  # no batch yet
    monitor.report_batch("q", "r", None, batch(10, fetch))
    wait_for_refreshes()
    monitor.report_batch("q", "r", None, batch(15, fetch))  # too soon for another request
    assert lag_after_idle() == 10
    now += 1.5
    assert lag_after_idle() == 15
    now += 5
    assert lag_after_idle() == 15
    now += 6
    assert lag_after_idle() == 25
    assert ends == []


def test_a_failed_fetch_does_not_affect_the_query(caplog: pytest.LogCaptureFixture) -> None:
    fetched = threading.Event()

    def fail(_: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        fetched.set()
        raise BrokerTimeoutError("no broker")

    caplog.set_level(logging.DEBUG, "pyspark_kafka_direct.monitor")
    for name, shown in (("copies", "copies"), (None, "q")):
        monitor = Monitor()
        fetched.clear()
        monitor.report_batch("q", "r", name, batch(10, fail))
        assert fetched.wait(120)
        wait_for_refreshes()
        assert monitor.lag("q") is None
        assert f"could not refresh the lag of the query {shown}: no broker" in caplog.messages


def test_a_query_is_reported_to_the_monitor_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_reports, "_monitors", {})
    one, other = Monitor(), Monitor()
    assert not QueryReporter("q", "r", None).is_monitored
    query_reports.add_monitor("one", one)
    query_reports.add_monitor("other", other)
    QueryReporter("q", "r", None, "one").started()
    QueryReporter("s", "t", None).started()  # a direct stream belongs to the application
    assert [[each.query_id for each in monitor.queries] for monitor in (one, other)] == [["q", "s"], ["s"]]
    QueryReporter("q", "r", None, "one").ended()
    assert [each.is_running for each in one.queries] == [False, True]
    assert not QueryReporter("q", "r", None, "third").is_monitored


def test_the_lags_of_a_stopped_application_are_not_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of these queries ended long ago, as with a query that is stuck."""
    now, alive = 100.0, True
    monkeypatch.setattr(query_monitor, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: 1e9 + now))
    monitor = Monitor(is_spark_alive=lambda: alive)
    fetched: list[str] = []

    def start(name: str) -> None:
        def fetch(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            fetched.append(name)
            return dict.fromkeys(partitions, 30)

        monitor.track_query(name, f"run of {name}", None)
        monitor.report_batch(name, f"run of {name}", None, batch(10, fetch))
        wait_for_refreshes()

    def refresh() -> list[str]:
        nonlocal now
        now += 100
        fetched.clear()
        monitor.refresh_stale_lags()
        wait_for_refreshes()
        return fetched

    start("one")
    monitor.refresh_stale_lags()
    wait_for_refreshes()
    assert fetched == ["one"], "the lag is new"
    assert refresh() == ["one"]
    alive = False
    assert refresh() == []
    assert [each.is_running for each in monitor.queries] == [False]
    alive = True
    assert refresh() == []
    start("other")
    assert refresh() == ["other"]


def test_each_scrape_refreshes_all_stale_lags_of_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(query_monitor, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: 1e9 + now))
    monitors, collector, fetched = [Monitor(), Monitor()], LagCollector(), list[int]()
    for monitor in monitors:
        collector.add(monitor)

    def report(number: int) -> None:
        def fetch(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            fetched.append(number)
            return dict.fromkeys(partitions, 30)

        monitors[number % 2].report_batch(f"q{number}", f"r{number}", None, batch(10, fetch))
        wait_for_refreshes()

    for number in range(4):
        monitors[number % 2].track_query(f"q{number}", f"r{number}", None)
        report(number)
    for recent in range(4):
        now += 100
        report(recent)
        fetched.clear()
        list(collector.collect())
        wait_for_refreshes()
        assert sorted(fetched) == [number for number in range(4) if number != recent]


def test_the_reports_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monitor: Any = SimpleNamespace(
        report_batch=lambda *arguments: calls.append(arguments), report_idle=lambda run: calls.append((run,))
    )
    monkeypatch.setattr(query_reports, "_monitors", {"one": monitor})
    reporter, report = QueryReporter("q", "r", "copies", "one"), batch(10, dict)
    reporter.batch_ended(report)
    reporter.idle()
    assert calls == [("q", "r", "copies", report), ("r",)]


def test_several_objects_are_one_session() -> None:
    def session() -> Any:
        return SimpleNamespace(_jsparkSession=SimpleNamespace(sessionUUID=lambda: "u"))

    assert query_reports.session_id(session()) == query_reports.session_id(session()) == "u"
    assert query_reports.session_id(SimpleNamespace(session_id="of Spark Connect")) == "of Spark Connect"
    others = object(), object()
    assert query_reports.session_id(others[0]) == query_reports.session_id(others[0])
    assert query_reports.session_id(others[0]) != query_reports.session_id(others[1])


@pytest.mark.parametrize("failing", ["one", "other"])
def test_an_error_of_a_monitor_does_not_affect_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    monitor = Monitor()
    monkeypatch.setattr(query_reports, "_monitors", {})
    for session in ("one", "other"):
        query_reports.add_monitor(session, SimpleNamespace() if session == failing else monitor)
    reporter = QueryReporter("q", "r", None)
    reporter.started()
    assert [each.is_running for each in monitor.queries] == [True]
    reporter.ended()
    assert [each.is_running for each in monitor.queries] == [False]
    assert len(caplog.records) == 2


def test_an_error_of_a_monitor_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(query_reports, "_monitors", {"one": None})
    QueryReporter("q", "r", None).ended()
    assert "the query is not affected" in caplog.text
