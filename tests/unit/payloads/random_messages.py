"""Messages of Google's library with random fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

_UNKNOWN_NUMBERS: Final = (0, 3, 99, 1 << 33, (1 << 64) - 1)


def random_message(cls: type[Message], source: random.Random, depth: int = 0) -> Message:
    """Return a message with random fields."""
    message = cls()
    for each in cls.DESCRIPTOR.fields:
        if source.random() < 0.4:
            continue
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            entries, value_field = getattr(message, each.name), each.message_type.fields_by_name["value"]
            for _ in range(source.randrange(4)):
                key = _random_value(each.message_type.fields_by_name["key"], source)
                if value_field.message_type is None:
                    entries[key] = _random_value(value_field, source)
                else:
                    _fill(entries[key], source, depth)
        elif each.is_repeated:
            for _ in range(source.randrange(4)):
                if each.message_type is None:
                    getattr(message, each.name).append(_random_value(each, source))
                else:
                    _fill(getattr(message, each.name).add(), source, depth)
        elif each.message_type is not None:
            _fill(getattr(message, each.name), source, depth)
        else:
            setattr(message, each.name, _random_value(each, source))
    return message


def unknown_symbols(descriptor: Descriptor, source: random.Random, depth: int = 0) -> list[bytes]:
    """Return fields with numbers that closed enums do not have, for all places where such an enum can be."""
    found = []
    for each in descriptor.fields:
        if each.enum_type is not None and each.enum_type.is_closed:
            numbers = [varint(source.choice((*_UNKNOWN_NUMBERS, 1))) for _ in range(1 + source.randrange(3))]
            if each.is_repeated and source.random() < 0.5:
                found.append(field(each.number, 2, b"".join(numbers)))
            else:
                found.append(b"".join(field(each.number, 0, number) for number in numbers))
        elif each.message_type is not None and depth < 3:
            inner = unknown_symbols(each.message_type, source, depth + 1)
            source.shuffle(inner)
            content = b"".join(inner[: 1 + source.randrange(2)])
            if each.message_type.GetOptions().map_entry:
                content = field(1, 0, varint(source.randrange(2))) + content
            is_group = each.type == each.TYPE_GROUP
            found.append(group(each.number, content) if is_group else field(each.number, 2, content))
    return found


def varint(value: int) -> bytes:
    value %= 1 << 64
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, wire_type: int, content: bytes) -> bytes:
    return varint(number << 3 | wire_type) + (varint(len(content)) if wire_type == 2 else b"") + content


def group(number: int, content: bytes) -> bytes:
    return field(number, 3, content) + varint(number << 3 | 4)


def _fill(target: Message, source: random.Random, depth: int) -> None:
    target.SetInParent()
    if depth < 3:
        target.MergeFrom(random_message(type(target), source, depth + 1))


def _random_value(each: Any, source: random.Random) -> Any:
    cpp = each.cpp_type
    if each.enum_type is not None:
        numbers = [value.number for value in each.enum_type.values]
        return source.choice(numbers if each.enum_type.is_closed else [*numbers, 77, -1, -(1 << 31), (1 << 31) - 1])
    if cpp == each.CPPTYPE_STRING:
        text = source.choice(["", "a", "é€", "x" * 15, "y" * 16, "z" * 17, "0" * 200])
        return text if each.type == each.TYPE_STRING else text.encode() + b"\xff"
    if cpp == each.CPPTYPE_BOOL:
        return source.random() < 0.5
    if cpp in (each.CPPTYPE_FLOAT, each.CPPTYPE_DOUBLE):
        return source.choice([0.0, -0.0, 1.5, -2.25, 1e-45, float("inf"), -float("inf"), float("nan")])
    bits = 32 if cpp in (each.CPPTYPE_INT32, each.CPPTYPE_UINT32) else 64
    if each.containing_type.full_name.startswith("google.protobuf."):
        bits = 30  # seconds whose microseconds have 64 bits
    unsigned = cpp in (each.CPPTYPE_UINT32, each.CPPTYPE_UINT64)
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return source.choice([0, 1, 127, 128, low, high, source.randint(low, high)])
