"""Values with the id of a schema that the query has, so that no registry is needed."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from pyspark_kafka_direct.errors import MalformedPayloadError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE
from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import MalformedMode
    from pyspark_kafka_direct.options.registry_settings import FramingName

AVRO = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'
PROTO = 'syntax = "proto3"; message Other { int32 n = 1; } message R { int32 n = 1; message Inner { int32 n = 1; } }'
GUID = "1f3c2a00-1111-2222-3333-00000000000a"
ID_7, ID_8 = b"\0\0\0\0\7", b"\0\0\0\0\x08"
GUID_BYTES = b"\1" + bytes.fromhex(GUID.replace("-", ""))
FIVE = b"\x0a"  # in Avro
OTHER = "the schema id of the value is {}, and that of the query is {}"


def decode(
    settings: PayloadSettings, values: list[bytes | None], headers: list[bytes | None] | None = None
) -> list[tuple[int | None, str | None, int | None]]:
    """Return the field, the message of the error without what to change, and its schema id of each value."""
    schema = pa.schema([("value", pa.struct({"n": pa.int32()})), ("_error", ERROR_TYPE)])
    decoder = pickle.loads(pickle.dumps(DecodedColumns(settings, ("value", "_error"), schema))).decoder()
    rows: list[dict[str, Any]] = [
        {"value": value, "headers": [] if header is None else [{"key": "__value_schema_id", "value": header}]}
        for value, header in zip(values, headers or [None] * len(values), strict=True)
    ]
    names = decoder.record_columns
    batch = pa.RecordBatch.from_pylist([{name: row[name] for name in names} for row in rows], arrow_schema(names))
    found = []
    for decoded in decoder.decode([batch], TopicPartition("t", 0)):
        for row in decoded.to_pylist():
            error = row["_error"] or {"message": None, "schema_id": None}
            message = error["message"] and error["message"].partition(". ")[0]
            found.append((row["value"] and row["value"]["n"], message, error["schema_id"]))
    return found


def avro(
    schema_id: int | str, mode: MalformedMode = "PERMISSIVE", framing: FramingName = "confluent"
) -> PayloadSettings:
    return PayloadSettings(value=SidePayload("value", "avro", AVRO, framing=framing, schema_id=schema_id), mode=mode)


def protobuf(schema: str, message: str | None, schema_id: int | str = 7) -> PayloadSettings:
    return PayloadSettings(value=SidePayload("value", "protobuf", schema, message, "confluent", schema_id))


def test_avro_behind_an_id() -> None:
    values = [ID_7 + FIVE, ID_8 + FIVE, None, FIVE, GUID_BYTES + FIVE, ID_7 + FIVE + b"x", ID_7[:3]]
    assert decode(avro(7), values) == [
        (5, None, None),
        (None, OTHER.format(8, 7), 8),
        (None, None, None),
        (None, "the value does not begin with the magic byte of a schema id (0 or 1), at byte 0", None),
        (None, OTHER.format(GUID, 7), None),
        (None, "bytes after the end of the datum, at byte 6", 7),
        (None, "the value ends within its schema id, at byte 3", None),
    ]
    assert decode(avro(GUID), [GUID_BYTES + FIVE, ID_7 + FIVE]) == [
        (5, None, None),
        (None, OTHER.format(7, GUID), 7),
    ]


def test_avro_with_an_id_in_a_header() -> None:
    values: list[bytes | None] = [FIVE, ID_7 + FIVE, FIVE, FIVE]
    headers = [ID_7, None, ID_8, GUID_BYTES]
    decoded = decode(avro(7, framing="header"), values, headers)
    assert [number for number, _, _ in decoded] == [5, 5, None, None]
    decoded = decode(avro(GUID, framing="header"), values, headers)
    assert [number for number, _, _ in decoded] == [None, None, None, 5]


@pytest.mark.parametrize("text", [True, False])
def test_protobuf_behind_an_id_and_message_indexes(text: bool) -> None:
    values = [
        ID_7 + b"\2\2" + b"\x08\5",  # the index [1]
        ID_7 + b"\0" + b"\x08\5",  # the index [0]
        ID_7 + b"\4\2\0" + b"\x08\5",  # the indexes [1, 0]
        ID_7 + b"\2\x0a" + b"\x08\5",  # the index [5]
        ID_8 + b"\2\2" + b"\x08\5",
        b"\x08\5",
        None,
    ]
    schema = PROTO if text else descriptors()
    assert decode(protobuf(schema, "R"), values) == [
        (5, None, None),
        (None, "the value is a message Other, not R", 7),
        (None, "the value is a message R.Inner, not R", 7),
        (None, "schema id 7 has no message with the indexes [5]", 7),
        (None, OTHER.format(8, 7), 8),
        (None, "the value does not begin with the magic byte of a schema id (0 or 1), at byte 0", None),
        (None, None, None),
    ]
    assert decode(protobuf(schema, None), values[:2]) == [
        (None, "the value is a message R, not Other", 7),
        (5, None, None),
    ]


def descriptors() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", syntax="proto3")
    for owner in (file.message_type.add(name="Other"), file.message_type.add(name="R")):
        owner.field.add(name="n", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    inner = file.message_type[1].nested_type.add(name="Inner")
    inner.field.add(name="n", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()


def test_another_id_fails_or_drops_as_the_mode_says() -> None:
    schema = pa.schema([("value", pa.struct({"n": pa.int32()})), ("offset", pa.int64())])
    rows = [{"value": ID_7 + FIVE, "offset": 3}, {"value": ID_8 + FIVE, "offset": 4}]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(["value", "offset"]))
    dropping = DecodedColumns(avro(7, "DROPMALFORMED"), ("value", "offset"), schema).decoder()
    assert [row["offset"] for each in dropping.decode([batch], TopicPartition("t", 0)) for row in each.to_pylist()] == [
        3
    ]
    failing = DecodedColumns(avro(7, "FAILFAST"), ("value", "offset"), schema).decoder()
    with pytest.raises(MalformedPayloadError, match=OTHER.format(8, 7)) as caught:
        list(failing.decode([batch], TopicPartition("t", 0)))
    assert caught.value.offset == 4
