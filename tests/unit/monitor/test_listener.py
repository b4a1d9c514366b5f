"""The listener: what fails within stays within."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress
from tests.unit.monitor.reports import report, source

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor._listener import ProgressListener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from pyspark_kafka_direct.monitor import SourceBatch

RUN = uuid.UUID("f66328ff-243c-4c12-9051-d5ffb53d8900")


class Failing:
    """An observer that fails."""

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        raise ValueError("no start for me")

    def query_idle(self, run_id: str) -> None:
        raise ValueError("no pause for me")

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        raise ValueError("no batch for me")

    def query_ended(self, run_id: str) -> None:
        raise ValueError("no end for me")


def progress_event() -> QueryProgressEvent:
    """As PySpark makes it from Spark's JSON."""
    given = report(source({"t": {"0": 0}}, {"t": {"0": 10}}, {"t": {"0": 30}}))
    for each in given["sources"]:
        each.update({name: json.loads(each[name]) for name in ("startOffset", "endOffset", "latestOffset")})
    rest = {
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "numInputRows": 10,
        "stateOperators": [],
        "sink": {"description": "NoopTable", "numOutputRows": 10},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson({**given, **rest}))


def test_progress_becomes_lag_without_a_session_to_look_into() -> None:
    monitor = Monitor()
    ProgressListener(None, monitor).onQueryProgress(progress_event())  # type: ignore[arg-type]
    lag = monitor.lag(str(progress_event().progress.id))
    assert lag is not None
    assert [(each.offset, each.lag) for each in lag.sources[0].partitions] == [(10, 20)]


def test_failures_are_logged_once_and_lag_is_known(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(observers=(Failing(),))
    listener = ProgressListener(None, monitor)  # type: ignore[arg-type]
    listener.onQueryProgress(progress_event())
    listener.onQueryProgress(progress_event())
    listener.onQueryTerminated(QueryTerminatedEvent(RUN, RUN, None, None))
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [
        "the monitor missed an event; the query is not concerned: ValueError('no batch for me')",
    ]
    assert monitor.lag() is not None
