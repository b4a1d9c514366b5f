"""Results of the native kernel's decoders for a column of keys or values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.records.native_kernel import native

MAX_SCHEMA_DEPTH: Final = 60
"""Levels of structs and arrays in a schema. PyArrow exports at most 64, those of a batch and a VARIANT included."""

MAX_COLUMN_TYPES: Final = 20_000
"""Types of a column whose fields follow from a schema, in which a part counts as often as it is used."""

MAX_DECODED_BYTES: Final = 128 << 20
"""The limit of a batch of decoded values.

It is also that of the elements of one value's arrays and maps: an element of three bytes of JSON may have a row in any
number of columns.
"""


class MalformedValues(NamedTuple):
    """Reasons why values are malformed, one row for each value of a column; null if it is not malformed."""

    reasons: pa.DictionaryArray  # of strings
    positions: pa.Int32Array  # the byte of the value at which this was noticed
    schema_ids: pa.Int32Array | None = None  # of a schema registry; None if there is none
    # What to change if not the value, but its schema is at fault; null for other values, None if there is none. The
    # text names the schema, so it is the same for all values of a schema.
    advice: pa.StringArray | None = None

    def slice(self, start: int, rows: int) -> MalformedValues | None:
        """Return some rows, or None if none of them is malformed."""
        reasons = self.reasons.slice(start, rows)
        if reasons.null_count == rows:
            return None
        schema_ids = None if self.schema_ids is None else self.schema_ids.slice(start, rows)
        advice = None if self.advice is None else self.advice.slice(start, rows)
        return MalformedValues(reasons, self.positions.slice(start, rows), schema_ids, advice)


class KernelDecoder(Protocol):
    """A decoder of the native kernel."""

    def decode(self, values: native.ExportedBatch) -> tuple[native.Exported, native.Exported | None]:
        """Decode the first values, and return why values are malformed."""
        ...


class DecodedValues(NamedTuple):
    """The first values of a column, decoded: as many as fit into the limit of a batch, at least one.

    A VARIANT is null if its value is null or malformed. A struct is null if its value is null or blank. If a value is
    not a JSON object, it is malformed, and all fields of its struct are null. If a field's value does not fit its type,
    the value is malformed, and only this field is null.
    """

    values: pa.Array
    malformed: MalformedValues | None  # None if no value is malformed

    def slice(self, start: int, rows: int) -> DecodedValues:
        """Return some rows, without a copy."""
        if (start, rows) == (0, len(self.values)):
            return self
        malformed = None if self.malformed is None else self.malformed.slice(start, rows)
        return DecodedValues(self.values.slice(start, rows), malformed)


def decoded_values(kernel: KernelDecoder, **columns: pa.Array | None) -> DecodedValues:
    """Decode columns, which a decoder of the kernel finds by name; one that is None has the kernel's default."""
    import pyarrow as pa

    given = {name: column for name, column in columns.items() if column is not None}
    batch = pa.RecordBatch.from_arrays(list(given.values()), list(given))
    decoded, malformed = kernel.decode(batch.__arrow_c_array__())
    return DecodedValues(
        pa.record_batch(decoded).column(0),
        None if malformed is None else MalformedValues(*pa.record_batch(malformed).columns),
    )
