"""Decoding of Protobuf against Google's library: the same values, and a malformed message costs one row."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.payloads.protobuf_data import (
    ALL_TYPES,
    CLOSED,
    PROTO2,
    as_integers,
    decode,
    decode_in_batches,
    malformed,
    message_class,
    plain,
)
from tests.unit.payloads.random_messages import field, group, random_message, unknown_symbols, varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

EVERYTHING = message_class(ALL_TYPES, "test.all.Everything")
LEGACY = message_class(PROTO2, "test.two.Legacy")
WITH_CLOSED_ENUMS = message_class(CLOSED, "test.closed.Closed")

_VARINTS = (  # of 64 bits, and longer than necessary
    *(varint(value) for value in (0, 2, 1 << 31, 1 << 32 | 5, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)),
    b"\x81\x80\x00",
    b"\x80" * 9 + b"\x00",
)

_slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def mutated(data: bytes, source: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return other bytes of the same schema: fields in another order, repeated, unknown, too wide, or damaged.

    ``others`` are fields that may be added. Messages in fields change as well.
    """
    if others:
        parts = fields_of(data)
        for _ in range(source.randrange(4)):
            parts.insert(source.randrange(len(parts) + 1), source.choice(others))
        data = b"".join(parts)
    for _ in range(source.randrange(3)):
        parts = list(fields_of(data))
        match source.randrange(9):
            case 0:
                source.shuffle(parts)
            case 1 if parts:
                parts.insert(source.randrange(len(parts)), source.choice(parts))
            case 2:
                number = source.choice([77, 99, (1 << 29) - 1, source.randint(1, 40)])  # or another wire type
                unknown = [
                    field(number, 0, varint(128)),
                    field(number, 1, b"12345678"),
                    field(number, 2, b"abc"),
                    group(number, field(1, 0, b"\1")),
                    field(number, 5, b"1234"),
                ]
                parts.insert(source.randrange(len(parts) + 1), source.choice(unknown))
            case 3:
                cut = b"".join(parts)
                parts = [cut[: source.randrange(len(cut) + 1)]]
            case 4 if data:
                changed = bytearray(data)
                changed[source.randrange(len(changed))] = source.randrange(256)
                parts = [bytes(changed)]
            case 5 if sized := [each for each in parts if each and _number_and_type(each)[1] == 2]:
                part = source.choice(sized)
                number, _ = _number_and_type(part)
                _, size_at = _read_varint(part, 0)
                _, content_at = _read_varint(part, size_at)
                parts[parts.index(part)] = field(number, 2, mutated(part[content_at:], source))
            case 6 if varints := [each for each in parts if each and _number_and_type(each)[1] == 0]:
                part = source.choice(varints)
                parts[parts.index(part)] = field(_number_and_type(part)[0], 0, source.choice(_VARINTS))
            case 7:  # also entries of maps, whose keys come again
                parts = source.sample(parts * 6, len(parts) * 6)
            case _:
                parts.append(bytes(source.randrange(256) for _ in range(source.randrange(4))))
        data = b"".join(parts)
    return data


def _number_and_type(part: bytes) -> tuple[int, int]:
    tag, _ = _read_varint(part, 0)
    return tag >> 3, tag & 7


def fields_of(data: bytes) -> list[bytes]:
    """Split a message at its fields; the last part is what cannot be parsed."""
    parts, at = [], 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        at = _end_of_value(data, tag, at)
        parts.append(data[start:at])
    return parts


def _end_of_value(data: bytes, tag: int, at: int) -> int:
    match tag & 7:
        case 0:
            return _read_varint(data, at)[1]
        case 1 | 5:
            return at + (8 if tag & 7 == 1 else 4)
        case 2:
            size, at = _read_varint(data, at)
            return at + size
        case 3:
            while at < len(data) and tag & 7 != 4:
                tag, at = _read_varint(data, at)
                at = _end_of_value(data, tag, at)
            return at
        case 4:
            return at
    return len(data)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at


@given(st.integers(0, 1 << 32))
@settings(_slow, max_examples=25)
def test_decoded_values_are_those_of_google(seed: int) -> None:
    source = random.Random(seed)
    messages = [random_message(EVERYTHING, source) for _ in range(3)]
    decoded = decode(ALL_TYPES, [*(each.SerializeToString() for each in messages), None])
    assert decoded.malformed is None
    assert as_integers(decoded.values) == [*map(plain, messages), None]


