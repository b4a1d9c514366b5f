"""JSON, as a format of keys and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.payloads.json.json_column import JsonColumn
from pyspark_kafka_direct.payloads.json.json_values import check_json_fields, is_variant
from pyspark_kafka_direct.payloads.payload_column import wanted_fields
from pyspark_kafka_direct.payloads.payload_format import STRUCT, SchemaFormat, UnexpectedTypeError

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.json.encoder_settings import JsonEncoderSettings
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema


class JsonFormat(SchemaFormat):
    """The wanted fields, as DDL, say how JSON is decoded. They may be those of a JSON Schema in a registry."""

    column_types = f"{STRUCT}, or variant for any JSON"
    type_advice = " Read a field of another type as string, and cast it in the query."
    type_name = "title of the JSON Schema"
    name_advice = "Schema to a JSON Schema that has one"

    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return the type that the option names, or that of the schema of a registry."""
        from pyspark_kafka_direct.payloads.ddl import checked_type, is_no_row_type

        side, ddl = payload.side, payload.schema
        if payload.source:  # the schema is a JSON Schema of the registry, not DDL
            return _registered_type(payload, advice or f"set {side}Schema to the wanted fields")
        if not ddl or not ddl.strip():
            raise OptionError(
                f"{side}Format=json needs the wanted fields: give the column {side} a struct type with .schema(), or "
                f"set {side}Schema, for example to 'id bigint, name string', or to variant for any JSON. With "
                "schema.registry.url, they are those of the JSON Schema in the registry"
            )
        if is_no_row_type(ddl):
            raise OptionError(
                f"{side}Schema has the wanted fields and their types, such as 'id bigint, name string', or is variant "
                f"for any JSON, got {ddl!r}"
            )
        return checked_type(ddl, payload.schema_option)

    def check_type(self, payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:
        """Raise an error if a column is not a struct of fields that are decoded, or a VARIANT."""
        if is_variant(data_type):
            return
        if not pa.types.is_struct(data_type):
            raise UnexpectedTypeError
        fields = pa.schema(list(data_type))
        index = fields.get_field_index(corrupt_record)
        if index >= 0 and payload.framing != "none" and fields.field(index).type == pa.string():
            raise OptionError(
                f"schema: with {payload.side}Framing={payload.framing}, the field {corrupt_record!r} for malformed "
                "data is binary, because a schema id is no text."
            )
        check_json_fields(wanted_fields(fields, corrupt_record).fields, corrupt_record)

    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> JsonColumn:
        """Return the column; most tasks need no framing."""
        framing = None
        if payload.framing != "none":
            from pyspark_kafka_direct.payloads.framing import id_framing

            framing = id_framing(payload)
        return JsonColumn(data_type, settings.corrupt_record, time_zone, framing)

    def schema_name(self, payload: SidePayload) -> str:
        """Return the title of a JSON Schema, which is its name, or nothing; the schema is not checked further."""
        try:
            schema = json.loads(payload.schema or "")
        except (ValueError, RecursionError) as error:
            raise OptionError(f"{payload.side}Schema: not a JSON Schema: {error}") from None
        if not isinstance(schema, dict | bool):
            raise OptionError(f"{payload.side}Schema: not a JSON Schema, which is an object, true or false")
        title = schema.get("title") if isinstance(schema, dict) else None
        return title if isinstance(title, str) else ""

    def check_registered(self, resolved: ResolvedSchema, source: str, message: str | None) -> None:
        """Raise a SchemaError if a schema is not a JSON Schema."""
        resolved.check_type("JSON", "a JSON Schema", source)

    def encoder_settings(self, payload: SidePayload) -> JsonEncoderSettings:
        """Return how tasks encode a column."""
        from pyspark_kafka_direct.payloads.framing import written_id
        from pyspark_kafka_direct.payloads.json.encoder_settings import JsonEncoderSettings

        written = written_id(payload)
        return JsonEncoderSettings(
            prefix=written.prefix,
            header=written.header,
            source=payload.source,
            text=payload.schema or "true",  # which allows any JSON
            references=payload.references,
        )


FORMAT: Final = JsonFormat()


def _registered_type(payload: SidePayload, advice: str) -> str:
    from pyspark_kafka_direct.payloads.json.json_fields import JsonSchemaError, json_schema_ddl

    try:
        return json_schema_ddl(payload.schema or "", payload.references, advice)
    except JsonSchemaError as error:
        raise OptionError(f"{payload.source}: {error}") from None
