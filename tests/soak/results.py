"""Reads the checkpoint and the output of a query, and checks the output."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.soak.writer import Logged


class Row(NamedTuple):
    """A record in the sink."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


def last_batch(folder: Path, log: str) -> int:
    """Return the last batch in a log of the checkpoint (``offsets`` or ``commits``), or -1."""
    return max((int(file.name) for file in (folder / "checkpoint" / log).glob("[0-9]*")), default=-1)


def ends_of(folder: Path, batch: int) -> dict[tuple[str, int], int] | None:
    """Return the end offsets of a batch in the checkpoint, or ``None`` if it is not there.

    The file is ``v1``, a line of metadata, and a line for each source: ``{"topic":{"0":123}}``. Other keys are flags
    of the source.
    """
    file = folder / "checkpoint" / "offsets" / str(batch)
    if not file.exists():
        return None
    offsets = json.loads(file.read_text().splitlines()[2])
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
        if isinstance(offset, int) and partition.isdigit()
    }


def read_output(folder: Path) -> list[Row]:
    """Return all rows of the sink; every batch folder must be complete."""
    import pyarrow.parquet as pq

    rows: list[Row] = []
    for batch in sorted((folder / "output").iterdir()):
        assert (batch / "_SUCCESS").exists(), f"{batch} is incomplete"
        for file in sorted(batch.glob("*.parquet")):
            columns = pq.ParquetFile(file).read(["topic", "partition", "offset", "key", "value"]).to_pydict()
            rows += map(Row, *columns.values())
    return rows


def faults(rows: Iterable[Row], expected: Iterable[Logged]) -> list[str]:
    """Compare an output with the expected records, each of which must occur once; return the differences."""
    expected_rows = {Row(*record[:5]) for record in expected}
    counts = Counter(rows)
    differences = {
        "missing": sorted(expected_rows - counts.keys()),
        "unexpected": sorted(counts.keys() - expected_rows),
        "more than once": sorted(row for row, count in counts.items() if count > 1),
    }
    return [
        f"{len(found)} records {difference}: {[tuple(row) for row in found[:5]]}"
        for difference, found in differences.items()
        if found
    ]


def offsets_at(log: Iterable[Logged], timestamp: int) -> dict[tuple[str, int], int]:
    """Return the first offset of each partition with this timestamp or a later one, in milliseconds."""
    offsets: dict[tuple[str, int], int] = {}
    for record in log:
        if record.timestamp >= timestamp:
            partition = (record.topic, record.partition)
            offsets[partition] = min(record.offset, offsets.get(partition, record.offset))
    return offsets
