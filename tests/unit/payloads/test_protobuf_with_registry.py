"""Protobuf values with Confluent's header, whose writers' schemas are in a registry."""

from __future__ import annotations

import pickle
import re
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import DecodeError
from tests.unit.payloads.protobuf_data import malformed, message_class

from pyspark_kafka_direct.errors import SchemaError, SchemaRegistryUnavailableError
from pyspark_kafka_direct.options.payload_settings import SidePayload
from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.latest_schemas import fetch_id, fetch_version
from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
from pyspark_kafka_direct.payloads.protobuf.registry_messages import WriterMessages
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, parse_protobuf_schema
from pyspark_kafka_direct.payloads.registry import single_flight_cache

if TYPE_CHECKING:
    from tests.fake_registry import FakeRegistry

OLD = 'syntax = "proto3"; package shop; message Order { int32 id = 1; message Item { int32 count = 1; } }'
NEW = OLD.replace("int32 id = 1;", "int64 id = 1; string name = 2;")
TYPE = pa.struct([("id", pa.int32())])

# Values that only types with the same range, or a larger one, can have.
EXTREMES: dict[str, tuple[Any, ...]] = {
    "bool": (True,),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(1 << 31), -1, 1, (1 << 31) - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (1, (1 << 32) - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(1 << 63), -1, 1, (1 << 63) - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (1, (1 << 64) - 1)),
    **dict.fromkeys(("float", "double"), (0.5, -1.0)),
    "string": ("é",),
    "bytes": (b"\xff",),
}


def settings_of(registry: FakeRegistry, api_timeout_ms: int = 120_000) -> RegistrySettings:
    return RegistrySettings((registry.url,), api_timeout_ms=api_timeout_ms)


def column(
    registry: FakeRegistry,
    text: str = OLD,
    data_type: pa.StructType = TYPE,
    *,
    api_timeout_ms: int = 120_000,
    **options: Any,
) -> ProtobufColumn:
    source, settings = ProtobufSource(text, "shop.Order"), settings_of(registry, api_timeout_ms)
    writers = pickle.loads(pickle.dumps(WriterMessages(settings, source, "version 1", **options)))
    return ProtobufColumn(data_type, source, writers=writers)


