"""What a batch of a streaming query is made of, by the query's checkpoint: a digest of ``offsets/N``.

Spark writes that file once, before the batch runs, and reads it when the batch runs again. So two batches of one number
with different files are different batches: the checkpoint was copied, or restored from a backup.

The commit step has no Hadoop file system, so it reads checkpoints on a disk of the driver only.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Final

_FILE_URI: Final = re.compile(r"file:(?://[^/]*)?(?=/)")
_OTHER_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def offsets_digest(checkpoint: str | None, query: str, batch: int) -> str | None:
    """Return a digest of a batch's entry in the checkpoint; ``None`` where it can't be read here.

    Args:
        checkpoint: The option ``checkpointLocation``.
        query: The query's id; a checkpoint of another query is not looked at.
        batch: The batch.
    """
    folder = _local(checkpoint)
    if folder is None:
        return None
    try:
        metadata = json.loads((folder / "metadata").read_text(encoding="utf-8"))
        if not isinstance(metadata, dict) or metadata.get("id") != query:
            return None
        return hashlib.sha256((folder / "offsets" / str(batch)).read_bytes()).hexdigest()[:32]
    except (OSError, ValueError):
        return None


def _local(checkpoint: str | None) -> Path | None:
    """Return the folder as Hadoop's local file system would; it decodes no ``%``."""
    if not checkpoint:
        return None
    path = _FILE_URI.sub("", checkpoint, count=1)
    return None if _OTHER_URI.match(path) else Path(path)
