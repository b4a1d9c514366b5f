"""The folder in which the listener of ``enable(spark)`` and the processes of queries exchange small files.

These processes are on the driver's host, and use Spark's folder for the application's files. Files need no
authentication, because the folder is private to the application's user, and Spark deletes them with the application.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, merge_write_reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("pyspark_kafka_direct.spark")

SHARED_FOLDER_NAME = "pyspark-kafka-direct"
"""The name of the folder within Spark's folder for the application's files on the driver."""

_RETAINED_BATCHES: Final = 64  # of each streaming query
_RETAINED_JOB_GROUPS: Final = 100  # of batch queries


def create_shared_folder(spark: SparkSession) -> Path | None:
    """Create the folder if it is missing; return ``None`` without a JVM (Spark Connect)."""
    if getattr(spark, "_jsparkSession", None) is None:
        return None
    folder = application_folder(SHARED_FOLDER_NAME)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def application_folder(name: str) -> Path:
    """Return a folder of the application, which may not exist yet, in the process that has the SparkContext."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory(), name)


def find_shared_folder(root: Path | None = None, name: str = SHARED_FOLDER_NAME) -> Path | None:
    """Return the folder in a planning process, or ``None`` if ``enable(spark)`` was not called."""
    # ``root`` is Spark's folder for the application's files. A session with its own files has a subfolder of it.
    if root is None:
        from pyspark import SparkFiles

        root = Path(SparkFiles.getRootDirectory())
    return next((parent / name for parent in (root, root.parent) if (parent / name).is_dir()), None)


def save_write_report(report: BatchWriteReport, name: str, folder: Path | None = None) -> None:
    """Save the report of a batch, merged with earlier reports of the same micro-batch; a failure is only logged."""
    try:
        folder = folder or find_shared_folder()
        if folder is None:
            return
        file = _report_file(folder, name, report.batch_id)
        earlier_report = _read_report(file)
        if earlier_report is not None and report.batch_id is not None and earlier_report.batch_id == report.batch_id:
            # With foreachBatch, a micro-batch can have several writes. Otherwise the file is that of an older batch.
            merged = merge_write_reports([earlier_report.partitions, report.partitions])
            report = BatchWriteReport(report.query_id, report.batch_id, merged)
        write_atomically(file, report.to_json())
        if report.batch_id is None:
            _delete_oldest_job_groups(folder)
    except OSError as error:
        _log.warning("cannot save the write report of the batch for the monitor: %s", error)


def load_write_report(folder: Path, name: str, batch_id: int | None = None) -> BatchWriteReport | None:
    """Return the report of a batch, by default of the last one, or ``None`` if it is unknown or expired."""
    # ``name`` is the query id, or the job group of a batch query.
    if batch_id is not None:
        report = _read_report(_report_file(folder, name, batch_id))
        is_of_batch = report is not None and report.batch_id == batch_id  # an older batch may have used the file
        return report if is_of_batch else None
    reports = [report for file in _report_files(folder, name) if (report := _read_report(file)) is not None]
    return max(reports, key=lambda report: -1 if report.batch_id is None else report.batch_id, default=None)


def delete_write_reports(folder: Path, name: str) -> None:
    """Delete the reports of a query that has written nothing for longer than others."""
    for file in _report_files(folder, name):
        file.unlink(missing_ok=True)


def _delete_oldest_job_groups(folder: Path) -> None:
    """Delete the oldest reports of batch queries: many applications use a job group only once."""
    with contextlib.suppress(FileNotFoundError):  # another process deletes them, too
        files = sorted(folder.glob("*-.written"), key=lambda file: file.stat().st_mtime_ns)
        for file in files[:-_RETAINED_JOB_GROUPS]:
            file.unlink()


def _report_files(folder: Path, name: str) -> list[Path]:
    return list(folder.glob(f"{_file_prefix(name)}*.written"))


def _report_file(folder: Path, name: str, batch_id: int | None) -> Path:
    # Later batches replace the files of earlier ones, also if foreachBatch writes only some batches.
    return folder / f"{_file_prefix(name)}{'' if batch_id is None else batch_id % _RETAINED_BATCHES}.written"


def _file_prefix(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}-"


def _read_report(file: Path) -> BatchWriteReport | None:
    try:
        return BatchWriteReport.from_json(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s: %s", file.name, error)
        return None