def framed(schema_id: int, indexes: bytes, data: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + indexes + data


def test_values_of_confluents_serializer(registry: FakeRegistry) -> None:
    cls = message_class(OLD, "shop.Order")
    serializer = ProtobufSerializer(cls, SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext("orders", MessageField.VALUE)
    values = [serializer(cls(id=number), context) for number in (7, 300)]
    decoded = column(registry).decode(pa.array([*values, None], pa.binary()))
    assert decoded.malformed is None
    assert decoded.values.to_pylist() == [{"id": 7}, {"id": 300}, None]
    found = fetch_version(settings_of(registry), "orders-value", SidePayload("value", "protobuf"))
    assert parse_protobuf_schema(found.text).message(None).name == "shop.Order"
    assert found.source.startswith("version 1 of orders-value, schema id ")


def test_several_schemas_and_messages(registry: FakeRegistry) -> None:
    old, new = (registry.add("orders-value", text, schemaType="PROTOBUF") for text in (OLD, NEW))
    zigzag = registry.add("zigzag", OLD.replace("int32 id", "sint32 id"), schemaType="PROTOBUF")
    avro = registry.add("avro", '"int"')
    guid = b"\1" + registry.guid_of(new).bytes + b"\0"
    values = [
        framed(old, b"\0", b"\x08\x01"),
        framed(new, b"\2\0", b"\x08\x02\x12\x01x"),
        guid + b"\x08\x03",
        framed(old, b"\4\0\0", b"\x08\x04"),  # an Item
        framed(old, b"\2\6", b"\x08\x05"),
        framed(old, b"\x18" + b"\4" * 12, b"\x08\x05"),
        framed(zigzag, b"\0", b"\x08\x06"),
        framed(avro, b"\0", b"\x08\x07"),
        framed(old, b"\0", b"\x08"),
        b"\x08\x08",
        framed(old, b"", b""),
        framed(old, b"", b"\x08\x05"),  # a message, but no indexes
    ]
    decoded = column(registry).decode(pa.array(values, pa.binary()))
    assert decoded.values.field("id").to_pylist() == [1, 2, 3, *[None] * 9]
    assert malformed(decoded) == [
        None,
        None,
        None,
        ("the value is a message shop.Order.Item, not shop.Order", 0),
        (f"schema id {old} has no message with the indexes [3]", 0),
        (f"schema id {old} has no message with the indexes [{'2, ' * 10}...]", 0),
        (
            f"schema id {zigzag}: field id of shop.Order is sint32, which cannot be read as the int32 of the schema of "
            "the query",
            0,
        ),
        (f"schema id {avro} is a schema of AVRO, not of Protobuf", 0),
        ("the message is incomplete", 6),
        ("the value does not begin with the magic byte of a schema id (0 or 1)", 0),
        *[("the value has no valid message indexes behind its schema id", 5)] * 2,
    ]
    assert decoded.malformed is not None
    assert decoded.malformed.schema_ids is not None
    assert decoded.malformed.schema_ids.to_pylist()[3:9] == [old, old, old, zigzag, avro, old]


def test_references_are_imports(registry: FakeRegistry) -> None:
    for name in ("First", "Other"):
        registry.add(name, f'syntax = "proto3"; message {name} {{ int32 x = 1; }}', schemaType="PROTOBUF")
    references = [{"name": f"{name}.proto", "subject": name, "version": 1} for name in ("First", "Other")]
    text = (
        'syntax = "proto3"; import "First.proto"; import "Other.proto"; message M { Other other = 1; First first = 2; }'
    )
    schema_id = registry.add("m-value", text, schemaType="PROTOBUF", references=references)
    found = fetch_id(settings_of(registry), schema_id, "the plan", SidePayload("value", "protobuf", message="M"))
    fields = parse_protobuf_schema(found.text, found.references).message("M").fields
    assert [field.type_name for field in fields] == ["Other", "First"]
    wanted = pa.struct({name: pa.struct({"x": pa.int32()}) for name in ("other", "first")})
    files = {f"{name}.proto": f'syntax = "proto3"; message {name} {{ int32 x = 1; }}' for name in ("First", "Other")}
    for changed in files:  # a number of either file would be read as another one
        source = ProtobufSource(text, "M", tuple({**files, changed: files[changed].replace("int32", "sint32")}.items()))
        decoder = ProtobufColumn(wanted, source, writers=WriterMessages(settings_of(registry), source))
        (problem,) = malformed(decoder.decode(pa.array([framed(schema_id, b"\0", b"")])))
        assert problem is not None
        assert f"field x of {changed.removesuffix('.proto')} is int32, which cannot be read as the sint32" in problem[0]
    with pytest.raises(SchemaError, match="cannot be used: the schema has no message type N; it has M"):
        fetch_version(settings_of(registry), "m-value", SidePayload("value", "protobuf", message="N"))


def test_a_writer_with_new_fields_may_fail_the_query(registry: FakeRegistry) -> None:
    new = registry.add("orders-value", NEW, schemaType="PROTOBUF")
    value = pa.array([framed(new, b"\0", b"\x08\x01")], pa.binary())
    assert column(registry).decode(value).malformed is None
    with pytest.raises(
        SchemaError, match=r"has fields that the schema of the query \(version 1\) lacks: name\. To read"
    ):
        column(registry, fails_at_new_fields=True).decode(value)


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ("E v = 2; enum E { A = 0; B = 1; C = 2; }", "E v = 2; enum E { A = 0; B = 1; }", r"v \(symbol C\)"),
        ("repeated E v = 2; enum E { A = 0; C = 2; }", "repeated E v = 2; enum E { A = 0; }", r"v \(symbol C\)"),
        (
            "map<int32, E> v = 2; enum E { A = 0; C = 2; }",
            "map<int32, E> v = 2; enum E { A = 0; }",
            r"v\.value \(symbol C\)",
        ),
        (
            "oneof o { I v = 2; } message I { E e = 1; } enum E { A = 0; C = 2; }",
            "oneof o { I v = 2; } message I { E e = 1; } enum E { A = 0; }",
            r"v\.e \(symbol C\)",
        ),
        ("E v = 2; enum E { A = 0; }", "E v = 2; enum E { A = 0; B = 1; }", None),
        ("E v = 2; enum E { OTHER = 0; }", "E v = 2; enum E { A = 0; }", None),
        ("int64 v = 2;", "int32 v = 2;", r"v \(int64 instead of int32\)"),
        ("int32 v = 2;", "int64 v = 2;", None),
        ("int32 v = 2;", "uint32 v = 2;", r"v \(int32 instead of uint32\)"),
        ("double v = 2;", "float v = 2;", r"v \(double instead of float\)"),
        ("float v = 2;", "double v = 2;", r"v \(float instead of double\)"),
        ("bytes v = 2;", "string v = 2;", r"v \(bytes instead of string\)"),
        ("string v = 2;", "bytes v = 2;", None),
        ("int32 v = 2;", "string v = 2;", r"v \(int32 instead of string\)"),
        ("repeated int32 v = 2;", "int32 v = 2;", r"v \(repeated\)"),
        ("repeated int32 v = 2;", "int64 v = 2;", r"v \(repeated\)"),
        (
            "repeated int32 v = 2; repeated bool e = 3;",
            "int32 v = 2; int64 e = 3;",
            r"v \(repeated\), e \(repeated\)",
        ),
        ("bool v = 2;", "uint64 v = 2;", None),
        ("uint32 v = 2;", "uint64 v = 2;", None),
        ("E v = 2; enum E { A = 0; }", "int64 v = 2;", None),
        ("int32 v = 2;", "repeated int32 v = 2;", None),
    ],
)
def test_a_writer_with_new_values_may_fail_the_query(
    registry: FakeRegistry, syntax: str, writer: str, reader: str, expected: str | None
) -> None:
    def text(fields: str) -> str:
        if syntax == "proto2":
            fields = re.sub(r"(^|\{ )(?=\w+ [ve] = )(?!message|repeated)", r"\1optional ", fields)
            fields = fields.replace("oneof o { optional I", "oneof o { I")
        return f'syntax = "{syntax}"; package shop; message Order {{ {fields} }}'

    schema_id = registry.add("orders-value", text(writer), schemaType="PROTOBUF")
    value = pa.array([framed(schema_id, b"\0", b"")], pa.binary())
    assert column(registry, text(reader)).decode(value).malformed is None
    decoder = column(registry, text(reader), fails_at_new_fields=True)
    if expected is None:
        assert decoder.decode(value).malformed is None
    else:
        with pytest.raises(SchemaError, match=rf"values that .*\(version 1\) lacks: {expected}\. To read"):
            decoder.decode(value)


