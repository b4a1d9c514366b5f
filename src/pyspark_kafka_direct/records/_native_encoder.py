"""The native encoder behind the Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.records import _native
from pyspark_kafka_direct.records._encoding import EncodedBatch, EncodeRequest, text_as_bytes
from pyspark_kafka_direct.records._failures import encode_error
from pyspark_kafka_direct.settings.produce import CODECS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


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
        rows = text_as_bytes(rows)
        return self._encoded(lambda: self._native.add(rows))

    def flush(self) -> list[EncodedBatch]:
        """See ``RecordEncoder``."""
        return self._encoded(self._native.flush)

    @property
    def open_bytes(self) -> int:
        """See ``RecordEncoder``."""
        return self._native.open_bytes

    def _encoded(self, encode: Callable[[], list[tuple[int, int, int, bytearray]]]) -> list[EncodedBatch]:
        try:
            return [EncodedBatch(*batch) for batch in encode()]
        except _native.EncodeError as failure:
            kind, row, number = failure.args
            raise encode_error(kind, row, number, self._request) from None
        except MemoryError:
            raise encode_error("memory", 0, 0, self._request) from None
