"""The types and the functions of ``functions.from_protobuf`` and ``to_protobuf``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.types import DataType

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.payloads.payload_encoders import FunctionEncoder
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
    from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource

_MODES: Final = ("PERMISSIVE", "FAILFAST")
_ADVICE: Final = "remove the field from the descriptors: fields that they lack are skipped"
_PROTOBUF_FLAGS: Final = (
    "emit.default.values",
    "enums.as.ints",
    "upcast.unsigned.ints",
    "unwrap.primitive.wrapper.types",
)


def from_protobuf_function(
    message_name: str, path: str | None, options: Mapping[str, str], descriptors: bytes | None
) -> tuple[StructType, Callable[[pa.Array], pa.Array]]:
    """Return the type of the column, and the function that tasks call; the descriptors may be in a file."""
    mode, flags = _parse_protobuf_options(options)  # flags by the names of options
    struct, source = _protobuf_type(_read("from_protobuf", path, descriptors), message_name, flags)
    fields = arrow_schema_in_utc(struct)
    emits_defaults = flags["emit.default.values"]
    return struct, _decode_protobuf_function(fields, source, emits_defaults=emits_defaults, failing=mode == "FAILFAST")


def to_protobuf_function(
    message_name: str, path: str | None, options: Mapping[str, str], descriptors: bytes | None
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call; the descriptors may be in a file."""
    from pyspark_kafka_direct.payloads.protobuf.encoder_program import ProtobufEncoderSettings
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, source_schema

    if options:
        raise option_messages.unsupported_by_function("to_protobuf", [*options], "; there are no options")
    source = ProtobufSource(base64.b64encode(_read("to_protobuf", path, descriptors)).decode(), message_name)
    try:
        source_schema(source).message(message_name)
    except ProtobufSchemaError as error:
        raise OptionError(f"to_protobuf: {error}") from None
    settings = ProtobufEncoderSettings(schema=source)
    encoder: FunctionEncoder | None = None  # of one task, because it cannot be pickled

    def to_protobuf(values: pa.Array) -> pa.Array:
        nonlocal encoder
        encoder = encoder or FunctionEncoder("to_protobuf", settings)
        return encoder.encode(values)

    return to_protobuf


def _read(function: str, path: str | None, descriptors: bytes | None) -> bytes:
    """Return the descriptors, which may be in a file."""
    if path is None:
        return bytes(descriptors or b"")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"{function}: {path} cannot be read: {error.strerror}") from None


def _parse_protobuf_options(options: Mapping[str, str]) -> tuple[str, dict[str, bool]]:
    """Return the mode, and the options that are true or false."""
    mode, flags = "FAILFAST", dict.fromkeys(_PROTOBUF_FLAGS, False)
    unsupported = [name for name in options if name.lower() not in ("mode", *_PROTOBUF_FLAGS)]
    if unsupported:
        advice = f"; use mode, {', '.join(_PROTOBUF_FLAGS)}"
        raise option_messages.unsupported_by_function("from_protobuf", unsupported, advice)
    for name, value in options.items():
        if name.lower() == "mode":
            mode = value.upper()
        elif value.lower() in ("true", "false"):
            flags[name.lower()] = value.lower() == "true"
        else:
            raise OptionError(f"from_protobuf: {name} must be true or false, got {value!r}")
    if mode not in _MODES:
        raise OptionError(f"from_protobuf: mode must be {' or '.join(_MODES)}, got {mode!r}")
    return mode, flags


def _protobuf_type(
    descriptors: bytes, message_name: str, flags: Mapping[str, bool]
) -> tuple[StructType, ProtobufSource]:
    """Return the type of the column, and the schema that tasks parse."""
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, parse_protobuf_schema
    from pyspark_kafka_direct.payloads.protobuf.spark_types import TypeOptions, spark_ddl

    source = ProtobufSource(base64.b64encode(descriptors).decode(), message_name)
    types = TypeOptions(
        upcasts_unsigned=flags["upcast.unsigned.ints"],
        enums_as_ints=flags["enums.as.ints"],
        unwraps=flags["unwrap.primitive.wrapper.types"],
    )
    try:
        schema = parse_protobuf_schema(source.schema)
        struct = DataType.fromDDL(spark_ddl(schema, schema.message(message_name), types, _ADVICE))
    except ProtobufSchemaError as error:
        raise OptionError(f"from_protobuf: {error}") from None
    return cast("StructType", struct), source


def _decode_protobuf_function(
    fields: pa.Schema, source: ProtobufSource, *, emits_defaults: bool, failing: bool
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    column: ProtobufColumn | None = None  # of one task, because it cannot be pickled

    def from_protobuf(values: pa.Array) -> pa.Array:
        nonlocal column
        import pyarrow as pa

        from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
        from pyspark_kafka_direct.payloads.whole_column import decode_all

        column = column or ProtobufColumn(pa.struct(list(fields)), source, emits_defaults=emits_defaults)
        return decode_all(column, values, "Protobuf", failing=failing)

    return from_protobuf
