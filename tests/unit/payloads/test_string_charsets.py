"""Strings in a charset: those of Spark's ``decode`` and ``encode``."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import ColumnError, MalformedPayloadError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_formats import CHARSETS
from pyspark_kafka_direct.options.payload_parser import parse_payload_arguments
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
from pyspark_kafka_direct.payloads.spark.payload_schema import typed_schema
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import MalformedMode

BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": "string"}
SINK = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "string"}
TP = TopicPartition("t", 0)


def decode(charset: str, values: list[bytes | None], mode: MalformedMode = "PERMISSIVE") -> list[dict[str, Any]]:
    settings = PayloadSettings(value=SidePayload("value", "string", charset=charset), mode=mode)
    columns = ("value", "_error") if mode == "PERMISSIVE" else ("value",)
    schema = pa.schema([("value", pa.string()), ("_error", ERROR_TYPE)][: len(columns)])
    decoder = PayloadDecoder(pickle.loads(pickle.dumps(settings.for_tasks())), columns, schema)
    rows: dict[str, Any] = {"value": values, "offset": range(5, 5 + len(values))}
    names = decoder.record_columns
    batch = pa.RecordBatch.from_pydict({name: rows[name] for name in names}, arrow_schema(names))
    return [row for decoded in decoder.decode([batch], TP) for row in decoded.to_pylist()]


def encode(charset: str, values: pa.Array) -> list[bytes | None]:
    options = parse_sink_options({**SINK, "valueCharset": charset}, streaming=False)
    settings = pickle.loads(pickle.dumps(resolve_writer_schemas(options.payloads, None, "t")))
    encoded: list[bytes | None] = PayloadEncoders(settings, "t").encode("value", values, lambda _: None).to_pylist()
    return encoded


@pytest.mark.parametrize(
    ("charset", "value", "text"),
    [
        ("UTF-8", "é€😀".encode(), "é€😀"),
        ("US-ASCII", b"abc", "abc"),
        ("ISO-8859-1", b"caf\xe9", "café"),
        ("UTF-16BE", b"\0a\xd8\x3d\xde\0", "a😀"),
        ("UTF-16LE", b"a\0", "a"),
        ("UTF-16", b"\0a", "a"),
        ("UTF-16", b"\xfe\xff\0a", "a"),
        ("UTF-16", b"\xff\xfea\0", "a"),
        ("UTF-32", b"\0\0\0a", "a"),
        ("UTF-32", b"\xff\xfe\0\0a\0\0\0", "a"),
    ],
)
def test_values_are_decoded(charset: str, value: bytes, text: str) -> None:
    assert [row["value"] for row in decode(charset, [value, None, b""])] == [text, None, ""]


@pytest.mark.parametrize(
    ("charset", "value", "at"),
    [
        ("UTF-8", b"ab\xff", 2),
        ("UTF-8", b"\xed\xa0\x80", 0),  # half of a surrogate pair
        ("US-ASCII", b"a\x80", 1),
        ("US-ASCII", "é".encode(), 0),
        ("UTF-16", b"\0aa", 2),
        ("UTF-16LE", b"\x3d\xd8", 0),
        ("UTF-32", b"\0\x11\0\0", 0),
    ],
)
def test_a_malformed_value_is_treated_as_the_mode_says(charset: str, value: bytes, at: int) -> None:
    good = "ok".encode("utf-16-be" if charset == "UTF-16" else charset)
    first, second = decode(charset, [good, value])
    assert first == {"value": "ok", "_error": None}
    assert second["value"] is None
    assert (second["_error"]["side"], second["_error"]["stage"]) == ("value", "parse")
    assert second["_error"]["message"] == f"the value is not valid {charset}, at byte {at}"
    assert decode(charset, [good, value], "DROPMALFORMED") == [{"value": "ok"}]
    with pytest.raises(MalformedPayloadError, match=rf"The value cannot be decoded as {charset}: .*offset 6") as caught:
        decode(charset, [good, value], "FAILFAST")
    assert "Framing" not in caught.value.message


def test_a_charset_of_another_topic_is_named() -> None:
    with pytest.raises(MalformedPayloadError, match=r"check whether valueFormat and valueCharset fit the topic"):
        decode("US-ASCII", [b"\xff"] * 2, "FAILFAST")


@given(st.lists(st.none() | st.text(), max_size=8), st.sampled_from(CHARSETS))
def test_what_is_written_is_read(values: list[str | None], charset: str) -> None:
    texts = [value for value in values if value is None or _fits(value, charset)]
    written = encode(charset, pa.array(texts, pa.string()))
    assert [row["value"] for row in decode(charset, written)] == texts


def _fits(text: str, charset: str) -> bool:
    try:
        text.encode(charset)
    except UnicodeEncodeError:
        return False
    return not text.startswith("\ufeff")  # which is read as a byte order mark


def test_byte_order_marks_are_written_as_by_spark() -> None:
    texts = pa.array(["a", "", None])
    assert encode("UTF-16", texts) == [b"\xfe\xff\0a", b"", None]
    assert encode("UTF-32", texts) == [b"\0\0\0a", b"", None]
    assert encode("UTF-16LE", texts) == [b"a\0", b"", None]


def test_a_string_that_the_charset_lacks_is_an_error_of_its_topic() -> None:
    message = r"A row for topic t cannot be written as string: value has a character that the charset does not have"
    with pytest.raises(ColumnError, match=rf"{message} \(ISO-8859-1\)"):
        encode("ISO-8859-1", pa.array(["é", "€"]))
    invalid = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    with pytest.raises(ColumnError, match="value is not valid UTF-8"):
        encode("UTF-16", invalid)


@pytest.mark.parametrize("data_type", [BinaryType(), StructType().add("a", IntegerType())])
def test_only_strings_have_a_charset(data_type: Any) -> None:
    options = parse_sink_options({**SINK, "valueCharset": "utf-16"}, streaming=False)
    with pytest.raises(ColumnError, match=r"value attribute cannot be written as string: value is .*, but a string"):
        resolve_writer_schemas(options.payloads, StructType().add("value", data_type), "t")


def test_the_charset_is_an_option_of_strings() -> None:
    payloads = parse_batch_options({**BASE, "valueCharset": "utf-16be"}).payloads
    assert (payloads.value.charset, payloads.key.charset, payloads.mode) == ("UTF-16BE", None, "FAILFAST")
    assert parse_payload_arguments({"keyFormat": "string", "keyCharset": "UTF-8"}).key.charset == "UTF-8"
    assert parse_batch_options(BASE).payloads.mode == "PERMISSIVE"
    with pytest.raises(OptionError, match=r"valueCharset must be US-ASCII, .* or UTF-32, got 'latin9'"):
        parse_batch_options({**BASE, "valueCharset": "latin9"})
    for name in ("json", "binary", "avro", "decoders:make"):
        options = {"valueFormat": name, "valueSchema": '"int"' if name == "avro" else "a int", "valueCharset": "UTF-8"}
        if name == "binary":
            del options["valueSchema"]
        with pytest.raises(OptionError, match=f"valueCharset is the charset of strings, and valueFormat is {name}"):
            parse_payload_arguments(options)
    with pytest.raises(OptionError, match=r"keyCharset=UTF-8 needs strings; set keyFormat=string"):
        parse_sink_options({**SINK, "keyCharset": "UTF-8"}, streaming=False)


def test_malformed_strings_can_have_a_column_of_errors() -> None:
    options = {**BASE, "valueCharset": "UTF-8", "mode": "PERMISSIVE"}
    schema = StructType().add("value", StringType()).add("_error", from_arrow_type(ERROR_TYPE))
    payloads = parse_batch_options(options).payloads
    assert read_schema(schema, payloads).columns == ("value", "_error")
    assert parse_batch_options(options).warnings == ()
    with pytest.raises(OptionError, match="there is none; set"):
        read_schema(schema, parse_batch_options(BASE).payloads)
    # Such a string is not the original value, which dead_letters() has to write.
    assert "`value` string COMMENT 'decoded'" in typed_schema(kafka_schema(False), payloads)
