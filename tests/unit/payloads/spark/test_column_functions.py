"""The functions that tasks call for ``from_avro``, ``to_avro``, ``from_protobuf`` and ``to_protobuf``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.types import IntegerType, StringType, StructType
from tests.unit.payloads.protobuf_data import file_descriptor

from pyspark_kafka_direct.errors import ColumnError, MalformedPayloadError, OptionError
from pyspark_kafka_direct.functions import from_avro, from_protobuf, to_protobuf
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.payloads.spark.avro_functions import (
    from_avro_function,
    parse_from_avro,
    parse_to_avro,
    to_avro_function,
)
from pyspark_kafka_direct.payloads.spark.protobuf_functions import from_protobuf_function, to_protobuf_function

if TYPE_CHECKING:
    from pathlib import Path

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}, {"name": "s", "type": "string"}]}'
NARROW = '{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}'
PROTO = 'syntax = "proto3"; enum Color { RED = 0; BLUE = 1; } message M { int32 i = 1; string s = 2; Color c = 3; }'
ROWS = [{"i": 1, "s": "a"}, None, {"i": -2, "s": "é"}]
TYPE = pa.struct([("i", pa.int32()), ("s", pa.string())])
FIELDS = StructType().add("i", IntegerType()).add("s", StringType())


@pytest.fixture
def descriptors() -> bytes:
    serialized: bytes = descriptor_pb2.FileDescriptorSet(file=[file_descriptor(PROTO)]).SerializeToString()
    return serialized


@pytest.fixture(autouse=True)
def ddl(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types that were parsed, which needs a JVM."""
    parsed: list[str] = []

    def parse(text: str) -> Any:
        parsed.append(text)
        return FIELDS

    monkeypatch.setattr("pyspark.sql.types.DataType.fromDDL", parse)
    return parsed


@pytest.mark.parametrize("schema", [RECORD, None])
def test_avro_is_encoded_and_decoded(schema: str | None) -> None:
    encode = to_avro_function(parse_to_avro(schema, {}, None, None))
    arguments = parse_from_avro(RECORD, {}, None, None)
    decode = from_avro_function(pa.field("x", TYPE), arguments.settings, failing=arguments.failing)
    for rows in (ROWS, ROWS[:1], []) if schema is None else (ROWS[:1], ROWS[2:]):
        encoded = encode(pa.array(rows, TYPE))
        assert encoded.type == pa.binary()
        if schema is not None:  # a schema that follows from the column has unions with null
            assert decode(encoded).to_pylist() == rows


