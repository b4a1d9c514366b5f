"""Metrics distinguish a failed query from a stopped one."""

from __future__ import annotations

import uuid

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor.enable_monitor import MonitorQueryListener
from pyspark_kafka_direct.spark import query_reports
from pyspark_kafka_direct.spark.query_reports import QueryReporter, add_monitor

QUERY, RUN, NEXT_RUN = (uuid.UUID(int=number) for number in (1, 2, 3))


class Metrics:
    def __init__(self, monitor: Monitor) -> None:
        self._registry = CollectorRegistry()
        monitor.register_metrics(self._registry)

    @property
    def up_and_failed(self) -> tuple[float | None, float | None]:
        up, failed = "kafka_direct_query_up", "kafka_direct_query_failed"
        return tuple(self._registry.get_sample_value(name, {"query": "q"}) for name in (up, failed))  # type: ignore[return-value]


@pytest.mark.parametrize("error", [None, "[STREAM_FAILED] DataLossError"])
def test_a_micro_batch_query(error: str | None) -> None:
    monitor = Monitor()
    metrics = Metrics(monitor)
    listener = MonitorQueryListener(None, monitor)  # type: ignore[arg-type]
    listener.onQueryStarted(QueryStartedEvent(QUERY, RUN, "q", "2026-11-29T00:00:00.000Z", set()))
    assert metrics.up_and_failed == (1, None)
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, RUN, error, None))
    assert metrics.up_and_failed == (0, None if error is None else 1)
    assert [query.failed for query in monitor.queries] == [error is not None]
    listener.onQueryStarted(QueryStartedEvent(QUERY, NEXT_RUN, "q", "2026-11-29T00:00:00.000Z", set()))
    assert metrics.up_and_failed == (1, None), "a query that runs again has not failed"
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, RUN, "of the run before", None))
    assert metrics.up_and_failed == (1, None)


@pytest.mark.parametrize("failed", [False, True])
def test_a_query_that_spark_does_not_know(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    monkeypatch.setattr(query_reports, "_monitors", {})
    monitor = Monitor()
    metrics = Metrics(monitor)
    add_monitor("session", monitor)
    reporter = QueryReporter("id", "run", "q", "session")
    reporter.started()
    reporter.ended(failed=failed)
    assert metrics.up_and_failed == (0, 1 if failed else None)


def test_queries_of_a_spark_that_has_stopped_have_not_failed() -> None:
    is_alive = [True]
    monitor = Monitor(is_spark_alive=lambda: is_alive[0])
    metrics = Metrics(monitor)
    monitor.track_query("id", "run", "q")
    is_alive[0] = False
    assert metrics.up_and_failed == (0, None)
