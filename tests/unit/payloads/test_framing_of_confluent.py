"""Values that Confluent's serializers wrote, with the ids of a registry in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, wrappers_pb2

from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.framing import HEADER_NAMES, ConfluentFraming, split_ids, split_message_indexes
from pyspark_kafka_direct.payloads.registry.registry_client import RegistryClient

if TYPE_CHECKING:
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.payloads.writer_schemas import FramedValues

AVRO = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "long"}]}'
DATA = b"\x54"  # 42 as an Avro long
JSON_SCHEMA = '{"title": "A", "type": "object", "properties": {"a": {"type": "integer"}}}'


def client_of_confluent(registry: FakeRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def value_context(headers: list[tuple[str, bytes]] | None = None) -> SerializationContext:
    return SerializationContext("t", MessageField.VALUE, headers)


def id_of(found: FramedValues) -> Any:
    """Return the id of a single value."""
    (schema_id,) = found.schema_ids
    assert found.malformed is None
    return schema_id


def data_of(found: FramedValues) -> bytes:
    """Return the data of a single value."""
    start = 0 if found.starts is None else found.starts[0].as_py()
    data: bytes = found.values[0].as_py()[start:]
    return data


def client_of(registry: FakeRegistry) -> RegistryClient:
    return RegistryClient(RegistrySettings((registry.url,)))


def test_avro_with_an_id(registry: FakeRegistry) -> None:
    value = AvroSerializer(client_of_confluent(registry), AVRO)({"a": 42}, value_context())
    assert data_of(split_ids(pa.array([value]))) == DATA
    schema = client_of(registry).schema_by_id(id_of(split_ids(pa.array([value]))))
    assert '"a"' in schema.text
    assert schema.schema_type == "AVRO"


def test_avro_with_a_guid_in_a_header(registry: FakeRegistry) -> None:
    headers: list[tuple[str, bytes]] = []
    settings = {"schema.id.serializer": header_schema_id_serializer}
    value = AvroSerializer(client_of_confluent(registry), AVRO, conf=settings)({"a": 42}, value_context(headers))
    rows = [[{"key": key, "value": header} for key, header in headers]]
    found = ConfluentFraming(HEADER_NAMES["value"]).split(
        pa.array([value]), pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    )
    assert data_of(found) == value == DATA
    assert id_of(found) == str(registry.guid_of(1))


def test_json_schema(registry: FakeRegistry) -> None:
    value = JSONSerializer(JSON_SCHEMA, client_of_confluent(registry))({"a": 42}, value_context())
    found = split_ids(pa.array([value]))
    assert client_of(registry).schema_by_id(id_of(found)).schema_type == "JSON"
    assert json.loads(data_of(found)) == {"a": 42}


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        (wrappers_pb2.Int64Value(value=42), (2,)),
        (wrappers_pb2.DoubleValue(value=1), (0,)),
        (descriptor_pb2.DescriptorProto.ExtensionRange(start=42), (2, 0)),
    ],
)
def test_protobuf_with_message_indexes(registry: FakeRegistry, message: Any, indexes: tuple[int, ...]) -> None:
    settings = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(type(message), client_of_confluent(registry), conf=settings)
    value = serializer(message, value_context())
    found = split_message_indexes(split_ids(pa.array([value])))
    ((schema_id, found_indexes),) = found.messages
    assert found_indexes == indexes
    assert type(message).FromString(value[found.starts[0].as_py() :]) == message
    assert isinstance(schema_id, int)
    assert client_of(registry).schema_by_id(schema_id).schema_type == "PROTOBUF"
