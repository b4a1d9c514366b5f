"""Merges the batches of several partitions by timestamp.

The order of a record is the largest timestamp up to it in its partition, so each partition keeps its order although
producers may set earlier timestamps later. Records of equal order follow the order of the partitions. So the result
does not depend on the sizes of the batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.records.columns import integer_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def merge_by_timestamp(
    sources: Sequence[Callable[[], pa.RecordBatch | None]],  # the next batch of a partition, or None after its last one
) -> Iterator[pa.RecordBatch]:
    """Yield the records of all sources, each of which has at most one batch here."""
    runs = [_Run(source) for source in sources]
    while runs := [run for run in runs if run.fill()]:
        # The next record of another batch of this run has this order, or a later one, and all of this run come before.
        first = min(range(len(runs)), key=lambda index: runs[index].last)  # the first one of equal ones
        until = runs[first].last
        parts = [
            part
            for index, run in enumerate(runs)
            if run.first <= until and (part := run.take(until, inclusive=index <= first)) is not None
        ]
        yield _merged(parts)


class _Run:
    """The rest of a partition's current batch."""

    def __init__(self, source: Callable[[], pa.RecordBatch | None]) -> None:
        self._source = source
        self._batch: pa.RecordBatch | None = None
        self._orders: pa.Int64Array = pa.nulls(0, pa.int64())
        self._position = 0
        self.first = self.last = 0  # orders of the remaining records

    def fill(self) -> bool:
        """Request a batch if none is left; return whether there is one."""
        if self._position < len(self._orders):
            return True
        self._batch = self._source()
        if self._batch is None:
            return False
        times = self._batch["timestamp"].view(pa.int64())
        # Earlier batches do not matter: no other run has a record that comes before their last one.
        self._orders = pc.cumulative_max(times)
        self._position = 0
        self.first, self.last = self._order(0), self._order(-1)
        return True

    def take(self, until: int, *, inclusive: bool) -> tuple[pa.RecordBatch, pa.Int64Array] | None:
        """Return the records up to an order, and their orders; None if there are none."""
        bisect = bisect_right if inclusive else bisect_left
        start, self._position = self._position, bisect(integer_values(self._orders, "q"), until, self._position)
        count = self._position - start
        if not count:
            return None
        if self._position < len(self._orders):
            self.first = self._order(self._position)
        assert self._batch is not None
        return self._batch.slice(start, count), self._orders.slice(start, count)

    def _order(self, index: int) -> int:
        return integer_values(self._orders, "q")[index]


def _merged(parts: Sequence[tuple[pa.RecordBatch, pa.Int64Array]]) -> pa.RecordBatch:
    """Return the records of several partitions by their orders."""
    if len(parts) == 1:
        return parts[0][0]
    rows = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks()
    orders = pa.concat_arrays([each for _, each in parts])
    (merged,) = rows.take(pc.sort_indices(orders)).to_batches()  # a stable sort
    return merged