@pytest.mark.parametrize("prefix", ["", "confluent."])  # with which other platforms have the same options
def test_each_warning_about_the_options_of_a_registry_is_logged(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    option_messages.warn_once.cache_clear()
    options = {"basic.auth.user.info": "a:b", "ssl.truststore.type": "PEM"}
    given = {f"{prefix}schema.registry.{name}": value for name, value in options.items()}
    parse_from_avro(RECORD, given, None, "http://registry.invalid:8081")
    first, second = caplog.messages
    assert first.startswith("from_avro: schema.registry.url sends credentials unencrypted")
    assert second.endswith("so this has no effect: schema.registry.ssl.truststore.type")


@pytest.mark.parametrize("mode", [None, "FAILFAST", "permissive"])
def test_malformed_avro_fails_unless_the_mode_is_permissive(mode: str | None) -> None:
    arguments = parse_from_avro(RECORD, {} if mode is None else {"MODE": mode}, None, None)
    decode = from_avro_function(pa.field("x", TYPE), arguments.settings, failing=arguments.failing)
    values = pa.array([b"\x02\x02a", b"\x02"])
    if mode == "permissive":
        assert decode(values).to_pylist() == [{"i": 1, "s": "a"}, {"i": None, "s": None}], "as in Spark"
    else:
        with pytest.raises(MalformedPayloadError):
            decode(values)


def test_a_reader_schema_selects_fields(ddl: list[str]) -> None:
    arguments = parse_from_avro(RECORD, {"MODE": "permissive", "AvroSchema": NARROW}, None, None)
    assert not arguments.failing
    arguments = parse_from_avro(RECORD, {"avroSchema": NARROW, "mode": "FAILFAST"}, None, None)
    assert arguments.failing
    field = pa.field("x", pa.struct([("s", pa.string())]))
    decode = from_avro_function(field, arguments.settings, failing=True)
    assert decode(pa.array([b"\x02\x02a"])).to_pylist() == [{"s": "a"}]
    assert ddl == ["struct<`s`: string>"] * 2


@pytest.mark.parametrize(
    ("writer", "options", "message"),
    [
        ("", {}, "jsonFormatSchema is missing; it is needed without a subject"),
        ("{", {}, "from_avro: an Avro schema is JSON"),
        (FIELDS, {}, "from_avro: an Avro schema is a str of JSON, not a StructType"),
        (RECORD, {"avroSchema": "{"}, "from_avro: an Avro schema is JSON"),
        (RECORD, {"mode": "DROPMALFORMED"}, "from_avro: mode must be PERMISSIVE or FAILFAST, got 'DROPMALFORMED'"),
    ],
)
def test_invalid_schemas_of_from_avro(writer: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_avro("a", writer, options)


def test_a_column_that_does_not_fit_the_avro_schema() -> None:
    with pytest.raises(ColumnError, match=r"to_avro: "):
        to_avro_function(parse_to_avro(RECORD, {}, None, None))(pa.array(["a"]))


def test_protobuf_is_encoded_and_decoded(descriptors: bytes, tmp_path: Path, ddl: list[str]) -> None:
    file = tmp_path / "descriptors"
    file.write_bytes(descriptors)
    encode = to_protobuf_function("M", str(file), {}, None)
    struct, decode = from_protobuf_function("M", str(file), {}, None)
    assert struct == FIELDS
    assert ddl == ["struct<`i`: int,`s`: string,`c`: string>"]
    for rows in (ROWS, ROWS[:1]):
        encoded = encode(pa.array(rows, TYPE))
        assert encoded.type == pa.binary()
        assert decode(encoded).to_pylist() == rows
    with pytest.raises(MalformedPayloadError):
        decode(pa.array([b"\x08"]))


def test_options_of_from_protobuf(descriptors: bytes, ddl: list[str]) -> None:
    options = {"Mode": "permissive", "emit.default.values": "TRUE", "Enums.as.ints": "true"}
    _, decode = from_protobuf_function("M", None, options, descriptors)
    assert ddl == ["struct<`i`: int,`s`: string,`c`: int>"]
    assert decode(pa.array([b"\x08", b""])).to_pylist() == [{"i": None, "s": None}, {"i": 0, "s": ""}]
    _, decode = from_protobuf_function("M", None, {"emit.default.values": "false"}, descriptors)
    assert decode(pa.array([b""])).to_pylist() == [{"i": None, "s": None}]


@pytest.mark.parametrize("function", [from_protobuf, to_protobuf])
def test_invalid_descriptors(function: Any, descriptors: bytes, tmp_path: Path) -> None:
    name = function.__name__
    with pytest.raises(OptionError, match=f"{name}: .*'?N'?"):
        function("a", "N", binaryDescriptorSet=descriptors)
    with pytest.raises(OptionError, match=f"{name}: "):
        function("a", "M", binaryDescriptorSet=b"")
    with pytest.raises(OptionError, match=f"{name}: .*/nothing cannot be read: No such file"):
        function("a", "M", str(tmp_path / "nothing"))
    for both in ((None, None), ("file", b"descriptors")):
        with pytest.raises(OptionError, match=f"{name}: give one of descFilePath and binaryDescriptorSet"):
            function("a", "M", both[0], None, both[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enums.as.ints": "yes"}, "from_protobuf: enums.as.ints must be true or false, got 'yes'"),
        ({"mode": "DROPMALFORMED"}, "from_protobuf: mode must be PERMISSIVE or FAILFAST, got 'DROPMALFORMED'"),
    ],
)
def test_invalid_options_of_from_protobuf(descriptors: bytes, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_protobuf("a", "M", None, options, descriptors)


def test_a_column_that_does_not_fit_the_message(descriptors: bytes) -> None:
    with pytest.raises(ColumnError, match="to_protobuf: "):
        to_protobuf_function("M", None, {}, descriptors)(pa.array(["a"]))
