"""The query listener: its exceptions do not reach Spark."""

from __future__ import annotations

import json
import logging
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)
from tests.unit.monitor.progress_reports import OTHER_SOURCE, SOURCE, report, source
from tests.unit.monitor.test_query_monitor import RecordingObserver

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor.enable_monitor import MonitorQueryListener
from pyspark_kafka_direct.monitor.query_details import read_query_details

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_kafka_direct.monitor import SourceBatch

RUN_ID = uuid.UUID("f66328ff-243c-4c12-9051-d5ffb53d8900")


class FailingObserver:
    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        raise ValueError("start")

    def query_idle(self, run_id: str) -> None:
        raise ValueError("idle")

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        raise ValueError("batch")

    def query_ended(self, run_id: str) -> None:
        raise ValueError("end")


def progress_event(run_id: str = str(RUN_ID)) -> QueryProgressEvent:
    """As PySpark parses it from Spark's JSON."""
    progress = report(source({"t": {"0": 0}}, {"t": {"0": 10}}, {"t": {"0": 30}}), runId=run_id)
    for each in progress["sources"]:
        each.update({name: json.loads(each[name]) for name in ("startOffset", "endOffset", "latestOffset")})
    other_fields = {
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "numInputRows": 10,
        "stateOperators": [],
        "sink": {"description": "NoopTable", "numOutputRows": 10},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson({**progress, **other_fields}))


def test_lag_is_known_without_access_to_the_query() -> None:
    monitor = Monitor()
    MonitorQueryListener(None, monitor).onQueryProgress(progress_event())  # type: ignore[arg-type]
    lag = monitor.lag(str(progress_event().progress.id))
    assert lag is not None
    assert [(each.offset, each.lag) for each in lag.sources[0].partitions] == [(10, 20)]


def test_exceptions_are_logged_once_and_the_lag_is_known(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(observers=(FailingObserver(),))
    listener = MonitorQueryListener(None, monitor)  # type: ignore[arg-type]
    listener.onQueryProgress(progress_event())
    listener.onQueryProgress(progress_event())
    listener.onQueryTerminated(QueryTerminatedEvent(RUN_ID, RUN_ID, None, None))
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [
        "the monitor failed to process an event; the query is not affected: ValueError('batch')",
    ]
    assert monitor.lag() is not None


class JavaMap(dict[str, str]):
    def containsKey(self, name: str) -> bool:
        return any(each.lower() == name.lower() for each in self)

    def asCaseSensitiveMap(self) -> dict[str, str]:
        return self


def leaf(class_name: str, source: str, **options: str) -> Any:
    java_class = SimpleNamespace(getSimpleName=lambda: class_name)
    table = SimpleNamespace(name=lambda: source)
    return SimpleNamespace(getClass=lambda: java_class, table=lambda: table, extraOptions=lambda: JavaMap(options))


def test_the_sources_that_commit_are_reported_when_a_query_starts() -> None:
    leaves = [
        leaf("LocalRelation", "kafka-direct", commitGroupId="other"),
        leaf("StreamingRelationV2", "rate", commitGroupId="other"),
        leaf("StreamingRelationV2", "kafka-direct", subscribe="t"),
        leaf("StreamingRelationV2", "kafka-direct", commitGroupId="shop", subscribe="t"),
        leaf("StreamingRelationV2", "kafka-direct", commitGroupId="store", subscribe="u"),
    ]
    plan = SimpleNamespace(collectLeaves=lambda: SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__))
    query = SimpleNamespace(streamingQuery=lambda: SimpleNamespace(analyzedPlan=lambda: plan))
    streams = SimpleNamespace(get={str(RUN_ID): query}.get)
    session: Any = SimpleNamespace(_jsparkSession=SimpleNamespace(streams=lambda: streams))
    observer = RecordingObserver()
    monitor = Monitor(observers=(observer,))
    listener = MonitorQueryListener(session, monitor)
    listener.onQueryStarted(QueryStartedEvent(RUN_ID, RUN_ID, "orders", "now", set()))
    sources = [{"commitgroupid": "shop", "subscribe": "t"}, {"commitgroupid": "store", "subscribe": "u"}]
    assert observer.started == [(str(RUN_ID), sources)]
    assert [(health.query, health.is_running) for health in monitor.queries] == [("orders", True)]
    listener.onQueryIdle(QueryIdleEvent(RUN_ID, RUN_ID, "now"))
    assert observer.idle == [str(RUN_ID)]
    listener.onQueryTerminated(QueryTerminatedEvent(RUN_ID, RUN_ID, None, None))
    assert (listener._queries, listener._details) == ({}, {}), "nothing of a query that has ended is kept"


