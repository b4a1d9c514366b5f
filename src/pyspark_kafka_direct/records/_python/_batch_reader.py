"""The rows of a format 2 batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import (
    ABORT_MARKER,
    CRC_FROM,
    CREATE_TIME,
    LOG_APPEND_TIME,
    MARKER_KEY,
    Header,
)
from pyspark_kafka_direct.records._python._crc32c import crc32c
from pyspark_kafka_direct.records._python._plain import Plain, too_large
from pyspark_kafka_direct.records._python._record import Headers, read_fields, read_head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.records._protocol import DecodeRequest

_SAFE_MILLISECONDS = (1 << 63) // 1000  # less than this, either way, fits 64-bit microseconds


class Row(NamedTuple):
    """A record with what its batch says about it."""

    offset: int
    timestamp: int  # milliseconds
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    size: int  # its own bytes
    cost: int  # what counts for the limits


def check_batch(header: Header, batch: bytes, *, crc: bool) -> None:
    """Check what can be checked before the records are read.

    Raises:
        BadRecordError: The CRC does not match, or the number of records is negative.
    """
    if crc:
        computed = crc32c(batch[CRC_FROM:])
        if computed != header.crc:
            raise BadRecordError(
                "the CRC of the record batch does not match its bytes: "
                f"it says {header.crc:#010x}, the bytes give {computed:#010x}",
                offset=header.base_offset,
            )
    if header.records < 0:
        raise BadRecordError(f"a record batch claims {header.records} records", offset=header.base_offset)


def is_abort(header: Header, batch: bytes, most: int) -> bool:
    """Tell whether a control batch holds an ABORT marker.

    ``most`` are the bytes that it may decompress to.
    """
    try:
        records = Plain(header, batch, most).first()
        _, _, fields, end = read_head(records, 0)
        key, _, _ = read_fields(records, fields, end)
        if key is None or len(key) < MARKER_KEY.size:
            raise BadRecordError("a control record's key is shorter than its version and type")
    except BadRecordError as error:
        error.offset = header.base_offset
        raise
    return bool(MARKER_KEY.unpack_from(key)[1] == ABORT_MARKER)


def rows_of_batch(header: Header, batch: bytes, from_offset: int, request: DecodeRequest) -> Iterator[Row]:
    """Yield the records of a batch that are in the range, from ``from_offset`` on.

    Raises:
        BadRecordError: The records are malformed.
    """
    expected = header.base_offset
    try:
        plain = Plain(header, batch, request.max_batch_bytes)
        records = plain.first()
        wants_headers = "headers" in request.columns
        append_time = header.is_log_append_time
        timestamp_type = LOG_APPEND_TIME if append_time else CREATE_TIME
        last_delta, end = -1, 0
        for _ in range(header.records):
            # Until its own is known, a record's offset is the one after its predecessor's.
            expected = header.base_offset + last_delta + 1
            start = end
            try:
                timestamp_delta, delta, at, end = read_head(records, start)
            except BadRecordError:
                records, start = plain.with_whole_record(records, start), 0
                timestamp_delta, delta, at, end = read_head(records, start)
            if not last_delta < delta <= header.last_offset_delta:
                raise BadRecordError(
                    f"a record's offset delta {delta} is not after its predecessor's ({last_delta}) "
                    f"or beyond its batch's last ({header.last_offset_delta})"
                )
            last_delta = delta
            offset = header.base_offset + delta
            if offset >= request.until_offset:
                return
            if offset < from_offset:
                continue
            expected = offset
            key, value, headers = read_fields(records, at, end)
            size = end - start
            cost = size + headers.extra if headers and wants_headers else size
            if cost > request.max_batch_bytes:
                raise too_large(request.max_batch_bytes)
            timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
            if not -_SAFE_MILLISECONDS < timestamp < _SAFE_MILLISECONDS:
                timestamp = checked_timestamp(timestamp, request)
            yield Row(offset, timestamp, timestamp_type, header.leader_epoch, key, value, headers, size, cost)
        if end != len(records) or plain.goes_on():
            expected = header.last_offset
            raise BadRecordError("a record batch has bytes behind its last record")
    except BadRecordError as error:
        error.offset = expected if error.offset is None else error.offset
        raise


def checked_timestamp(milliseconds: int, request: DecodeRequest) -> int:
    """Return a timestamp as Java has it: 64 bits, wrapped around, as Kafka's client adds them.

    Raises:
        BadRecordError: It does not fit 64-bit microseconds, and timestamps are wanted.
    """
    milliseconds = (milliseconds + (1 << 63)) % (1 << 64) - (1 << 63)
    if "timestamp" in request.columns and not -(1 << 63) <= milliseconds * 1000 < 1 << 63:
        raise BadRecordError(
            f"the timestamp {milliseconds} ms does not fit Spark's 64-bit microseconds", kind="timestamp"
        )
    return milliseconds
