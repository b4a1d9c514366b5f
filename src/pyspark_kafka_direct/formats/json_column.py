"""A column of JSON that is decoded to structs or VARIANTs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafka_direct.formats.payload_column import add_original_bytes, wanted_fields
from pyspark_kafka_direct.records import create_json_decoder
from pyspark_kafka_direct.records.json_values import is_variant

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import DecodedValues


class JsonColumn:
    """A ``PayloadColumn`` of JSON. A field of type string has the text of a malformed value, as in Spark."""

    format_name = "JSON"
    needs_headers = False

    def __init__(self, data_type: pa.StructType, corrupt_record: str, time_zone: str) -> None:
        self._type = data_type
        fields: pa.Schema | None = None
        self._bytes_index: int | None = None
        self.shows_malformed = False
        if not is_variant(data_type):
            fields, self._bytes_index = wanted_fields(pa.schema(list(data_type)), corrupt_record)
            self.shows_malformed = data_type.get_field_index(corrupt_record) >= 0
        self._decoder = create_json_decoder(fields, corrupt_record, time_zone)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        return self._decoder.decode(values)

    def with_original_bytes(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.StructArray:
        """Add the field for original bytes, if the type has it."""
        if self._bytes_index is None:
            return structs
        return add_original_bytes(structs, self._type, self._bytes_index, values, malformed)
