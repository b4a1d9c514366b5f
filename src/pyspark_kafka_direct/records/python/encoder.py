"""The record encoder in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark_kafka_direct.records.interfaces import MAX_STICKY_BYTES, EncodedBatch, EncodeRequest, strings_as_binary
from pyspark_kafka_direct.records.murmur2 import partition_for_key
from pyspark_kafka_direct.records.python.batch_format import Codec
from pyspark_kafka_direct.records.python.batch_writer import BatchWriter, encode_fields
from pyspark_kafka_direct.records.record_errors import encode_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError

_ROWS_AT_A_TIME = 1024  # Python objects take many times the memory of Arrow's columns


class PythonEncoder:
    """A ``RecordEncoder`` in Python."""

    def __init__(self, request: EncodeRequest) -> None:
        self._request = request
        self._codec = Codec[request.codec.upper()]
        self._open: dict[int, BatchWriter] = {}
        self._full: list[EncodedBatch] = []
        self._sticky_partition = request.first_sticky_partition % request.partitions
        # Encoded keys, values and headers. Timestamps do not count, so a rerun task chooses the same partitions.
        self._sticky_bytes = 0
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        rows = strings_as_binary(rows)
        check_input_columns(rows)
        self._full = []
        try:
            for row in read_rows(rows):
                self._add(row)
                self._rows += 1
        except MemoryError:
            raise self._error("memory") from None
        return self._full

    def flush(self) -> list[EncodedBatch]:
        self._full = []
        try:
            for partition in sorted(self._open):
                self._close(partition)
        except MemoryError:
            raise self._error("memory") from None
        return self._full

    @property
    def open_bytes(self) -> int:
        return sum(batch.uncompressed_bytes for batch in self._open.values())

    def _add(self, row: InputRow) -> None:
        """Append a row to the open batch of its partition; close batches that are full."""
        if any(name is None for name, _ in row.headers):
            raise self._error("header")
        content = encode_fields(row.key, row.value, cast("Sequence[tuple[bytes, bytes | None]]", row.headers))
        fixed_partition = self._fixed_partition(row)
        partition = self._sticky_partition if fixed_partition is None else fixed_partition
        record = self._encode_for(partition, row.timestamp, content)
        if record is None:
            self._close(partition)
            record = BatchWriter(self._codec).encode_record(row.timestamp, content)
        if len(record) > self._request.max_record_bytes:
            raise self._error("large", len(record))
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = BatchWriter(self._codec, self._request.level)
        batch.append(row.timestamp, record)
        if batch.uncompressed_bytes >= self._request.batch_bytes:
            self._close(partition)
        if fixed_partition is None:
            self._count_sticky(len(content))

    def _fixed_partition(self, row: InputRow) -> int | None:
        """Return the partition that the row's partition column or key determines; None for the sticky partition."""
        if row.partition is not None:
            if not 0 <= row.partition < self._request.partitions:
                raise self._error("partition", row.partition)
            return row.partition
        if row.key is not None and not self._request.ignore_keys:
            return partition_for_key(row.key, self._request.partitions)
        return None

    def _encode_for(self, partition: int, timestamp: int, content: bytes) -> bytes | None:
        """Return the row encoded for the partition's open batch; None if it does not fit."""
        batch = self._open.get(partition)
        if batch is None:
            return BatchWriter(self._codec).encode_record(timestamp, content)
        record = batch.encode_record(timestamp, content)
        return record if batch.uncompressed_bytes + len(record) <= self._request.batch_bytes else None

    def _close(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._full.append(EncodedBatch(partition, batch.records, batch.uncompressed_bytes, batch.finish()))

    def _count_sticky(self, size: int) -> None:
        self._sticky_bytes += size
        if self._sticky_bytes >= min(self._request.batch_bytes, MAX_STICKY_BYTES):
            self._sticky_bytes = 0
            self._sticky_partition = (self._sticky_partition + 1) % self._request.partitions

    def _error(self, kind: str, partition_or_size: int = 0) -> KafkaDirectError:
        return encode_error(kind, self._rows, partition_or_size, self._request)


class InputRow(NamedTuple):
    """One row to encode."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes | None, bytes | None], ...]  # a header without a key is rejected later
    partition: int | None
    timestamp: int


def read_rows(rows: pa.RecordBatch) -> Iterator[InputRow]:
    """Yield the rows of a batch that passed ``check_input_columns``, strings as bytes."""
    for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
        yield from _read_slice(rows.slice(start, _ROWS_AT_A_TIME))


def check_input_columns(rows: pa.RecordBatch) -> None:
    """Raise ValueError if a column is missing or has a wrong type."""
    _read_slice(rows.slice(0, 0))
    if rows.column("timestamp").null_count:
        raise ValueError("the column timestamp holds nulls")


def _read_slice(rows: pa.RecordBatch) -> Iterator[InputRow]:
    import pyarrow as pa

    return map(
        InputRow,
        _binary_cells("key", rows.column("key")) if "key" in rows.schema.names else [None] * rows.num_rows,
        _binary_cells("value", _required_column(rows, "value")),
        _header_cells(rows.column("headers")) if "headers" in rows.schema.names else [()] * rows.num_rows,
        _integer_cells(rows, "partition", pa.int32()) if "partition" in rows.schema.names else [None] * rows.num_rows,
        _integer_cells(rows, "timestamp", pa.int64()),
    )


def _required_column(rows: pa.RecordBatch, name: str) -> pa.Array:
    if name not in rows.schema.names:
        raise ValueError(f"there is no column {name}")
    return rows.column(name)


def _integer_cells(rows: pa.RecordBatch, name: str, data_type: pa.DataType) -> list[Any]:
    column = _required_column(rows, name)
    if column.type != data_type:
        raise _wrong_type(name, column)
    integers: list[Any] = column.to_pylist()
    return integers


def _binary_cells(name: str, column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        raise _wrong_type(name, column)
    cells: list[bytes | None] = column.to_pylist()
    return cells


def _header_cells(column: pa.Array) -> list[tuple[tuple[bytes | None, bytes | None], ...]]:
    import pyarrow as pa

    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not pa.types.is_struct(column.type.value_type):
        raise _wrong_type("headers", column)
    header_type = column.type.value_type
    if {field.name for field in header_type} != {"key", "value"}:
        raise _wrong_type("headers", column)
    children = column.flatten().flatten()
    keys, values = (_binary_cells("headers", children[header_type.get_field_index(name)]) for name in ("key", "value"))
    pairs = zip(keys, values, strict=True)
    lengths = column.value_lengths().to_pylist()
    return [tuple(next(pairs) for _ in range(length or 0)) for length in lengths]


def _wrong_type(name: str, column: pa.Array) -> ValueError:
    return ValueError(f"the column {name} cannot have the type {column.type}")
