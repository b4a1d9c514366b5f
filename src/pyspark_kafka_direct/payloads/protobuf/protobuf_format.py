"""Protobuf, as a format of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.payloads.framing import message_indexes_prefix, written_id
from pyspark_kafka_direct.payloads.payload_column import wanted_fields
from pyspark_kafka_direct.payloads.payload_format import WITHOUT_FIELD, SchemaFormat, check_struct
from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, is_descriptor_set, source_schema

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.protobuf.encoder_program import ProtobufEncoderSettings
    from pyspark_kafka_direct.payloads.protobuf.given_message import GivenMessage
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage
    from pyspark_kafka_direct.payloads.protobuf.registry_messages import WriterMessages
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema


class ProtobufFormat(SchemaFormat):
    """All values are messages of one type, whose schemas may differ."""

    type_name = "name of the message"
    name_advice = "Message"

    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return the type of a message."""
        from pyspark_kafka_direct.payloads.protobuf.spark_types import spark_ddl

        schema, message = _validated_message(payload)
        try:
            return spark_ddl(schema, message, advice=advice or WITHOUT_FIELD.format(side=payload.side))
        except ProtobufSchemaError as error:
            raise OptionError(f"{payload.source or f'{payload.side}Schema'}: {error}") from None

    def check_type(self, payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:
        """Raise an error if a message does not fit a type."""
        schema, message = _validated_message(payload)
        check_struct(payload, corrupt_record, data_type)
        make_program(schema, message, wanted_fields(pa.schema(list(data_type)), corrupt_record).fields)

    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> ProtobufColumn:
        """Return the column."""
        writers = _writer_messages(payload, settings)
        return ProtobufColumn(
            data_type,
            _source(payload),
            settings.corrupt_record,
            emits_defaults=settings.emits_defaults,
            writers=writers,
        )

    def schema_name(self, payload: SidePayload) -> str:
        """Return the full name of the message."""
        return _validated_message(payload)[1].name

    def check_registrable(self, payload: SidePayload) -> None:
        """Raise an error if a given schema is a set of descriptors."""
        if is_descriptor_set(payload.schema or ""):
            raise OptionError(
                f"{payload.side}Schema is a set of descriptors, but a schema registry has files one by one. Set it to "
                "the text of a .proto file, or register the files and write with the schema of the subject, without "
                f"{payload.side}Schema"
            )

    def check_registered(self, resolved: ResolvedSchema, source: str, message: str | None) -> None:
        """Raise a SchemaError if a schema is not Protobuf, or lacks the message."""
        from pyspark_kafka_direct.payloads.protobuf.registry_messages import message_source

        message_source(resolved, source, message)

    def encoder_settings(self, payload: SidePayload) -> ProtobufEncoderSettings:
        """Return how tasks encode a column."""
        from pyspark_kafka_direct.payloads.protobuf.encoder_program import ProtobufEncoderSettings

        schema, message = _validated_message(payload)
        prefix = written_id(payload).prefix  # Protobuf has no framing with a header
        if prefix:  # after the id come the indexes of the message in the registered file
            indexes = schema.message_indexes(message.name)
            if indexes is None:
                raise OptionError(
                    f"{payload.side}Message: {message.name} is a group, or in a file that the schema imports, so it "
                    "has no message indexes; write with the schema that defines it as a message"
                )
            prefix += message_indexes_prefix(indexes)
        return ProtobufEncoderSettings(prefix=prefix, source=payload.source, schema=_source(payload))


FORMAT: Final = ProtobufFormat()


def _source(payload: SidePayload) -> ProtobufSource:
    return ProtobufSource(payload.schema or "", payload.message, payload.references)


def _validated_message(payload: SidePayload) -> tuple[ProtobufSchema, ProtoMessage]:
    """Return the schema and its message, or raise an OptionError if they are missing or not valid."""
    source = _source(payload)
    if not source.schema.strip():
        raise OptionError(
            f"{payload.side}Format=protobuf needs the schema: set {payload.side}Schema to the text of a .proto file, "
            "or to a set of descriptors in base64, or schema.registry.url to a schema registry"
        )
    try:
        schema = source_schema(source)
    except ProtobufSchemaError as error:
        raise OptionError(f"{payload.side}Schema: {error}") from None
    try:
        return schema, schema.message(source.message)
    except ProtobufSchemaError as error:
        raise OptionError(f"{payload.side}Message: {error}") from None


def _writer_messages(payload: SidePayload, settings: PayloadSettings) -> GivenMessage | WriterMessages | None:
    """Return how the schemas of values with ids are checked, or None if they have no ids."""
    if payload.framing == "none":
        return None
    source = _source(payload)
    if settings.registry is None:
        from pyspark_kafka_direct.payloads.protobuf.given_message import GivenMessage

        assert payload.schema_id is not None, "the parser of the options requires it"
        return GivenMessage(source, payload.schema_id)
    from pyspark_kafka_direct.payloads.protobuf.registry_messages import WriterMessages

    return WriterMessages(
        settings.registry,
        source,
        payload.source,
        fails_at_new_fields=settings.evolution == "restart",  # so that a restarted query reads them
        is_given=payload.source == payload.schema_option,
    )
