"""The record encoder in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark_kafka_direct.records._encoding import EncodedBatch, EncodeRequest, text_as_bytes
from pyspark_kafka_direct.records._failures import encode_error
from pyspark_kafka_direct.records._murmur2 import partition_of
from pyspark_kafka_direct.records._python._batch_format import Codec
from pyspark_kafka_direct.records._python._batch_writer import BatchWriter, fields
from pyspark_kafka_direct.records._python._row_reader import check_columns, read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.records._python._row_reader import Row


class PythonEncoder:
    """A ``RecordEncoder`` in plain Python."""

    def __init__(self, request: EncodeRequest) -> None:
        self._request = request
        self._codec = Codec[request.codec.upper()]
        self._open: dict[int, BatchWriter] = {}
        self._full: list[EncodedBatch] = []
        self._sticky = request.first_sticky % request.partitions
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        """See ``RecordEncoder``."""
        rows = text_as_bytes(rows)
        check_columns(rows)
        self._full = []
        try:
            for row in read_rows(rows):
                self._add(row)
                self._rows += 1
        except MemoryError:
            raise self._error("memory") from None
        return self._full

    def flush(self) -> list[EncodedBatch]:
        """See ``RecordEncoder``."""
        self._full = []
        try:
            for partition in sorted(self._open):
                self._close(partition)
        except MemoryError:
            raise self._error("memory") from None
        return self._full

    @property
    def open_bytes(self) -> int:
        """See ``RecordEncoder``."""
        return sum(batch.raw_bytes for batch in self._open.values())

    def _add(self, row: Row) -> None:
        if any(name is None for name, _ in row.headers):
            raise self._error("header")
        content = fields(row.key, row.value, cast("Sequence[tuple[bytes, bytes | None]]", row.headers))
        named = self._partition(row)
        partition = self._sticky if named is None else named
        record = self._record(partition, row.timestamp, content)
        if record is None and named is None:
            self._close(partition)
            self._unstick()
            partition = self._sticky
            record = self._record(partition, row.timestamp, content)
        if record is None:
            self._close(partition)
            record = BatchWriter(self._codec).record(row.timestamp, content)
        if len(record) > self._request.max_record_bytes:
            raise self._error("large", len(record))
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = BatchWriter(self._codec, self._request.level)
        batch.append(row.timestamp, record)
        if batch.raw_bytes >= self._request.batch_bytes:
            self._close(partition)
            if named is None:
                self._unstick()

    def _partition(self, row: Row) -> int | None:
        """Return the row's own partition; None when it goes where such rows stick."""
        if row.partition is not None:
            if not 0 <= row.partition < self._request.partitions:
                raise self._error("partition", row.partition)
            return row.partition
        if row.key is not None and not self._request.ignore_keys:
            return partition_of(row.key, self._request.partitions)
        return None

    def _record(self, partition: int, timestamp: int, content: bytes) -> bytes | None:
        """Return the row as it would be in the open batch of that partition; None when there is no room."""
        batch = self._open.get(partition)
        if batch is None:
            return BatchWriter(self._codec).record(timestamp, content)
        record = batch.record(timestamp, content)
        return record if batch.raw_bytes + len(record) <= self._request.batch_bytes else None

    def _close(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._full.append(EncodedBatch(partition, batch.records, batch.raw_bytes, batch.finish()))

    def _unstick(self) -> None:
        self._sticky = (self._sticky + 1) % self._request.partitions

    def _error(self, kind: str, number: int = 0) -> KafkaDirectError:
        return encode_error(kind, self._rows, number, self._request)
