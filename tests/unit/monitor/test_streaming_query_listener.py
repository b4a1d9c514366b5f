"""The query listener: its exceptions do not reach Spark."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress
from tests.unit.monitor.progress_reports import report, source

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor.streaming_query_listener import MonitorQueryListener

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
