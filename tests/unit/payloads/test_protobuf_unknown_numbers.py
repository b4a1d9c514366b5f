"""Numbers that closed enums do not have, and groups, as Google's library reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from tests.unit.payloads.protobuf_data import (
    CLOSED,
    arrow_fields,
    as_integers,
    decode,
    decode_in_batches,
    malformed,
    plain,
)
from tests.unit.payloads.random_messages import field, group, varint
from tests.unit.payloads.test_protobuf_decoders import WITH_CLOSED_ENUMS
from tests.unit.records.peak_memory import peak_memory

from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage

_ONE, _UNKNOWN = varint(1), varint(99)
_NUMBER = field(1, 0, varint(5))
_INNER = field(3, 2, field(2, 2, b"text"))


def _kinds(*numbers: int, key: int = 7) -> bytes:
    return field(8, 2, field(1, 0, varint(key)) + b"".join(field(2, 0, varint(number)) for number in numbers))


@pytest.mark.parametrize(
    "data",
    [
        _NUMBER + field(2, 0, _UNKNOWN),
        _NUMBER + field(2, 0, _ONE),
        _NUMBER + field(2, 0, _UNKNOWN) + field(2, 0, _ONE),
        field(2, 0, _ONE) + field(2, 0, _UNKNOWN),
        _INNER + field(2, 0, _UNKNOWN),
        _INNER + field(2, 0, _UNKNOWN) + field(3, 2, field(1, 0, _UNKNOWN)),
        _INNER + field(3, 2, field(1, 0, _ONE)),
        _INNER + field(3, 2, field(5, 3, field(1, 0, _UNKNOWN) + field(5, 4, b""))),
        field(5, 2, b"data") + field(2, 0, varint(-1)),
        field(6, 0, _ONE) + field(7, 0, _UNKNOWN),
        field(6, 0, _ONE) + field(7, 0, varint(2)) + field(6, 0, _UNKNOWN),
        field(12, 0, _ONE) + field(12, 0, _UNKNOWN),
        field(13, 0, _ONE) + field(13, 0, _UNKNOWN),
        field(13, 0, varint(1 << 32 | 1)),
        field(14, 2, field(2, 2, b"") + field(1, 0, _UNKNOWN)),
        _kinds(99),
        _kinds(2) + _kinds(99),
        _kinds(99) + _kinds(2) + _kinds(1, key=8),
        _kinds(2, 99),
        _kinds(99, 2),
        _kinds() + _kinds(0, key=8),
        field(9, 2, field(2, 2, field(3, 2, field(2, 0, _UNKNOWN)) + field(4, 2, _UNKNOWN + _ONE))),
        field(9, 2, field(2, 2, field(1, 0, _UNKNOWN) + field(2, 2, b"a") + field(1, 0, _UNKNOWN))),
        field(10, 2, _ONE + _UNKNOWN + varint(2)) + field(10, 0, _UNKNOWN) + field(10, 0, _ONE),
        field(11, 0, _UNKNOWN) + field(11, 0, varint(2)) + field(11, 2, _UNKNOWN + _ONE),
        field(15, 2, field(1, 0, _UNKNOWN)) + field(15, 2, field(2, 2, b"b") + field(1, 0, _UNKNOWN)),
    ],
)
def test_a_number_that_a_closed_enum_does_not_have_is_an_unknown_field(data: bytes) -> None:
    expected = plain(WITH_CLOSED_ENUMS.FromString(data))
    assert as_integers(decode(CLOSED, [data]).values) == [expected]
    for wanted in _each_field():
        assert (
            as_integers(decode(CLOSED, [data, b"", data], [wanted]).values)[::2]
            == [{wanted.name: expected[wanted.name]}] * 2
        )


@pytest.mark.parametrize(
    "data",
    [
        _NUMBER + group(4, b""),
        group(4, b"") + _NUMBER,
        _NUMBER + field(4, 2, b""),  # another wire type
        _NUMBER + field(4, 0, _ONE),
        _NUMBER + field(3, 3, b"") + field(3, 4, b""),
        group(4, field(3, 2, field(1, 0, b""))),
        group(4, field(3, 2, b"\x0a")),
        group(4, field(2, 2, b"\x80")),
        group(4, field(2, 2, b"\1\2")),
        group(4, field(1, 0, _ONE)),
        group(4, field(1, 2, b"\xff")),  # strings of proto2 are not checked
        group(4, field(3, 2, field(5, 3, field(2, 2, b"\x08") + field(5, 4, b"")))),
        group(4, group(9, b"")),
        group(4, b"")[:-1],
        field(4, 3, b""),
        field(4, 3, field(1, 2, b"a")),
        field(4, 3, b"") + field(3, 4, b""),
        field(4, 3, b"") + field(16, 4, b""),
        field(14, 2, field(5, 3, b"")) + field(5, 4, b""),
        group(16, group(16, field(1, 0, _UNKNOWN)) + group(16, b"")),
        group(16, field(1, 0, b"\xff" * 10)),
        group(4, b"\0\0"),
        group(4, b"\x06\0"),
        field(16, 4, b""),
    ],
)
def test_groups_are_read_as_messages(data: bytes) -> None:
    message = WITH_CLOSED_ENUMS()
    try:
        message.MergeFromString(_NUMBER + data)
    except DecodeError:
        expected = None
    else:
        expected = plain(message)
    for wanted in [arrow_fields(*_schema()), *([each] for each in _each_field())]:
        decoded = decode(CLOSED, [_NUMBER + data, _NUMBER], wanted)
        assert (malformed(decoded)[0] is None) == (expected is not None)
        assert malformed(decoded)[1] is None
        row = as_integers(decoded.values)[0]
        assert row == {each.name: None if expected is None else expected[each.name] for each in wanted}


@pytest.mark.parametrize("count", range(97, 103))
@pytest.mark.parametrize("number", [16, 99])
def test_groups_are_levels(count: int, number: int) -> None:
    groups = field(number, 3, b"") * count + field(number, 4, b"") * count
    for data in (groups, field(77, 2, groups), field(14, 2, groups), field(4, 3, b"") + groups + field(4, 4, b"")):
        try:
            WITH_CLOSED_ENUMS().MergeFromString(data)
        except DecodeError:
            assert malformed(decode(CLOSED, [data])) != [None]
        else:
            assert malformed(decode(CLOSED, [data])) == [None]


def test_a_oneof_of_many_members_needs_little_memory() -> None:
    members = "".join(f"int32 a{number} = {number};" for number in range(1, 16_001))
    schema = parse_protobuf_schema(f'syntax = "proto3"; message M {{ oneof choice {{ {members} }} }}')
    fields = arrow_fields(schema, schema.message(None))
    program = make_program(schema, schema.message(None), fields)
    peak = peak_memory()
    decoder = ProtobufDecoder(pa.schema(fields), program)
    assert peak_memory() - peak < 200 << 20  # instead of more than 900 MiB
    values = [b"".join(field(number, 0, varint(number)) for number in range(1, end)) for end in (16_001, 8_001, 1)]
    decoded = decoder.decode(pa.array(values, pa.binary())).values
    numbers = [[value for value in row.values() if value is not None] for row in decoded.to_pylist()]
    assert numbers == [[16_000], [8_000], []]


def test_a_wide_member_of_a_oneof_cannot_be_cleared_without_end() -> None:
    columns = "".join(f"int32 a{number} = {number};" for number in range(1, 101))
    text = f'syntax = "proto3"; message M {{ oneof o {{ int32 x = 1; W w = 2; }} }} message W {{ {columns} }}'
    alternating = field(1, 0, _ONE) + field(2, 2, b"")
    values = [alternating * 98, alternating * 100, field(1, 0, _ONE) * 1000, field(2, 2, b"") * 1000]
    errors = [error for batch in decode_in_batches(text, values, 10_000) for error in malformed(batch)]
    assert errors == [None, ("the decoded value is too large", 4 * 99), None, None]


def _schema() -> tuple[ProtobufSchema, ProtoMessage]:
    schema = parse_protobuf_schema(CLOSED)
    return schema, schema.message(None)


def _each_field() -> list[pa.Field]:
    return arrow_fields(*_schema())
