"""The functions of ``map_batches``, and what each task prepares for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MapFunction:
    """A user's function; pickled to the executors."""

    function: Callable[..., pa.RecordBatch | None]
    setup: Callable[[], Any] | None = None  # its result is the second argument of the function
    max_rows: int | None = None  # in a batch


def open_functions(functions: Sequence[MapFunction]) -> Callable[[pa.RecordBatch], pa.RecordBatch | None] | None:
    """Run the setups, and return the composed function; ``None`` if there is none."""
    if not functions:
        return None
    # Each function with its second argument, if it has one.
    steps = [(each.function, () if each.setup is None else (each.setup(),)) for each in functions]

    def apply_all(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        result: pa.RecordBatch | None = batch
        for function, setup_result in steps:
            result = function(result, *setup_result)
            if result is None:  # the function has dropped all rows
                return None
        return result

    return apply_all
