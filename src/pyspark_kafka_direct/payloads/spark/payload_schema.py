"""The columns of a query that decodes keys or values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType, VariantType

from pyspark_kafka_direct.config.payload_settings import DECODED_COMMENT, ERROR_COLUMN, WANTED_FIELDS
from pyspark_kafka_direct.config.user_factories import is_factory
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.session_time_zone import session_time_zone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.config.payload_parser import PayloadOptions
    from pyspark_kafka_direct.config.payload_settings import PayloadSettings
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage

ERROR_TYPE: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("side", "stage", "class", "message")),
        StructField("schema_id", IntegerType()),
    ]
)

_TYPE: Final = re.compile(r"\s*(struct\s*<|variant\s*$)", re.IGNORECASE)  # otherwise, the fields of a struct
_OTHER_TYPE: Final = re.compile(
    r"\s*(?!variant\b)(\w+\s*(\([^)]*\))?|(array|map)\s*<.*>)\s*$", re.IGNORECASE | re.DOTALL
)


def typed_schema(columns: StructType, payloads: PayloadOptions) -> str:
    """Return the DDL of the columns of Kafka records. Spark parses it, because this process has no JVM."""
    types = {"timestamp": "timestamp_ltz"}  # regardless of spark.sql.timestampType
    for side, ddl in (("key", payloads.key_schema), ("value", payloads.value_schema)):
        payload_type = _payload_type(side, payloads.settings, ddl, WANTED_FIELDS)
        types[side] = payload_type + _comment(side, payload_type, payloads.settings)
    return ", ".join(f"`{field.name}` {types.get(field.name) or field.dataType.simpleString()}" for field in columns)


def decoded_columns(columns: Sequence[str], payloads: PayloadOptions) -> DecodedColumns | None:
    """Return what tasks decode, or None if nothing. The driver's JVM parses the schemas of keys and values.

    The columns are those of Kafka records, and perhaps ``_error``.
    """
    settings = payloads.settings
    error_field = StructField(ERROR_COLUMN, ERROR_TYPE)
    if ERROR_COLUMN in columns:
        check_error_column(error_field, columns, settings)
    elif all(settings.format_of(column) == "binary" for column in columns):
        return None
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.records import arrow_schema

    record_columns = [column for column in columns if column != ERROR_COLUMN]
    schema = arrow_schema(record_columns)
    for index, column in enumerate(record_columns):
        payload_format = settings.format_of(column)
        if payload_format == "binary":
            continue
        ddl = payloads.key_schema if column == "key" else payloads.value_schema
        kind = _payload_type(column, settings, ddl, _advice_without_schema(column, settings))
        # An option of another format than JSON or the user's is no DDL.
        is_ddl = payload_format not in ("string", "avro", "protobuf")
        field = StructField(column, _parse_type(column, ddl if is_ddl and ddl else kind))
        check_payload_type(column, field, settings)
        schema = schema.set(index, _arrow_field(field))
    if ERROR_COLUMN in columns:
        schema = schema.insert(columns.index(ERROR_COLUMN), _arrow_field(error_field))
    return DecodedColumns(settings, tuple(columns), schema, session_time_zone())


def check_payload_type(column: str, field: StructField, payloads: PayloadSettings) -> None:
    """Raise an error if a column that is decoded cannot have the type that a schema gives it."""
    kind = field.dataType
    payload_format = payloads.format_of(column)
    if not field.nullable:
        raise OptionError(f"schema: column {field.name!r} may be null in Kafka; remove NOT NULL.")
    if payload_format == "string":
        if kind != StringType():
            raise OptionError(
                f"schema: with {column}Format=string, column {field.name!r} is string, not {kind.simpleString()}."
            )
        return
    if is_factory(payload_format):
        _check_arrow_type(field)
        return
    if payload_format in ("avro", "protobuf"):
        check_struct = _check_avro_type if payload_format == "avro" else _check_protobuf_type
        check_struct(column, field, payloads)
        return
    if kind == VariantType():
        return
    if not isinstance(kind, StructType):
        raise OptionError(
            f"schema: with {column}Format=json, column {field.name!r} is a struct of the wanted fields, such as "
            f"struct<id bigint, name string>, or variant for any JSON, not {kind.simpleString()}."
        )
    if payloads.corrupt_record in kind.names:
        _check_mode(f"{field.name}.{payloads.corrupt_record}", payloads)
        if payloads.json_framing_of(column) != "none" and kind[payloads.corrupt_record].dataType == StringType():
            raise OptionError(
                f"schema: with {column}Framing={payloads.json_framing_of(column)}, the field "
                f"{payloads.corrupt_record!r} for malformed data is binary, because a schema id is no text."
            )
    from pyspark.errors import PySparkException

    from pyspark_kafka_direct.payloads.json.json_values import check_json_fields
    from pyspark_kafka_direct.payloads.payload_column import wanted_fields

    try:
        check_json_fields(
            wanted_fields(arrow_schema_in_utc(kind), payloads.corrupt_record).fields, payloads.corrupt_record
        )
    except (ValueError, TypeError, NotImplementedError, PySparkException) as error:  # also types that are none in Arrow
        raise OptionError(
            f"schema: column {field.name!r}: {error}. Read a field of another type as string, and cast it in the query."
        ) from None


def check_error_column(field: StructField, columns: Collection[str], payloads: PayloadSettings) -> None:
    """Raise an error unless a schema gives the column ``_error`` its type, and has a column with errors to report."""
    if field.dataType != ERROR_TYPE or not field.nullable:
        raise OptionError(f"schema: column {field.name!r} must be {ERROR_TYPE.simpleString()}.")
    if all(payloads.format_of(column) not in ("json", "avro", "protobuf") for column in columns):
        raise OptionError(
            f"schema: column {ERROR_COLUMN} has the errors of keys and values that are decoded from JSON, Avro or "
            "Protobuf, and there is none; set valueFormat=json, avro or protobuf and add the column value, or remove "
            "_error."
        )
    _check_mode(field.name, payloads)


def _check_arrow_type(field: StructField) -> None:
    from pyspark.errors import PySparkException

    try:
        _arrow_field(field)
    except (ValueError, TypeError, NotImplementedError, PySparkException) as error:
        raise OptionError(f"schema: column {field.name!r} has a type that Arrow does not have: {error}") from None


def _arrow_field(field: StructField) -> pa.Field:
    return arrow_schema_in_utc(StructType([field])).field(0)


def _check_avro_type(column: str, field: StructField, payloads: PayloadSettings) -> None:
    from pyspark.errors import PySparkException

    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.avro_values import check_avro_fields
    from pyspark_kafka_direct.payloads.avro.wanted_fields import check_wanted, check_wanted_type
    from pyspark_kafka_direct.payloads.avro.whole_values import column_fields, is_record

    schema = _avro_schema(column, payloads.avro_schema_of(column), payloads.references_of(column))
    has_fields = is_record(schema.root)
    kind = _struct_of(column, field, payloads) if has_fields else field.dataType
    try:
        if not has_fields and isinstance(kind, StructType) and payloads.corrupt_record in kind.names:
            raise ValueError(
                f"the Avro schema is not a record, so the struct cannot have the field {payloads.corrupt_record!r}"
            )
        data_type = _arrow_field(field).type
        fields = column_fields(schema.root, data_type, payloads.corrupt_record).fields
        if not has_fields:
            check_wanted_type(schema.root, data_type)
        check_avro_fields(fields)
        if has_fields:
            check_wanted(schema.root, list(fields))
    except (AvroSchemaError, ValueError, TypeError, NotImplementedError, PySparkException) as error:
        raise OptionError(f"schema: column {field.name!r}: {error}.") from None


def _struct_of(column: str, field: StructField, payloads: PayloadSettings) -> StructType:
    """Return the type of a column with Avro or Protobuf, if it is a struct in which a field for bytes may be."""
    kind, payload_format = field.dataType, payloads.format_of(column)
    if not isinstance(kind, StructType):
        raise OptionError(
            f"schema: with {column}Format={payload_format}, column {field.name!r} is a struct of the wanted fields, "
            f"such as struct<id bigint, name string>, not {kind.simpleString()}."
        )
    if payloads.corrupt_record in kind.names:
        _check_mode(f"{field.name}.{payloads.corrupt_record}", payloads)
        if kind[payloads.corrupt_record].dataType != BinaryType():
            raise OptionError(
                f"schema: with {column}Format={payload_format}, the field {payloads.corrupt_record!r} for malformed "
                "data is binary."
            )
    return kind


def _check_protobuf_type(column: str, field: StructField, payloads: PayloadSettings) -> None:
    from pyspark.errors import PySparkException

    from pyspark_kafka_direct.payloads.payload_column import wanted_fields
    from pyspark_kafka_direct.payloads.protobuf.program import make_program
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError

    schema, message = _protobuf_message(column, payloads)
    kind = _struct_of(column, field, payloads)
    try:
        make_program(schema, message, wanted_fields(arrow_schema_in_utc(kind), payloads.corrupt_record).fields)
    except (ProtobufSchemaError, ValueError, TypeError, NotImplementedError, PySparkException) as error:
        raise OptionError(f"schema: column {field.name!r}: {error}.") from None


def _protobuf_message(column: str, payloads: PayloadSettings) -> tuple[ProtobufSchema, ProtoMessage]:
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.schema import source_schema

    source = payloads.protobuf_of(column)
    if not source.schema.strip():
        raise OptionError(
            f"{column}Format=protobuf needs the schema: set {column}Schema to the text of a .proto file, or to a set "
            "of descriptors in base64, or schema.registry.url to a schema registry"
        )
    try:
        schema = source_schema(source)
    except ProtobufSchemaError as error:
        raise OptionError(f"{column}Schema: {error}") from None
    try:
        return schema, schema.message(source.message)
    except ProtobufSchemaError as error:
        raise OptionError(f"{column}Message: {error}") from None


def _protobuf_ddl(column: str, payloads: PayloadSettings, advice: str) -> str:
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
    from pyspark_kafka_direct.payloads.protobuf.spark_types import spark_ddl

    schema, message = _protobuf_message(column, payloads)
    try:
        return spark_ddl(schema, message, advice=advice)
    except ProtobufSchemaError as error:
        raise OptionError(f"{_schema_source(column, payloads)}: {error}") from None


def _avro_schema(column: str, text: str | None, references: Sequence[str]) -> AvroSchema:
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema

    if not text or not text.strip():
        raise OptionError(
            f"{column}Format=avro needs the schema: set {column}Schema to an Avro schema, which is JSON, or "
            "schema.registry.url to a schema registry"
        )
    try:
        return parse_avro_schema(text, references)
    except AvroSchemaError as error:
        raise OptionError(f"{column}Schema: {error}") from None


def _avro_ddl(column: str, text: str | None, payloads: PayloadSettings, advice: str) -> str:
    from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
    from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl

    try:
        return spark_ddl(_avro_schema(column, text, payloads.references_of(column)).root, advice)
    except AvroSchemaError as error:
        raise OptionError(f"{_schema_source(column, payloads)}: {error}") from None


def _schema_source(column: str, payloads: PayloadSettings) -> str:
    """Return where the schema of a column is from: an option, or a version in a registry."""
    source = "" if payloads.registry is None else payloads.registry.side(column).source
    return source or f"{column}Schema"


def _advice_without_schema(column: str, payloads: PayloadSettings) -> str:
    """Return what to do about a field that Spark has no type for, in an API that has no ``.schema()``."""
    if payloads.registry is not None or payloads.format_of(column) == "protobuf":
        return f"set {column}Schema to the schema without the field"
    return f"change its type in {column}Schema, or use spark.read or spark.readStream with .schema()"


def _check_mode(name: str, payloads: PayloadSettings) -> None:
    """Raise an error if a column for malformed records would always be null."""
    if payloads.mode != "PERMISSIVE":
        raise OptionError(
            f"schema: {name!r} has malformed records, of which mode={payloads.mode} returns none; set mode=PERMISSIVE, "
            f"or remove {name!r}."
        )


def _parse_type(column: str, ddl: str) -> DataType:
    from pyspark.errors import PySparkException

    try:
        return DataType.fromDDL(ddl)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        message = f"{column}Schema must be DDL such as 'id bigint, name string', got {ddl!r}: {reason}"
        raise OptionError(message) from None


def _comment(column: str, payload_type: str, payloads: PayloadSettings) -> str:
    """Return the comment of a column: the id of its schema if it is from a registry, or that it is decoded."""
    if payloads.format_of(column) not in ("avro", "protobuf"):
        return ""
    side = None if payloads.registry is None else payloads.registry.side(column)
    if side is None or side.subject is None or not side.source:
        return f" COMMENT '{DECODED_COMMENT}'" if payload_type in ("string", "binary") else ""
    source = side.source.replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{source}'"


def _payload_type(column: str, payloads: PayloadSettings, ddl: str | None, advice: str) -> str:
    """Return the DDL of a column; ``advice`` is what to do about a field that Spark has no type for."""
    payload_format = payloads.format_of(column)
    if payload_format == "avro":
        return _avro_ddl(column, ddl, payloads, advice)
    if payload_format == "protobuf":
        return _protobuf_ddl(column, payloads, advice)
    if payload_format in ("binary", "string"):
        return payload_format
    if is_factory(payload_format):
        if not ddl or not ddl.strip():
            raise OptionError(
                f"{column}Format={payload_format} needs the type that its decoder returns: give the column {column} a "
                f"type with .schema(), or set {column}Schema, for example to 'id bigint, name string', or to binary"
            )
        return ddl if _TYPE.match(ddl) or _OTHER_TYPE.match(ddl) else f"struct<{ddl}>"
    if not ddl or not ddl.strip():
        raise OptionError(
            f"{column}Format=json needs the wanted fields: give the column {column} a struct type with .schema(), or "
            f"set {column}Schema, for example to 'id bigint, name string', or to variant for any JSON"
        )
    if _OTHER_TYPE.match(ddl):
        raise OptionError(
            f"{column}Schema has the wanted fields and their types, such as 'id bigint, name string', or is variant "
            f"for any JSON, got {ddl!r}"
        )
    return ddl if _TYPE.match(ddl) else f"struct<{ddl}>"
