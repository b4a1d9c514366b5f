"""What a query left behind: its checkpoint and its output, and whether the output is what it must be."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.soak.writer import Logged


class Row(NamedTuple):
    """A record as the sink has it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


def last_batch(folder: Path, log: str) -> int:
    """The last batch in a log of the checkpoint (``offsets`` or ``commits``), -1 if there is none."""
    return max((int(file.name) for file in (folder / "checkpoint" / log).glob("[0-9]*")), default=-1)


def ends_of(folder: Path, batch: int) -> dict[tuple[str, int], int] | None:
    """The end offsets that the checkpoint has for a batch, by topic and partition; ``None`` while it has none.

    The file is ``v1``, a line of metadata, and a line for each source: ``{"topic":{"0":123}}``. What is not a number by
    partition in it is a mark of the source's own.
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
    """All rows of the sink.

    Raises:
        AssertionError: A batch's folder is not whole.
    """
    import pyarrow.parquet as pq

    rows: list[Row] = []
    for batch in sorted((folder / "output").iterdir()):
        assert (batch / "_SUCCESS").exists(), f"{batch} is not whole"
        for file in sorted(batch.glob("*.parquet")):
            columns = pq.ParquetFile(file).read(["topic", "partition", "offset", "key", "value"]).to_pydict()
            rows += map(Row, *columns.values())
    return rows


def faults(rows: Iterable[Row], expected: Iterable[Logged]) -> list[str]:
    """What is wrong with an output; nothing if each of the expected records is there once, and no other."""
    wanted = {Row(*record[:5]) for record in expected}
    counts = Counter(rows)
    kinds = {
        "missing": sorted(wanted - counts.keys()),
        "not asked for": sorted(counts.keys() - wanted),
        "more than once": sorted(row for row, count in counts.items() if count > 1),
    }
    return [
        f"{len(found)} records {kind}: {[tuple(row) for row in found[:5]]}" for kind, found in kinds.items() if found
    ]


def offsets_at(log: Iterable[Logged], timestamp: int) -> dict[tuple[str, int], int]:
    """The first offset of each partition whose record is as new as ``timestamp``, in milliseconds."""
    found: dict[tuple[str, int], int] = {}
    for record in log:
        if record.timestamp >= timestamp:
            place = (record.topic, record.partition)
            found[place] = min(record.offset, found.get(place, record.offset))
    return found
