"""Counts of the data loss that is skipped: each process of the driver writes its own to a file that the monitor reads.

The files are in the shared folder (``listener_files``), one for each planner that has skipped something, and one for
what tasks report (``loss_channel``). They remain when a planner ends, so that the sums never decrease while the
application runs.
"""

from __future__ import annotations

import json
import logging
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.spark.listener_files import find_shared_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

_log = logging.getLogger("pyspark_kafka_direct.spark")

_SUFFIX = ".losses"


@dataclass(frozen=True, slots=True)
class LossTotal:
    """What was skipped in a partition for a reason, with ``failOnDataLoss=false`` or ``mode=DROPMALFORMED``."""

    topic: str
    partition: int
    cause: str  # in lower case, with underscores
    losses: int  # how often
    offsets: int  # as far as their number is known


class LossCounter:
    """Counts what one process skips; a failure to write the file is only logged."""

    def __init__(self, system: System, find_folder: Callable[[], Path | None] = find_shared_folder) -> None:
        self._find_folder = find_folder
        self._file_name = f"{system.nonce()}{_SUFFIX}"
        self._totals: tuple[LossTotal, ...] = ()

    def add(self, cause: DataLossCause, offsets: Mapping[TopicPartition, int]) -> None:
        """Count a loss once for each partition, and the number of its offsets."""
        self.add_totals([LossTotal(*tp, cause.name.lower(), 1, skipped) for tp, skipped in offsets.items()])

    def add_totals(self, totals: Iterable[LossTotal]) -> None:
        """Add what was counted elsewhere."""
        self._totals = sum_losses([*self._totals, *totals])
        try:
            folder = self._find_folder()
            if folder is not None:  # enable(spark) was called
                write_atomically(folder / self._file_name, json.dumps([astuple(total) for total in self._totals]))
        except Exception as error:  # counting never fails a query
            _log.info("cannot save the count of skipped offsets for the monitor: %r", error)


def load_losses(folder: Path) -> tuple[LossTotal, ...]:
    """Return the sums of all planners of the application."""
    losses: list[LossTotal] = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            losses.extend(LossTotal(*values) for values in json.loads(file.read_text()))
        except (OSError, TypeError, ValueError) as error:
            _log.warning("%s: %s", file.name, error)
    return sum_losses(losses)


def sum_losses(losses: Iterable[LossTotal]) -> tuple[LossTotal, ...]:
    """Return one total for each partition and cause."""
    sums: dict[tuple[str, int, str], tuple[int, int]] = {}
    for loss in losses:
        key = (loss.topic, loss.partition, loss.cause)
        count, offsets = sums.get(key, (0, 0))
        sums[key] = (count + loss.losses, offsets + loss.offsets)
    return tuple(LossTotal(*key, *totals) for key, totals in sorted(sums.items()))
