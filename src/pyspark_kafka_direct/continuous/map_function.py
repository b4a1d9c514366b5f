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
    steps = [(each.function, () if each.setup is None else (each.setup(),)) for each in functions]

    def compose(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        result: pa.RecordBatch | None = batch
        for function, resources in steps:
            result = function(result, *resources)
            if result is None:
                return None
        return result

    return compose
