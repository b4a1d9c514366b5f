"""Atomic writes of the files that listener and planners exchange."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.spark.listener_files import (
    create_shared_folder,
    delete_write_reports,
    find_shared_folder,
    load_write_report,
    save_write_report,
)
from pyspark_kafka_direct.spark.write_report import BatchWriteReport


def test_the_folder_belongs_to_the_user_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    spark: Any = SimpleNamespace(_jsparkSession=object())
    assert find_shared_folder() is None
    folder = create_shared_folder(spark)
    assert folder is not None
    assert create_shared_folder(spark) == find_shared_folder() == find_shared_folder(tmp_path / "session") == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    connect: Any = SimpleNamespace()
    assert create_shared_folder(connect) is None


def test_the_reports_of_a_query_can_be_deleted(tmp_path: Path) -> None:
    for query in ("q", "other"):
        for batch in range(3):
            save_write_report(BatchWriteReport(query, batch, {}), query, tmp_path)
    delete_write_reports(tmp_path, "q")
    assert load_write_report(tmp_path, "q") is None
    assert load_write_report(tmp_path, "other", 1) == BatchWriteReport("other", 1, {})


def test_a_failed_write_leaves_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is retried with each batch, and would fill the disk."""
    file = tmp_path / "kept"
    write_atomically(file, "before")

    def write_to_full_disk(self: Path, text: str) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", write_to_full_disk)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            write_atomically(file, "after")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "folder", "text")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "kept"]
    assert file.read_text() == "before"
