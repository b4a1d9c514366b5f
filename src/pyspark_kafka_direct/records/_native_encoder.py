"""The native encoder behind the Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.records import _native
from pyspark_kafka_direct.records._encoding import EncodedBatch, EncodeRequest, text_as_bytes
from pyspark_kafka_direct.records._failures import encode_error
from pyspark_kafka_direct.settings.produce import CODECS

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError


class NativeEncoder:
    """A ``RecordEncoder`` over the native kernel."""

    def __init__(self, request: EncodeRequest) -> None:
        self._request = request
        self._native = _native.Encoder(
            request.partitions,
            CODECS[request.codec],
            request.level,
            request.batch_bytes,
            request.max_record_bytes,
            request.ignore_keys,
            request.first_sticky % request.partitions,
        )

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        """See ``RecordEncoder``."""
        try:
            return [EncodedBatch(*batch) for batch in self._native.add(text_as_bytes(rows))]
        except _native.EncodeError as failure:
            raise self._error(failure) from None

    def flush(self) -> list[EncodedBatch]:
        """See ``RecordEncoder``."""
        try:
            return [EncodedBatch(*batch) for batch in self._native.flush()]
        except _native.EncodeError as failure:
            raise self._error(failure) from None

    @property
    def open_bytes(self) -> int:
        """See ``RecordEncoder``."""
        return self._native.open_bytes

    def _error(self, failure: _native.EncodeError) -> KafkaDirectError:
        kind, row, number = failure.args
        return encode_error(kind, row, number, self._request)
