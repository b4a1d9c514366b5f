"""What a query left behind: its checkpoint and its output, and whether the output is what it must be."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.soak.writer import Logged


class Row(NamedTuple):
    """A record as the sink has it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def last_batch(folder: Path, log: str) -> int:
    """The last batch in a log of the checkpoint (``offsets`` or ``commits``), -1 if there is none."""
    return max((int(file.name) for file in (folder / "checkpoint" / log).glob("[0-9]*")), default=-1)


def ends_of(folder: Path, batch: int, topic: str) -> dict[int, int] | None:
    """The end offsets that the checkpoint has for a batch, by partition; ``None`` while it has none.

    The file is ``v1``, a line of metadata, and a line for each source: ``{"topic":{"0":123}}``.
    """
    file = folder / "checkpoint" / "offsets" / str(batch)
    if not file.exists():
        return None
    offsets = json.loads(file.read_text().splitlines()[2])
    return {int(partition): offset for partition, offset in offsets[topic].items()}


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
            columns = pq.ParquetFile(file).read(["partition", "offset", "key", "value"]).to_pydict()
            rows += map(Row, *columns.values())
    return rows


def faults(rows: Iterable[Row], log: Sequence[Logged], start: Mapping[int, int]) -> list[str]:
    """What is wrong with the output of a query that began at ``start``; nothing if each record is there once."""
    expected = {
        (record.partition, record.offset): (record.key, record.value)
        for record in log
        if record.offset >= start[record.partition]
    }
    counts: Counter[tuple[int, int]] = Counter()
    wrong = []
    for row in rows:
        place = (row.partition, row.offset)
        counts[place] += 1
        if place in expected and expected[place] != (row.key, row.value):
            wrong.append(place)
    kinds = {
        "missing": sorted(expected.keys() - counts.keys()),
        "not asked for": sorted(counts.keys() - expected.keys()),
        "more than once": sorted(place for place, count in counts.items() if count > 1),
        "with another key or value": sorted(wrong),
    }
    return [
        f"{len(places)} records {kind}, (partition, offset): {places[:5]}" for kind, places in kinds.items() if places
    ]


def offsets_at(log: Iterable[Logged], timestamp: int) -> dict[int, int]:
    """The first offset of each partition whose record is as new as ``timestamp``, in milliseconds."""
    found: dict[int, int] = {}
    for record in log:
        if record.timestamp >= timestamp:
            found[record.partition] = min(record.offset, found.get(record.partition, record.offset))
    return found
