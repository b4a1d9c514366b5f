"""The measurements that the monitor writes for backpressure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.monitor.progress_reports import report, source
from tests.unit.monitor.test_query_monitor import DETAILS, A, U, report_at

from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor.measurement_writer import MeasurementWriter
from pyspark_kafka_direct.planning.backpressure import BatchMeasurement, measurement_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.offsets import TopicPartition


def read_measurement(folder: Path, end: int, tp: TopicPartition = A) -> BatchMeasurement | None:
    file = folder / measurement_file_name({tp: end})
    return BatchMeasurement.from_json(file.read_text()) if file.exists() else None


def test_a_measurement_is_named_after_the_end_offsets(tmp_path: Path) -> None:
    Monitor(MeasurementWriter(tmp_path)).batch_ended(report_at(10, 30), DETAILS)
    assert read_measurement(tmp_path, 10) == BatchMeasurement(1795254412000.0, 10, 2000, 0, 5000)


def test_an_empty_batch_has_no_measurement(tmp_path: Path) -> None:
    Monitor(MeasurementWriter(tmp_path)).batch_ended(report_at(10, 30, start=10), DETAILS)
    assert list(tmp_path.iterdir()) == []


def test_the_scheduling_delay_is_the_overrun_of_the_previous_batch(tmp_path: Path) -> None:
    monitor = Monitor(MeasurementWriter(tmp_path))
    monitor.batch_ended(report_at(10, 30, duration_ms=8000), DETAILS)
    monitor.batch_ended(report_at(20, 30, start=10, started="2026-11-21T09:46:58.000Z"), DETAILS)
    monitor.batch_ended(report_at(30, 40, start=20, started="2026-11-21T09:47:03.000Z", duration_ms=9000), DETAILS)
    monitor.batch_ended(report_at(40, 40, start=30, started="2026-11-21T09:48:03.000Z"), DETAILS)
    delays = [each.scheduling_delay_ms for end in (20, 30, 40) if (each := read_measurement(tmp_path, end))]
    assert delays == [3000, 0, 0]  # the query was idle before the last batch


def test_the_previous_batch_may_be_empty(tmp_path: Path) -> None:
    """Its end counts, and not that of the last batch with records."""
    monitor = Monitor(MeasurementWriter(tmp_path))
    monitor.batch_ended(report_at(10, 30, duration_ms=8000), DETAILS)
    monitor.batch_ended(report_at(10, 30, start=10, started="2026-11-21T09:46:58.000Z", duration_ms=1000), DETAILS)
    monitor.batch_ended(report_at(20, 30, start=10, started="2026-11-21T09:47:00.000Z"), DETAILS)
    measurement = read_measurement(tmp_path, 20)
    assert measurement is not None
    assert measurement.scheduling_delay_ms == 0


def test_each_source_has_measurements_until_its_run_ends(tmp_path: Path) -> None:
    monitor = Monitor(MeasurementWriter(tmp_path))
    for end, minute in ((10, "46"), (20, "47"), (30, "48")):
        parts = [source({each: {"0": end - 10}}, {each: {"0": end}}, None) for each in "tu"]
        progress = report(*parts, started=f"2026-11-21T09:{minute}:00.000Z", duration_ms=60_000)
        monitor.batch_ended(progress, DETAILS)
        delays = [each.scheduling_delay_ms for tp in (A, U) if (each := read_measurement(tmp_path, end, tp))]
        assert delays == ([55_000] * 2 if end == 20 else [0, 0])
        if end == 20:
            monitor.query_ended(progress["runId"])


@pytest.mark.parametrize("order", [("slow", "fast"), ("fast", "slow")])
def test_two_queries_at_the_same_offsets_get_the_lower_rate(tmp_path: Path, order: tuple[str, str]) -> None:
    monitor = Monitor(MeasurementWriter(tmp_path))
    for run in order:
        monitor.batch_ended(report_at(10, 30, runId=run, duration_ms=9000 if run == "slow" else 1000), DETAILS)
    measurement = read_measurement(tmp_path, 10)
    assert measurement is not None
    assert measurement.processing_delay_ms == 9000


def test_only_the_newest_measurements_are_kept(tmp_path: Path) -> None:
    monitor = Monitor(MeasurementWriter(tmp_path))
    for number in range(100):
        monitor.batch_ended(report_at(10 * number + 10, 5000, start=10 * number), DETAILS)
    assert len(list(tmp_path.iterdir())) == 64
    assert read_measurement(tmp_path, 1000) is not None


def test_a_measurement_that_is_written_again_is_new(tmp_path: Path) -> None:
    monitor = Monitor(MeasurementWriter(tmp_path))
    for number in (*range(64), 0, 64):
        monitor.batch_ended(report_at(10 * number + 10, 5000, start=10 * number), DETAILS)
    assert read_measurement(tmp_path, 10) is not None
    assert read_measurement(tmp_path, 20) is None
