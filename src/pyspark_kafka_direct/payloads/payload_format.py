"""The formats of keys and values by name, and their interfaces. ``options.payload_formats`` has their options.

A task imports only the formats that it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings
    from pyspark_kafka_direct.payloads.payload_column import PayloadColumn
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_MODULES: Final = {
    "string": "string_format",
    "json": "json.json_format",
    "avro": "avro.avro_format",
    "protobuf": "protobuf.protobuf_format",
}
_USER_MODULE: Final = "user_decoder"

WITHOUT_FIELD: Final = "set {side}Schema to the schema without the field"

STRUCT: Final = "a struct of the wanted fields, such as struct<id bigint, name string>"


class UnexpectedTypeError(ValueError):
    """A column is not one of the format's ``column_types``."""


class PayloadFormat(ABC):
    """Reads keys and values of a format. The objects have no state."""

    column_types: ClassVar[str] = STRUCT  # for errors
    type_advice: ClassVar[str] = ""  # what to do about a field with a type that is not decoded

    @abstractmethod
    def spark_type(self, payload: SidePayload, advice: str | None = None) -> str:
        """Return the DDL of a column; ``advice`` is what to do about a field that Spark has no type for.

        Without it, the option of the schema has to be changed.
        """

    def check_type(self, payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:  # noqa: B027
        """Raise a ValueError if values cannot be decoded to a type; by default, they can be any type."""

    @abstractmethod
    def column(
        self, payload: SidePayload, settings: PayloadSettings, data_type: pa.DataType, time_zone: str
    ) -> PayloadColumn:
        """Return what a task decodes a column with; ``time_zone`` is that of timestamps without an offset."""


class WritableFormat(PayloadFormat):
    """A format that is also written."""

    @abstractmethod
    def encoder_settings(self, payload: SidePayload) -> EncoderSettings:
        """Return how tasks encode a column, whose schema is found if the format has one."""


class SchemaFormat(WritableFormat):
    """A format with schemas, which may be in a registry."""

    type_name: ClassVar[str]  # what has the name by which a registry may have the schema
    name_advice: ClassVar[str]  # the option with this name

    @abstractmethod
    def schema_name(self, payload: SidePayload) -> str:
        """Return the name in a given schema, or nothing; an OptionError if the schema is not valid."""

    def check_registrable(self, payload: SidePayload) -> None:
        """Raise an OptionError if a registry does not take a given schema that is valid."""

    @abstractmethod
    def check_registered(self, resolved: ResolvedSchema, source: str, message: str | None) -> None:
        """Raise a SchemaError if a schema of a registry is not one of the format, or lacks the message."""


class DerivedSchemaFormat(SchemaFormat):
    """A format whose schema follows from the type of a column that is written without one."""

    @abstractmethod
    def derived_schema(self, data_type: pa.DataType, side: str) -> str:
        """Return the schema of a type."""


def check_struct(payload: SidePayload, corrupt_record: str, data_type: pa.DataType) -> None:
    """Raise an error unless a type is a struct, whose field ``corrupt_record`` is binary if it has one."""
    import pyarrow as pa

    if not pa.types.is_struct(data_type):
        raise UnexpectedTypeError
    index = data_type.get_field_index(corrupt_record)
    if index >= 0 and data_type.field(index).type != pa.binary():
        raise OptionError(
            f"schema: with {payload.side}Format={payload.format}, the field {corrupt_record!r} for malformed data is "
            "binary."
        )


def payload_format(name: str) -> PayloadFormat:
    """Return a format; each name that is none of ours is a decoder of the user."""
    module = import_module(f"pyspark_kafka_direct.payloads.{_MODULES.get(name, _USER_MODULE)}")
    return cast("PayloadFormat", module.FORMAT)


def writable_format(name: str) -> WritableFormat:
    """Return a format that is also written."""
    found = payload_format(name)
    assert isinstance(found, WritableFormat), name
    return found


def schema_format(name: str) -> SchemaFormat:
    """Return a format with schemas."""
    found = payload_format(name)
    assert isinstance(found, SchemaFormat), name
    return found
