"""How keys and values are decoded. Tasks unpickle it, so it imports nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark_kafka_direct.config.registry_settings import FramingName, RegistryPayloads

PayloadFormat: TypeAlias = str
"""``binary``, ``string``, ``json``, ``avro``, ``protobuf``, or ``module:factory`` for a decoder of the user."""

MalformedMode: TypeAlias = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

DEFAULT_CORRUPT_RECORD: Final = "_corrupt_record"

WANTED_FIELDS: Final = "name the wanted fields with .schema()"
"""What to do about a field that Spark has no type for."""

DECODED_COMMENT: Final = "decoded from Avro"
"""The comment of a column of strings or bytes that are not those of the record."""

ERROR_COLUMN: Final = "_error"
"""The column with the errors of malformed records, if a schema names it."""


@dataclass(frozen=True, slots=True)
class ProtobufSource:
    """A Protobuf schema, and the message type of keys or values."""

    schema: str = ""  # the text of a .proto file, or descriptors in base64
    message: str | None = None  # None: the first one of the schema
    imports: tuple[tuple[str, str], ...] = ()  # names and texts of files that the schema imports


NO_PROTOBUF: Final = ProtobufSource()


@dataclass(frozen=True, slots=True)
class GivenSchemaId:
    """The id that every key or value has, because all are written with the schema of the query."""

    schema_id: int | str  # a string is a GUID
    framing: FramingName  # `confluent` or `header`


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    key_format: PayloadFormat = "binary"
    value_format: PayloadFormat = "binary"
    mode: MalformedMode = "PERMISSIVE"
    corrupt_record: str = DEFAULT_CORRUPT_RECORD  # the field with the text of a malformed key or value
    key_avro_schema: str | None = None  # the JSON of an Avro schema
    value_avro_schema: str | None = None
    key_protobuf: ProtobufSource = NO_PROTOBUF
    value_protobuf: ProtobufSource = NO_PROTOBUF
    registry: RegistryPayloads | None = None  # of writers' schemas
    single_object: tuple[str, ...] = ()  # the columns in Avro's single-object encoding
    key_json_framing: FramingName = "none"  # of JSON, where a schema id is
    value_json_framing: FramingName = "none"
    key_schema_id: GivenSchemaId | None = None  # of Avro and Protobuf without a registry
    value_schema_id: GivenSchemaId | None = None

    def format_of(self, column: str) -> PayloadFormat:
        """Return the format of a column of Kafka records."""
        return {"key": self.key_format, "value": self.value_format}.get(column, "binary")

    def avro_schema_of(self, column: str) -> str | None:
        """Return the Avro schema of a column, if it has this format."""
        return {"key": self.key_avro_schema, "value": self.value_avro_schema}.get(column)

    def with_avro_schema(self, column: str, text: str) -> PayloadSettings:
        """Return a copy with the Avro schema of a column."""
        return replace(self, key_avro_schema=text) if column == "key" else replace(self, value_avro_schema=text)

    def protobuf_of(self, column: str) -> ProtobufSource:
        """Return the Protobuf schema of a column, if it has this format."""
        return self.key_protobuf if column == "key" else self.value_protobuf

    def with_protobuf(self, column: str, source: ProtobufSource) -> PayloadSettings:
        """Return a copy with the Protobuf schema of a column."""
        return replace(self, key_protobuf=source) if column == "key" else replace(self, value_protobuf=source)

    def references_of(self, column: str) -> tuple[str, ...]:
        """Return the schemas that the Avro schema of a column refers to."""
        return () if self.registry is None else self.registry.side(column).references

    def json_framing_of(self, column: str) -> FramingName:
        """Return where the schema id of a column of JSON is."""
        return self.key_json_framing if column == "key" else self.value_json_framing

    def schema_id_of(self, column: str) -> GivenSchemaId | None:
        """Return the id that a column of Avro or Protobuf has without a registry, or None if it has none."""
        return self.key_schema_id if column == "key" else self.value_schema_id

    @property
    def decodes(self) -> bool:
        """Whether a column is anything but bytes."""
        return (self.key_format, self.value_format) != ("binary", "binary")
