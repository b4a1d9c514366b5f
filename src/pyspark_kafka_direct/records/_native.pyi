"""The native kernel (``rust/``); only ``native_kernel`` imports it."""

import pyarrow as pa

INTERFACE_VERSION: int
DEBUG_ASSERTIONS: bool

class DecodeError(Exception):
    """``args`` are the kind (see ``record_errors``), the message and the offset."""

class Decoder:
    """Decodes one range of one partition."""

    def __init__(
        self,
        schema: pa.Schema,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        check_crcs: bool,
        max_rows: int,
        max_bytes: int,
        max_batch_bytes: int,
        count_only: bool,
    ) -> None: ...
    def feed(self, records: memoryview | bytearray | bytes, aborted: list[tuple[int, int]]) -> None: ...
    def read(self) -> pa.RecordBatch | None: ...
    @property
    def position(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def counts(self) -> tuple[int, int, int, int, int]: ...

def scan_batches(
    records: memoryview | bytearray | bytes, position: int, until: int
) -> tuple[list[tuple[int, int, int, int, int, int, int, bool, bool, int]], int, tuple[str, str, int] | None]: ...
def scan_leader_epoch(records: memoryview | bytearray | bytes) -> int: ...
def is_abort_marker(batch: memoryview | bytearray | bytes, max_bytes: int) -> bool: ...

class EncodeError(Exception):
    """``args`` are the kind (see ``record_errors``), the row, and the partition or size."""

class Encoder:
    """Encodes the rows of one topic."""

    def __init__(
        self,
        partitions: int,
        codec: int,
        level: int | None,
        batch_bytes: int,
        max_record_bytes: int,
        ignore_keys: bool,
        first_sticky: int,
    ) -> None: ...
    def add(self, rows: pa.RecordBatch) -> list[tuple[int, int, int, memoryview]]: ...
    def flush(self) -> list[tuple[int, int, int, memoryview]]: ...
    @property
    def open_bytes(self) -> int: ...

class JsonDecoder:
    """Decodes JSON values to structs."""

    def __init__(
        self, fields: pa.Schema, corrupt_record: str, utc_offsets: list[tuple[int, int]], max_bytes: int
    ) -> None: ...
    def decode(self, values: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]: ...

class VariantDecoder:
    """Decodes JSON values to VARIANTs."""

    def __init__(self, max_bytes: int) -> None: ...
    def decode(self, values: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]: ...

class AvroDecoder:
    """Decodes Avro datums to structs."""

    def __init__(self, fields: pa.Schema, max_bytes: int) -> None: ...
    def add_program(self, numbers: list[int], constants: list[bytes]) -> int: ...
    def decode(self, values: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]: ...

class AvroEncoder:
    """Encodes columns as Avro datums."""

    def __init__(self, numbers: list[int], constants: list[bytes], prefix: bytes, max_bytes: int) -> None: ...
    def encode(
        self, values: pa.RecordBatch
    ) -> tuple[pa.RecordBatch | None, tuple[int, int, int | None, int] | None]: ...

class ProtobufDecoder:
    """Decodes Protobuf messages to structs."""

    def __init__(self, fields: pa.Schema, numbers: list[int], constants: list[bytes], max_bytes: int) -> None: ...
    def decode(self, values: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]: ...

class ProtobufEncoder:
    """Encodes columns as Protobuf messages."""

    def __init__(self, numbers: list[int], constants: list[bytes], prefix: bytes, max_bytes: int) -> None: ...
    def encode(
        self, values: pa.RecordBatch
    ) -> tuple[pa.RecordBatch | None, tuple[int, int, int | None, int] | None]: ...

def encode_json(
    values: pa.RecordBatch, types: pa.Schema, zones: dict[str, list[tuple[int, int]]]
) -> pa.RecordBatch: ...
def set_producer_state(
    data: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> None: ...
def is_valid_batch(data: memoryview | bytearray | bytes) -> bool: ...
def split_batch(data: memoryview | bytearray | bytes) -> tuple[bytearray, bytearray]: ...
