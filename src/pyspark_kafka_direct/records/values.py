"""Values of Arrow columns as Python's: cut from the buffers, since Arrow's scalars cost more than all else together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def binary_values(column: pa.BinaryArray) -> list[bytes | None]:
    """Return the bytes of all rows; ``None`` where a row is null.

    Args:
        column: Of type ``binary``, whose offsets have 32 bits.
    """
    import pyarrow.compute as pc

    count = len(column)
    if column.null_count == count:
        return [None] * count
    _, ends, data = column.buffers()
    if data is None:
        rows: list[bytes | None] = [b""] * count
    else:
        marks = memoryview(ends).cast("b").cast("i")[column.offset : column.offset + count + 1].tolist()
        first = marks[0]
        whole = data.slice(first, marks[-1] - first).to_pybytes()  # slices of it cost half of a memoryview's
        if first:
            marks = [mark - first for mark in marks]
        rows = [whole[start:end] for start, end in pairwise(marks)]
    if column.null_count:
        for row in integers(pc.indices_nonzero(column.is_null()), "Q"):
            rows[row] = None
    return rows


def integers(column: pa.Array, kind: str) -> Sequence[int]:
    """Return whole numbers, or times as the numbers that they are in Arrow, by row; what is null is any number.

    Args:
        column: The column, of a type of fixed width.
        kind: That width, as ``struct`` names it: ``i``, ``q``, ``Q``.
    """
    numbers = memoryview(column.buffers()[1]).cast("b").cast(kind)  # type: ignore[call-overload]
    return numbers[column.offset : column.offset + len(column)]  # type: ignore[no-any-return]
