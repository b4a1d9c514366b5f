"""Records that cannot be decoded because of their schemas: what columns, errors and log lines say of them."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import pickle
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.payloads.avro_data import encode

from pyspark_kafka_direct.errors import MalformedPayloadError, PayloadSchemaError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads import whole_column
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE
from pyspark_kafka_direct.payloads.avro import avro_column
from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings, GivenSchema, NoFraming
from pyspark_kafka_direct.payloads.avro.avro_values import AvroDecoder
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.decoded_values import MalformedValues
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.payloads.protobuf import protobuf_column
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder
from pyspark_kafka_direct.payloads.schema_errors import SchemaErrors
from pyspark_kafka_direct.payloads.whole_column import decode_all
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.options.payload_settings import MalformedMode

ONE, TWO, THREE = (TopicPartition("orders", partition) for partition in range(3))
PROTO = 'syntax = "proto3"; package shop; message Order { int32 id = 1; message Item { int32 count = 1; } }'
MODES = ("PERMISSIVE", "DROPMALFORMED")


def record(**fields: Any) -> dict[str, Any]:
    members = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Order", "fields": members}


READER = record(id="long", name="string")
ROW = pa.struct({"id": pa.int64(), "name": pa.string()})


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


class Topic:
    """Decodes keys and values whose schemas are in a registry."""

    def __init__(self, registry: FakeRegistry, payload_format: str = "avro") -> None:
        access = RegistrySettings((registry.url,), api_timeout_ms=120_000)
        is_avro = payload_format == "avro"
        self.row = ROW if is_avro else pa.struct({"id": pa.int32()})
        key = SidePayload(
            "key",
            payload_format,
            json.dumps(READER) if is_avro else PROTO,
            None if is_avro else "shop.Order",
            "confluent",
            source="version 1 of orders-value, schema id 1",
        )
        self.settings = PayloadSettings(key, replace(key, side="value"), registry=access)

    def decoder(self, mode: MalformedMode, *columns: str) -> PayloadDecoder:
        types = {"key": self.row, "value": self.row, "_error": ERROR_TYPE}
        schema = pa.schema([(name, types[name]) for name in columns])
        return PayloadDecoder(replace(self.settings, mode=mode), columns, schema)

    def errors(self, *values: bytes | None) -> list[dict[str, Any] | None]:
        decoder = self.decoder("PERMISSIVE", "value", "_error")
        return [
            error
            for decoded in decoder.decode([batch(decoder, value=values)], ONE)
            for error in decoded.column(1).to_pylist()
        ]

    def failure(self, *values: bytes, keys: list[bytes] | None = None) -> MalformedPayloadError:
        decoder = self.decoder("FAILFAST", *(["key"] if keys else []), "value")
        with pytest.raises(MalformedPayloadError) as caught:
            list(decoder.decode([batch(decoder, key=keys or [], value=values)], ONE))
        error = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(error, MalformedPayloadError)
        return error


def batch(decoder: PayloadDecoder, **columns: Any) -> pa.RecordBatch:
    arrays = {**columns, "offset": range(100, 100 + len(columns["value"]))}
    names = decoder.record_columns
    return pa.RecordBatch.from_pydict({name: list(arrays[name]) for name in names}, arrow_schema(names))


@pytest.fixture
def topic(registry: FakeRegistry) -> Topic:
    registry.add("orders-value", json.dumps(READER))
    return Topic(registry)


GOOD = framed(1, encode(READER, {"id": 5, "name": "x"}))
BARE = b"bare"


def test_each_way_in_which_a_schema_cannot_be_used_is_reported_as_one(topic: Topic, registry: FakeRegistry) -> None:
    lacking = registry.add("orders-value", json.dumps(record(id="long")))
    optional = registry.add("orders-value", json.dumps(record(id=["null", "long"], name="string")))
    protobuf = registry.add("p", PROTO, schemaType="PROTOBUF")
    invalid = registry.add("i", "{")
    references = [{"name": "Id", "subject": "missing", "version": 1}]
    incomplete = registry.add("r", json.dumps(record(id="Id")), references=references)
    encrypted = registry.add("e", json.dumps(READER), ruleSet={"domainRules": [{"name": "pii", "type": "ENCRYPT"}]})
    guid = b"\1" + bytes(16)
    nullable = record(id=["null", "long"], name="string")
    values = {
        framed(lacking, b"\2"): (
            lacking,
            f"the writer schema lacks a field that has no default. Schema id {lacking} does not fit the schema of the "
            "query (version 1 of orders-value, schema id 1): field name is missing and has no default. In the schema "
            "of the query, give the missing field a default, or do not read the field",
        ),
        framed(optional, encode(nullable, {"id": None, "name": "x"})): (
            optional,
            f"Schema id {optional} does not fit the schema of the query (version 1 of orders-value, schema id 1): "
            "field id: null cannot be read as long. In the schema of the query, use a type",
        ),
        framed(77, b""): (77, "Schema id 77 has to be in the registry of schema.registry.url"),
        guid + b"\2": (None, f"The schema 0{'0' * 7}-0000-0000-0000-{'0' * 12} has to be in the registry"),
        framed(protobuf, b""): (protobuf, f"schema id {protobuf} is a schema of PROTOBUF, not of Avro. Schema id"),
        framed(invalid, b""): (invalid, f"schema id {invalid} cannot be used: "),
        framed(incomplete, b""): (
            incomplete,
            f"Schema id {incomplete}: its reference 'Id' is missing. Subject 'missing', version 1: the registry ",
        ),
        framed(encrypted, b""): (encrypted, "has rules that encrypt"),
    }
    good, with_value, *errors, bare = topic.errors(
        GOOD, framed(optional, encode(nullable, {"id": 1, "name": "x"})), *values, BARE
    )
    assert good is with_value is None, "other values of the same batch and of the same schema are decoded"
    for error, (schema_id, message) in zip(errors, values.values(), strict=True):
        assert error is not None
        assert message in error.pop("message")
        expected = {"side": "value", "stage": "schema", "class": "PayloadSchemaError", "schema_id": schema_id}
        assert error == expected
    assert bare is not None
    assert (bare["stage"], bare["class"], bare["schema_id"]) == ("parse", "MalformedPayloadError", None)
    for value, (_, message) in values.items():
        failure = topic.failure(value)
        assert isinstance(failure, PayloadSchemaError)
        assert message in failure.message
        assert "mode=" not in failure.message


def test_messages_of_protobuf(registry: FakeRegistry) -> None:
    topic = Topic(registry, "protobuf")
    old = registry.add("orders-value", PROTO, schemaType="PROTOBUF")
    zigzag = registry.add("zigzag", PROTO.replace("int32 id", "sint32 id"), schemaType="PROTOBUF")
    avro = registry.add("avro", json.dumps(READER))
    values = {
        framed(old, b"\4\0\0\x08\1"): "set keyMessage or valueMessage to shop.Order.Item",
        framed(old, b"\2\6\x08\1"): f"schema id {old} has no message with the indexes [3]. Schema id {old} is not",
        framed(
            zigzag, b"\0\x08\1"
        ): f"field id of shop.Order is sint32, which cannot be read as the int32 of the schema"
        f" of the query. Schema id {zigzag} does not fit",
        framed(avro, b"\0"): f"schema id {avro} is a schema of AVRO, not of Protobuf. Schema id {avro} cannot",
        framed(77, b"\0"): "Schema id 77 has to be in the registry",
        framed(
            avro, b"\3\1"
        ): f"schema id {avro} is a schema of AVRO, not of Protobuf. Schema id {avro} cannot",  # no indexes
        framed(77, b""): "Schema id 77 has to be in the registry",
    }
    errors = topic.errors(framed(old, b"\0\x08\5"), *values, framed(old, b""), framed(old, b"\0\x08"))
    assert errors[0] is None
    ids = [old, old, zigzag, avro, 77, avro, 77]
    for error, schema_id, message in zip(errors[1:-2], ids, values.values(), strict=True):
        assert error is not None
        assert message in error["message"]
        assert (error["stage"], error["schema_id"]) == ("schema", schema_id)
    for error in errors[-2:]:  # no indexes, and half a message: the id was read
        assert error is not None
        assert (error["stage"], error["schema_id"]) == ("parse", old)
    for value in values:
        assert "mode=" not in topic.failure(value).message


@pytest.mark.parametrize("payload_format", ["avro", "protobuf"])
def test_errors_of_a_batch_that_is_decoded_in_parts(
    registry: FakeRegistry, payload_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_avro = payload_format == "avro"
    good_id = registry.add("g", json.dumps(READER) if is_avro else PROTO, schemaType=payload_format.upper())
    lacking = registry.add("l", json.dumps(record(id="long")))
    data = encode(READER, {"id": 5, "name": "x"}) if is_avro else b"\0\x08\5"
    guid = b"\1" + registry.guid_of(good_id).bytes
    values = [framed(good_id, data), BARE, guid + data, framed(lacking, b"\2"), None, framed(77, b""), guid + data[:-1]]
    topic = Topic(registry, payload_format)
    whole = topic.errors(*values * 3)
    assert [error is None for error in whole[:7]] == [True, False, True, False, True, False, False]
    monkeypatch.setattr(avro_column, "AvroDecoder", functools.partial(AvroDecoder, max_bytes=1))
    monkeypatch.setattr(protobuf_column, "ProtobufDecoder", functools.partial(ProtobufDecoder, max_bytes=1))
    assert topic.errors(*values * 3) == whole
    decoder = topic.decoder("DROPMALFORMED", "value")
    decoded = list(decoder.decode([batch(decoder, value=values * 3)], ONE))
    assert [each.num_rows for each in decoded] == [1] * 9
    assert decoder.take_malformed().total() + decoder.take_schema_errors().total() == 12
    limits = itertools.cycle([1 << 20, 1])  # of keys, which are decoded together, and of values
    for module, decoder_class in ((avro_column, AvroDecoder), (protobuf_column, ProtobufDecoder)):
        name = decoder_class.__name__
        monkeypatch.setattr(module, name, lambda *fields, new=decoder_class: new(*fields, next(limits)))
    decoder = topic.decoder("PERMISSIVE", "key", "value", "_error")
    good = [values[0]] * len(values)
    decoded = list(decoder.decode([batch(decoder, key=values * 3, value=good * 3)], ONE))
    assert [each.num_rows for each in decoded] == [1] * 21
    errors = [each.column("_error").to_pylist()[0] for each in decoded]
    assert errors == [error and {**error, "side": "key"} for error in whole]


def test_a_symbol_that_only_the_writer_has(registry: FakeRegistry) -> None:
    enum = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    reader = {**enum, "symbols": ["RED"]}
    topic = Topic(registry)
    settings = topic.settings.with_side(replace(topic.settings.value, schema=json.dumps(record(c=reader))))
    topic.settings, topic.row = settings, pa.struct({"c": pa.string()})
    new = registry.add("orders-value", json.dumps(record(c=enum)))
    red, blue = topic.errors(framed(new, b"\0"), framed(new, b"\2"))
    assert red is None
    assert blue is not None
    assert blue["stage"] == "schema"
    assert "field c: the enum has no symbol BLUE and no default" in blue["message"]


def test_each_part_of_a_schema_that_does_not_fit_is_named(registry: FakeRegistry, topic: Topic) -> None:
    lacking = registry.add("orders-value", json.dumps(record(other="int")))
    (error,) = topic.errors(framed(lacking, b"\2"))
    assert error is not None
    assert "field id, name is missing and has no default" in error["message"]
    enum = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    reader = record(c={**enum, "symbols": ["RED"]}, id="long")
    topic.settings = topic.settings.with_side(replace(topic.settings.value, schema=json.dumps(reader)))
    topic.row = pa.struct({"c": pa.string(), "id": pa.int64()})
    new = registry.add("orders-value", json.dumps(record(c=enum, id=["null", "long"])))
    fine, *errors = topic.errors(framed(new, b"\0\2\2"), framed(new, b"\2\2\2"), framed(new, b"\0\0"))
    assert fine is None
    for error in errors:
        assert error is not None
        assert error["stage"] == "schema"
        assert "field c: the enum has no symbol BLUE and no default" in error["message"]
        assert "field id: null cannot be read as long" in error["message"]
        assert "use a type as which the field can be read" in error["message"]
        assert "add the symbol or a default to the enum" in error["message"]


def test_only_datums_that_their_own_schema_makes_malformed_have_its_advice(
    registry: FakeRegistry, topic: Topic
) -> None:
    enum = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    reader = record(c={**enum, "symbols": ["RED"]}, id="long")
    topic.settings = topic.settings.with_side(replace(topic.settings.value, schema=json.dumps(reader)))
    topic.row = pa.struct({"c": pa.string(), "id": pa.int64()})
    of_enum = registry.add("orders-value", json.dumps(record(c=enum, id="long")))
    of_null = registry.add("orders-value", json.dumps(record(c={**enum, "symbols": ["RED"]}, id=["null", "long"])))
    errors = topic.errors(framed(of_enum, b"\2\2"), framed(of_null, b"\0\0"), framed(of_null, b"\2\2\2"))
    assert [error and error["stage"] for error in errors] == ["schema", "schema", "convert"]
    assert errors[2] is not None
    assert "does not fit" not in errors[2]["message"], "the datum has a symbol that no schema has"


def test_paths_of_parts_that_do_not_fit(registry: FakeRegistry, topic: Topic) -> None:
    inner = {**record(x="long"), "name": "Inner"}
    topic.settings = topic.settings.with_side(
        replace(topic.settings.value, schema=json.dumps(record(a=inner, b="Inner", id="long")))
    )
    topic.row = pa.struct({"a": pa.struct({"x": pa.int64()}), "b": pa.struct({"x": pa.int64()}), "id": pa.int64()})
    optional = {**record(x=["null", "long"]), "name": "Inner"}
    new = registry.add("orders-value", json.dumps(record(a=optional, b="Inner", id=["null", "long"])))
    (error,) = topic.errors(framed(new, b"\2\2\2\2\0"))
    assert error is not None
    paths = [part.partition(":")[0] for part in error["message"].split("field ")[1:4]]
    assert paths == ["a.x", "b.x", "id"]


def test_a_field_that_is_not_read_makes_no_schema_unusable(topic: Topic, registry: FakeRegistry) -> None:
    lacking = registry.add("orders-value", json.dumps(record(id="long")))
    topic.row = pa.struct({"id": pa.int64()})
    assert topic.errors(framed(lacking, b"\2"), GOOD) == [None, None]


@pytest.mark.parametrize("mode", MODES)
def test_the_log_has_one_line_for_each_schema_with_the_count(
    topic: Topic, registry: FakeRegistry, mode: MalformedMode, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = registry.add("orders-value", json.dumps(record(id="long")))
    decoder = topic.decoder(mode, "value")
    columns = [[framed(lacking, b"\2"), framed(77, b"")] * 3, [GOOD, framed(lacking, b"\4"), BARE, None]]
    for partition, values in ((ONE, columns[0]), (TWO, columns[1]), (TWO, columns[1])):
        list(decoder.decode([batch(decoder, value=values)], partition))
    with caplog.at_level(logging.WARNING):
        assert decoder.take_malformed() == {TWO: 2}
        assert decoder.take_schema_errors() == {ONE: 6, TWO: 2}
    lines = [each.getMessage() for each in caplog.records]
    effect = "were dropped (mode=DROPMALFORMED)" if mode == "DROPMALFORMED" else "were read as null (mode=PERMISSIVE)"
    assert len(lines) == 3
    assert lines[0].startswith(f"orders-1: 2 malformed records {effect}")
    for line, count, schema_id in zip(lines[1:], (5, 3), (lacking, 77), strict=True):
        assert line.startswith(f"orders, values: {count} values, which may be valid, {effect} because of their schema:")
        assert f"Schema id {schema_id} " in line
    caplog.clear()
    assert not decoder.take_malformed()
    assert not decoder.take_schema_errors()
    assert not caplog.records


def test_schema_errors_are_logged_although_a_column_shows_them(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    decoder = topic.decoder("PERMISSIVE", "value", "_error")
    list(decoder.decode([batch(decoder, value=[framed(77, b"\2"), BARE])], ONE))
    decoder.take_malformed()
    decoder.take_schema_errors()
    (line,) = [each.getMessage() for each in caplog.records]
    assert "1 values, which may be valid" in line


def test_records_with_many_unknown_ids_do_not_fill_the_log(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    decoder = topic.decoder("PERMISSIVE", "value")
    values = [framed(schema_id, b"") for schema_id in range(100, 150)] + [framed(100, b"")]
    list(decoder.decode([batch(decoder, value=values)], ONE))
    assert decoder.take_schema_errors() == {ONE: 51}
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 11
    assert lines[0].startswith("orders, values: 2 values")
    assert lines[-1].startswith("40 more values of other schemas were read as null")
    caplog.clear()
    values = [framed(schema_id, b"") for schema_id in range(1000, 2500)]
    list(decoder.decode([batch(decoder, value=values)], ONE))
    assert decoder.take_schema_errors() == {ONE: 1500}
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 11
    assert lines[-1].startswith("1490 more values of other schemas were read as null")
    caplog.clear()
    decoder.take_schema_errors()
    assert caplog.messages == []
    list(decoder.decode([batch(decoder, value=[framed(9999, b"")])], ONE))
    decoder.take_schema_errors()
    (line,) = caplog.messages
    assert line.startswith("orders, values: 1 values"), "schemas of earlier tasks do not count"


def test_a_record_whose_key_and_value_are_malformed(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    decoder = topic.decoder("PERMISSIVE", "key", "value", "_error")
    pairs = [(BARE, framed(77, b"")), (framed(78, b""), BARE), (BARE, BARE), (framed(78, b""), framed(77, b""))]
    keys, values = zip(*pairs, strict=True)
    (decoded,) = decoder.decode([batch(decoder, key=keys, value=values)], ONE)
    errors = [(error["side"], error["stage"], error["schema_id"]) for error in decoded.column("_error").to_pylist()]
    assert errors == [("value", "schema", 77), ("key", "schema", 78), ("key", "parse", None), ("key", "schema", 78)]
    assert decoder.take_malformed() == {ONE: 1}
    assert decoder.take_schema_errors() == {ONE: 3}
    lines = [each.getMessage() for each in caplog.records]
    assert [line.split(",")[1].split(":")[0] for line in lines] == [" keys", " values"]
    list(decoder.decode([batch(decoder, key=[BARE], value=[framed(77, b"")])], ONE))
    assert not decoder.take_malformed()
    assert decoder.take_schema_errors() == {ONE: 1}
    for number in (0, 1, 3):
        error = topic.failure(values[number], keys=[keys[number]])
        assert isinstance(error, PayloadSchemaError)
        assert "mode=" not in error.message


def test_no_mode_is_advised_that_would_discard_records_behind_the_first_malformed_one(topic: Topic) -> None:
    error = topic.failure(GOOD, BARE, GOOD, framed(77, b""))
    assert not isinstance(error, PayloadSchemaError)
    assert error.offset == 101
    assert "Records behind it have a value whose schema cannot be used: Schema id 77: " in error.message
    assert "mode=" not in error.message
    error = topic.failure(GOOD, framed(77, b""), keys=[BARE, GOOD])
    assert error.message.startswith("The key cannot be decoded as Avro: ")
    assert "Records behind it have a value whose schema cannot be used: Schema id 77: " in error.message


def test_a_topic_without_ids(topic: Topic) -> None:
    """One value without an id may be malformed. If no value has one, the options are wrong."""
    assert "set valueFraming=none. Otherwise, set mode=PERMISSIVE" in topic.failure(GOOD, BARE).message
    message = topic.failure(b"a", b"b", b"c").message
    assert "set valueFraming=none. None of" in message
    assert message.endswith(
        "None of 3 values can be decoded, so check whether valueFormat, valueSchema and valueFraming fit the topic."
    )


@pytest.mark.parametrize(
    ("payload_format", "datum"), [("json", b'{"id": 1, "name": "x"}'), ("avro", encode(READER, {"id": 5, "name": "x"}))]
)
def test_a_topic_with_ids_that_the_options_do_not_mention(payload_format: str, datum: bytes) -> None:
    settings = PayloadSettings(value=SidePayload("value", payload_format, schema=json.dumps(READER)), mode="FAILFAST")
    decoder = PayloadDecoder(settings, ("value",), pa.schema({"value": ROW}))
    for values, follows in (
        ([framed(7, datum)], "Otherwise, set mode=PERMISSIVE"),
        ([framed(7, datum)] * 2, "None of 2 values can be decoded"),
        ([datum, framed(7, datum)], "Otherwise, set mode=PERMISSIVE"),
        ([None, framed(7, datum), None], "Otherwise, set mode=PERMISSIVE"),
    ):
        with pytest.raises(MalformedPayloadError) as caught:
            list(decoder.decode([batch(decoder, value=values)], ONE))
        hint = "If the first bytes are a schema id, set valueFraming=confluent."
        assert f"{hint} {follows}" in caught.value.message


def test_a_topic_with_another_format(caplog: pytest.LogCaptureFixture) -> None:
    settings = PayloadSettings(value=SidePayload("value", "json"))
    schema = pa.schema({"value": pa.struct({"id": pa.int64()})})
    failing = PayloadDecoder(replace(settings, mode="FAILFAST"), ("value",), schema)
    with pytest.raises(MalformedPayloadError, match=r"None of 2 values can be decoded, so check") as caught:
        list(failing.decode([batch(failing, value=[b"\2a", None, b"\2b"])], ONE))
    assert "mode=" not in caught.value.message
    with pytest.raises(MalformedPayloadError, match=r"Set mode=PERMISSIVE .* mode=DROPMALFORMED"):
        list(failing.decode([batch(failing, value=[b"\2a", None, b"{}"])], ONE))
    decoder = PayloadDecoder(settings, ("value",), schema)
    for batches in ([[b"\2a", b"\2b"]], [[b"{}"]], [[b"\2a", b"\2b", b"\2c"], [b"\2d"]]):  # of three tasks
        caplog.clear()
        list(decoder.decode([batch(decoder, value=values) for values in batches], ONE))
        decoder.take_malformed()
        are_all = b"{}" not in batches[0]
        assert ("(all that were read: check whether the format fits the topic)" in caplog.text) == are_all


def test_the_options_of_values_are_named_if_keys_have_another_format() -> None:
    sides = SidePayload("key", "json"), SidePayload("value", "string", charset="UTF-8")
    schema = pa.schema({"key": pa.struct({"id": pa.int64()}), "value": pa.string()})
    good = {"key": b'{"id": 1}', "value": b"x"}
    for side, names in (("key", "keyFormat, keySchema and keyFraming"), ("value", "valueFormat and valueCharset")):
        decoder = PayloadDecoder(PayloadSettings(*sides, mode="FAILFAST"), ("key", "value"), schema)
        columns = {name: [b"\xff" if name == side else value] * 2 for name, value in good.items()}
        with pytest.raises(MalformedPayloadError, match=f"None of 2 values .* whether {names} fit the topic"):
            list(decoder.decode([batch(decoder, **columns)], ONE))


def test_malformed_records_of_each_partition_are_logged_unless_each_column_shows_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = PayloadSettings(SidePayload("key", "json"), SidePayload("value", "json"))
    shows, hides = pa.struct({"id": pa.int64(), "_corrupt_record": pa.string()}), pa.struct({"id": pa.int64()})
    for value, lines in ((hides, ["orders-0: 1", "orders-1: 1"]), (shows, [])):
        decoder = PayloadDecoder(settings, ("key", "value"), pa.schema({"key": shows, "value": value}))
        for partition in (ONE, TWO):
            list(decoder.decode([batch(decoder, key=[b"{", b"{}"], value=[b"{}", b"{}"])], partition))
        caplog.clear()
        decoder.take_malformed()
        assert [each.getMessage()[:11] for each in caplog.records] == lines


def test_only_a_partition_whose_records_are_all_malformed_may_have_another_format(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decoder = PayloadDecoder(
        PayloadSettings(value=SidePayload("value", "json")),
        ("value",),
        pa.schema({"value": pa.struct({"n": pa.int64()})}),
    )
    ends = {ONE: [b"{"] * 3, TWO: [b"{"] * 2, THREE: [b"{"]}
    for others in ([THREE], [ONE], [TWO, ONE], [ONE, TWO, THREE], []):  # partitions with a record that is not malformed
        for partition, malformed in ends.items():
            values = [b"{}", *malformed] if partition in others else malformed
            list(decoder.decode([batch(decoder, value=values)], partition))
        caplog.clear()
        assert decoder.take_malformed() == {partition: len(values) for partition, values in ends.items()}
        found = [each.partition(":")[0] for each in caplog.messages if "all that were read" in each]
        assert found == [
            str(partition) for partition in (ONE, TWO) if partition not in others
        ]  # one record shows little


def test_fingerprints(caplog: pytest.LogCaptureFixture) -> None:
    settings = PayloadSettings(
        value=SidePayload("value", "avro", schema=json.dumps(READER), framing="single-object"), mode="FAILFAST"
    )
    other = bytes.fromhex(
        fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(record(x="int")), "CRC-64-AVRO")
    )
    decoder = PayloadDecoder(settings, ("value",), pa.schema({"value": ROW}))
    with pytest.raises(PayloadSchemaError, match=rf"Values with the fingerprint {other[::-1].hex()} can") as caught:
        list(decoder.decode([batch(decoder, value=[b"\xc3\1" + other + b"\2"])], ONE))
    assert "mode=" not in caught.value.message


def test_values_of_a_function_whose_schemas_do_not_fit_each_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_column, "_SCHEMA_ERRORS", SchemaErrors())
    writer, reader = (parse_avro_schema(json.dumps(each)) for each in (record(id="long"), READER))
    column = AvroColumn(ROW, AvroSettings(reader, NoFraming(), GivenSchema(writer)))
    values = pa.array([b"\2", b"\4"])
    with pytest.raises(
        PayloadSchemaError, match=r"The schema of the writer does not fit .*: field name is miss"
    ) as caught:
        decode_all(column, values, "Avro", failing=True)
    assert "mode=" not in caught.value.message
    assert decode_all(column, values, "Avro", failing=False).to_pylist() == [{"id": None, "name": None}] * 2
    for _ in range(7):
        decode_all(column, values, "Avro", failing=False)
    lines = [each.getMessage() for each in caplog.records]
    counts = [2, 4, 8, 16]  # a line for twice as many, because a function does not see where a task ends
    assert [line.split(" values,")[0] for line in lines] == [f"Avro values of a column: {count}" for count in counts]


def test_names_of_a_schema_do_not_break_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    errors = SchemaErrors()
    reason = pa.array(["field a\nb"]).dictionary_encode()
    errors.add("t, values", MalformedValues(reason, pa.array([0], pa.int32()), None, pa.array(["change\rit"])))
    errors.log("were dropped")
    (line,) = [each.getMessage() for each in caplog.records]
    assert "field a\\nb. change\\rit" in line


def test_the_growth_of_each_schema_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    errors = SchemaErrors()
    reasons = pa.array(["field a", "field b"]).dictionary_encode()
    errors.add("t", MalformedValues(reasons, pa.array([0, 0], pa.int32()), None, pa.array(["change a", "change b"])))
    errors.log_growth("were dropped")
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 2
    assert {line.rpartition(". ")[2] for line in lines} == {"change a.", "change b."}


class Broken:
    """A decoder with a value that is malformed, and others whose schema is at fault."""

    def __init__(self, faults: list[str]) -> None:
        self.malformed = MalformedValues(
            pa.array([None if fault == "good" else "reason" for fault in faults], pa.string()).dictionary_encode(),
            pa.array([None if fault == "good" else 3 for fault in faults], pa.int32()),
            None,
            pa.array(["advice" if fault == "schema" else None for fault in faults], pa.string()),
        )

    def decode(self, values: pa.BinaryArray) -> Any:
        from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

        return DecodedValues(pa.nulls(len(values), pa.int32()), self.malformed)


@given(st.lists(st.sampled_from(["good", "bytes", "schema"]), min_size=1, max_size=6))
def test_a_mode_is_never_advised_beside_a_schema_error(faults: list[str]) -> None:
    malformed = [fault for fault in faults if fault != "good"]
    if not malformed:
        return
    with pytest.raises(MalformedPayloadError) as caught:
        decode_all(Broken(faults), pa.array([b"x"] * len(faults)), "Avro", failing=True)
    assert isinstance(caught.value, PayloadSchemaError) == (malformed[0] == "schema")
    is_one_format = len(malformed) == len(faults) > 1
    assert ("mode=" in caught.value.message) == ("schema" not in malformed and not is_one_format)


def test_all_combinations_of_two_sides_have_an_error(topic: Topic) -> None:
    decoder = topic.decoder("PERMISSIVE", "key", "value", "_error")
    pairs = list(itertools.product([GOOD, BARE, framed(77, b""), None], repeat=2))
    keys, values = zip(*pairs, strict=True)
    (decoded,) = decoder.decode([batch(decoder, key=keys, value=values)], ONE)
    for pair, error in zip(pairs, decoded.column("_error").to_pylist(), strict=True):
        wrong = [side for side, each in zip(("key", "value"), pair, strict=True) if each not in (GOOD, None)]
        at_fault = [side for side, each in zip(("key", "value"), pair, strict=True) if each == framed(77, b"")]
        assert (error and error["side"]) == next(iter(at_fault or wrong), None)
    assert decoder.take_schema_errors().total() + decoder.take_malformed().total() == 12