def test_a_type_that_reads_each_value_of_another_one_has_no_new_values(registry: FakeRegistry) -> None:
    def text(kind: str) -> str:
        return f'syntax = "proto3"; package shop; message Order {{ {kind} v = 2; }}'

    classes = {kind: message_class(text(kind), "shop.Order") for kind in EXTREMES}
    for written, values in EXTREMES.items():
        messages = [classes[written](v=value).SerializeToString() for value in values]
        schema_id = registry.add("orders-value", text(written), schemaType="PROTOBUF")
        for read in EXTREMES:
            try:
                found = [classes[read].FromString(data).v for data in messages]
            except DecodeError:  # a string that is not UTF-8
                found = []
            # A value of another wire type is an unknown field, so it is missing. A string is its own bytes.
            is_same = [value.encode() if isinstance(value, str) else value for value in found] == [
                value.encode() if isinstance(value, str) else value for value in values
            ]
            decoder = column(registry, text(read), fails_at_new_fields=True)
            value = pa.array([framed(schema_id, b"\0", b"")], pa.binary())
            if is_same:
                assert decoder.decode(value).malformed is None, (written, read)
            else:
                with pytest.raises(SchemaError, match=rf"v \({written} instead of {read}\)"):
                    decoder.decode(value)


@pytest.mark.parametrize(
    ("written", "read"), [("sint32", "int32"), ("int64", "sint32"), ("float", "sfixed32"), ("fixed32", "float")]
)
def test_a_wanted_field_with_new_values_may_fail_the_query(registry: FakeRegistry, written: str, read: str) -> None:
    """Records that would be misread are malformed, but in this mode no record is read as null."""
    schema_id = registry.add("orders-value", OLD.replace("int32 id", f"{written} id"), schemaType="PROTOBUF")
    value = pa.array([framed(schema_id, b"\0", b"")], pa.binary())
    text = OLD.replace("int32 id", f"{read} id")
    data_type = pa.struct([("id", pa.float32() if read == "float" else pa.int32())])
    assert "cannot be read as" in str(malformed(column(registry, text, data_type).decode(value)))
    with pytest.raises(SchemaError, match=rf"lacks: id \({written} instead of {read}\)\. To read"):
        column(registry, text, data_type, fails_at_new_fields=True).decode(value)


