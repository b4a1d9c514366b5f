"""Columns of any type of Arrow become columns with the types of Spark, and the same values."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.arrow.arrow_input import open_input, plain_schema, with_plain_types
from pyspark_kafka_direct.errors import ColumnError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAVES: dict[pa.DataType, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    pa.uint8(): (pa.int16(), st.sampled_from([0, 255])),
    pa.uint16(): (pa.int32(), st.sampled_from([0, 65_535])),
    pa.uint32(): (pa.int64(), st.sampled_from([0, (1 << 32) - 1])),
    pa.uint64(): (pa.int64(), st.sampled_from([0, (1 << 63) - 1])),
    pa.float16(): (pa.float32(), st.sampled_from([0.5, -2.0])),
    pa.int8(): (pa.int8(), st.sampled_from([-128, 127])),
    pa.string(): (pa.string(), st.sampled_from(["", "é"])),
    pa.string_view(): (pa.string(), st.sampled_from(["", "longer than a view's prefix"])),
    pa.binary_view(): (pa.binary(), st.sampled_from([b"", b"longer than a view's prefix"])),
    pa.large_string(): (pa.large_string(), st.sampled_from(["", "a"])),
}
"""The types without parts: their type in Spark, and values."""


class _Shape(NamedTuple):
    """A type, its type in Spark, and how an array of it is made of values."""

    type: pa.DataType
    plain: pa.DataType
    values: st.SearchStrategy[Any]
    array: Callable[[list[Any]], pa.Array]


def _leaf(data_type: pa.DataType) -> _Shape:
    plain, values = _LEAVES[data_type]
    return _Shape(data_type, plain, values, lambda rows: pa.array(rows, data_type))


def _dictionary(entries: _Shape) -> _Shape:
    def array(rows: list[Any]) -> pa.Array:
        known = list(dict.fromkeys(row for row in rows if row is not None))
        indices = pa.array([None if row is None else known.index(row) for row in rows], pa.int8())
        return pa.DictionaryArray.from_arrays(indices, entries.array(known))

    return _Shape(pa.dictionary(pa.int8(), entries.type), entries.plain, entries.values, array)


def _extension(storage: _Shape) -> _Shape:
    data_type = pa.opaque(storage.type, "text", "v")
    return _Shape(
        data_type,
        storage.plain,
        storage.values,
        lambda rows: pa.ExtensionArray.from_storage(data_type, storage.array(rows)),
    )


def _struct(children: list[_Shape]) -> _Shape:
    def array(rows: list[Any]) -> pa.Array:
        columns = [
            child.array([None if row is None else row[f"f{index}"] for row in rows])
            for index, child in enumerate(children)
        ]
        mask = pa.array([row is None for row in rows], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(fields), mask=mask)

    fields = pa.struct([(f"f{index}", child.type) for index, child in enumerate(children)])
    plain = pa.struct([(f"f{index}", child.plain) for index, child in enumerate(children)])
    values = st.fixed_dictionaries({f"f{index}": st.none() | child.values for index, child in enumerate(children)})
    return _Shape(fields, plain, values, array)


def _list(entries: _Shape, kind: str) -> _Shape:
    def array(rows: list[Any]) -> pa.Array:
        size = 2 if kind == "fixed_size" else 0
        content = entries.array([entry for row in rows for entry in ([None] * size if row is None else row)])
        mask = pa.array([row is None for row in rows], pa.bool_())
        if kind == "fixed_size":
            return pa.FixedSizeListArray.from_arrays(content, type=data_type, mask=mask)
        offsets = list(accumulate((len(row or ()) for row in rows), initial=0))
        if kind == "large":
            return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), content, type=data_type, mask=mask)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), content, type=data_type, mask=mask)

    made: dict[str, Callable[[pa.DataType], pa.DataType]] = {
        "plain": pa.list_,
        "large": pa.large_list,
        "fixed_size": lambda entry: pa.list_(entry, 2),
    }
    data_type = made[kind](entries.type)
    plain = pa.large_list(entries.plain) if kind == "large" else pa.list_(entries.plain)
    least = 2 if kind == "fixed_size" else 0
    return _Shape(data_type, plain, st.lists(st.none() | entries.values, min_size=least, max_size=2), array)


def _map(keys: _Shape, items: _Shape) -> _Shape:
    def array(rows: list[Any]) -> pa.Array:
        offsets = [*accumulate((len(row or ()) for row in rows), initial=0)]
        nulls = pa.array(
            [None if row is None else offset for row, offset in zip(rows, offsets, strict=False)], pa.int32()
        )
        pairs = [pair for row in rows for pair in row or ()]
        return pa.MapArray.from_arrays(
            pa.concat_arrays([nulls, pa.array(offsets[-1:], pa.int32())]),
            keys.array([key for key, _ in pairs]),
            items.array([item for _, item in pairs]),
        )

    values = st.lists(st.tuples(keys.values, st.none() | items.values), max_size=2)
    return _Shape(pa.map_(keys.type, items.type), pa.map_(keys.plain, items.plain), values, array)


def _with_parts(shapes: st.SearchStrategy[_Shape]) -> st.SearchStrategy[_Shape]:
    lists = st.builds(_list, shapes, st.sampled_from(["plain", "large", "fixed_size"]))
    return lists | st.builds(_struct, st.lists(shapes, min_size=1, max_size=2)) | st.builds(_map, leaves, shapes)


leaves = st.sampled_from(sorted(_LEAVES, key=str)).map(_leaf)
texts = st.sampled_from([pa.string(), pa.string_view(), pa.binary_view(), pa.large_string()]).map(_leaf)
shapes = st.recursive(leaves | texts.map(_dictionary) | leaves.map(_extension), _with_parts, max_leaves=4)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[_Shape], list[pa.Array]]:
    drawn = draw(st.lists(shapes, min_size=2, max_size=3))
    count = draw(st.integers(0, 4))
    return drawn, [
        each.array(draw(st.lists(st.none() | each.values, min_size=count, max_size=count))) for each in drawn
    ]


@settings(max_examples=60)
@given(columns(), st.integers(0, 2))
def test_the_types_of_other_libraries_become_those_of_spark(
    drawn: tuple[list[_Shape], list[pa.Array]], start: int
) -> None:
    shapes, arrays = drawn
    names = [f"c{index}" for index in range(len(shapes))]
    batch = pa.record_batch(arrays, names).slice(start)
    schema = plain_schema(batch.schema, dict.fromkeys(range(len(shapes)), pa.null()))
    converted = with_plain_types(batch, schema)
    assert converted.schema.types == [shape.plain for shape in shapes]
    assert converted.to_pylist() == batch.to_pylist()
    converted.validate(full=True)


@pytest.mark.parametrize("other", [1, 2, 3])
def test_any_batch_may_have_other_columns_than_the_first(other: int) -> None:
    given_batches: list[Any] = [pa.record_batch({"value": [str(number)]}) for number in range(4)]
    for wrong, error, message in (
        (pa.record_batch({"value": [1]}), ColumnError, f"^Batch {other} has the columns"),
        ("text", OptionError, f"; batch {other} is a str$"),
    ):
        opened = open_input([*given_batches[:other], wrong, *given_batches[other + 1 :]])
        assert opened is not None
        assert [next(opened.batches) for _ in range(other)] == given_batches[:other]
        with pytest.raises(error, match=message):
            next(opened.batches)


@pytest.mark.parametrize("error", [ValueError, TypeError, NotImplementedError])
@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_data_that_has_no_columns(method: str, error: type[Exception]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("it is an array")

    data = type("Series", (), {method: fail})()
    with pytest.raises(OptionError, match="an iterable of RecordBatches; Series: it is an array"):
        open_input(data)
