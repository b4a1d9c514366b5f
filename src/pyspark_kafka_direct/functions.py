"""Functions for DataFrames that decode and encode as queries do, and ``infer_schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.payload_parser import PAYLOAD_OPTIONS, REGISTRY_TABLE, parse_payload_arguments
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.avro_functions import (
    from_avro_function,
    parse_from_avro,
    parse_to_avro,
    to_avro_function,
)
from pyspark_kafka_direct.payloads.spark.json_inference import infer_fields
from pyspark_kafka_direct.payloads.spark.payload_schema import parse_ddl
from pyspark_kafka_direct.payloads.spark.protobuf_functions import from_protobuf_function, to_protobuf_function
from pyspark_kafka_direct.payloads.spark.session_time_zone import session_time_zone
from pyspark_kafka_direct.records import arrow_schema
from pyspark_kafka_direct.spark.spark_versions import arrow_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrameReader, SparkSession

    from pyspark_kafka_direct.options.payload_settings import MalformedMode
    from pyspark_kafka_direct.payloads.framing import ConfluentFraming
    from pyspark_kafka_direct.payloads.json.json_column import JsonColumn

__all__ = ["from_avro", "from_json", "from_protobuf", "infer_schema", "to_avro", "to_protobuf"]

_MODES: Final[tuple[MalformedMode, ...]] = ("PERMISSIVE", "FAILFAST")
_FROM_JSON_OPTIONS: Final = ("mode", "columnnameofcorruptrecord")
_PAYLOAD_OPTIONS: Final = frozenset(name.lower() for name in PAYLOAD_OPTIONS)
_HEADERS: Final = "headers array<struct<key: string, value: binary>>"


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
    mode, corrupt_record_field = _parse_options(options or {})
    struct = _struct_type(schema)
    fields = arrow_schema_in_utc(struct)
    _check_fields(fields, corrupt_record_field)
    function = _decode_function(fields, corrupt_record_field, session_time_zone(), failing=mode == "FAILFAST")
    return arrow_udf(function, struct)(col)


def from_avro(
    data: Column | str,
    jsonFormatSchema: str | None = None,  # noqa: N803 (Spark's names)
    options: Mapping[str, str] | None = None,
    subject: str | None = None,
    schemaRegistryAddress: str | None = None,  # noqa: N803
) -> Column:
    """Decode Avro as ``valueFormat=avro`` does, without Spark's jar for Avro.

    It decodes in Python workers. With ``valueFormat=avro`` the workers that read the records decode them, which is
    faster, and only the wanted fields; use this function for other columns. docs/avro.md lists the types and the
    differences from Spark.

    Args:
        data: A column of bytes, each of which is one datum.
        jsonFormatSchema: The Avro schema with which the datums were written, as JSON. With a registry, the schema whose
            fields the column has.
        options: ``mode`` (``FAILFAST``, the default, or ``PERMISSIVE``), and ``avroSchema``: a compatible Avro schema
            of which the column has the fields. With a registry, also the options ``schema.registry.*``.
        subject: A subject of the registry. The column has the fields of its latest schema.
        schemaRegistryAddress: The URL of a registry. The id of its schema is in front of each datum.

    Returns:
        A column of structs with all fields, or of another type if the schema is not a record.

    Raises:
        OptionError: A schema is not valid, or an option is not known.
        SchemaRegistryError: The registry does not have the schema, or is not available.
        SparkVersionError: PySpark is older than 4.1.
    """
    data_type, settings, failing = parse_from_avro(jsonFormatSchema, options or {}, subject, schemaRegistryAddress)
    field = arrow_schema_in_utc(StructType([StructField("value", data_type)])).field(0)
    return arrow_udf(from_avro_function(field, settings, failing=failing), data_type)(data)


def to_avro(
    data: Column | str,
    jsonFormatSchema: str = "",  # noqa: N803 (Spark's names)
    options: Mapping[str, str] | None = None,
    subject: str | None = None,
    schemaRegistryAddress: str | None = None,  # noqa: N803
) -> Column:
    """Encode a column as Avro, as the sink does with ``valueFormat=avro``, without Spark's jar for Avro.

    It encodes in Python workers. With ``valueFormat=avro``, the workers that write the records encode them, which is
    faster; use this function for other columns. docs/avro.md lists the types and the rules.

    Args:
        data: A column, usually of structs.
        jsonFormatSchema: The Avro schema, as JSON. By default, it is that of the subject, or without a registry that of
            the column's type, with the names of Spark's ``to_avro``.
        options: With a registry, the options ``schema.registry.*`` and ``auto.register.schemas``.
        subject: A subject of the registry, which has the schema.
        schemaRegistryAddress: The URL of a registry. The id of its schema is written in front of each datum.

    Returns:
        A column of bytes. Null is null.

    Raises:
        OptionError: The schema is not valid, or an option is not known.
        SchemaRegistryError: The registry does not have the schema, or is not available.
        SparkVersionError: PySpark is older than 4.1.
    """
    settings = parse_to_avro(jsonFormatSchema, options or {}, subject, schemaRegistryAddress)
    return arrow_udf(to_avro_function(settings), BinaryType())(data)


def from_protobuf(
    data: Column | str,
    messageName: str,  # noqa: N803 (Spark's name)
    descFilePath: str | None = None,  # noqa: N803
    options: Mapping[str, str] | None = None,
    binaryDescriptorSet: bytes | None = None,  # noqa: N803
) -> Column:
    """Decode Protobuf as ``valueFormat=protobuf`` does, without Spark's jar for Protobuf.

    It decodes in Python workers. With ``valueFormat=protobuf`` the workers that read the records decode them, which is
    faster, and only the wanted fields; use this function for other columns. docs/protobuf.md lists the types and the
    differences from Spark.

    Args:
        data: A column of bytes, each of which is one message.
        messageName: The full name of the message type.
        descFilePath: A file with a set of descriptors, which ``protoc --include_imports --descriptor_set_out`` writes.
            The driver reads it.
        options: ``mode`` (``FAILFAST``, the default, or ``PERMISSIVE``), and Spark's ``emit.default.values``,
            ``enums.as.ints``, ``upcast.unsigned.ints`` and ``unwrap.primitive.wrapper.types``, which are ``true`` or
            ``false``.
        binaryDescriptorSet: The set of descriptors itself, instead of a file.

    Returns:
        A column of structs with all fields.

    Raises:
        OptionError: The descriptors lack the message type, or an option is not known.
        SparkVersionError: PySpark is older than 4.1.
    """
    if (descFilePath is None) == (binaryDescriptorSet is None):
        raise OptionError("from_protobuf: give one of descFilePath and binaryDescriptorSet")
    struct, function = from_protobuf_function(messageName, descFilePath, options or {}, binaryDescriptorSet)
    return arrow_udf(function, struct)(data)


def to_protobuf(
    data: Column | str,
    messageName: str,  # noqa: N803 (Spark's name)
    descFilePath: str | None = None,  # noqa: N803
    options: Mapping[str, str] | None = None,
    binaryDescriptorSet: bytes | None = None,  # noqa: N803
) -> Column:
    """Encode a column as Protobuf, as the sink does with ``valueFormat=protobuf``, without Spark's jar for Protobuf.

    It encodes in Python workers. With ``valueFormat=protobuf``, the workers that write the records encode them, which
    is faster; use this function for other columns. docs/protobuf.md lists the types and the rules.

    Args:
        data: A column of structs.
        messageName: The full name of the message type.
        descFilePath: A file with a set of descriptors, which ``protoc --include_imports --descriptor_set_out`` writes.
            The driver reads it.
        options: None are supported.
        binaryDescriptorSet: The set of descriptors itself, instead of a file.

    Returns:
        A column of bytes. Null is null.

    Raises:
        OptionError: The descriptors lack the message type, or an option is given.
        SparkVersionError: PySpark is older than 4.1.
    """
    if (descFilePath is None) == (binaryDescriptorSet is None):
        raise OptionError("to_protobuf: give one of descFilePath and binaryDescriptorSet")
    function = to_protobuf_function(messageName, descFilePath, options or {}, binaryDescriptorSet)
    return arrow_udf(function, BinaryType())(data)


def infer_schema(
    spark: SparkSession, options: Mapping[str, str], sample: int = 1000, *, column: Literal["key", "value"] = "value"
) -> StructType:
    """Return the fields of the JSON objects in a topic, from a sample of its records.

    The types are those of ``spark.read.json``: ``bigint``, ``double``, ``boolean``, ``string``, structs and arrays. An
    integer of more than 64 bits and at most 38 digits becomes a string (with more digits, a ``double``), and so does
    what is nested more than 60 levels deep. Values that are not JSON objects are ignored. Sampled values do not become
    part of a plan, which Spark would show in its UI.

    Args:
        spark: The session.
        options: The options of a batch query (``kafka.bootstrap.servers``, ``subscribe``, ...). Options that decode
            keys and values are ignored, except ``valueFraming`` and ``keyFraming``: schema ids are skipped.
        sample: The largest number of records to read, from the start of the query's offsets.
        column: ``value`` or ``key``.

    Returns:
        The fields, sorted by name: use it for ``from_json``, or within the schema of ``valueFormat=json``.

    Raises:
        OptionError: No sampled value is a JSON object with a field, or a framing is not one of JSON.
    """
    if sample < 1:
        raise OptionError(f"infer_schema: sample must be at least 1, got {sample}")
    framing = _schema_id_framing(options, column)
    needs_headers = framing is not None and framing.needs_headers
    reader = _sample_reader(spark, options, column, needs_headers=needs_headers)
    rows = [row for row in reader.load().limit(sample).collect() if row[0] is not None]
    values = [bytes(row[0]) for row in rows]
    if framing is not None:
        headers = [[header.asDict() for header in row[1] or ()] for row in rows] if needs_headers else None
        values = _without_schema_ids(values, headers, framing)
    inferred = infer_fields(values, case_sensitive=spark.conf.get("spark.sql.caseSensitive") == "true")
    if not inferred.fields:
        raise OptionError(
            f"infer_schema: none of {len(values)} sampled records has a {column} that is a JSON object with a field; "
            "check the topic and its format, or start at other offsets (startingOffsets)"
        )
    return inferred


def _schema_id_framing(options: Mapping[str, str], column: Literal["key", "value"]) -> ConfluentFraming | None:
    """Return where the schema ids of the column are; ``None`` if its values have none."""
    from pyspark_kafka_direct.payloads.framing import id_framing

    framings = {f"{column}Framing": value for name, value in options.items() if name.lower() == f"{column}framing"}
    payload = parse_payload_arguments({f"{column}Format": "json", **framings}).side(column)
    return None if payload is None or payload.framing == "none" else id_framing(payload)


def _sample_reader(
    spark: SparkSession, options: Mapping[str, str], column: Literal["key", "value"], *, needs_headers: bool
) -> DataFrameReader:
    """Return a reader of the column as bytes, that is without the options that decode keys and values."""
    reader = spark.read.format("kafka-direct").schema(f"{column} binary" + (f", {_HEADERS}" if needs_headers else ""))
    for name, value in options.items():
        is_of_registry = REGISTRY_TABLE.find(ConfigSource.OPTION, name).option is not None
        if name.lower() not in _PAYLOAD_OPTIONS and not is_of_registry:
            reader = reader.option(name, value)
    return reader.option("includeHeaders", "true") if needs_headers else reader


def _without_schema_ids(
    values: list[bytes], headers: list[list[dict[str, Any]]] | None, framing: ConfluentFraming
) -> list[bytes]:
    """Return the values without the ids in front; ``headers``, of each value's record, may have the ids instead."""
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.json.json_column import without_header

    header_arrays = None if headers is None else pa.array(headers, arrow_schema(["headers"]).field(0).type)
    without_ids: list[bytes] = without_header(framing.split(pa.array(values, pa.binary()), header_arrays)).to_pylist()
    return without_ids


