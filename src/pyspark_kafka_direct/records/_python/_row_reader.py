"""The rows that are to become records, out of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_ROWS_AT_A_TIME = 1024  # Python objects take many times the memory of Arrow's columns


class Row(NamedTuple):
    """One record to be, still without a place. A header's key that is None is refused later."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes | None, bytes | None], ...]
    partition: int | None
    timestamp: int


def read_rows(rows: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch that ``check_columns`` lets pass, its text as bytes."""
    for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
        yield from _read(rows.slice(start, _ROWS_AT_A_TIME))


def check_columns(rows: pa.RecordBatch) -> None:
    """Check that the columns are there and have the right types.

    Raises:
        ValueError: They do not.
    """
    _read(rows.slice(0, 0))
    if rows.column("timestamp").null_count:
        raise ValueError("the column timestamp holds nulls")


def _read(rows: pa.RecordBatch) -> Iterator[Row]:
    import pyarrow as pa

    return map(
        Row,
        _bytes("key", rows.column("key")) if "key" in rows.schema.names else [None] * rows.num_rows,
        _bytes("value", _needed(rows, "value")),
        _headers(rows.column("headers")) if "headers" in rows.schema.names else [()] * rows.num_rows,
        _numbers(rows, "partition", pa.int32()) if "partition" in rows.schema.names else [None] * rows.num_rows,
        _numbers(rows, "timestamp", pa.int64()),
    )


def _needed(rows: pa.RecordBatch, name: str) -> pa.Array:
    if name not in rows.schema.names:
        raise ValueError(f"there is no column {name}")
    return rows.column(name)


def _numbers(rows: pa.RecordBatch, name: str, wanted: pa.DataType) -> list[Any]:
    column = _needed(rows, name)
    if column.type != wanted:
        raise _wrong_type(name, column)
    numbers: list[Any] = column.to_pylist()
    return numbers


def _bytes(name: str, column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        raise _wrong_type(name, column)
    cells: list[bytes | None] = column.to_pylist()
    return cells


def _headers(column: pa.Array) -> list[tuple[tuple[bytes | None, bytes | None], ...]]:
    import pyarrow as pa

    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not pa.types.is_struct(column.type.value_type):
        raise _wrong_type("headers", column)
    kind = column.type.value_type
    if {field.name for field in kind} != {"key", "value"}:
        raise _wrong_type("headers", column)
    children = column.flatten().flatten()
    keys, values = (_bytes("headers", children[kind.get_field_index(name)]) for name in ("key", "value"))
    pairs = zip(keys, values, strict=True)
    lengths = column.value_lengths().to_pylist()
    return [tuple(next(pairs) for _ in range(length or 0)) for length in lengths]


def _wrong_type(name: str, column: pa.Array) -> ValueError:
    return ValueError(f"the column {name} cannot have the type {column.type}")
