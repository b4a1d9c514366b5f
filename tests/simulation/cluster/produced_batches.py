"""The record batches of Produce requests, checked as by Kafka's MemoryRecords and LogValidator."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import google_crc32c
from tests.simulation.cluster.stored_batch import HEADER_SIZE, parse_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.cluster import TopicAndIndex
    from tests.simulation.cluster.stored_batch import StoredBatch

DEFAULT_MAX_BATCH_BYTES: Final = 1_048_588  # max.message.bytes
ZSTD: Final = 4

_UNKNOWN_SERVER_ERROR = -1
_CORRUPT_MESSAGE = 2
_MESSAGE_TOO_LARGE = 10
_INVALID_RECORD = 87

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_SIZE_END = 12  # of the base offset and the length
_MAGIC_END = 17
_MIN_LENGTH = 14  # of the oldest format
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class BatchHeader(NamedTuple):
    """The header of a record batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return _SIZE_END + self.length

    @property
    def is_transactional(self) -> bool:
        return self.producer_id >= 0 and bool(self.attributes & _TRANSACTIONAL)


class InvalidBatchError(Exception):
    """A batch is rejected with an error code."""

    def __init__(self, error_code: int, record_errors: tuple[dict[str, Any], ...] = ()) -> None:
        super().__init__(f"error code {error_code}")
        self.error_code = error_code
        self.record_errors = record_errors

    @property
    def message(self) -> str | None:
        """The message in the response."""
        return _rejected(self.record_errors) if self.record_errors else None


def read_batch_headers(data: bytes) -> list[BatchHeader]:
    """Return the headers of complete batches; an incomplete one at the end is ignored (ByteBufferLogInputStream).

    Raises:
        ValueError: A batch has an impossible size or magic number.
    """
    headers = []
    position = 0
    while len(data) - position >= _SIZE_END:
        (length,) = _LENGTH.unpack_from(data, position + 8)
        if length < _MIN_LENGTH:
            raise ValueError("a batch is too small")
        if len(data) - position < _MAGIC_END:
            break
        if data[position + 16] > 2:
            raise ValueError("a batch has an unknown magic number")
        if position + _SIZE_END + length > len(data):
            break
        if length < HEADER_SIZE - _SIZE_END:
            raise ValueError("a batch has no whole header")
        headers.append(BatchHeader._make(_HEADER.unpack_from(data, position)))
        position += _SIZE_END + length
    return headers


def parse_produced(
    partition: TopicAndIndex, configs: Mapping[str, str], header: BatchHeader, data: bytes, append_time: int | None
) -> StoredBatch:
    """Return the batch with its records; ``append_time`` is None if records keep their timestamps.

    Raises:
        InvalidBatchError: The batch is rejected.
    """
    error_code = _validate_header(configs, header, data)
    if error_code:
        raise InvalidBatchError(error_code)
    try:
        (batch,) = parse_batches(data if append_time is None else _with_append_time(data, append_time))
    except (ValueError, IndexError, struct.error, OSError):
        raise InvalidBatchError(_UNKNOWN_SERVER_ERROR) from None
    if "compact" in configs.get("cleanup.policy", "delete") and None in batch.keys:
        message = f"Compacted topic cannot accept message without key in topic partition {partition[0]}-{partition[1]}"
        record_errors = tuple(
            {"batch_index": index, "batch_index_error_message": message}
            for index, key in enumerate(batch.keys)
            if key is None
        )
        raise InvalidBatchError(_INVALID_RECORD, record_errors)
    return batch


def _validate_header(configs: Mapping[str, str], header: BatchHeader, data: bytes) -> int:
    if header.base_offset != 0:
        return _INVALID_RECORD
    if len(data) > int(configs.get("max.message.bytes", DEFAULT_MAX_BATCH_BYTES)):
        return _MESSAGE_TOO_LARGE
    if google_crc32c.value(data[21:]) != header.crc:
        return _CORRUPT_MESSAGE
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0 or header.attributes & _CONTROL:
        return _INVALID_RECORD
    return _INVALID_RECORD if header.producer_id >= 0 and header.base_sequence < 0 else 0


def _with_append_time(data: bytes, now: int) -> bytes:
    attributes = struct.unpack_from(">h", data, 21)[0] | _LOG_APPEND_TIME
    covered = struct.pack(">h", attributes) + data[23:35] + struct.pack(">q", now) + data[43:]
    return data[:17] + struct.pack(">I", google_crc32c.value(covered)) + covered


def _rejected(errors: tuple[dict[str, Any], ...]) -> str:
    shown = ", ".join(
        f"RecordError(batchIndex={each['batch_index']}, message='{each['batch_index_error_message']}')"
        for each in errors[:3]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