@pytest.mark.parametrize(("key", "value"), [("sint32", "string"), ("int32", "sint64"), ("int32", "string")])
def test_each_part_of_a_map_may_be_misread(registry: FakeRegistry, key: str, value: str) -> None:
    text = 'syntax = "proto3"; package shop; message Order {{ map<{}, {}> m = 1; }}'
    read = "int64" if value == "sint64" else value
    schema_id = registry.add("orders-value", text.format(key, value), schemaType="PROTOBUF")
    data_type = pa.struct([("m", pa.map_(pa.int32(), pa.string() if read == "string" else pa.int64()))])
    decoder = column(registry, text.format("int32", read), data_type)
    (error,) = malformed(decoder.decode(pa.array([framed(schema_id, b"\0", b"")])))
    misread = "key" if key == "sint32" else "value" if value == "sint64" else None
    assert (error and error[0].partition(" of ")[0]) == (misread and f"schema id {schema_id}: field {misread}")


@pytest.mark.parametrize(("seconds", "nanos"), [("sint64", "int32"), ("int64", "sint32")])
def test_each_part_of_a_timestamp_may_be_misread(registry: FakeRegistry, seconds: str, nanos: str) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; package shop; message Order { %s at = 1; } '
    own = f"message Time {{ {seconds} seconds = 1; {nanos} nanos = 2; }}"
    schema_id = registry.add("orders-value", text % "Time" + own, schemaType="PROTOBUF")
    data_type = pa.struct({"at": pa.timestamp("us", "UTC")})
    decoder = column(registry, text % "google.protobuf.Timestamp", data_type)
    (problem,) = malformed(decoder.decode(pa.array([framed(schema_id, b"\0", b"")], pa.binary())))
    name = "seconds is sint64" if seconds == "sint64" else "nanos is sint32"
    assert problem is not None
    assert f"field {name.replace(' is', ' of shop.Time is')}, which cannot be read as" in problem[0]


def test_each_pair_of_messages_is_compared_once(registry: FakeRegistry) -> None:
    def text(fields: str, **others: str) -> str:
        messages = "".join(f"message {name} {{ {inner} }} " for name, inner in others.items())
        return f'syntax = "proto3"; package shop; message Order {{ int32 id = 1; {fields} }} {messages}'

    item = "int32 count = 1; Item next = 2;"
    written = text("Item a = 2; Item b = 3; Order order = 4;", Item=item)
    schema_id = registry.add("orders-value", written, schemaType="PROTOBUF")
    value = pa.array([framed(schema_id, b"\0", b"\x08\x01")], pa.binary())
    assert column(registry, written, fails_at_new_fields=True).decode(value).malformed is None
    lacking = text("Item a = 2; Other b = 3; Order order = 4;", Item=item, Other="Item next = 2;")
    with pytest.raises(SchemaError, match=r"lacks: b\.count\. To read"):
        column(registry, lacking, fails_at_new_fields=True).decode(value)


