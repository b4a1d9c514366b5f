"""Which schema each value of a column was written with: the interfaces of framings and of sources of schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.records.json_values import MalformedValues


@dataclass(frozen=True, slots=True)
class FramedValues:
    """Where the data of a column begins, and which writer schema each value has."""

    values: pa.BinaryArray  # the column as it is
    starts: pa.Int32Array | None  # of each value: the bytes before its data; None: 0 in all of them
    writers: pa.Int32Array | None  # of each value: an index of schema_ids, or null; None: 0 in all of them
    schema_ids: tuple[int | str, ...]  # distinct: ids, or GUIDs or fingerprints as strings
    malformed: MalformedValues | None  # values with another framing; None if there are none

    def slice(self, start: int, rows: int) -> FramedValues:
        """Return some rows."""
        if (start, rows) == (0, len(self.values)):
            return self
        return FramedValues(
            self.values.slice(start, rows),
            None if self.starts is None else self.starts.slice(start, rows),
            None if self.writers is None else self.writers.slice(start, rows),
            self.schema_ids,
            None if self.malformed is None else self.malformed.slice(start, rows),
        )


class Framing(Protocol):
    """Finds the schema ids of values. It is pickled into tasks."""

    @property
    def needs_headers(self) -> bool:
        """Whether it reads the headers of records."""

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> FramedValues:
        """Find the ids; a value that is null or malformed has no writer."""


class WriterSchemaError(Exception):
    """Why values with a schema id cannot be decoded: they are malformed for this reason."""


def most_frequent_first(writers: pa.Int32Array | None, count: int) -> Sequence[int]:
    """Return the indexes below ``count`` in the order in which their schemas are requested.

    A process requests few schemas that the registry does not have. Random ids of harmful records, which are rare in a
    batch, must not prevent the request for a new schema, which many records have.
    """
    if writers is None or count < 2:
        return range(count)
    rows = {each["values"]: each["counts"] for each in pc.value_counts(writers).to_pylist()}
    return sorted(range(count), key=lambda index: -rows.get(index, 0))
