"""Python values of Arrow columns, compared with Arrow's own conversion."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.records.columns import binary_values, integer_values

ROWS = st.lists(st.none() | st.binary(max_size=5), max_size=20)


@given(ROWS, st.integers(0, 20), st.integers(0, 20))
def test_binary_values_and_nulls_of_a_slice(rows: list[bytes | None], start: int, count: int) -> None:
    column = pa.array(rows, pa.binary()).slice(start, count)
    assert binary_values(column) == column.to_pylist() == rows[start : start + count]


def test_binary_values_without_data() -> None:
    assert binary_values(pa.array([b"", b""], pa.binary())) == [b"", b""]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1), st.integers(0, 5))
def test_integer_values_of_a_slice(numbers: list[int], start: int) -> None:
    assert list(integer_values(pa.array(numbers, pa.int64()).slice(start), "q")) == numbers[start:]


@pytest.mark.parametrize(("kind", "type_"), [("i", pa.int32()), ("q", pa.timestamp("us")), ("Q", pa.uint64())])
def test_integer_values_by_width(kind: str, type_: pa.DataType) -> None:
    assert list(integer_values(pa.array([1, 2, 3], pa.int64()).cast(type_), kind)) == [1, 2, 3]
