"""The native decoder behind the Protocol.

Message formats 0 and 1 are left to the Python decoder: they only survive in segments written before Kafka 0.11. A
response that contains some is decoded by it as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records import _native
from pyspark_kafka_direct.records._columns import arrow_schema
from pyspark_kafka_direct.records._failures import record_error
from pyspark_kafka_direct.records._protocol import AbortedTransaction, DecodeCounts, DecodeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import RecordError
    from pyspark_kafka_direct.records._protocol import RecordDecoder


class NativeDecoder:
    """A ``RecordDecoder`` over the native kernel."""

    def __init__(self, request: DecodeRequest) -> None:
        self._request = request
        self._native = _native.Decoder(
            arrow_schema(request.columns),
            request.topic,
            request.partition,
            request.from_offset,
            request.until_offset,
            request.check_crcs,
            request.max_rows,
            request.max_bytes,
            request.max_batch_bytes,
        )
        self._old_formats: RecordDecoder | None = None
        self._old_counts = DecodeCounts()

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """See ``RecordDecoder``."""
        if self._old_formats is not None:
            raise RuntimeError("feed() before read() returned None")
        try:
            taken = self._native.feed(records, [(producer_id, first) for producer_id, first in aborted])
        except _native.DecodeError as failure:
            raise self._error(failure) from None
        if not taken:
            from pyspark_kafka_direct.records._python import PythonDecoder

            self._old_formats = PythonDecoder(replace(self._request, from_offset=self._native.next_offset))
            self._old_formats.feed(records, aborted)

    def read(self) -> pa.RecordBatch | None:
        """See ``RecordDecoder``."""
        if self._old_formats is not None:
            batch = self._old_formats.read()
            if batch is None:
                self._native.advance_to(self._old_formats.next_offset)
                self._old_counts += self._old_formats.counts
                self._old_formats = None
            return batch
        try:
            return self._native.read()
        except _native.DecodeError as failure:
            raise self._error(failure) from None

    @property
    def next_offset(self) -> int:
        """See ``RecordDecoder``."""
        return self._native.next_offset if self._old_formats is None else self._old_formats.next_offset

    @property
    def done(self) -> bool:
        """See ``RecordDecoder``."""
        return self._native.done if self._old_formats is None else self._old_formats.done

    @property
    def counts(self) -> DecodeCounts:
        """See ``RecordDecoder``."""
        counts = DecodeCounts(*self._native.counts) + self._old_counts
        return counts if self._old_formats is None else counts + self._old_formats.counts

    def _error(self, failure: _native.DecodeError) -> RecordError:
        kind, message, offset = failure.args
        place = self._request
        return record_error(kind, message, topic=place.topic, partition=place.partition, offset=offset)
