"""What batches have written, left by the process that commits for whoever asks on the driver.

The two have nothing in common but the folder of ``shared_folder.py``, and only after ``enable(spark)``. There is one
file for each micro-batch, of which the last ones are kept, and one for batch queries.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.planning.written import BatchWritten, together
from pyspark_kafka_direct.runtime.shared_folder import find_folder, write_text

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("pyspark_kafka_direct.runtime")

_KEPT: Final = 64


def leave(written: BatchWritten, name: str, folder: Path | None = None) -> None:
    """Leave what a batch has written; a failure to do so is no failure of the batch.

    What one micro-batch writes several times, by ``foreachBatch``, is put together.

    Args:
        written: What.
        name: The query's id, or the job group of a batch query.
        folder: Where to; by default where Spark's listener looks.
    """
    try:
        folder = folder or find_folder()
        if folder is None:
            return
        file = _file(folder, name, written.batch_id)
        before = _read(file)
        if before is not None and written.batch_id is not None:
            both = together([before.partitions, written.partitions])
            written = BatchWritten(written.query_id, written.batch_id, both)
        write_text(file, written.to_text())
        if written.batch_id is not None:
            _file(folder, name, written.batch_id - _KEPT).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("what the batch has written can't be told to the monitor: %s", error)


def find(folder: Path, name: str, batch_id: int | None = None) -> BatchWritten | None:
    """Return what a batch has written; ``None`` if it is not known, or not any more.

    Args:
        folder: Where ``leave`` left it.
        name: As ``leave`` had it.
        batch_id: Of the micro-batch; ``None``: the last one, or the batch query.
    """
    if batch_id is not None:
        return _read(_file(folder, name, batch_id))
    found = [written for file in folder.glob(f"{_stem(name)}*.written") if (written := _read(file)) is not None]
    return max(found, key=lambda written: -1 if written.batch_id is None else written.batch_id, default=None)


def _file(folder: Path, name: str, batch_id: int | None) -> Path:
    return folder / f"{_stem(name)}{'' if batch_id is None else batch_id}.written"


def _stem(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}-"


def _read(file: Path) -> BatchWritten | None:
    try:
        return BatchWritten.from_text(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s: %s", file.name, error)
        return None