def test_schemas_with_many_levels_are_compared(registry: FakeRegistry) -> None:
    levels = "".join(f"message M{number} {{ M{number + 1} next = 2; }} " for number in range(2000))
    order = 'syntax = "proto3"; package shop; message Order { int32 id = 1; M0 next = 2; } '
    text, new = (f"{order}{levels} message M2000 {{ {fields} }}" for fields in ("", "int32 count = 3;"))
    schema_id = registry.add("orders-value", new, schemaType="PROTOBUF")
    value = pa.array([framed(schema_id, b"\0", b"\x08\x01")], pa.binary())
    assert column(registry, text).decode(value).values.to_pylist() == [{"id": 1}]
    with pytest.raises(SchemaError, match=r"lacks: next\.next\..*\.count\. To read"):
        column(registry, text, fails_at_new_fields=True).decode(value)


def test_a_registry_that_is_not_available_fails_the_task(registry: FakeRegistry) -> None:
    registry.stop()
    with pytest.raises(SchemaRegistryUnavailableError):
        column(registry, api_timeout_ms=3_000).decode(pa.array([framed(1, b"\0", b"")], pa.binary()))


def test_a_schema_that_the_registry_has_later_is_found_by_the_same_column(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_flight_cache, "MISSING_SECONDS", 0.0)
    messages = column(registry)
    values = pa.array([framed(7, b"\0", b"\x08\x01"), framed(2**31, b"\0", b"\x08\x02")], pa.binary())
    assert messages.decode(values).values.field("id").to_pylist() == [None, None]
    registry.add("orders-value", OLD, schema_id=7, schemaType="PROTOBUF")
    decoded = messages.decode(values)
    assert decoded.values.field("id").to_pylist() == [1, None]
    assert malformed(decoded) == [None, ("Schema id 2147483648: ids are integers from 0 to 2147483647", 0)]


UNPARSABLE = ("message {", NEW.replace("int64 id", "Missing id"), NEW.replace("proto3", "proto9"))


@pytest.mark.parametrize("text", UNPARSABLE)
def test_a_given_schema_is_enough_for_ids_whose_text_cannot_be_parsed(
    registry: FakeRegistry, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A registry may accept what the parser does not, for example a later edition."""
    good = registry.add("orders-value", OLD, schemaType="PROTOBUF")
    bad = registry.add("orders-value", text, schemaType="PROTOBUF")
    values = [
        framed(good, b"\0", b"\x08\x01"),
        framed(bad, b"\0", b"\x08\x02"),
        framed(bad, b"\2\0", b"\x08\x03"),
        framed(bad, b"\4\0\0", b"\x08\x04"),  # an Item
        framed(99, b"\0", b"\x08\x05"),
        framed(bad, b"\0", b"\x08"),
    ]
    for evolution in (False, True):
        given = column(registry, is_given=True, fails_at_new_fields=evolution)
        decoded = given.decode(pa.array(values))
        assert [row["id"] for row in decoded.values.to_pylist()[:3]] == [1, 2, 3]
        assert decoded.malformed is not None
        reasons = decoded.malformed.reasons.to_pylist()
        assert reasons[:3] == [None] * 3
        assert "the value is a message shop.Order.Item" in reasons[3]
        assert "does not have it" in reasons[4]
        assert reasons[5] is not None
        assert decoded.malformed.schema_ids is not None
        assert decoded.malformed.schema_ids.to_pylist() == [good, bad, bad, bad, 99, bad]
        given.decode(pa.array(values[:2]))
    lines = [record.getMessage() for record in caplog.records if "cannot be parsed" in record.getMessage()]
    assert [line.partition(" cannot")[0] for line in lines] == [f"schema id {bad}"]
    # A schema of the registry is another version, which says nothing of this one.
    decoded = column(registry).decode(pa.array(values))
    assert decoded.malformed is not None
    assert "cannot be used: " in decoded.malformed.reasons.to_pylist()[1]


def test_a_given_schema_does_not_replace_one_of_another_format(registry: FakeRegistry) -> None:
    avro = registry.add("avro", '"int"')
    decoded = column(registry, is_given=True).decode(pa.array([framed(avro, b"\0", b"\x08\x01")]))
    assert decoded.malformed is not None
    assert "is a schema of AVRO, not of Protobuf" in decoded.malformed.reasons.to_pylist()[0]
