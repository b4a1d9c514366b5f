"""Functions for DataFrames: ``from_json`` and ``from_avro`` by the source's decoders, and ``infer_schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark.sql.types import DataType, StructType

from pyspark_kafka_direct.config.payload_parser import PAYLOAD_OPTIONS, parse_payload_arguments
from pyspark_kafka_direct.errors import MalformedPayloadError, OptionError
from pyspark_kafka_direct.spark.json_inference import infer_fields
from pyspark_kafka_direct.spark.session_time_zone import session_time_zone
from pyspark_kafka_direct.spark.spark_versions import arrow_schema_in_utc, arrow_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

    from pyspark_kafka_direct.config.payload_settings import MalformedMode
    from pyspark_kafka_direct.formats.avro.avro_column import AvroColumn, AvroSettings
    from pyspark_kafka_direct.records import JsonDecoder

__all__ = ["from_avro", "from_json", "infer_schema"]

_MODES: Final[tuple[MalformedMode, ...]] = ("PERMISSIVE", "FAILFAST")
_FROM_JSON_OPTIONS: Final = ("mode", "columnnameofcorruptrecord")
_PAYLOAD_OPTIONS: Final = frozenset(name.lower() for name in PAYLOAD_OPTIONS)


def from_json(col: Column | str, schema: StructType | str, options: Mapping[str, str] | None = None) -> Column:
    """Decode JSON as ``valueFormat=json`` does, with the results of Spark's ``from_json``.

    It decodes in Python workers. With ``valueFormat=json`` the workers that read the records decode them, which is
    faster; use this function for other columns. docs/typed-json.md lists the types and the differences from Spark.
    Timestamps without an offset are in the time zone of the session.

    Args:
        col: A column of strings or bytes.
        schema: The wanted fields, as a StructType or DDL (``origin string, dep_delay double``).
        options: ``mode`` (``PERMISSIVE`` or ``FAILFAST``) and ``columnNameOfCorruptRecord``.

    Returns:
        A column of structs.

    Raises:
        OptionError: The schema has a type that is not decoded from JSON, or an option is not known.
        SparkVersionError: PySpark is older than 4.1.
    """
    mode, corrupt_record = _parse_options(options or {})
    struct = _struct_type(schema)
    fields = arrow_schema_in_utc(struct)
    _check_fields(fields, corrupt_record)
    function = _decode_function(fields, corrupt_record, session_time_zone(), failing=mode == "FAILFAST")
    return arrow_udf(function, struct)(col)


def from_avro(data: Column | str, jsonFormatSchema: str, options: Mapping[str, str] | None = None) -> Column:  # noqa: N803 (Spark's name)
    """Decode Avro as ``valueFormat=avro`` does, without Spark's jar for Avro.

    It decodes in Python workers. With ``valueFormat=avro`` the workers that read the records decode them, which is
    faster, and only the wanted fields; use this function for other columns. docs/avro.md lists the types and the
    differences from Spark.

    Args:
        data: A column of bytes, each of which is one datum.
        jsonFormatSchema: The Avro schema with which the datums were written, as JSON. It is a record.
        options: ``mode`` (``FAILFAST``, the default, or ``PERMISSIVE``), and ``avroSchema``: a compatible Avro schema
            of which the column has the fields.

    Returns:
        A column of structs with all fields.

    Raises:
        OptionError: A schema is not valid, or an option is not known.
        SparkVersionError: PySpark is older than 4.1.
    """
    by_lower_name = {name.lower(): value for name, value in (options or {}).items()}
    mode = by_lower_name.pop("mode", "FAILFAST").upper()
    reader = by_lower_name.pop("avroschema", jsonFormatSchema)
    if by_lower_name:
        unknown = next(name for name in options or {} if name.lower() in by_lower_name)
        raise OptionError(f"from_avro: the option {unknown} is not supported; use mode and avroSchema")
    if mode not in _MODES:
        raise OptionError(f"from_avro: mode must be {' or '.join(_MODES)}, got {mode!r}")
    struct, settings = _avro_type(jsonFormatSchema, reader)
    fields = arrow_schema_in_utc(struct)
    return arrow_udf(_decode_avro_function(fields, settings, failing=mode == "FAILFAST"), struct)(data)


def infer_schema(
    spark: SparkSession, options: Mapping[str, str], sample: int = 1000, *, column: Literal["key", "value"] = "value"
) -> StructType:
    """Return the fields of the JSON objects in a topic, from a sample of its records.

    The types are those of ``spark.read.json``: ``bigint``, ``double``, ``boolean``, ``string``, structs and arrays. An
    integer of more than 64 bits becomes a string, and so does what is nested more than 60 levels deep. Values that are
    not JSON objects are ignored. Sampled values do not become part of a plan, which Spark would show in its UI.

    Args:
        spark: The session.
        options: The options of a batch query (``kafka.bootstrap.servers``, ``subscribe``, ...). Options that decode
            keys and values are ignored.
        sample: The largest number of records to read, from the start of the query's offsets.
        column: ``value`` or ``key``.

    Returns:
        The fields, sorted by name: use it for ``from_json``, or within the schema of ``valueFormat=json``.

    Raises:
        OptionError: No sampled value is a JSON object with a field.
    """
    if sample < 1:
        raise OptionError(f"infer_schema: sample must be at least 1, got {sample}")
    reader = spark.read.format("kafka-direct").schema(f"{column} binary")
    for name, value in options.items():
        if name.lower() not in _PAYLOAD_OPTIONS:
            reader = reader.option(name, value)
    values = [bytes(row[0]) for row in reader.load().limit(sample).collect() if row[0] is not None]
    inferred = infer_fields(values, case_sensitive=spark.conf.get("spark.sql.caseSensitive") == "true")
    if not inferred.fields:
        raise OptionError(
            f"infer_schema: none of {len(values)} sampled records has a {column} that is a JSON object with a field; "
            "check the topic and its format, or start at other offsets (startingOffsets)"
        )
    return inferred


def _parse_options(options: Mapping[str, str]) -> tuple[str, str]:
    for name in options:
        if name.lower() not in _FROM_JSON_OPTIONS:
            raise OptionError(
                f"from_json: the option {name} is not supported; use mode and columnNameOfCorruptRecord, or Spark's "
                "from_json"
            )
    try:
        settings = parse_payload_arguments({**options, "valueFormat": "json"}, modes=_MODES).settings
    except OptionError as error:
        raise OptionError(f"from_json: {error}") from None
    return settings.mode, settings.corrupt_record


def _struct_type(schema: StructType | str) -> StructType:
    struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise OptionError(
            f"from_json: the schema must be a struct of the wanted fields, such as 'id bigint, name string', not "
            f"{struct.simpleString()}"
        )
    return struct


def _check_fields(fields: pa.Schema, corrupt_record: str) -> None:
    from pyspark_kafka_direct.records.json_values import JsonRequest

    try:
        JsonRequest(fields, corrupt_record)
    except ValueError as error:
        raise OptionError(f"from_json: {error}. Read a field of another type as string, and cast it.") from None


def _decode_function(
    fields: pa.Schema, corrupt_record: str, time_zone: str, *, failing: bool
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    decoder: JsonDecoder | None = None  # of one task, because it cannot be pickled

    def from_json(values: pa.Array) -> pa.Array:
        nonlocal decoder
        import pyarrow as pa

        from pyspark_kafka_direct.formats.malformed_records import first_malformed
        from pyspark_kafka_direct.records import create_json_decoder

        decoder = decoder or create_json_decoder(fields, corrupt_record, time_zone)
        decoded = decoder.decode(values.cast(pa.binary()))
        if failing and decoded.malformed is not None:
            _, reason = first_malformed(decoded.malformed)
            raise MalformedPayloadError(
                f"A value cannot be decoded as JSON: {reason}. Set mode=PERMISSIVE to read what cannot be decoded as "
                "null."
            )
        return decoded.values

    return from_json


def _avro_type(writer: str, reader: str) -> tuple[StructType, AvroSettings]:
    from pyspark_kafka_direct.formats.avro.avro_column import AvroSettings, GivenSchema, NoFraming
    from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.formats.avro.spark_types import spark_ddl

    try:
        settings = AvroSettings(parse_avro_schema(reader), NoFraming(), GivenSchema(parse_avro_schema(writer)))
        struct = DataType.fromDDL(spark_ddl(settings.reader.root))
    except AvroSchemaError as error:
        raise OptionError(f"from_avro: {error}") from None
    return cast("StructType", struct), settings


def _decode_avro_function(
    fields: pa.Schema, settings: AvroSettings, *, failing: bool
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    column: AvroColumn | None = None  # of one task, because it cannot be pickled

    def from_avro(values: pa.Array) -> pa.Array:
        nonlocal column
        import pyarrow as pa

        from pyspark_kafka_direct.formats.avro.avro_column import AvroColumn
        from pyspark_kafka_direct.formats.malformed_records import first_malformed

        column = column or AvroColumn(pa.struct(list(fields)), settings)
        decoded = column.decode(values.cast(pa.binary()))
        if failing and decoded.malformed is not None:
            _, reason = first_malformed(decoded.malformed)
            raise MalformedPayloadError(
                f"A value cannot be decoded as Avro: {reason}. Set mode=PERMISSIVE to read what cannot be decoded as "
                "null."
            )
        return decoded.values

    return from_avro
