"""Files that the listener and the planners leave each other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pyspark_kafka_direct.runtime.shared_folder import write_text


def test_a_file_that_cannot_be_written_leaves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again with each batch, and a full disk would get fuller."""
    file = tmp_path / "kept"
    write_text(file, "before")

    def full(self: Path, text: str) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            write_text(file, "after")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "folder", "text")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "kept"]
    assert file.read_text() == "before"
