"""The batches of a direct stream that the monitor gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct.direct.batch_reports import BatchReportListener
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.settings import ConnectionSettings
    from pyspark_kafka_direct.spark.query_reports import BatchReport

T0, OTHER = TopicPartition("t", 0), TopicPartition("other", 1)
TIME_MS, BEGAN_MS, ENDED_MS = 1000, 1500, 1800
STREAM, NO_STREAM = 3, 4


def completed(failures: dict[int, str | None], input_id: int = STREAM) -> Any:
    """The event of a batch, as py4j has it."""
    outputs = {number: SimpleNamespace(failureReason=lambda why=why: why) for number, why in failures.items()}
    batch = SimpleNamespace(
        batchTime=lambda: SimpleNamespace(milliseconds=lambda: TIME_MS),
        processingStartTime=lambda: BEGAN_MS,
        processingEndTime=lambda: ENDED_MS,
        streamIdToInputInfo=lambda: {input_id: SimpleNamespace(numRecords=lambda: 5)},
        outputOperationInfos=lambda: outputs,
    )
    return SimpleNamespace(batchInfo=lambda: batch)


def listener(reports: list[BatchReport], connection: ConnectionSettings | None = None) -> BatchReportListener:
    ranges = {TIME_MS: [OffsetRange("t", 0, 5, 9), OffsetRange("other", 1, 2, 3)]}
    parameters = SimpleNamespace(group_id="shop", connection=connection)
    stream: Any = SimpleNamespace(client=SimpleNamespace(parameters=parameters), planned_ranges=ranges.__getitem__)
    reporter: Any = SimpleNamespace(batch_ended=reports.append)
    return BatchReportListener(stream, STREAM, "KafkaDirect[flights]", reporter)


def test_a_report_has_the_ranges_and_times_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[BatchReport] = []
    with PlannerCluster(40) as brokers:
        brokers.append(T0, 2, producer_id=7)
        pool = brokers.pool
        monkeypatch.setattr("pyspark_kafka_direct.client.cluster_client.POOL", pool)
        listener(reports, brokers.environment.settings()).onBatchCompleted(completed({0: None, 1: None}))
        (report,) = reports
        assert (report.batch_id, report.source, report.group) == (TIME_MS, "KafkaDirect[flights]", "shop")
        assert (report.began_ms, report.ended_ms, report.rows) == (BEGAN_MS, ENDED_MS, 5)
        assert report.start == {T0: 5, OTHER: 2}
        assert report.end == {T0: 9, OTHER: 3}
        assert report.fetch_end_offsets([T0]) == {T0: 42}


@pytest.mark.parametrize("failures", [{0: "an output failed"}, {0: None, 1: "the second one failed"}])
def test_a_failed_batch_is_not_reported(failures: dict[int, str | None]) -> None:
    reports: list[BatchReport] = []
    listener(reports).onBatchCompleted(completed(failures))
    assert reports == []


def test_a_batch_of_other_streams_is_not_reported() -> None:
    reports: list[BatchReport] = []
    listener(reports).onBatchCompleted(completed({0: None}, NO_STREAM))
    assert reports == []


def test_an_error_does_not_reach_spark(caplog: pytest.LogCaptureFixture) -> None:
    reports: list[BatchReport] = []
    listener(reports).onBatchCompleted(None)
    assert "the monitor misses a batch" in caplog.text
