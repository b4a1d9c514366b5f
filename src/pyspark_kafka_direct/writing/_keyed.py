"""Records with keys in one partition, as markers, stored offsets and staged batches are: made and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.wire.system import System


def rows_of(records: Sequence[tuple[bytes, bytes | None]], partition: int, system: System) -> pa.RecordBatch:
    """Return rows for a ``RecordEncoder``, with the time of now.

    Args:
        records: Keys and values.
        partition: Where they belong.
        system: Has the clock.
    """
    import pyarrow as pa

    now = int(system.wall_time() * 1000)
    count = len(records)
    return pa.record_batch(
        {
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
            "timestamp": pa.array([now] * count, pa.int64()),
        }
    )


def values_of(key: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | None]:
    """Yield the values of the records that have a key, in their order.

    Args:
        key: The key.
        batches: Records, with the columns ``key`` and ``value``.
    """
    import pyarrow.compute as pc

    for batch in batches:
        values = batch.column("value").filter(pc.fill_null(pc.equal(batch.column("key"), key), False))
        yield from values.to_pylist()
