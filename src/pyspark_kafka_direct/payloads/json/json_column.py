"""A column of JSON that is decoded to structs or VARIANTs, with or without the header of a registry in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.decoded_values import DecodedValues, MalformedValues
from pyspark_kafka_direct.payloads.json.json_values import CONVERSION_REASONS, JsonDecoder, is_variant
from pyspark_kafka_direct.payloads.json.missing_fields import MissingFields
from pyspark_kafka_direct.payloads.payload_column import PayloadColumn, wanted_fields

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.writer_schemas import FramedValues, Framing

_MAX_INT32: Final = 2**31 - 1
_NO_JSON: Final = b"\0"  # a malformed value


class JsonColumn(PayloadColumn):
    """Decodes JSON. A field of type string has the text of a malformed value, as in Spark.

    With a framing, the schema of an id is not requested, because the wanted fields say how to decode the JSON.
    """

    format_name = "JSON"
    conversion_reasons = CONVERSION_REASONS

    def __init__(
        self, data_type: pa.StructType, corrupt_record: str, time_zone: str, framing: Framing | None = None
    ) -> None:
        self._framing = framing
        self.needs_headers = framing is not None and framing.needs_headers
        fields: pa.Schema | None = None  # None: VARIANT
        bytes_index: int | None = None
        self.shows_malformed = False
        if not is_variant(data_type):
            fields, bytes_index = wanted_fields(pa.schema(list(data_type)), corrupt_record)
            self.shows_malformed = data_type.get_field_index(corrupt_record) >= 0
        super().__init__(data_type, bytes_index)
        self._decoder = JsonDecoder(fields, corrupt_record, time_zone)
        self._missing_fields = MissingFields(field for field in fields or () if field.name != corrupt_record)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes."""
        if self._framing is None:
            return self._decode(values)
        framed = self._framing.split(values, headers)
        decoded = self._decode(without_header(framed))
        part = framed.slice(0, len(decoded.values))  # the decoder may end before the last value
        malformed = decoded.malformed
        if malformed is not None and part.starts is not None:
            # The decoder counts from the start of the JSON, an error from the start of the value.
            positions = pc.add(malformed.positions, part.starts)
            malformed = MalformedValues(malformed.reasons, positions)
        return DecodedValues(decoded.values, part.merge_malformed(malformed))

    def _decode(self, values: pa.BinaryArray) -> DecodedValues:
        decoded = self._decoder.decode(values)
        self._hints += self._missing_fields.find(values.slice(0, len(decoded.values)), decoded.values)
        return decoded


def without_header(framed: FramedValues) -> pa.BinaryArray:
    """Return the JSON of values. Values with another framing are replaced, because they might be valid JSON."""
    data = framed.values
    if framed.starts is not None:
        for start in pc.unique(framed.starts).drop_null().to_pylist():  # one slice for each length of ids
            # Without an end, Arrow fails at values that are shorter than start.
            after = pc.binary_slice(framed.values, start, _MAX_INT32)
            data = pc.if_else(pc.equal(framed.starts, start), after, data)
    if framed.malformed is not None:
        data = pc.if_else(framed.malformed.reasons.is_valid(), _NO_JSON, data)
    return data
