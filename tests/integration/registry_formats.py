"""Confluent's serializers and deserializers of three formats, and versions of a schema, for tests with a registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.unit.payloads.protobuf_data import message_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.schema_registry import SchemaRegistryClient
    from tests.integration.read_back import Consumed


@dataclass(frozen=True)
class Format:
    """A format, and schemas of orders.

    Attributes:
        name: The name of ``valueFormat``.
        first: A schema with ``id`` and ``name``.
        second: It has ``price`` also, with a default in Avro. Readers with it can read values of the first one.
        third: It has ``note`` also, which may be null.
        incompatible: It has another type of ``id``, so its values cannot be read with the other schemas.
        incompatible_id: A value of this type.
    """

    name: str
    first: str
    second: str
    third: str
    incompatible: str
    incompatible_id: Any

    @property
    def framing(self) -> dict[str, str]:
        """The options that say that values have schema ids."""
        return {"valueFraming": "confluent"} if self.name == "json" else {}

    def serializer(
        self, client: SchemaRegistryClient, schema: str, **settings: object
    ) -> Callable[[dict[str, Any], SerializationContext], bytes]:
        """Return a function that returns the value of a record; by default, it registers the schema once."""
        conf = {name.replace("_", "."): value for name, value in settings.items()} or None
        serializer: Callable[[dict[str, Any], SerializationContext], bytes]
        if self.name == "avro":
            serializer = AvroSerializer(client, schema, conf=conf)
        elif self.name == "json":
            serializer = JSONSerializer(schema, client, conf=conf)
        else:
            message = _message_class(schema)
            of_messages: Any = ProtobufSerializer(message, client, conf=conf)
            return lambda order, context: of_messages(message(**order), context)
        return serializer

    def deserialize(self, client: SchemaRegistryClient, topic: str, schema: str, record: Consumed) -> dict[str, Any]:
        """Return the order in a record; ``schema`` is that of the reader with Protobuf."""
        headers = [(name, value or b"") for name, value in record.headers]
        context = SerializationContext(topic, MessageField.VALUE, headers)
        conf = {"schema.id.deserializer": dual_schema_id_deserializer}
        order: Any
        if self.name == "avro":
            order = AvroDeserializer(client, conf=conf)(record.value, context)
        elif self.name == "json":
            order = JSONDeserializer(None, schema_registry_client=client, conf=conf)(record.value, context)
        else:
            # No client: it would request descriptors, which Apicurio cannot make of all schemas (HTTP 500).
            found: Any = ProtobufDeserializer(_message_class(schema), conf)(record.value, context)
            order = {field.name: getattr(found, field.name) for field in found.DESCRIPTOR.fields}
        assert isinstance(order, dict)
        return order


@cache
def _message_class(schema: str) -> Any:
    return message_class(schema, "shop.Order")


def _record(**fields: Any) -> str:
    """Return an Avro schema; a type that is a dictionary is a field without its name."""
    described = [
        {"name": name, **(each if isinstance(each, dict) else {"type": each})} for name, each in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": described})


def _message(fields: str) -> str:
    return f'syntax = "proto3"; package shop; message Order {{ {fields} }}'


def _object(**properties: Any) -> str:
    """Return a JSON Schema without other properties; with them, a new one would be incompatible."""
    described = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps({"title": "Order", "type": "object", "properties": described, "additionalProperties": False})


_PRICE: Final = {"type": "double", "default": 9.5}
_NOTE: Final = {"type": ["null", "string"], "default": None}

FORMATS: Final = {
    "avro": Format(
        "avro",
        _record(id="long", name="string"),
        _record(id="long", name="string", price=_PRICE),
        _record(id="long", name="string", price=_PRICE, note=_NOTE),
        _record(id="string", name="string"),
        "x",
    ),
    "protobuf": Format(
        "protobuf",
        _message("int64 id = 1; string name = 2;"),
        _message("int64 id = 1; string name = 2; double price = 3;"),
        _message("int64 id = 1; string name = 2; double price = 3; optional string note = 4;"),
        _message("sint64 id = 1; string name = 2;"),
        3,
    ),
    "json": Format(
        "json",
        _object(id="integer", name="string"),
        _object(id="integer", name="string", price="number"),
        _object(id="integer", name="string", price="number", note=["string", "null"]),
        _object(id="string", name="string"),
        "x",
    ),
}
