"""A column that is decoded to structs, of which one field may have the original bytes of malformed records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


class WantedFields(NamedTuple):
    """The fields of a struct, without the one for original bytes."""

    fields: pa.Schema
    bytes_index: int | None  # of the field for original bytes in the struct


def wanted_fields(struct: pa.Schema, corrupt_record: str) -> WantedFields:
    """Return the fields to decode. If the field for malformed records is binary, it is none of them."""
    index = struct.get_field_index(corrupt_record)
    if index < 0 or struct.field(index).type != pa.binary():
        return WantedFields(struct, None)
    return WantedFields(struct.remove(index), index)


class PayloadColumn(Protocol):
    """Decodes one column of a task's batches.

    A field ``_corrupt_record`` of type binary has the original bytes of the key or value of a malformed record, even if
    only the other one of the two is malformed.
    """

    format_name: str  # for messages
    shows_malformed: bool  # whether a field has the text or the bytes of malformed values
    needs_headers: bool

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes; ``headers`` are those of the records."""
        ...

    def with_original_bytes(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.StructArray:
        """Add the field for original bytes; ``malformed`` are the malformed records, None if there are none."""
        ...


def add_original_bytes(
    structs: pa.StructArray,
    struct_type: pa.StructType,
    bytes_index: int,
    values: pa.BinaryArray,
    malformed: pa.BooleanArray | None,
) -> pa.StructArray:
    """Return structs of a type that has one more field, for bytes of records with a malformed key or value."""
    fields = structs.flatten()  # a field of a null struct may have any value
    is_null = structs.is_null()
    if malformed is None:
        original = pa.nulls(len(structs), pa.binary())
    else:
        original = pc.if_else(malformed, values, pa.scalar(None, pa.binary()))
        is_null = pc.and_(
            is_null, original.is_null()
        )  # the struct may be null because the record's other side is malformed
    fields.insert(bytes_index, original)
    return pa.StructArray.from_arrays(fields, fields=list(struct_type), mask=is_null)
