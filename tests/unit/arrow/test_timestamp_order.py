"""The order of records that are merged by timestamp."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.arrow.timestamp_order import merge_by_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema([("source", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
MAX = (1 << 63) - 1
# Few different times, so that many are equal, and the smallest and largest ones.
TIMES = st.one_of(st.integers(-3, 9), st.sampled_from([-MAX - 1, MAX]))
PARTITIONS = st.lists(st.lists(st.lists(TIMES, min_size=1, max_size=6), max_size=5), max_size=6)


def source(index: int, batches: list[list[int]]) -> Callable[[], pa.RecordBatch | None]:
    starts = accumulate((len(times) for times in batches), initial=0)
    remaining = iter(
        [
            pa.record_batch([[index] * len(times), range(start, start + len(times)), times], schema=SCHEMA)
            for start, times in zip(starts, batches, strict=False)
        ]
    )
    return lambda: next(remaining, None)


@given(PARTITIONS)
def test_each_partition_keeps_its_order_and_the_largest_timestamp_so_far_decides(
    partitions: list[list[list[int]]],
) -> None:
    merged = merge_by_timestamp([source(index, batches) for index, batches in enumerate(partitions)])
    rows = [
        (row["source"], row["offset"]) for batch in merged for row in batch.select(["source", "offset"]).to_pylist()
    ]
    orders = {
        (index, offset): largest
        for index, batches in enumerate(partitions)
        for offset, largest in enumerate(accumulate(chain.from_iterable(batches), max))
    }
    assert rows == sorted(orders, key=lambda row: (orders[row], *row))


def test_batches_of_one_partition_are_not_copied() -> None:
    batches = [[1, 2, 3], [4, 5]]
    merged = list(merge_by_timestamp([source(0, batches), source(1, [[9]])]))
    assert [batch.num_rows for batch in merged] == [3, 2, 1]
