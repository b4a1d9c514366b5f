"""Values of Arrow as those of JSON."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


def text(data: bytes | bytearray | memoryview) -> str:
    return bytes(data).decode("latin-1")


def optional_text(data: bytes | None) -> str | None:
    return None if data is None else text(data)


def optional_bytes(data: str | None) -> bytes | None:
    return None if data is None else data.encode("latin-1")


def plain(array: pa.Array) -> list[Any]:
    """Return values: dates and times as integers, floats and decimals as strings, and maps as lists of pairs."""
    data_type = array.type
    values: list[Any]
    if pa.types.is_struct(data_type):
        columns = [plain(array.field(index)) for index in range(data_type.num_fields)]
        values = [[column[row] for column in columns] for row in range(len(array))]
    elif pa.types.is_map(data_type):
        keys, items = plain(array.keys), plain(array.items)
        pairs = [list(pair) for pair in zip(keys, items, strict=True)]
        values = [pairs[start:end] for start, end in pairwise(array.offsets.to_pylist())]
    elif pa.types.is_list(data_type):
        items = plain(array.values)
        values = [items[start:end] for start, end in pairwise(array.offsets.to_pylist())]
    elif pa.types.is_temporal(data_type):
        values = array.view(pa.int32() if pa.types.is_date32(data_type) else pa.int64()).to_pylist()
    elif pa.types.is_binary(data_type):
        values = [optional_text(value) for value in array.to_pylist()]
    elif pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        values = [str(value) for value in array.to_pylist()]
    else:
        values = array.to_pylist()
    if array.null_count == 0:
        return values
    return [None if is_null else value for is_null, value in zip(array.is_null().to_pylist(), values, strict=True)]


def decoded(found: DecodedValues) -> list[Any]:
    """Return the values of a batch, and where and why they are malformed."""
    found.values.validate(full=True)
    if found.malformed is None:
        return [plain(found.values), None]
    return [plain(found.values), found.malformed.positions.to_pylist(), found.malformed.reasons.to_pylist()]
