"""Schema ids, message indexes and fingerprints in front of values, or in headers."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.payloads.framing import (
    HEADER_NAMES,
    NO_FINGERPRINT,
    NO_HEADER_ID,
    NO_ID,
    NO_INDEXES,
    NO_MAGIC,
    NO_MARKER,
    NO_MESSAGE,
    ConfluentFraming,
    FramedMessages,
    SingleObjectFraming,
    crc64_avro,
    fingerprint_id,
    parse_message_indexes,
    split_fingerprints,
    split_ids,
    split_message_indexes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.payloads.writer_schemas import FramedValues

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADER = ConfluentFraming(HEADER_NAMES["value"])


def framed(schema_id: int, data: bytes = b"data") -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


def with_guid(guid: uuid.UUID = GUID, data: bytes = b"data") -> bytes:
    return b"\1" + guid.bytes + data


def column(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def rows(found: FramedValues) -> list[object]:
    """Return the id and the data of each value, or why it is malformed and where, or None."""
    result: list[object] = []
    for row, value in enumerate(found.values.to_pylist()):
        writer = 0 if found.writers is None else found.writers[row].as_py()
        reason = None if found.malformed is None else found.malformed.reasons[row].as_py()
        if reason is not None:
            assert writer is None
            assert found.malformed is not None
            result.append((reason, found.malformed.positions[row].as_py()))
        elif writer is None:
            assert value is None
            result.append(None)
        else:
            start = 0 if found.starts is None else found.starts[row].as_py()
            result.append((found.schema_ids[writer], value[start:]))
    return result


def test_ids_of_one_schema() -> None:
    found = split_ids(column(framed(7, b"a"), framed(7, b"")))
    assert rows(found) == [(7, b"a"), (7, b"")]
    assert (found.writers, found.schema_ids, found.malformed) == (None, (7,), None)


def test_ids_guids_and_values_with_another_framing() -> None:
    two = split_ids(column(framed(7, b"a"), framed(9, b"b"), framed(7, b"c")))
    assert (rows(two), two.schema_ids, two.malformed) == ([(7, b"a"), (9, b"b"), (7, b"c")], (7, 9), None)
    three = split_ids(column(framed(7, b"a"), framed(9, b"b"), framed(8, b"c")))
    assert rows(three) == [(7, b"a"), (9, b"b"), (8, b"c")]
    assert rows(split_ids(column(framed(7), b"\0\0\0"))) == [(7, b"data"), (NO_ID, 3)]
    values = [
        framed(7),
        None,
        with_guid(),
        framed(2**32 - 1),
        b"",
        b"\0",
        b"\0\0\0\0",
        b"\1" * 16,
        b"{}",
        framed(7, b""),
        with_guid(data=b""),
    ]
    assert rows(split_ids(column(*values))) == [
        (7, b"data"),
        None,
        (str(GUID), b"data"),
        (2**32 - 1, b"data"),
        (NO_MAGIC, 0),
        (NO_ID, 1),
        (NO_ID, 4),
        (NO_ID, 16),
        (NO_MAGIC, 0),
        (7, b""),
        (str(GUID), b""),
    ]


@pytest.mark.parametrize("values", [[], [None, None], [b"x", None]])
def test_columns_without_ids(values: Sequence[bytes | None]) -> None:
    found = split_ids(column(*values))
    assert found.schema_ids == ()
    assert rows(found) == [None if value is None else (NO_MAGIC, 0) for value in values]


VALUES = st.lists(
    st.none()
    | st.binary(max_size=20)
    | st.builds(framed, st.integers(0, 2**32 - 1) | st.integers(1, 3), st.binary(max_size=3))
    | st.builds(with_guid, st.uuids() | st.just(GUID), st.binary(max_size=3))
)


def expected_row(value: bytes | None) -> object:
    if value is None:
        return None
    if value[:1] not in (b"\0", b"\1"):
        return NO_MAGIC, 0
    size = 5 if value[0] == 0 else 17
    if len(value) < size:
        return NO_ID, len(value)
    schema_id = struct.unpack(">I", value[1:5])[0] if value[0] == 0 else str(uuid.UUID(bytes=value[1:17]))
    return schema_id, value[size:]


@given(VALUES, st.integers(0, 3))
def test_any_values_and_slices_of_them(values: list[bytes | None], start: int) -> None:
    assert rows(split_ids(column(*values)[start:])) == [expected_row(value) for value in values[start:]]


def headers_of(*rows: list[tuple[str, bytes | None]] | None) -> pa.ListArray:
    return pa.array(
        [row if row is None else [{"key": key, "value": value} for key, value in row] for row in rows], HEADERS
    )


def test_ids_in_headers_take_precedence() -> None:
    name = HEADER_NAMES["value"]
    other = uuid.UUID(int=5)
    headers = headers_of(
        [(name, with_guid(data=b""))],
        [("x", b"\0"), ("__key_schema_id", with_guid(other))],
        [(name, with_guid(other, b"")), (name, framed(9, b""))],  # the last one counts
        [(name, with_guid())],
        [(name, b"\1abc")],
        [(name, None)],
        None,
        [],
        [("x", None)],
    )
    values = column(b"bare", framed(7), framed(7), None, b"bare", framed(8), with_guid(), b"bare", None)
    assert rows(HEADER.split(values, headers)) == [
        (str(GUID), b"bare"),
        (7, b"data"),
        (9, framed(7)),
        None,
        (NO_HEADER_ID, 0),
        (8, b"data"),
        (str(GUID), b"data"),
        (NO_MAGIC, 0),
        None,
    ]
    assert rows(HEADER.split(values[4:], headers[4:])) == rows(HEADER.split(values, headers))[4:]


def test_without_headers_the_ids_are_those_of_the_values() -> None:
    values = column(framed(7), None)
    without = headers_of([("x", b"")], None)
    expected = [(7, b"data"), None]
    assert [rows(HEADER.split(values, each)) for each in (None, without)] == [expected] * 2
    assert rows(ConfluentFraming().split(values, None)) == expected
    assert (HEADER.needs_headers, ConfluentFraming().needs_headers) == (True, False)


def test_fingerprints_of_single_objects() -> None:
    fingerprint = bytes(range(1, 9))
    values = column(b"\xc3\1" + fingerprint + b"data", None, b"", b"\xc3", b"\xc3\1abc", b"\0" * 20)
    found = split_fingerprints(values)
    assert rows(found) == [
        ("0807060504030201", b"data"),
        None,
        (NO_MARKER, 0),
        (NO_MARKER, 0),
        (NO_FINGERPRINT, 5),
        (NO_MARKER, 0),
    ]
    assert rows(SingleObjectFraming().split(values)) == rows(found)


@pytest.mark.parametrize(
    ("canonical_form", "fingerprint"),  # of Avro's own tests (share/test/data/schema-tests.txt)
    [
        ('"null"', 7195948357588979594),
        ('"boolean"', -6970731678124411036),
        ('"int"', 8247732601305521295),
        ('"long"', -3434872931120570953),
        ('"float"', 5583340709985441680),
        ('"double"', -8181574048448539266),
        ('"bytes"', 5746618253357095269),
        ('"string"', -8142146995180207161),
    ],
)
def test_fingerprints_are_those_of_avro(canonical_form: str, fingerprint: int) -> None:
    little_endian = struct.pack("<q", fingerprint)
    assert crc64_avro(canonical_form.encode()) == little_endian
    assert int(fingerprint_id(little_endian), 16) == fingerprint % 2**64


def messages(found: FramedMessages, values: pa.BinaryArray) -> list[object]:
    result: list[object] = []
    for row, value in enumerate(values.to_pylist()):
        reason = None if found.malformed is None else found.malformed.reasons[row].as_py()
        writer = found.writers[row].as_py()
        if writer is None or found.messages[writer] == (7, NO_MESSAGE):
            assert found.malformed is not None
            result.append(reason if reason is None else (reason, found.malformed.positions[row].as_py()))
        else:
            assert reason is None
            result.append((found.messages[writer], value[found.starts[row].as_py() :]))
    return result


def test_the_index_of_the_first_message_is_one_byte() -> None:
    values = column(framed(7, b"\0data"), framed(8, b"\0"))
    found = split_message_indexes(split_ids(values))
    assert messages(found, values) == [((7, (0,)), b"data"), ((8, (0,)), b"")]


def test_a_message_behind_an_id_of_another_length() -> None:
    values = column(framed(7, b"\0data"), with_guid(data=b"\2\2data"))
    found = split_message_indexes(split_ids(values))
    assert messages(found, values) == [((7, (0,)), b"data"), ((str(GUID), (1,)), b"data")]


def test_message_indexes() -> None:
    values = column(
        framed(7, b"\0data"),
        framed(7, b"\2\2data"),  # [1]
        framed(8, b"\4\0\x80\2data"),  # [0, 128]
        with_guid(data=b"\2\0data"),  # [0], written in full
        None,
        b"bare",
        framed(7, b""),
        framed(7, b"\2"),
        framed(7, b"\1data"),  # -1 indexes
        framed(7, b"\xff\xff\xff\xff\x0fdata"),
        framed(7, b"\x80\x80\x80\x80\x80\x80"),
        framed(7, b"\2\1"),  # index -1
    )
    assert messages(split_message_indexes(split_ids(values)), values) == [
        ((7, (0,)), b"data"),
        ((7, (1,)), b"data"),
        ((8, (0, 128)), b"data"),
        ((str(GUID), (0,)), b"data"),
        None,
        (NO_MAGIC, 0),
        *[(NO_INDEXES, 5)] * 6,
    ]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary(max_size=5), st.binary(max_size=5))
def test_message_indexes_of_any_depth(indexes: list[int], before: bytes, data: bytes) -> None:
    def varint(number: int) -> bytes:
        number <<= 1  # zigzag of numbers that are not negative
        encoded = bytearray()
        while number >= 0x80:
            encoded.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes(encoded) + bytes([number])

    encoded = b"".join(map(varint, [len(indexes), *indexes]))
    found = parse_message_indexes(before + encoded + data, len(before))
    assert found == (tuple(indexes), len(before) + len(encoded))
