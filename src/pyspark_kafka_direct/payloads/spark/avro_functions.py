"""The arguments of ``functions.from_avro`` and ``functions.to_avro``, and the functions that tasks call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.types import DataType

from pyspark_kafka_direct.errors import ColumnError, OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OptionTable, parse_config
from pyspark_kafka_direct.options.payload_settings import SidePayload
from pyspark_kafka_direct.options.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.options.registry_parser import parse_registry
from pyspark_kafka_direct.options.security_settings import PLAINTEXT
from pyspark_kafka_direct.options.sink_payloads import AUTO_REGISTER, SinkPayloads
from pyspark_kafka_direct.payloads.payload_encoders import FunctionEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings

_MODES: Final = ("PERMISSIVE", "FAILFAST")
_READ_TABLE: Final = OptionTable(REGISTRY_OPTIONS)
_WRITE_TABLE: Final = OptionTable(
    (*REGISTRY_OPTIONS, *(option for option in SUBJECT_OPTIONS if option.name == AUTO_REGISTER))
)
_COLUMN: Final = "value"
_AVRO: Final = "avro"
_ADVICE: Final = "set avroSchema to the schema without the field"
_SCHEMA: Final = "jsonFormatSchema"  # the argument
_OTHER_PREFIX: Final = "confluent."  # of the same options elsewhere


class FromAvroArguments(NamedTuple):
    """The arguments of ``from_avro``."""

    data_type: DataType  # of the decoded column
    settings: AvroSettings
    failing: bool  # whether a malformed datum fails the query


def parse_from_avro(
    writer: str | None, options: Mapping[str, str], subject: str | None, address: str | None
) -> FromAvroArguments:
    """Parse the arguments of ``from_avro``; the schema of a subject is fetched."""
    own_options = {name.lower(): value for name, value in options.items() if name.lower() in ("mode", "avroschema")}
    mode = own_options.get("mode", "FAILFAST").upper()
    if mode not in _MODES:
        raise OptionError(f"from_avro: mode must be {' or '.join(_MODES)}, got {mode!r}")
    registry, _ = _parse_registry(
        "from_avro", options, subject=subject, address=address, table=_READ_TABLE, own=("mode", "avroSchema")
    )
    settings = _decoder_settings(writer or None, own_options.get("avroschema"), subject, registry)
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl

    try:
        data_type = DataType.fromDDL(spark_ddl(settings.reader.root, _ADVICE))
    except AvroSchemaError as error:
        raise OptionError(f"from_avro: {error}") from None
    return FromAvroArguments(data_type, settings, mode == "FAILFAST")


def from_avro_function(field: pa.Field, settings: AvroSettings, *, failing: bool) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    column: AvroColumn | None = None  # of one task, because it cannot be pickled

    def from_avro(values: pa.Array) -> pa.Array:
        nonlocal column
        from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn
        from pyspark_kafka_direct.payloads.whole_column import decode_all

        column = column or AvroColumn(field.type, settings)
        return decode_all(column, values, "Avro", failing=failing)

    return from_avro


def parse_to_avro(
    schema: str | None, options: Mapping[str, str], subject: str | None, address: str | None
) -> EncoderSettings | None:
    """Parse the arguments of ``to_avro``; None if the schema follows from the type of the column."""
    from pyspark_kafka_direct.payloads.avro.encoder_program import AvroEncoderSettings
    from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas

    registry, auto_register = _parse_registry(
        "to_avro", options, subject=subject, address=address, table=_WRITE_TABLE, own=()
    )
    given = _parse("to_avro", schema) if schema else None
    if registry is None:
        return None if given is None else AvroEncoderSettings(schema=given)
    if subject is None:
        raise OptionError("to_avro: schemaRegistryAddress needs the subject")
    if auto_register and not schema:
        raise OptionError(f"to_avro: {AUTO_REGISTER} needs {_SCHEMA}, which is registered")
    payload = SidePayload(_COLUMN, _AVRO, schema or None, framing="confluent", subject=subject)
    payloads = SinkPayloads((payload,), registry, auto_register, schema_argument=_SCHEMA)
    return resolve_writer_schemas(payloads, columns=None, topic=None)[_COLUMN]


def to_avro_function(settings: EncoderSettings | None) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    encoder: FunctionEncoder | None = None  # of one task, because it cannot be pickled

    def to_avro(values: pa.Array) -> pa.Array:
        nonlocal encoder
        from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
        from pyspark_kafka_direct.payloads.avro.encoder_program import derived_encoder_settings

        try:
            encoder = encoder or FunctionEncoder("to_avro", settings or derived_encoder_settings(values.type))
        except (AvroSchemaError, ValueError) as error:
            raise ColumnError(f"to_avro: {error}") from None
        return encoder.encode(values)

    return to_avro


def _parse_registry(
    function: str,
    options: Mapping[str, str],
    *,
    subject: str | None,
    address: str | None,
    table: OptionTable,
    own: tuple[str, ...],  # options that are not those of the registry
) -> tuple[RegistrySettings | None, bool]:
    """Return the settings of the registry, None without an address, and whether schemas are registered."""
    own_names = [name.lower() for name in own]
    others = {name: value for name, value in options.items() if name.lower() not in own_names}
    if address is None:
        if subject is not None:
            raise OptionError(f"{function}: the subject needs schemaRegistryAddress, the URL of the registry")
        if others:
            advice = f"; use {' and '.join(own)}" if own else ""
            raise option_messages.unsupported_by_function(
                function, [*others], f" without schemaRegistryAddress{advice}"
            )
        return None, False
    registry_options = {name.removeprefix(_OTHER_PREFIX): value for name, value in others.items()}
    registry_options["schema.registry.url"] = address
    warnings: list[str] = []
    try:
        parsed = parse_config(registry_options, api="sink", source=ConfigSource.OPTION, table=table)
        registry = parse_registry(parsed, PLAINTEXT, warnings)
    except OptionError as error:
        raise OptionError(f"{function}: {error}") from None
    if parsed.unknown:
        allowed = (*own, "schema.registry.*", *([AUTO_REGISTER] if AUTO_REGISTER in table.by_name else []))
        raise option_messages.unsupported_by_function(function, [*parsed.unknown], f"; use {', '.join(allowed)}")
    for warning in (*parsed.warnings, *warnings):
        option_messages.warn_once(f"{function}: {warning}")
    return registry, parsed.values.get(AUTO_REGISTER) is True


def _decoder_settings(
    writer: str | None, reader: str | None, subject: str | None, registry: RegistrySettings | None
) -> AvroSettings:
    from pyspark_kafka_direct.payloads.avro.avro_column import AvroSettings, GivenSchema, NoFraming

    if registry is None:
        if writer is None:
            raise OptionError("from_avro: jsonFormatSchema is missing; it is needed without a subject")
        schema = _parse("from_avro", writer)
        return AvroSettings(
            reader=_parse("from_avro", reader) if reader else schema, framing=NoFraming(), writers=GivenSchema(schema)
        )
    from pyspark_kafka_direct.payloads.avro.registry_schemas import RegistrySchemas
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.framing import ConfluentFraming
    from pyspark_kafka_direct.payloads.reader_schemas import find_reader_schema
    from pyspark_kafka_direct.payloads.spark.latest_schemas import APPLICATION_SCHEMAS

    # The id in front of a datum names the schema of its writer, so jsonFormatSchema is the one to read with.
    given = reader or writer
    if given is not None:
        source, schema = "", _parse("from_avro", given)
    elif subject is not None:
        found = find_reader_schema(SidePayload(_COLUMN, _AVRO), registry, subject, APPLICATION_SCHEMAS)
        source, schema = found.source, parse_avro_schema(found.text, [text for _, text in found.references])
    else:
        raise OptionError("from_avro: set the subject whose latest schema the column has, or jsonFormatSchema")
    return AvroSettings(schema, ConfluentFraming(), RegistrySchemas(registry), source)


def _parse(function: str, text: str) -> AvroSchema:
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema

    if not isinstance(text, str):
        raise OptionError(f"{function}: an Avro schema is a str of JSON, not a {type(text).__name__}")
    try:
        return parse_avro_schema(text)
    except AvroSchemaError as error:
        raise OptionError(f"{function}: {error}") from None
