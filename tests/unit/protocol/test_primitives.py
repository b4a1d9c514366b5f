"""Bounds-checked reading of Kafka's primitive types."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import String, UnsignedVarInt32

from pyspark_kafka_direct.protocol.primitives import BufferReader, MalformedError, encode_unsigned_varint


def reader_of(data: bytes) -> BufferReader:
    return BufferReader(memoryview(data))


@given(st.integers(0, 2**32 - 1))
def test_varints_equal_kafka_python(value: int) -> None:
    encoded = UnsignedVarInt32.encode(value)
    assert encode_unsigned_varint(value) == encoded
    reader = reader_of(encoded + b"rest")
    assert reader.unsigned_varint() == value
    assert reader.remaining == 4


@given(st.text(max_size=300))
def test_strings_equal_kafka_python(value: str) -> None:
    value = value.encode("utf-8", "ignore").decode()
    assert reader_of(String("utf-8").encode(value)).string(flexible=False) == value
    assert reader_of(String("utf-8").encode(value, compact=True)).string(flexible=True) == value


@pytest.mark.parametrize(
    "varint",
    [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"],
)
def test_truncated_and_endless_varints_are_malformed(varint: bytes) -> None:
    with pytest.raises(MalformedError):
        reader_of(varint).unsigned_varint()


def test_varint_must_end_within_the_reader() -> None:
    with pytest.raises(MalformedError, match="2 bytes required at byte 0, but 1 remain"):
        BufferReader(memoryview(b"\x80\x01"), 0, 1).unsigned_varint()


@pytest.mark.parametrize(("method", "data"), [("int8", b""), ("int16", b"1"), ("int32", b"123"), ("int64", b"1234567")])
def test_truncated_integers_are_malformed(method: str, data: bytes) -> None:
    with pytest.raises(MalformedError):
        getattr(reader_of(data), method)()


def test_negative_integers() -> None:
    reader = reader_of(b"\xff" * 15)
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -1, -1, -1)


@pytest.mark.parametrize("data", [b"\x00\x05abcd", b"\xff\xff", b"\x00\x02\xff\xfe"])
def test_invalid_strings_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        reader_of(data).string(flexible=False)


def test_array_count_must_fit_the_remaining_bytes() -> None:
    assert reader_of(b"\0\0\0\2" + bytes(8)).count(flexible=False, min_element_size=4) == 2
    assert reader_of(b"\xff\xff\xff\xff").count(flexible=False, min_element_size=4) == -1
    assert reader_of(b"\0").count(flexible=True, min_element_size=4) == -1
    for data in (b"\0\0\0\3" + bytes(8), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"):
        with pytest.raises(MalformedError):
            reader_of(data).count(flexible=False, min_element_size=4)


def test_byte_strings_are_not_copied_and_null_is_empty() -> None:
    data = bytearray(b"\0\0\0\3abcdef")
    read = BufferReader(memoryview(data)).byte_string(flexible=False)
    data[4] = ord("z")
    assert bytes(read) == b"zbc"
    assert len(reader_of(b"\xff\xff\xff\xff").byte_string(flexible=False)) == 0
    assert len(reader_of(b"\0").byte_string(flexible=True)) == 0
    with pytest.raises(MalformedError):
        reader_of(b"\xff\xff\xff\xfe").byte_string(flexible=False)


def test_tagged_fields_are_read_within_their_size() -> None:
    values: dict[int, int] = {}
    data = b"\x02\x02\x02\0\7\x05\x01\x09rest"  # two fields: tag 2 with two bytes, tag 5 with one

    def on_tag(tag: int, field: BufferReader) -> None:
        values[tag] = field.int16() if tag == 2 else field.int8()

    reader = reader_of(data)
    reader.tags(on_tag)
    assert values == {2: 7, 5: 9}
    assert reader.remaining == 4
    with pytest.raises(MalformedError):  # a field ends at its declared size
        reader_of(data).tags(lambda _, field: values.update({0: field.int32()}))
    with pytest.raises(MalformedError):
        reader_of(b"\x01\x02\x09\0\7").tags()


def test_skipping_backwards_is_malformed() -> None:
    with pytest.raises(MalformedError):
        reader_of(b"abc").skip(-1)
    assert io.BytesIO(reader_of(b"abc").bytes(2)).read() == b"ab"