def _parse_options(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the mode of ``from_json``, and the name of the field for the text of malformed JSON."""
    unsupported = [name for name in options if name.lower() not in _FROM_JSON_OPTIONS]
    if unsupported:
        advice = "; use mode and columnNameOfCorruptRecord, or Spark's from_json"
        raise option_messages.unsupported_by_function("from_json", unsupported, advice)
    try:
        settings = parse_payload_arguments({**options, "valueFormat": "json"}, modes=_MODES)
    except OptionError as error:
        raise OptionError(f"from_json: {error}") from None
    return settings.mode, settings.corrupt_record


def _struct_type(schema: StructType | str) -> StructType:
    struct = parse_ddl(schema, "from_json: the schema") if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise OptionError(
            f"from_json: the schema must be a struct of the wanted fields, such as 'id bigint, name string', not "
            f"{struct.simpleString()}"
        )
    return struct


def _check_fields(fields: pa.Schema, corrupt_record_field: str) -> None:
    from pyspark_kafka_direct.payloads.json.json_values import check_json_fields

    try:
        check_json_fields(fields, corrupt_record_field)
    except ValueError as error:
        raise OptionError(f"from_json: {error}. Read a field of another type as string, and cast it.") from None


def _decode_function(
    fields: pa.Schema, corrupt_record_field: str, time_zone: str, *, failing: bool
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that tasks call for each Arrow batch; Spark shows its name in plans and columns."""
    column: JsonColumn | None = None  # created in the task, because it cannot be pickled

    def from_json(values: pa.Array) -> pa.Array:
        nonlocal column
        import pyarrow as pa

        from pyspark_kafka_direct.payloads.json.json_column import JsonColumn
        from pyspark_kafka_direct.payloads.whole_column import decode_all

        column = column or JsonColumn(pa.struct(list(fields)), corrupt_record_field, time_zone)
        decoded = decode_all(column, values, "JSON", failing=failing)
        column.log_hints("from_json")
        return decoded

    return from_json
