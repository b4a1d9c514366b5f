"""Files with write reports, from the process that commits to the monitor."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyspark import SparkFiles

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME, load_write_report, save_write_report
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, PartitionWriteReport

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A0 = TopicPartition("a", 0)


def report(query_id: str | None, batch_id: int | None, first: int, records: int) -> BatchWriteReport:
    return BatchWriteReport(
        query_id, batch_id, {A0: PartitionWriteReport(first, first + records, records, 10 * records)}
    )


def test_reports_of_each_batch_and_the_last_one(tmp_path: Path) -> None:
    batches = [report("q", number, 10 * number, 3) for number in range(12)]
    for batch in batches:
        save_write_report(batch, "q", tmp_path)
    save_write_report(report("other", 50, 0, 1), "other", tmp_path)
    assert [load_write_report(tmp_path, "q", number) for number in range(12)] == batches
    assert load_write_report(tmp_path, "q") == batches[11]
    assert load_write_report(tmp_path, "q", 12) is None
    assert load_write_report(tmp_path, "unknown") is None


def test_reports_of_one_batch_are_merged(tmp_path: Path) -> None:
    save_write_report(report("q", 3, 10, 2), "q", tmp_path)
    save_write_report(report("q", 3, 12, 5), "q", tmp_path)
    assert load_write_report(tmp_path, "q") == report("q", 3, 10, 7)


def test_the_last_report_of_batch_queries(tmp_path: Path) -> None:
    for number in (1, 2):
        save_write_report(report(None, None, number, 5), "", tmp_path)
        save_write_report(report(None, None, number, 9), "night/load ☾", tmp_path)
    assert load_write_report(tmp_path, "") == report(None, None, 2, 5)
    assert load_write_report(tmp_path, "night/load ☾") == report(None, None, 2, 9)


def test_old_files_are_deleted(tmp_path: Path) -> None:
    for number in range(200):
        save_write_report(report("q", number, number, 1), "q", tmp_path)
    assert len(list(tmp_path.iterdir())) == 64
    assert load_write_report(tmp_path, "q", 136) == report("q", 136, 136, 1)
    assert load_write_report(tmp_path, "q", 135) is None


def test_files_are_limited_if_only_some_batches_write(tmp_path: Path) -> None:
    """``foreachBatch`` often writes only batches with rows."""
    batches = [number for number in range(702) if number % 7 in (0, 3) or number == 701]
    for number in batches:
        save_write_report(report("q", number, number, 1), "q", tmp_path)
        assert load_write_report(tmp_path, "q") == load_write_report(tmp_path, "q", number)
    assert len(list(tmp_path.iterdir())) <= 64
    assert load_write_report(tmp_path, "q", 701) == report("q", 701, 701, 1)
    assert 701 - 64 in batches
    assert load_write_report(tmp_path, "q", 701 - 64) is None


def test_reports_of_job_groups_are_limited(tmp_path: Path) -> None:
    """Notebooks and job servers use a job group for one command only."""
    save_write_report(report("q", 1, 1, 1), "q", tmp_path)
    for number in range(250):
        save_write_report(report(None, None, number, 1), f"command {number}", tmp_path)
        time.sleep(0.0001)  # so that the times of the files differ
    assert len(list(tmp_path.iterdir())) == 1 + 100
    assert load_write_report(tmp_path, "command 150") == report(None, None, 150, 1)
    assert load_write_report(tmp_path, "command 149") is None
    assert load_write_report(tmp_path, "q") == report("q", 1, 1, 1)


def test_file_errors_never_fail_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.spark"):
        save_write_report(report("q", 1, 1, 1), "q", tmp_path / "missing")
        assert "cannot save the write report" in caplog.text
        save_write_report(report("q", 1, 1, 1), "q", tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_text("{")
        assert load_write_report(tmp_path, "q") is None
        assert file.name in caplog.text


def test_reports_are_saved_in_the_folder_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    save_write_report(report("q", 1, 1, 1), "q")
    assert list(tmp_path.iterdir()) == [], "without enable(spark), there is no folder"
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    save_write_report(report("q", 1, 1, 1), "q")
    assert load_write_report(folder, "q") == report("q", 1, 1, 1)
