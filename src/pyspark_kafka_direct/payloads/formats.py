"""The formats of keys and values by name. A task imports only those that it uses."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from pyspark_kafka_direct.payloads.payload_format import PayloadFormat, SchemaFormat, WritableFormat

_MODULES: Final = {
    "string": "string_format",
    "json": "json.json_format",
    "avro": "avro.avro_format",
    "protobuf": "protobuf.protobuf_format",
}
_USER_MODULE: Final = "user_decoder"


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
