"""The decoders and encoders of the native kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.config.client_settings import COMPRESSION_TYPE_IDS
from pyspark_kafka_direct.records import _native
from pyspark_kafka_direct.records.columns import arrow_schema
from pyspark_kafka_direct.records.interfaces import (
    AbortedTransaction,
    DecodeCounts,
    DecodeRequest,
    EncodedBatch,
    EncodeRequest,
    strings_as_binary,
)
from pyspark_kafka_direct.records.json_values import DecodedValues, JsonRequest, MalformedValues
from pyspark_kafka_direct.records.record_errors import encode_error, record_error
from pyspark_kafka_direct.records.scanned_batches import BadRecordError, BatchScan, ScannedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import RecordError
    from pyspark_kafka_direct.records.avro_values import AvroProgram, AvroRequest
    from pyspark_kafka_direct.records.encoded_values import PayloadEncoding
    from pyspark_kafka_direct.records.protobuf_values import ProtobufRequest


_INTERFACE_VERSION: Final = 5
"""The same number as in ``rust/src/lib.rs``."""

if getattr(_native, "INTERFACE_VERSION", 1) != _INTERFACE_VERSION:
    raise ImportError(
        "the native kernel was built from other sources than this package; build it again (make rust), or install the "
        "package again"
    )


class NativeDecoder:
    """A ``RecordDecoder`` implemented in Rust."""

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
            request.count_only,
        )

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        try:
            self._native.feed(records, [(producer_id, first_offset) for producer_id, first_offset in aborted])
        except _native.DecodeError as error:
            raise self._record_error(error) from None

    def read(self) -> pa.RecordBatch | None:
        try:
            return self._native.read()
        except _native.DecodeError as error:
            raise self._record_error(error) from None

    @property
    def next_offset(self) -> int:
        return self._native.next_offset

    @property
    def done(self) -> bool:
        return self._native.done

    @property
    def counts(self) -> DecodeCounts:
        return DecodeCounts(*self._native.counts)

    def _record_error(self, error: _native.DecodeError) -> RecordError:
        kind, message, offset = error.args
        request = self._request
        return record_error(kind, message, topic=request.topic, partition=request.partition, offset=offset)


def scan_batches(records: memoryview | bytearray | bytes, position: int, until: int = (1 << 63) - 1) -> BatchScan:
    """Scan the headers of a response to a fetch from ``position``, up to the first incomplete or malformed batch."""
    batches, next_offset, error = _native.scan_batches(records, position, until)
    return BatchScan([ScannedBatch(*batch) for batch in batches], next_offset, error and _bad_record(*error))


def is_abort_marker(batch: memoryview | bytearray | bytes, max_bytes: int) -> bool:
    """Return whether a control batch contains an ABORT marker; ``max_bytes`` limits its decompressed size."""
    try:
        return _native.is_abort_marker(batch, max_bytes)
    except _native.DecodeError as error:
        raise _bad_record(*error.args) from None


def _bad_record(kind: str, message: str, offset: int) -> BadRecordError:
    return BadRecordError(message, kind=kind, offset=offset)


class NativeEncoder:
    """A ``RecordEncoder`` implemented in Rust."""

    def __init__(self, request: EncodeRequest) -> None:
        self._request = request
        self._native = _native.Encoder(
            request.partitions,
            COMPRESSION_TYPE_IDS[request.codec],
            request.level,
            request.batch_bytes,
            request.max_record_bytes,
            request.ignore_keys,
            request.first_sticky_partition % request.partitions,  # callers may pass a task number
        )

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        rows = strings_as_binary(rows)
        return self._encoded(lambda: self._native.add(rows))

    def flush(self) -> list[EncodedBatch]:
        return self._encoded(self._native.flush)

    @property
    def open_bytes(self) -> int:
        return self._native.open_bytes

    def _encoded(self, encode: Callable[[], list[tuple[int, int, int, memoryview]]]) -> list[EncodedBatch]:
        try:
            return [EncodedBatch(*batch) for batch in encode()]
        except _native.EncodeError as error:
            kind, row, partition_or_size = error.args
            raise encode_error(kind, row, partition_or_size, self._request) from None
        except MemoryError:
            raise encode_error("memory", 0, 0, self._request) from None


class NativeJsonDecoder:
    """A ``JsonDecoder`` implemented in Rust."""

    def __init__(self, request: JsonRequest) -> None:
        fields = request.fields
        self._native = (
            _native.VariantDecoder(request.max_bytes)
            if fields is None
            else _native.JsonDecoder(fields, request.corrupt_record, request.utc_offsets(), request.max_bytes)
        )

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        import pyarrow as pa

        batch, malformed = self._native.decode(pa.RecordBatch.from_arrays([values], ["value"]))
        return DecodedValues(batch.column(0), None if malformed is None else MalformedValues(*malformed.columns))


class NativeAvroDecoder:
    """An ``AvroDecoder`` implemented in Rust."""

    def __init__(self, request: AvroRequest) -> None:
        self._native = _native.AvroDecoder(request.fields, request.max_bytes)

    def add_program(self, program: AvroProgram) -> int:
        return self._native.add_program(list(program.numbers), list(program.constants))

    def decode(
        self, values: pa.BinaryArray, starts: pa.Int32Array | None = None, programs: pa.Int32Array | None = None
    ) -> DecodedValues:
        import pyarrow as pa

        columns = {"value": values, "start": starts, "program": programs}
        given = {name: column for name, column in columns.items() if column is not None}
        batch, malformed = self._native.decode(pa.RecordBatch.from_arrays(list(given.values()), list(given)))
        return DecodedValues(batch.column(0), None if malformed is None else MalformedValues(*malformed.columns))


class NativeAvroEncoder:
    """A ``PayloadEncoder`` of Avro implemented in Rust."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        numbers, constants, prefix, max_bytes = encoding
        self._native = _native.AvroEncoder(list(numbers), list(constants), prefix, max_bytes)

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        return _encode(self._native, values)


