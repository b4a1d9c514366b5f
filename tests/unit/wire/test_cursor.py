"""Checked reading of Kafka's primitive types."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import String, UnsignedVarInt32

from pyspark_kafka_direct.wire._cursor import Cursor, MalformedError, unsigned_varint


def cursor(data: bytes) -> Cursor:
    return Cursor(memoryview(data))


@given(st.integers(0, 2**32 - 1))
def test_varints_are_those_of_the_library(value: int) -> None:
    encoded = UnsignedVarInt32.encode(value)
    assert unsigned_varint(value) == encoded
    reader = cursor(encoded + b"rest")
    assert reader.unsigned_varint() == value
    assert reader.left == 4


@given(st.text(max_size=300))
def test_strings_are_those_of_the_library(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert cursor(String("utf-8").encode(text)).string(flexible=False) == text
    assert cursor(String("utf-8").encode(text, compact=True)).string(flexible=True) == text


@pytest.mark.parametrize(
    "varint",
    [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"],
)
def test_varints_that_end_early_or_never_are_malformed(varint: bytes) -> None:
    with pytest.raises(MalformedError):
        cursor(varint).unsigned_varint()


def test_a_varint_ends_with_its_cursor_not_with_the_bytes() -> None:
    with pytest.raises(MalformedError, match="2 bytes wanted at byte 0, 1 left"):
        Cursor(memoryview(b"\x80\x01"), 0, 1).unsigned_varint()


@pytest.mark.parametrize(("method", "data"), [("int8", b""), ("int16", b"1"), ("int32", b"123"), ("int64", b"1234567")])
def test_integers_need_all_their_bytes(method: str, data: bytes) -> None:
    with pytest.raises(MalformedError):
        getattr(cursor(data), method)()


def test_negative_integers() -> None:
    reader = cursor(b"\xff" * 15)
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -1, -1, -1)


@pytest.mark.parametrize("data", [b"\x00\x05abcd", b"\xff\xff", b"\x00\x02\xff\xfe"])
def test_strings_that_are_too_long_null_or_no_text_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        cursor(data).string(flexible=False)


def test_an_array_cannot_claim_more_elements_than_could_fit() -> None:
    assert cursor(b"\0\0\0\2" + bytes(8)).count(flexible=False, least=4) == 2
    assert cursor(b"\xff\xff\xff\xff").count(flexible=False, least=4) == -1
    assert cursor(b"\0").count(flexible=True, least=4) == -1
    for data in (b"\0\0\0\3" + bytes(8), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"):
        with pytest.raises(MalformedError):
            cursor(data).count(flexible=False, least=4)


def test_byte_strings_are_not_copied_and_null_is_empty() -> None:
    data = bytearray(b"\0\0\0\3abcdef")
    found = Cursor(memoryview(data)).byte_string(flexible=False)
    data[4] = ord("z")
    assert bytes(found) == b"zbc"
    assert len(cursor(b"\xff\xff\xff\xff").byte_string(flexible=False)) == 0
    assert len(cursor(b"\0").byte_string(flexible=True)) == 0
    with pytest.raises(MalformedError):
        cursor(b"\xff\xff\xff\xfe").byte_string(flexible=False)


def test_tags_are_handed_out_within_their_size() -> None:
    seen: dict[int, int] = {}
    data = b"\x02\x02\x02\0\7\x05\x01\x09rest"  # two fields: tag 2 with two bytes, tag 5 with one

    def on_tag(tag: int, field: Cursor) -> None:
        seen[tag] = field.int16() if tag == 2 else field.int8()

    reader = cursor(data)
    reader.tags(on_tag)
    assert seen == {2: 7, 5: 9}
    assert reader.left == 4
    with pytest.raises(MalformedError):  # a field ends where its size says, whatever follows
        cursor(data).tags(lambda _, field: seen.update({0: field.int32()}))
    with pytest.raises(MalformedError):
        cursor(b"\x01\x02\x09\0\7").tags()


def test_skipping_backwards_is_malformed() -> None:
    with pytest.raises(MalformedError):
        cursor(b"abc").skip(-1)
    assert io.BytesIO(cursor(b"abc").bytes(2)).read() == b"ab"
