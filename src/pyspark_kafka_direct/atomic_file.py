"""Files that are replaced as a whole, so that no process reads a part of one."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Write a file, or leave the one that exists as it is."""
    temporary_file = file.with_name(f"{file.name}.{uuid.uuid4().hex}.new")
    try:
        temporary_file.write_text(text)
        os.replace(temporary_file, file)
    except BaseException:
        temporary_file.unlink(missing_ok=True)
        raise
