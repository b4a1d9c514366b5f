"""Counts of skipped data loss and of malformed records: each process of the driver writes its own to a file.

The monitor reads these files. They are in the shared folder (``listener_files``), one for each planner that has skipped
something, and one for what tasks report (``loss_channel``). They remain when a planner ends, so that the sums never
decrease while the application runs.
"""

from __future__ import annotations

import json
import logging
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.spark.listener_files import find_shared_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

_log = logging.getLogger("pyspark_kafka_direct.spark")

_SUFFIX = ".losses"
_NONE: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LossTotal:
    """Records that were skipped in a partition for a reason, with ``failOnDataLoss=false``."""

    topic: str
    partition: int
    cause: str  # in lower case, with underscores
    losses: int  # how often
    offsets: int  # as far as their number is known


@dataclass(frozen=True, slots=True)
class MalformedTotal:
    """Malformed records of a partition that were read or dropped. No data was lost against the query's options."""

    topic: str
    partition: int
    mode: str  # PERMISSIVE or DROPMALFORMED
    records: int  # without those of schema_errors
    schema_errors: int = 0  # records that may be valid, because their schema could not be used


class ReportedTotals(NamedTuple):
    """Counts of planners and tasks, with one total for each partition and cause or mode."""

    losses: tuple[LossTotal, ...] = ()
    malformed: tuple[MalformedTotal, ...] = ()

    def to_json(self) -> list[list[tuple[Any, ...]]]:
        """Return a JSON value."""
        return [[astuple(total) for total in totals] for totals in self]

    @classmethod
    def from_json(cls, value: Any) -> ReportedTotals:
        """Return the totals of a JSON value; raises TypeError or ValueError if it is another one."""
        losses, malformed = value
        return cls(tuple(LossTotal(*total) for total in losses), tuple(MalformedTotal(*total) for total in malformed))


class LossCounter:
    """Counts what one process skips; a failure to write the file is only logged."""

    def __init__(self, system: System, find_folder: Callable[[], Path | None] = find_shared_folder) -> None:
        self._find_folder = find_folder
        self._file_name = f"{system.nonce()}{_SUFFIX}"
        self._totals = ReportedTotals()

    def add(self, cause: DataLossCause, offsets: Mapping[TopicPartition, int]) -> None:
        """Count a loss once for each partition, and the number of its offsets."""
        losses = (
            LossTotal(*tp, cause=cause.name.lower(), losses=1, offsets=skipped) for tp, skipped in offsets.items()
        )
        self.add_totals(ReportedTotals(losses=tuple(losses)))

    def add_malformed(
        self, mode: str, records: Mapping[TopicPartition, int], schema_errors: Mapping[TopicPartition, int] = _NONE
    ) -> None:
        """Count malformed records, and those whose schema could not be used."""
        totals = [MalformedTotal(*tp, mode, records=count) for tp, count in records.items()]
        totals += [MalformedTotal(*tp, mode, records=0, schema_errors=count) for tp, count in schema_errors.items()]
        self.add_totals(ReportedTotals(malformed=tuple(totals)))

    def add_totals(self, totals: ReportedTotals) -> None:
        """Add what was counted elsewhere."""
        self._totals = sum_totals([self._totals, totals])
        try:
            folder = self._find_folder()
            if folder is not None:  # enable(spark) was called
                write_atomically(folder / self._file_name, json.dumps(self._totals.to_json()))
        except Exception as error:  # counting never fails a query; the next file has these counts, too
            _log.info("cannot save the count of skipped offsets for the monitor: %r", error)


def load_totals(folder: Path) -> ReportedTotals:
    """Return the sums of all planners and tasks of the application."""
    loaded: list[ReportedTotals] = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            loaded.append(ReportedTotals.from_json(json.loads(file.read_text())))
        except (OSError, TypeError, ValueError) as error:
            _log.warning("%s: %s", file.name, error)
    return sum_totals(loaded)


def sum_totals(totals: Iterable[ReportedTotals]) -> ReportedTotals:
    """Return one total for each partition and cause, and one for each partition and mode."""
    losses: dict[tuple[str, int, str], tuple[int, int]] = {}  # the last two fields of a LossTotal, by the first three
    malformed: dict[tuple[str, int, str], tuple[int, int]] = {}  # those of a MalformedTotal
    for each in totals:
        for loss in each.losses:
            key = (loss.topic, loss.partition, loss.cause)
            count, offsets = losses.get(key, (0, 0))
            losses[key] = (count + loss.losses, offsets + loss.offsets)
        for total in each.malformed:
            key = (total.topic, total.partition, total.mode)
            records, schema_errors = malformed.get(key, (0, 0))
            malformed[key] = (records + total.records, schema_errors + total.schema_errors)
    return ReportedTotals(
        tuple(LossTotal(*key, *sums) for key, sums in sorted(losses.items())),
        tuple(MalformedTotal(*key, *sums) for key, sums in sorted(malformed.items())),
    )
