"""A column of JSON that is decoded to structs, of which one field may have the original bytes of malformed records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.records import create_json_decoder
from pyspark_kafka_direct.records.json_values import is_variant

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import DecodedValues


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


class JsonColumn:
    """Decodes one column.

    A field of type string has the text of a malformed value, as in Spark. A field of type binary has the original bytes
    of the key or value of a malformed record, even if only the other one of the two is malformed.
    """

    def __init__(self, data_type: pa.StructType, corrupt_record: str) -> None:
        self._type = data_type
        fields: pa.Schema | None = None
        self._bytes_index: int | None = None
        self.shows_malformed = False  # whether a field has the text or the bytes of malformed values
        if not is_variant(data_type):
            fields, self._bytes_index = wanted_fields(pa.schema(list(data_type)), corrupt_record)
            self.shows_malformed = data_type.get_field_index(corrupt_record) >= 0
        self._decoder = create_json_decoder(fields, corrupt_record)

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        return self._decoder.decode(values)

    def with_original_bytes(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.StructArray:
        """Add the field for original bytes; ``malformed`` are the malformed records, None if there are none."""
        if self._bytes_index is None:
            return structs
        fields = structs.flatten()  # a field of a null struct may have any value
        is_null = structs.is_null()
        if malformed is None:
            original = pa.nulls(len(structs), pa.binary())
        else:
            original = pc.if_else(malformed, values, pa.scalar(None, pa.binary()))
            is_null = pc.and_(is_null, original.is_null())  # a blank value is a null struct, and has bytes too
        fields.insert(self._bytes_index, original)
        return pa.StructArray.from_arrays(fields, fields=list(self._type), mask=is_null)
