"""Files that are replaced as a whole, so that no process reads a part of one."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_atomically(file: Path, text: str, *, private: bool = False) -> None:
    """Write a file, or leave the one that exists as it is; only its owner can read a private one."""
    temporary_file = file.with_name(f"{file.name}.{uuid.uuid4().hex}.new")
    try:
        if private:
            os.close(os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        temporary_file.write_text(text)
        os.replace(temporary_file, file)
    except BaseException:
        temporary_file.unlink(missing_ok=True)
        raise
