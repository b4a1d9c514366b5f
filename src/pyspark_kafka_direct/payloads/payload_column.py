"""A column that is decoded, of which one field may have the original bytes of malformed records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


class WantedFields(NamedTuple):
    """The fields of a struct, without the one for original bytes."""

    fields: pa.Schema
    bytes_index: int | None  # of the field for original bytes in the struct


def wanted_fields(struct: pa.Schema, corrupt_record: str) -> WantedFields:
    """Return the fields to decode: without the one named ``corrupt_record`` if it is binary, for original bytes."""
    index = struct.get_field_index(corrupt_record)
    if index < 0 or struct.field(index).type != pa.binary():
        return WantedFields(struct, None)
    return WantedFields(struct.remove(index), index)


class PayloadColumn(ABC):
    """Decodes one column of a task's batches.

    A field ``_corrupt_record`` of type binary has the original bytes of the key or value of a malformed record, even if
    only the other one of the two is malformed.
    """

    format_name: str  # for messages
    options: ClassVar[tuple[str, ...]] = ("Format", "Schema", "Framing")  # to check if no value can be decoded
    conversion_reasons: Collection[str] = ()  # of values that have the format, but not the type of a field
    needs_headers = False
    # Whether a field has the text or the bytes of malformed values, if there can be any. If not, tasks log the count.
    shows_malformed = True

    def __init__(self, data_type: pa.DataType, bytes_index: int | None = None) -> None:
        self._type = data_type
        self._hints: list[str] = []  # sentences about decoded values
        self._bytes_index = bytes_index  # of the field for original bytes

    @abstractmethod
    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values, still without the field for original bytes; ``headers`` are those of the records."""

    def log_hints(self, where: str) -> None:
        """Log what was noticed in values since the last call, each sentence once per process."""
        while self._hints:
            from pyspark_kafka_direct.options.option_messages import warn_once  # most tasks need none

            warn_once(f"{where}: {self._hints.pop()}")

    def with_original_bytes(
        self, decoded: pa.Array, values: pa.BinaryArray, malformed: pa.BooleanArray | None
    ) -> pa.Array:
        """Add the field for original bytes, if there is one; ``malformed`` are the malformed records, if any."""
        if self._bytes_index is None:
            return decoded
        return _add_original_bytes(decoded, self._type, self._bytes_index, values, malformed)


def _add_original_bytes(
    structs: pa.StructArray,
    struct_type: pa.StructType,
    bytes_index: int,
    values: pa.BinaryArray,
    malformed: pa.BooleanArray | None,
) -> pa.StructArray:
    """Return structs of a type that has one more field, for bytes of records with a malformed key or value."""
    fields = structs.flatten()  # null in null structs, whose fields may have any value
    is_null = structs.is_null()
    if malformed is None:
        original = pa.nulls(len(structs), pa.binary())
    else:
        original = pc.if_else(malformed, values, pa.scalar(None, pa.binary()))
        # A struct that is null, for example of a blank value, has the bytes if the record's other side is malformed.
        is_null = pc.and_(is_null, original.is_null())
    fields.insert(bytes_index, original)
    return pa.StructArray.from_arrays(fields, fields=list(struct_type), mask=is_null)
