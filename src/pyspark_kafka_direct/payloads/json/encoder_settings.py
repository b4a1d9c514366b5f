"""Settings with which tasks write a column as JSON with the id of a JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram, EncoderSettings, SchemaMismatchError
from pyspark_kafka_direct.payloads.encoded_values import InvalidReason, InvalidValueError
from pyspark_kafka_direct.payloads.json.json_required import first_null, required_fields
from pyspark_kafka_direct.payloads.json.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding
    from pyspark_kafka_direct.payloads.json.json_required import RequiredFields


@dataclass(frozen=True, slots=True)
class JsonEncoderSettings(EncoderSettings):
    """Settings without a program: the type of the column says what is written, and the schema only what may be null."""

    text: str = "true"  # of the JSON Schema
    references: tuple[tuple[str, str], ...] = ()  # the names and texts of schemas that it refers to

    format_name: ClassVar[str] = "JSON"

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the paths of the fields that may not be null, if a type is written as JSON."""
        if not pa.types.is_nested(data_type) and data_type not in (pa.string(), pa.binary()):
            raise SchemaMismatchError(
                f"{column} is {data_type}, but a struct, an array, a map, or JSON as a string or bytes is written"
            )
        required = required_fields(self.text, self.references, data_type, column)
        return EncoderProgram(numbers=(), constants=(), paths=tuple(field.path for field in required.not_null))

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of values."""
        return _JsonEncoder(encoding.prefix, partial(required_fields, self.text, self.references))


class _JsonEncoder:
    def __init__(self, prefix: bytes, required: Callable[[pa.DataType, str], RequiredFields]) -> None:
        self._prefix = prefix
        self._find_required = required
        self._required: RequiredFields | None = None  # of the type of all columns, once there is one

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column; strings and bytes are JSON already."""
        data = self._json(values) if pa.types.is_nested(values.type) else values.cast(pa.binary())
        return pc.binary_join_element_wise(self._prefix, data, b"") if self._prefix else data

    def _json(self, values: pa.Array) -> pa.BinaryArray:
        if self._required is None:
            self._required = self._find_required(values.type, "")  # paths for errors are those of compile()
        for node, field in enumerate(self._required.not_null):
            row = first_null(values, field.steps)
            if row is not None:
                raise InvalidValueError(row, node, reason=InvalidReason.NULL)
        return encode_json(values, self._required.data_type)
