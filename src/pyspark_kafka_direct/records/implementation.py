"""Selects the native or the Python implementation for this process."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, ParamSpec, Protocol, TypeVar

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyspark_kafka_direct.records.avro_values import AvroDecoder, AvroRequest
    from pyspark_kafka_direct.records.encoded_values import PayloadEncoder, PayloadEncoding
    from pyspark_kafka_direct.records.interfaces import (
        DecodeRequest,
        EncodeRequest,
        RecordDecoder,
        RecordEncoder,
        WritableBytes,
    )
    from pyspark_kafka_direct.records.json_values import JsonDecoder, JsonRequest
    from pyspark_kafka_direct.records.protobuf_values import ProtobufDecoder, ProtobufRequest
    from pyspark_kafka_direct.records.scanned_batches import BatchScan

ENVIRONMENT_VARIABLE = "PYSPARK_KAFKA_DIRECT_DECODER"

_INSTALL = "Install the package from a wheel for this platform, or with a Rust toolchain and a C compiler."
_USE_THE_GIL = "Use a build of Python with the GIL."

_Arguments = ParamSpec("_Arguments")
_Created = TypeVar("_Created")

_log = logging.getLogger("pyspark_kafka_direct.records")


class EncodeJson(Protocol):
    def __call__(self, values: pa.Array, data_type: pa.DataType | None = None) -> pa.BinaryArray: ...


class ScanBatches(Protocol):
    def __call__(self, records: memoryview | bytearray | bytes, position: int, until: int = ...) -> BatchScan: ...


class SetProducerState(Protocol):
    def __call__(
        self, data: WritableBytes, producer_id: int, epoch: int, sequence: int, *, transactional: bool
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Implementation:
    name: Literal["native", "python"]
    create_decoder: Callable[[DecodeRequest], RecordDecoder]
    scan_batches: ScanBatches
    scan_leader_epoch: Callable[[memoryview | bytearray | bytes], int]
    is_abort_marker: Callable[[memoryview | bytearray | bytes, int], bool]
    create_encoder: Callable[[EncodeRequest], RecordEncoder]
    set_producer_state: SetProducerState
    is_valid_batch: Callable[[bytes | bytearray | memoryview], bool]
    split_batch: Callable[[bytes | bytearray | memoryview], tuple[bytearray, bytearray]]
    create_json_decoder: Callable[[JsonRequest], JsonDecoder]
    encode_json: EncodeJson
    create_avro_decoder: Callable[[AvroRequest], AvroDecoder]
    create_avro_encoder: Callable[[PayloadEncoding], PayloadEncoder]
    create_protobuf_decoder: Callable[[ProtobufRequest], ProtobufDecoder]
    create_protobuf_encoder: Callable[[PayloadEncoding], PayloadEncoder]
    native_missing_reason: str = ""  # empty for the native one, and if the environment selects the Python one


def select_implementation() -> Implementation:
    """Return the implementation that the environment selects, else the native one, else the Python one."""
    selected = os.environ.get(ENVIRONMENT_VARIABLE)
    if selected:
        # Imported late: without the variable, a worker does not need the option table.
        from pyspark_kafka_direct.config.option_parser import environment_variable

        selected = environment_variable(os.environ, ENVIRONMENT_VARIABLE)
    if selected == "python":
        return _python()
    try:
        return _native()
    except ImportError as error:
        reason = _native_missing_reason(error)
        if selected:
            raise OptionError(f"{ENVIRONMENT_VARIABLE} is 'native', but {reason}") from error
        return _python_with_warning(reason)


def _native_missing_reason(error: ImportError) -> str:
    """Return the reason in the file that the build wrote into the package; without the file, the import error."""
    if _free_threaded():
        return str(error)
    import pkgutil  # rarely needed

    try:
        reason = pkgutil.get_data(__package__, "_native_absent.txt")  # also from a zip
    except OSError:
        reason = None
    if reason is None:
        return f"it cannot be loaded: {error}"
    return f"this package was built without it: {reason.decode().strip()}"


def _free_threaded() -> bool:
    return "t" in getattr(sys, "abiflags", "")  # sysconfig, which also says it, takes longer to import


def _native() -> Implementation:
    if _free_threaded():  # the module would be found, and fail in ways that depend on the version of Python
        raise ImportError("free-threaded builds of Python cannot load the native kernel")
    from pyspark_kafka_direct.records import _native as native
    from pyspark_kafka_direct.records.native_kernel import (
        NativeAvroDecoder,
        NativeAvroEncoder,
        NativeDecoder,
        NativeEncoder,
        NativeJsonDecoder,
        NativeProtobufDecoder,
        NativeProtobufEncoder,
        encode_json,
        is_abort_marker,
        scan_batches,
    )

    return Implementation(
        "native",
        NativeDecoder,
        scan_batches,
        native.scan_leader_epoch,
        is_abort_marker,
        NativeEncoder,
        native.set_producer_state,
        native.is_valid_batch,
        native.split_batch,
        NativeJsonDecoder,
        encode_json,
        NativeAvroDecoder,
        NativeAvroEncoder,
        NativeProtobufDecoder,
        NativeProtobufEncoder,
    )


def _python() -> Implementation:
    from pyspark_kafka_direct.records.python.avro_decoder import PythonAvroDecoder
    from pyspark_kafka_direct.records.python.avro_encoder import PythonAvroEncoder
    from pyspark_kafka_direct.records.python.batch_reader import is_abort_marker
    from pyspark_kafka_direct.records.python.batch_scan import scan_batches, scan_leader_epoch
    from pyspark_kafka_direct.records.python.batch_writer import is_valid_batch, set_producer_state, split_batch
    from pyspark_kafka_direct.records.python.decoder import PythonDecoder
    from pyspark_kafka_direct.records.python.encoder import PythonEncoder
    from pyspark_kafka_direct.records.python.json_decoder import create_json_decoder
    from pyspark_kafka_direct.records.python.json_encoder import encode_json
    from pyspark_kafka_direct.records.python.protobuf_decoder import PythonProtobufDecoder
    from pyspark_kafka_direct.records.python.protobuf_encoder import PythonProtobufEncoder

    return Implementation(
        "python",
        PythonDecoder,
        scan_batches,
        scan_leader_epoch,
        is_abort_marker,
        PythonEncoder,
        set_producer_state,
        is_valid_batch,
        split_batch,
        create_json_decoder,
        encode_json,
        PythonAvroDecoder,
        PythonAvroEncoder,
        PythonProtobufDecoder,
        PythonProtobufEncoder,
    )


def _python_with_warning(reason: str) -> Implementation:
    """Return the Python implementation with a warning of its speed at its first use in a process."""
    python = _python()
    return replace(
        python,
        native_missing_reason=reason,
        create_decoder=_warn_on_first_use(python.create_decoder, "Records are decoded in Python", "decoder", reason),
        create_encoder=_warn_on_first_use(python.create_encoder, "Records are encoded in Python", "encoder", reason),
        create_json_decoder=_warn_on_first_use(
            python.create_json_decoder, "JSON is decoded in Python", "JSON decoder", reason
        ),
        encode_json=_warn_on_first_use(python.encode_json, "JSON is encoded in Python", "JSON encoder", reason),
        create_avro_decoder=_warn_on_first_use(
            python.create_avro_decoder, "Avro is decoded in Python", "Avro decoder", reason
        ),
        create_avro_encoder=_warn_on_first_use(
            python.create_avro_encoder, "Avro is encoded in Python", "Avro encoder", reason
        ),
        create_protobuf_decoder=_warn_on_first_use(
            python.create_protobuf_decoder, "Protobuf is decoded in Python", "Protobuf decoder", reason
        ),
        create_protobuf_encoder=_warn_on_first_use(
            python.create_protobuf_encoder, "Protobuf is encoded in Python", "Protobuf encoder", reason
        ),
    )


def _warn_on_first_use(
    create: Callable[_Arguments, _Created], message: str, component: str, reason: str
) -> Callable[_Arguments, _Created]:
    warned = False

    def create_with_warning(*arguments: _Arguments.args, **others: _Arguments.kwargs) -> _Created:
        nonlocal warned
        if not warned:
            warned = True
            _log.warning(
                "%s, many times slower than by the native %s (%s). %s",
                message,
                component,
                reason,
                _USE_THE_GIL if _free_threaded() else _INSTALL,
            )
        return create(*arguments, **others)

    return create_with_warning