@given(st.integers(0, 1 << 32))
@settings(_slow, max_examples=12)
def test_a_message_is_decoded_as_if_it_were_alone(seed: int) -> None:
    source = random.Random(seed)
    values: list[bytes | None] = []
    for _ in range(8):
        merged = b"".join(random_message(EVERYTHING, source, depth=2).SerializeToString() for _ in range(2))
        values += [merged + source.choice([b"", b"\x08"]), source.choice([None, b"", b"\x08"])]
    decoded = decode(ALL_TYPES, values)
    alone = [decode(ALL_TYPES, [value]) for value in values]
    assert as_integers(decoded.values) == [as_integers(each.values)[0] for each in alone]
    assert malformed(decoded) == [malformed(each)[0] for each in alone]


@pytest.mark.slow
@given(st.integers(0, 1 << 32))
@example(8793963)  # an entry of a map has an unknown field
@settings(_slow, max_examples=80)
def test_changed_messages_are_read_or_rejected_as_by_google(seed: int) -> None:
    source = random.Random(seed)
    cls, text = source.choice([(EVERYTHING, ALL_TYPES), (LEGACY, PROTO2), (WITH_CLOSED_ENUMS, CLOSED)])
    others = unknown_symbols(cls.DESCRIPTOR, source)
    values = [mutated(random_message(cls, source).SerializePartialToString(), source, others) for _ in range(3)]
    decoded = decode(text, [*values])
    for row, value, error in zip(as_integers(decoded.values), values, malformed(decoded), strict=True):
        try:
            message = cls()
            message.MergeFromString(value)
        except DecodeError:
            assert error is not None, value
            assert set(row.values()) == {None}
        else:
            if error is not None and error[0] == "the value does not fit the type of its column":
                continue  # seconds of a timestamp
            if _lost_map_entries(message):
                continue
            assert error is None, value
            assert row == plain(message), value


@pytest.mark.slow
@given(st.integers(0, 1 << 32), st.sampled_from([1, 500, 1500, 4000]))
@settings(_slow, max_examples=40)
def test_batches_have_all_messages(seed: int, max_bytes: int) -> None:
    source = random.Random(seed)
    values = [mutated(random_message(EVERYTHING, source).SerializeToString(), source) for _ in range(6)]
    batches = decode_in_batches(ALL_TYPES, values, max_bytes)
    assert sum(len(batch.values) for batch in batches) == len(values)
    assert len(batches) > 1 or max_bytes == 4000
    if not any(
        error and error[0] == "the decoded value is too large" for batch in batches for error in malformed(batch)
    ):
        assert [row for batch in batches for row in as_integers(batch.values)] == as_integers(
            decode(ALL_TYPES, [*values]).values
        )


def _lost_map_entries(message: Message) -> bool:
    """Return whether upb dropped map entries because they have unknown fields; Java and C++ keep such entries."""
    entries = {
        field.number: field.message_type
        for field in message.DESCRIPTOR.fields
        if field.message_type is not None and field.message_type.GetOptions().map_entry
    }
    return any(
        unknown.wire_type == 2 and _has_unknown_fields(entries[unknown.field_number], unknown.data)
        for unknown in UnknownFieldSet(message)
        if unknown.field_number in entries
    ) or any(_lost_map_entries(inner) for field, value in message.ListFields() for inner in _messages(field, value))


def _has_unknown_fields(entry: Descriptor, data: bytes) -> bool:
    """Return whether an entry has unknown fields, other than numbers that a closed enum does not have."""
    has_enum = entry.fields_by_name["value"].enum_type is not None
    unknown = UnknownFieldSet(message_factory.GetMessageClass(entry).FromString(data))
    return any(not (has_enum and (each.field_number, each.wire_type) == (2, 0)) for each in unknown)


def _messages(field: FieldDescriptor, value: Any) -> list[Message]:
    values = [value]
    if field.is_repeated:
        values = [*value.values()] if isinstance(value, Mapping) else [*value]
    return [each for each in values if isinstance(each, Message)]
