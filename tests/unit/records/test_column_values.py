"""Python values of Arrow columns, compared with Arrow's own conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import seeds

from pyspark_kafka_direct.records.columns import binary_values, integer_values, strings_as_binary

if TYPE_CHECKING:
    import random

ROWS = st.lists(st.none() | st.binary(max_size=5), max_size=20)


@given(ROWS, st.integers(0, 20), st.integers(0, 20))
def test_binary_values_and_nulls_of_a_slice(rows: list[bytes | None], start: int, count: int) -> None:
    column = pa.array(rows, pa.binary()).slice(start, count)
    assert binary_values(column) == column.to_pylist() == rows[start : start + count]


def test_binary_values_behind_the_start_of_their_buffer() -> None:
    column = pa.array([b"ab", b"c", None, b"def", b"g"], pa.binary()).slice(1)
    assert binary_values(column) == [b"c", None, b"def", b"g"]


def test_binary_values_without_data() -> None:
    assert binary_values(pa.array([b"", b""], pa.binary())) == [b"", b""]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1), st.integers(0, 5))
def test_integer_values_of_a_slice(numbers: list[int], start: int) -> None:
    assert list(integer_values(pa.array(numbers, pa.int64()).slice(start), "q")) == numbers[start:]


@pytest.mark.parametrize(("kind", "type_"), [("i", pa.int32()), ("q", pa.timestamp("us")), ("Q", pa.uint64())])
def test_integer_values_by_width(kind: str, type_: pa.DataType) -> None:
    assert list(integer_values(pa.array([1, 2, 3], pa.int64()).cast(type_), kind)) == [1, 2, 3]


def test_strings_at_any_depth_are_cast_to_binary() -> None:
    """PyArrow itself casts lists and maps of nulls to invalid arrays."""

    @seeds(300)
    def check(source: random.Random) -> None:
        count = source.randrange(4)
        columns = {}
        for name in ("c", "d"):
            data_type = random_type(source, depth=source.randrange(5))
            columns[name] = pa.array([random_value(source, data_type) for _ in range(count)], data_type)
        first = source.randrange(count + 1)
        rows = pa.record_batch(columns).slice(first)
        found = strings_as_binary(rows)
        found.validate(full=True)
        assert found.to_pydict() == {name: as_bytes(values) for name, values in rows.to_pydict().items()}

    check()


def random_type(source: random.Random, *, depth: int) -> pa.DataType:
    if depth == 0:
        return source.choice([pa.null(), pa.string(), pa.large_string(), pa.int64()])
    inner = [random_type(source, depth=depth - 1), random_type(source, depth=source.randrange(depth))]
    source.shuffle(inner)
    return source.choice(
        [
            pa.list_(inner[0]),
            pa.large_list(inner[0]),
            pa.map_(pa.string(), inner[0]),
            pa.struct({"a": inner[0], "b": inner[1]}),
        ]
    )


def random_value(source: random.Random, data_type: pa.DataType) -> Any:
    if pa.types.is_null(data_type) or source.random() < 0.2:
        return None
    if pa.types.is_int64(data_type):
        return source.randrange(100)
    if pa.types.is_struct(data_type):
        return {field.name: random_value(source, field.type) for field in data_type}
    if not pa.types.is_nested(data_type):
        return "é" * source.randrange(3)
    count = source.randrange(3)
    if pa.types.is_map(data_type):
        return [(f"k{number}", random_value(source, data_type.item_type)) for number in range(count)]
    return [random_value(source, data_type.value_type) for _ in range(count)]


def as_bytes(value: Any) -> Any:
    match value:
        case str():
            return value.encode()
        case dict():
            return {key: as_bytes(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(as_bytes, value))
    return value