class NativeProtobufDecoder:
    """A ``ProtobufDecoder`` implemented in Rust."""

    def __init__(self, request: ProtobufRequest) -> None:
        program = request.program
        self._native = _native.ProtobufDecoder(
            request.fields, list(program.numbers), list(program.constants), request.max_bytes
        )

    def decode(self, values: pa.BinaryArray, starts: pa.Int32Array | None = None) -> DecodedValues:
        import pyarrow as pa

        columns, names = ([values], ["value"]) if starts is None else ([values, starts], ["value", "start"])
        batch, malformed = self._native.decode(pa.RecordBatch.from_arrays(columns, names))
        return DecodedValues(batch.column(0), None if malformed is None else MalformedValues(*malformed.columns))


class NativeProtobufEncoder:
    """A ``PayloadEncoder`` of Protobuf implemented in Rust."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        numbers, constants, prefix, max_bytes = encoding
        self._native = _native.ProtobufEncoder(list(numbers), list(constants), prefix, max_bytes)

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        return _encode(self._native, values)


def encode_json(values: pa.Array, data_type: pa.DataType | None = None) -> pa.BinaryArray:
    """Encode each value of a column as JSON; a null value is null. The type may have other metadata than the column."""
    import pyarrow as pa

    from pyspark_kafka_direct.records.json_types import encodable, time_zones  # tasks that read do not need it

    values = encodable(values)
    types = pa.schema([pa.field("value", values.type if data_type is None else data_type)])
    batch = strings_as_binary(pa.RecordBatch.from_arrays([values], ["value"]))
    return _native.encode_json(batch, types, time_zones(values.type)).column(0)


def _encode(encoder: _native.AvroEncoder | _native.ProtobufEncoder, values: pa.Array) -> pa.BinaryArray:
    import pyarrow as pa

    encoded, invalid = encoder.encode(strings_as_binary(pa.RecordBatch.from_arrays([values], ["value"])))
    if invalid is not None:
        from pyspark_kafka_direct.records.encoded_values import InvalidReason, InvalidValueError

        row, node, other, reason = invalid
        raise InvalidValueError(row, node, InvalidReason(reason), other)
    assert encoded is not None
    return encoded.column(0)
