"""The native kernel (``rust/``); only ``native_kernel`` imports it.

It does not call pyarrow (``rust/src/arrow.rs``), so callers export what they pass, and import what they get.
"""

from typing import TypeAlias

ExportedSchema: TypeAlias = object
"""The result of ``__arrow_c_schema__()``."""

ExportedBatch: TypeAlias = tuple[object, object]
"""The result of ``__arrow_c_array__()``."""

class Exported:
    """A batch for ``pyarrow.record_batch``."""

    def __arrow_c_array__(self, requested_schema: object = None) -> ExportedBatch: ...

INTERFACE_VERSION: int
DEBUG_ASSERTIONS: bool

class DecodeError(Exception):
    """``args`` are the kind (see ``record_errors``), the message and the offset."""

class Decoder:
    """Decodes one range of one partition."""

    def __init__(
        self,
        schema: ExportedSchema,
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
    def read(self) -> Exported | None: ...
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
    def add(self, rows: ExportedBatch) -> list[tuple[int, int, int, memoryview]]: ...
    def flush(self) -> list[tuple[int, int, int, memoryview]]: ...
    @property
    def open_bytes(self) -> int: ...

class JsonDecoder:
    """Decodes JSON values to structs."""

    def __init__(
        self, fields: ExportedSchema, corrupt_record: str, utc_offsets: list[tuple[int, int]], max_bytes: int
    ) -> None: ...
    def decode(self, values: ExportedBatch) -> tuple[Exported, Exported | None]: ...

class VariantDecoder:
    """Decodes JSON values to VARIANTs."""

    def __init__(self, max_bytes: int) -> None: ...
    def decode(self, values: ExportedBatch) -> tuple[Exported, Exported | None]: ...

class AvroDecoder:
    """Decodes Avro datums to structs."""

    def __init__(self, fields: ExportedSchema, max_bytes: int) -> None: ...
    def add_program(self, numbers: list[int], constants: list[bytes]) -> int: ...
    def decode(self, values: ExportedBatch) -> tuple[Exported, Exported | None]: ...

class AvroEncoder:
    """Encodes columns as Avro datums."""

    def __init__(self, numbers: list[int], constants: list[bytes], prefix: bytes, max_bytes: int) -> None: ...
    def encode(self, values: ExportedBatch) -> tuple[Exported | None, tuple[int, int, int | None, int] | None]: ...

class ProtobufDecoder:
    """Decodes Protobuf messages to structs."""

    def __init__(self, fields: ExportedSchema, numbers: list[int], constants: list[bytes], max_bytes: int) -> None: ...
    def decode(self, values: ExportedBatch) -> tuple[Exported, Exported | None]: ...

class ProtobufEncoder:
    """Encodes columns as Protobuf messages."""

    def __init__(self, numbers: list[int], constants: list[bytes], prefix: bytes, max_bytes: int) -> None: ...
    def encode(self, values: ExportedBatch) -> tuple[Exported | None, tuple[int, int, int | None, int] | None]: ...

def encode_json(values: ExportedBatch, types: ExportedSchema, zones: dict[str, list[tuple[int, int]]]) -> Exported: ...
def set_producer_state(
    data: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> None: ...
def is_valid_batch(data: memoryview | bytearray | bytes) -> bool: ...
def split_batch(data: memoryview | bytearray | bytes) -> tuple[bytearray, bytearray]: ...