def scan(description: str, group: str) -> Any:
    """A source of this package in the plan of a running query."""
    java_class = SimpleNamespace(getSimpleName=lambda: "StreamingDataSourceV2ScanRelation")
    table = SimpleNamespace(name=lambda: "kafka-direct")
    stream = SimpleNamespace(toString=lambda: description)
    relation = SimpleNamespace(table=lambda: table, options=lambda: JavaMap({"commitGroupId": group}))
    return SimpleNamespace(getClass=lambda: java_class, relation=lambda: relation, stream=lambda: stream)


def execution_of(leaves: list[Any], trigger_text: Callable[[], str]) -> Any:
    """The execution of a query whose plan has these leaves."""
    plan = SimpleNamespace(collectLeaves=lambda: SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__))
    trigger = SimpleNamespace(toString=trigger_text)
    return SimpleNamespace(analyzedPlan=lambda: plan, logicalPlan=lambda: plan, trigger=lambda: trigger)


def test_the_details_of_a_query_that_ended_with_its_first_batch_are_known() -> None:
    """The listener finds the query when it starts; when the progress arrives, it may have ended."""
    read: list[str] = []

    def trigger_text() -> str:
        read.append("trigger")
        return "ProcessingTimeTrigger(7000)"

    execution = execution_of([scan(OTHER_SOURCE, "store"), scan(SOURCE, "shop")], trigger_text)
    running = {str(progress_event().progress.id): SimpleNamespace(streamingQuery=lambda: execution)}
    session: Any = SimpleNamespace(_jsparkSession=SimpleNamespace(streams=lambda: SimpleNamespace(get=running.get)))
    monitor = Monitor()
    listener = MonitorQueryListener(session, monitor)
    progress = progress_event().progress
    listener.onQueryStarted(QueryStartedEvent(progress.id, progress.runId, None, "now", set()))
    running.clear()
    for _ in range(2):
        listener.onQueryProgress(progress_event())
    assert read == ["trigger"], "the details of a run are read once"
    lag = monitor.lag()
    assert lag is not None
    assert [each.group for each in lag.sources] == ["shop"]


def test_each_run_of_a_query_has_its_details() -> None:
    """A query may restart from its checkpoint with other options; the end of a run may be reported late."""
    query_id = progress_event().progress.id
    running: dict[str, Any] = {}
    session: Any = SimpleNamespace(_jsparkSession=SimpleNamespace(streams=lambda: SimpleNamespace(get=running.get)))
    monitor = Monitor()
    listener = MonitorQueryListener(session, monitor)
    run_ids = [uuid.uuid4() for _ in range(4)]
    for number, run_id in enumerate(run_ids):
        execution = execution_of([scan(SOURCE, f"group {number}")], lambda: "ProcessingTimeTrigger(7000)")
        running[str(query_id)] = SimpleNamespace(streamingQuery=lambda execution=execution: execution)
        listener.onQueryStarted(QueryStartedEvent(query_id, run_id, None, "now", set()))
        if number % 2:  # the end of the run before
            listener.onQueryTerminated(QueryTerminatedEvent(query_id, run_ids[number - 1], None, None))
        for _ in range(2):
            listener.onQueryProgress(progress_event(str(run_id)))
            lag = monitor.lag()
            assert lag is not None
            assert (lag.run_id, [each.group for each in lag.sources]) == (str(run_id), [f"group {number}"])


@pytest.mark.parametrize(
    ("trigger", "interval_ms"),
    [("ProcessingTimeTrigger(7000)", 7000), ("ProcessingTimeTrigger(0)", 1000), ("AvailableNowTrigger", 1000)],
)
def test_the_interval_of_a_query(trigger: str, interval_ms: float) -> None:
    """Backpressure divides by it."""
    execution = execution_of([scan(SOURCE, "shop")], lambda: trigger)
    details = read_query_details(SimpleNamespace(streamingQuery=lambda: execution))
    assert details.interval_ms == interval_ms
