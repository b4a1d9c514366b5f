"""Writer schemas of the values of a column: the interfaces of framings and of sources of schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.decoded_values import MalformedValues

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Sequence


NO_ID: Final = -1
"""The schema id of values without a framing."""

_MAX_INT32: Final = 2**31 - 1
_ADVICE: Final = "Compare the schema of the writer with that of the query"


@dataclass(frozen=True, slots=True)
class FramedValues:
    """Positions of the data of a column's values, and the writer schema of each."""

    values: pa.BinaryArray  # the column as it is
    starts: pa.Int32Array | None  # of each value: the bytes before its data; None: 0 in all of them
    # Of each value: an index of schema_ids, or null if it is null or malformed; None: 0 in all of them.
    writers: pa.Int32Array | None
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

    def merge_malformed(
        self, malformed: MalformedValues | None, problems: Sequence[WriterSchemaError | None] = ()
    ) -> MalformedValues | None:
        """Return the malformed rows of the framing, those of the decoder, and those of a schema with a problem."""
        found = [each for each in (self.malformed, malformed) if each is not None]
        if not found and not any(problems):
            return None
        writers = self.known_writers()
        if any(problems):
            messages = pa.array([problem and str(problem) for problem in problems], pa.string()).take(writers)
            advice = pa.array([problem and problem.advice for problem in problems], pa.string()).take(writers)
            positions = pc.if_else(messages.is_valid(), pa.scalar(0, pa.int32()), pa.scalar(None, pa.int32()))
            # First, because no other reason counts if the schema cannot be used.
            found.insert(0, MalformedValues(messages.dictionary_encode(), positions, schema_ids=None, advice=advice))
        # Records can contain any four bytes. An id of a registry has no more than 31 bits.
        ids = [each if isinstance(each, int) and each <= _MAX_INT32 else None for each in self.schema_ids]
        advised = [each.advice for each in found if each.advice is not None]
        return MalformedValues(
            reasons=pc.coalesce(*(each.reasons.cast(pa.string()) for each in found)).dictionary_encode(),
            positions=pc.coalesce(*(each.positions for each in found)),
            schema_ids=None if ids == [NO_ID] else pa.array(ids, pa.int32()).take(writers),
            advice=pc.coalesce(*advised) if advised else None,
        )

    def known_writers(self) -> pa.Int32Array:
        """Return the indexes of ``schema_ids``, null for null values."""
        return pc.if_else(self.values.is_null(), pa.scalar(None, pa.int32()), self.writer_indexes())

    def writer_indexes(self) -> pa.Int32Array:
        """Return the indexes of ``schema_ids``; null values may have one, too, which is faster to find."""
        return pa.repeat(pa.scalar(0, pa.int32()), len(self.values)) if self.writers is None else self.writers


class Framing(Protocol):
    """Finds the schema ids of values. It is pickled into tasks."""

    @property
    def needs_headers(self) -> bool:
        """Whether it reads the headers of records."""

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> FramedValues:
        """Find the ids; a value that is null or malformed has no writer."""


class WriterSchemaError(Exception):
    """The reason why values with a schema id cannot be decoded: they are malformed.

    ``advice`` says what to change, and names the schema unless the reason does.
    """

    def __init__(self, reason: str, advice: str = _ADVICE) -> None:
        super().__init__(reason)
        self.advice = advice


def schema_label(schema_id: int | str) -> str:
    """Return the name of a writer schema for messages."""
    if schema_id == NO_ID:
        return "The schema of the writer"
    return f"Schema id {schema_id}" if isinstance(schema_id, int) else f"The schema {schema_id}"


def other_id(schema_id: int | str, given_id: int | str | None) -> WriterSchemaError:
    """Return the error of values whose id is not that of the given schema."""
    return WriterSchemaError(
        f"the schema id of the value is {schema_id}, and that of the query is {given_id}",
        f"{schema_label(schema_id)} can be read by a query with this keySchemaId or valueSchemaId and its schema, or "
        "with schema.registry.url",
    )


def most_frequent_first(
    writers: pa.Int32Array | None, schemas: Sequence[Hashable], known: Container[Hashable]
) -> Sequence[int]:
    """Return the indexes of ``schemas`` in the order in which those that are not known are requested.

    A process requests few schemas that the registry does not have. Random ids of harmful records, which are rare in a
    batch, must not prevent the request for a new schema, which many records have.
    """
    count = len(schemas)
    if writers is None or count < 2 or all(schema in known for schema in schemas):
        return range(count)
    rows = {each["values"]: each["counts"] for each in pc.value_counts(writers).to_pylist()}
    return sorted(range(count), key=lambda index: -rows.get(index, 0))
