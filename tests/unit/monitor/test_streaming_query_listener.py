"""The query listener: its exceptions do not reach Spark."""

from __future__ import annotations

import json
import logging
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

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


def progress_event() -> QueryProgressEvent:
    """As PySpark parses it from Spark's JSON."""
    progress = report(source({"t": {"0": 0}}, {"t": {"0": 10}}, {"t": {"0": 30}}))
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


def test_the_details_of_a_query_that_ended_with_its_first_batch_are_known() -> None:
    """The listener finds the query when it starts; when the progress arrives, it may have ended."""
    read: list[str] = []
    table = SimpleNamespace(name=lambda: "kafka-direct")
    java_class = SimpleNamespace(getSimpleName=lambda: "StreamingDataSourceV2ScanRelation")

    def scan(description: str, group: str) -> Any:
        stream = SimpleNamespace(toString=lambda: description)
        relation = SimpleNamespace(table=lambda: table, options=lambda: JavaMap({"commitGroupId": group}))
        return SimpleNamespace(getClass=lambda: java_class, relation=lambda: relation, stream=lambda: stream)

    leaves = [scan(OTHER_SOURCE, "store"), scan(SOURCE, "shop")]
    plan = SimpleNamespace(collectLeaves=lambda: SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__))

    def trigger_text() -> str:
        read.append("trigger")
        return "ProcessingTimeTrigger(7000)"

    trigger = SimpleNamespace(toString=trigger_text)
    execution = SimpleNamespace(analyzedPlan=lambda: plan, logicalPlan=lambda: plan, trigger=lambda: trigger)
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
