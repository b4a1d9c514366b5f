"""Leaves measured batches where the planner looks for them; ``planning.feedback`` says how."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.feedback import Measurement, file_name
from pyspark_kafka_direct.runtime.shared_folder import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.monitor._lag import SourceBatch

_KEPT = 64


class FeedbackWriter:
    """Writes the measurements of all queries of an application; not for several threads.

    Args:
        folder: Where to, as ``runtime.shared_folder`` makes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: dict[str, SourceBatch] = {}
        self._written: OrderedDict[str, tuple[str, Measurement]] = OrderedDict()

    def batch_ended(self, key: str, batch: SourceBatch, interval_ms: float) -> None:
        """Leave the measurement of a batch, if it had records.

        Args:
            key: Which source of which run of a query.
            batch: The batch.
            interval_ms: The trigger's interval.
        """
        before = self._before.get(key)
        self._before[key] = batch
        if batch.records <= 0:
            return
        waited = 0.0
        if before is not None and batch.began_ms - before.ended_ms < interval_ms:
            waited = max(before.ended_ms - before.began_ms - interval_ms, 0.0)
        took = batch.ended_ms - batch.began_ms
        self._write(key, file_name(batch.end), Measurement(batch.ended_ms, batch.records, took, waited, interval_ms))

    def forget(self, key: str) -> None:
        """Remove what was kept for a query that ended."""
        self._before.pop(key, None)

    def _write(self, key: str, name: str, measured: Measurement) -> None:
        owner, there = self._written.get(name, (key, measured))
        if owner != key and there.rate < measured.rate:
            return  # two sources ended at the same offsets: which is which can't be told, so both get the lower rate
        write_text(self._folder / name, measured.to_text())
        self._written[name] = (key, measured)
        self._written.move_to_end(name)
        while len(self._written) > _KEPT:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self._written.popitem(last=False)[0]).unlink()
