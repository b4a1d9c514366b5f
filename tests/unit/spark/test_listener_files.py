"""Atomic writes of the files that listener and planners exchange."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pyspark_kafka_direct.spark.listener_files import write_atomically


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
