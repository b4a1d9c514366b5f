"""Avro, as a format of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.errors import ColumnError, OptionError
from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings, GivenSchema, given_schema
from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.payload_format import WITHOUT_FIELD, DerivedSchemaFormat, check_struct

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.avro.encoder_program import AvroEncoderSettings
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_CHANGED_FIELD: Final = "change its type in {side}Schema, or use spark.read or spark.readStream with .schema()"


class AvroFormat(DerivedSchemaFormat):
    """Datums are decoded by the schemas of their writers, and a schema of the query says which fields there are."""

    type_name = "name of the record"
    name_advice = "Schema to an Avro schema that has one"

    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return the type of a schema."""
        from pyspark_kafka_direct.options.registry_settings import ID_FRAMINGS
        from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl

        schema = _validated_schema(payload)
        # The values of other writers are decoded by their own schemas, so that of the query need not have all fields.
        has_other_writers = payload.framing in ID_FRAMINGS and payload.schema_id is None
        default_advice = WITHOUT_FIELD if has_other_writers else _CHANGED_FIELD
        try:
            return spark_ddl(schema.root, advice or default_advice.format(side=payload.side))
        except AvroSchemaError as error:
            raise OptionError(f"{payload.source or f'{payload.side}Schema'}: {error}") from None

    def check_type(self, payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:
        """Raise an error if a schema does not fit a type."""
        from pyspark_kafka_direct.payloads.avro.avro_column import column_fields, is_record
        from pyspark_kafka_direct.payloads.avro.avro_values import check_avro_fields
        from pyspark_kafka_direct.payloads.avro.wanted_fields import check_wanted, check_wanted_type

        root = _validated_schema(payload).root
        if is_record(root):
            check_struct(payload, corrupt_record, data_type)
            fields = column_fields(root, data_type, corrupt_record).fields
            check_avro_fields(fields)
            check_wanted(root, list(fields))
            return
        if pa.types.is_struct(data_type) and data_type.get_field_index(corrupt_record) >= 0:
            raise ValueError(f"the Avro schema is not a record, so the struct cannot have the field {corrupt_record!r}")
        check_wanted_type(root, data_type)
        check_avro_fields(column_fields(root, data_type, corrupt_record).fields)

    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> AvroColumn:
        """Return the column."""
        return AvroColumn(data_type, _avro_settings(payload, settings), settings.corrupt_record)

    def schema_name(self, payload: SidePayload) -> str:
        """Return the name of the record."""
        return getattr(_validated_schema(payload).root, "name", "")

    def check_registered(self, resolved: ResolvedSchema, source: str, message: str | None) -> None:
        """Raise a SchemaError if a schema is not Avro."""
        from pyspark_kafka_direct.payloads.avro.registry_schemas import avro_schema

        avro_schema(resolved, source)

    def derived_schema(self, data_type: pa.DataType, side: str) -> str:
        """Return the schema of a type, whose fields may be null."""
        from pyspark_kafka_direct.payloads.avro.derived_schema import derived_schema
        from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError, encodable_type

        try:
            schema = derived_schema(encodable_type(data_type, AvroColumn.format_name, side), null_first=True)
            parse_avro_schema(schema)  # names of columns need not be those that Avro allows
        except SchemaMismatchError as error:
            raise ColumnError(f"{side} attribute cannot be written as Avro: {error}") from None
        except ValueError as error:  # also AvroSchemaError
            raise ColumnError(
                f"{side} attribute cannot be written as Avro: {error}: rename or cast it in the query"
            ) from None
        return schema

    def encoder_settings(self, payload: SidePayload) -> AvroEncoderSettings:
        """Return how tasks encode a column."""
        from pyspark_kafka_direct.payloads.avro.canonical_form import fingerprint
        from pyspark_kafka_direct.payloads.avro.encoder_program import AvroEncoderSettings
        from pyspark_kafka_direct.payloads.framing import single_object_prefix, written_id

        schema = _parse_valid_schema(payload)
        prefix, header = written_id(payload)
        if payload.framing == "single-object":  # the fingerprint follows from the schema, without a registry
            prefix = single_object_prefix(fingerprint(schema.root))
        return AvroEncoderSettings(prefix, header, payload.source, schema=schema)


FORMAT: Final = AvroFormat()


def _parse_valid_schema(payload: SidePayload) -> AvroSchema:
    """Parse a schema that was validated before: that of an option, or by ``check_registered``."""
    return parse_avro_schema(payload.schema or "", [text for _, text in payload.references])


def _validated_schema(payload: SidePayload) -> AvroSchema:
    """Parse a schema, or raise an OptionError if it is missing or not valid."""
    if not payload.schema or not payload.schema.strip():
        raise OptionError(
            f"{payload.side}Format=avro needs the schema: set {payload.side}Schema to an Avro schema, which is JSON, "
            "or schema.registry.url to a schema registry"
        )
    try:
        return _parse_valid_schema(payload)
    except AvroSchemaError as error:
        raise OptionError(f"{payload.side}Schema: {error}") from None


def _avro_settings(payload: SidePayload, settings: PayloadSettings) -> AvroSettings:
    """Return how the values of a column are framed, and how the schemas of their writers are found."""
    # Only the modules of the framing are imported.
    schema = _parse_valid_schema(payload)
    if payload.framing == "none":
        return given_schema(schema)
    if payload.framing == "single-object":
        from pyspark_kafka_direct.payloads.avro.single_object import single_object

        return single_object(schema)
    from pyspark_kafka_direct.payloads.framing import id_framing

    framing = id_framing(payload)
    if settings.registry is None:
        return AvroSettings(schema, framing, GivenSchema(schema, payload.schema_id))
    from pyspark_kafka_direct.payloads.avro.registry_schemas import RegistrySchemas

    # With schemaEvolutionMode=restart, the query fails if a writer's schema has more than this one.
    compared = schema if settings.evolution == "restart" else None
    writers = RegistrySchemas(settings.registry, reader=compared, source=payload.source)
    return AvroSettings(schema, framing, writers, payload.source)
