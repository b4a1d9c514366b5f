"""Avro datums that Spark's ``from_avro`` and this package decode, and where their results differ."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Case(NamedTuple):
    """Datums of a writer schema, and perhaps another reader schema."""

    writer: Any
    datums: Sequence[bytes | None]
    reader: Any = None


def record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    """Return a record with fields of a name, a type, and perhaps more."""
    members = [{"name": field[0], "type": field[1], **(field[2] if len(field) > 2 else {})} for field in fields]
    return {"type": "record", "name": name, "fields": members, **attributes}


def logical(base: Any, name: str, **attributes: Any) -> dict[str, Any]:
    """Return a type with a logical type."""
    return {**(base if isinstance(base, dict) else {"type": base}), "logicalType": name, **attributes}


def array(items: Any) -> dict[str, Any]:
    """Return an array."""
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    """Return a map."""
    return {"type": "map", "values": values}


def fixed(size: int, name: str = "F", **attributes: Any) -> dict[str, Any]:
    """Return a fixed type."""
    return {"type": "fixed", "name": name, "size": size, **attributes}


def enum(*symbols: str, name: str = "E", **attributes: Any) -> dict[str, Any]:
    """Return an enum."""
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def number(value: int) -> bytes:
    """Encode an int or a long."""
    encoded, raw = bytearray(), (value << 1 ^ value >> 63) & ((1 << 64) - 1)
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    return bytes(encoded) + bytes([raw])


def data(value: bytes | str) -> bytes:
    """Encode bytes or a string."""
    content = value.encode() if isinstance(value, str) else value
    return number(len(content)) + content


def numbers(*values: int) -> bytes:
    """Encode several ints or longs."""
    return b"".join(map(number, values))


END: Final = b"\0"  # of an array or map
NO, YES = b"\0", b"\2"  # the branches of a union

_AB: Final = enum("A", "B")
_P: Final = record(("x", "int"), ("y", "int"), name="P")
_WIDER_P: Final = record(("z", "double", {"default": 1.5}), ("y", "long"), ("x", "double"), name="P")
_MANY: Final = ["null", "string", "int", record(("x", "int"), name="P"), array("int")]
_SKIPPED: Final = record(
    ("a", _AB), ("b", fixed(4)), ("c", map_of(array("int"))), ("d", ["null", "int", "string"]), ("e", "boolean")
)
_ALL_SKIPPED: Final = record(*((field["name"], field["type"]) for field in _SKIPPED["fields"]), ("z", "int"))

TYPES: Final = {
    "primitives": Case(
        record(
            ("b", "boolean"),
            ("i", "int"),
            ("l", "long"),
            ("f", "float"),
            ("d", "double"),
            ("s", "string"),
            ("y", "bytes"),
            ("n", "null"),
        ),
        [
            b"\1" + numbers(5, 1 << 40) + struct.pack("<fd", 1.5, 2.5) + data("é") + data(b"\xff\0"),
            b"\0" + numbers(-(1 << 31), -(1 << 63)) + struct.pack("<fd", float("nan"), float("-inf")) + data("") * 2,
            None,
        ],
    ),
    "boolean": Case(record(("b", "boolean")), [b"\0", b"\1", b""]),
    "int": Case(
        record(("b", "int")),
        [number(value) for value in (1, (1 << 31) - 1, -(1 << 31), 1 << 40, -(1 << 63))]
        + [b"\x80\0", b"\x80", b"", b"\xff" * 10],
    ),
    "long": Case(
        record(("b", "long")),
        [number(value) for value in (1, (1 << 63) - 1, -(1 << 63))]
        + [b"\x80" * 9 + b"\1", b"\x80" * 10 + b"\1", b"\x80\0", b"\xff" * 9, b""],
    ),
    "float": Case(
        record(("b", "float"), ("c", "double")), [bytes(12), bytes(11), b"", struct.pack("<fd", 3.4e38, -0.0)]
    ),
    "string": Case(
        record(("b", "string")),
        [data(value) for value in ("x", "", "\u4e2d\U0001f600", "a\0b")]
        + [number(size) + b"abc" for size in (-1, -(1 << 63), 5, 1 << 31, (1 << 63) - 1)],
    ),
    "bytes": Case(
        record(("b", "bytes")),
        [data(b"x\xff"), data(b"")] + [number(size) + b"abc" for size in (-1, 5, 1 << 31, (1 << 31) - 1)],
    ),
    "fixed": Case(record(("b", fixed(4))), [b"abcd", b"abc"]),
    "fixed of no bytes": Case(record(("b", fixed(0))), [b""]),
    "enum": Case(record(("b", _AB)), [*map(number, (0, 1, 2, -1, 1 << 40)), b""]),
    "array": Case(
        record(("b", array("int"))),
        [
            END,
            numbers(2, 1, 2) + END,
            numbers(-2, 2, 1, 2) + END,
            numbers(-2, 77, 1, 2) + END,  # the size of a block is not checked
            numbers(-2, -2, 1, 2) + END,
            numbers(1, 1, 1, 2) + END,
            numbers(2, 1) + END,
            numbers(1, 1),
            numbers(1 << 31, 1),
            number(1 << 40),
        ],
    ),
    "array of nulls": Case(record(("b", array("null"))), [END, number(3) + END, number(65536) + END]),
    "array with nulls": Case(record(("b", array(["null", "int"]))), [number(3) + NO + YES + number(4) + NO + END]),
    "array of records": Case(record(("b", array(record(("x", "null"), name="X")))), [number(3) + END]),
    "map": Case(
        record(("b", map_of("int"))),
        [
            END,
            number(1) + data("k") + number(7) + END,
            number(2) + data("b") + number(7) + data("a") + number(8) + END,
            numbers(-1, 3) + data("k") + number(7) + END,
            number(1) + data("") + number(1) + number(1) + data("x") + number(2) + END,
            number(1) + data("k"),
        ],
    ),
    "map with nulls": Case(
        record(("b", map_of(["null", "string"]))), [number(2) + data("a") + NO + data("b") + YES + data("v") + END]
    ),
    "null first": Case(
        record(("b", ["null", "int"])),
        [NO, YES + number(3), b"\1\2", b"\4\2", b"\x80\0", b"\x82\0\6", YES, b""],
    ),
    "null last": Case(record(("b", ["int", "null"])), [b"\0\6", b"\2", b"\4"]),
    "union of one": Case(record(("b", ["int"])), [b"\0\6", b"\2\6"]),
    "union of int and long": Case(record(("b", ["int", "long"])), [b"\0\6", YES + number(1 << 40)]),
    "union of long, null and int": Case(record(("b", ["long", "null", "int"])), [b"\0\6", b"\2", b"\4\6"]),
    "union of float and double": Case(
        record(("b", ["float", "double"])), [b"\0" + struct.pack("<f", 0.1), b"\2" + struct.pack("<d", 0.1)]
    ),
    "union of int and float": Case(record(("b", ["int", "float"])), [b"\0\2", b"\2" + struct.pack("<f", 0.1)]),
    "union of many": Case(
        record(("b", _MANY)),
        [b"\0", b"\2" + data("x"), b"\4\2", b"\6\x12", b"\x08" + numbers(1, 1) + END, b"\x0a", b"\1"],
    ),
    "union of named types": Case(record(("b", [_AB, "string", fixed(4)])), [b"\0\2", b"\2" + data("q"), b"\4abcd"]),
    "date": Case(record(("b", logical("int", "date"))), [*map(number, (0, -1, 20_000, -700_000, 2_932_896))]),
    "timestamp-millis": Case(
        record(("b", logical("long", "timestamp-millis"))), [*map(number, (0, 1_700_000_000_123, -1, 1 << 62))]
    ),
    "timestamp-micros": Case(
        record(("b", logical("long", "timestamp-micros"))), [*map(number, (0, 1_700_000_000_123_456, -1))]
    ),
    "local timestamps": Case(
        record(("b", logical("long", "local-timestamp-millis")), ("c", logical("long", "local-timestamp-micros"))),
        [numbers(0, -1), numbers(1_700_000_000_123, 1_700_000_000_123_456), numbers(1 << 62, 0)],
    ),
    "timestamp-nanos": Case(
        record(("b", logical("long", "timestamp-nanos")), ("c", logical("long", "local-timestamp-nanos"))),
        [numbers(1, 2)],
    ),
    "time-millis": Case(record(("b", logical("int", "time-millis"))), [number(1)]),
    "uuid": Case(
        record(("b", logical("string", "uuid")), ("c", logical(fixed(16), "uuid"))),
        [data("6d37d6b0-6f4b-4d6c-9d0b-0f6a0f0b7a5e") + b"0123456789abcdef", data("no") + bytes(16)],
    ),
    "duration": Case(record(("b", logical(fixed(12), "duration"))), [b"\1" + bytes(11)]),
    "decimal of bytes": Case(
        record(("b", logical("bytes", "decimal", precision=6, scale=2))),
        [
            data(value)
            for value in (
                b"\0\1",
                b"\xff",
                b"",
                bytes(20) + b"\5",
                b"\x0f\x42\x3f",
                b"\x0f\x42\x40",
                b"\xf0\xbd\xc0",
                b"\x7f" * 17,
            )
        ],
    ),
    "decimal of fixed": Case(
        record(("b", logical(fixed(4), "decimal", precision=6, scale=2))),
        [b"\0\0\0\1", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\x0f\x42\x3f"],
    ),
    "decimal of 38 digits": Case(
        record(("b", logical("bytes", "decimal", precision=38, scale=10))),
        [data(value.to_bytes(17, "big", signed=True)) for value in (10**38 - 1, 1 - 10**38, 10**38)],
    ),
    "logical types that do not fit": Case(
        record(
            ("a", logical("bytes", "decimal", precision=2, scale=3)),
            ("b", logical(fixed(1), "decimal", precision=6)),
            ("c", logical("string", "date")),
            ("d", logical("int", "timestamp-millis")),
            ("e", logical("int", "unknown")),
            ("f", "int", {"logicalType": "date"}),
        ),
        [data(b"\1") + b"\2" + data("x") + numbers(1, 2, 3)],
    ),
    "logical types in other types": Case(
        record(
            ("b", ["null", logical("int", "date")]),
            ("c", array(logical("long", "timestamp-millis"))),
            ("d", map_of(logical("bytes", "decimal", precision=4, scale=1))),
        ),
        [YES + numbers(5, 1, 1000) + END + number(1) + data("k") + data(b"\5") + END],
    ),
    "nested": Case(
        record(
            ("p", record(("x", "int"), ("q", record(("y", ["null", "string"]), name="Q")), name="P")),
            ("l", array("P")),
            ("m", map_of(array("Q"))),
        ),
        [number(1) + NO + numbers(1, 2) + YES + data("s") + END + number(1) + data("k") + number(1) + NO + END + END],
    ),
    "null or a record": Case(record(("p", ["null", record(("x", "int"), name="P")])), [NO, YES + number(4)]),
    "record without fields": Case(record(("i", "int"), ("p", record(name="P"))), [number(1)]),
    "error": Case({**record(("x", "int")), "type": "error"}, [number(3)]),
}

EVOLUTIONS: Final = {
    "promotions": Case(
        record(("a", "int"), ("b", "int"), ("c", "int"), ("d", "long"), ("e", "long"), ("f", "float")),
        [numbers(-5, 16777217, 1 << 30, 16777217, 1 << 60) + struct.pack("<f", 0.1)],
        record(("a", "long"), ("b", "float"), ("c", "double"), ("d", "float"), ("e", "double"), ("f", "double")),
    ),
    "string and bytes": Case(
        record(("a", "string"), ("b", "bytes")),
        [data("x") + data("y"), data(b"\xff") + data("z")],
        record(("a", "bytes"), ("b", "string")),
    ),
    "removed and reordered": Case(
        record(("a", "int"), ("b", "string"), ("c", "int")),
        [number(1) + data("x") + number(2)],
        record(("c", "int"), ("a", "int")),
    ),
    "alias": Case(record(("a", "int")), [number(1)], record(("b", "int", {"aliases": ["z", "a"]}))),
    "other name": Case(record(("a", "int"), name="x.Old"), [number(1)], record(("a", "int"), name="y.New")),
    "inner record of another name": Case(
        record(("a", record(("i", "int"), name="Old"))), [number(1)], record(("a", record(("i", "int"), name="New")))
    ),
    "enum of another name": Case(record(("a", enum("A"))), [number(0)], record(("a", enum("A", name="New")))),
    "enum of another namespace": Case(
        record(("a", enum("A", name="x.E"))), [number(0)], record(("a", enum("A", name="y.E")))
    ),
    "alias of an enum": Case(
        record(("a", enum("A"))), [number(0)], record(("a", enum("A", name="New", aliases=["E"])))
    ),
    "fixed of another name": Case(record(("a", fixed(2))), [b"ab"], record(("a", fixed(2, "New")))),
    "fixed of another size": Case(record(("a", fixed(2))), [b"ab"], record(("a", fixed(3)))),
    "alias of a fixed": Case(record(("a", fixed(2))), [b"ab"], record(("a", fixed(2, "New", aliases=["F"])))),
    "no default": Case(record(("a", "int")), [number(1)], record(("a", "int"), ("b", "int"))),
    "defaults": Case(
        record(("a", "int")),
        [number(1)],
        record(
            ("a", "int"),
            ("b", "boolean", {"default": True}),
            ("c", "int", {"default": -3}),
            ("d", "long", {"default": 1 << 40}),
            ("e", "float", {"default": 1.25}),
            ("f", "double", {"default": 3}),
            ("g", "string", {"default": "é"}),
            ("h", ["null", "int"], {"default": None}),
            ("i", ["int", "null"], {"default": 4}),
            ("j", array("int"), {"default": [1, 2]}),
            ("k", map_of("string"), {"default": {"k": "v"}}),
            ("l", record(("x", "int", {"default": 7}), ("y", "int"), name="P"), {"default": {"y": 2}}),
            ("m", _AB, {"default": "B"}),
            ("n", fixed(4), {"default": "\u0001\u00ff\u0002\u0003"}),
            ("o", "bytes", {"default": "\u00ff\u0001"}),
            ("p", array("int"), {"default": []}),
            ("q", ["null", "int"], {"default": 4}),  # of the second branch
            ("r", "float", {"default": "NaN"}),
            ("s", "double", {"default": "-Infinity"}),
            ("t", logical("int", "date"), {"default": 5}),
            ("u", logical("long", "timestamp-millis"), {"default": 5}),
            ("v", logical("bytes", "decimal", precision=4, scale=1), {"default": "\u0005"}),
        ),
    ),
    "symbols of an enum": Case(
        record(("c", enum("A", "B", "C"))), [*map(number, range(4))], record(("c", enum("B", "U", "A")))
    ),
    "default of an enum": Case(
        record(("c", _AB)), [*map(number, range(3))], record(("c", enum("B", "U", default="U")))
    ),
    "default of the writer's enum": Case(record(("c", enum("A", "B", default="A"))), [number(5), number(1)]),
    "nested": Case(
        record(("p", _P), ("l", array("P")), ("m", map_of("int"))),
        [numbers(1, 2, 1, 3, 4) + END + number(1) + data("a") + number(5) + END],
        record(("l", array(_WIDER_P)), ("p", "P"), ("m", map_of("long"))),
    ),
    "value to null or a value": Case(record(("a", "int")), [number(9)], record(("a", ["null", "long"]))),
    "value to a union": Case(record(("a", "int")), [number(9)], record(("a", ["double", "string", "long"]))),
    "value to the same type in a union": Case(
        record(("a", "long")), [number(9)], record(("a", ["double", "string", "long"]))
    ),
    "union to value": Case(record(("a", ["null", "int"])), [YES + number(9), NO], record(("a", "long"))),
    "union to union": Case(
        record(("a", ["string", "int", "null"])),
        [b"\2\6", b"\0" + data("q"), b"\4"],
        record(("a", ["null", "boolean", "double", "string"])),
    ),
    "union to fewer types": Case(
        record(("a", ["null", "int", "string"])), [b"\2\6", b"\4" + data("x"), b"\0"], record(("a", ["null", "int"]))
    ),
    "union of records": Case(
        record(("a", ["null", record(("x", "int"), name="A"), record(("x", "int"), name="B")])),
        [b"\2\6", b"\4\6"],
        record(("a", ["null", record(("x", "int"), name="B"), record(("x", "int"), name="A")])),
    ),
    "record of another name in a union": Case(
        record(("a", ["null", record(("x", "int"), name="A")])),
        [b"\2\6"],
        record(("a", ["null", record(("x", "int"), name="B")])),
    ),
    "records of other names in a union": Case(
        record(("a", ["null", record(("x", "int"), name="A")])),
        [b"\2\6"],
        record(("a", ["null", record(("y", "int"), name="B"), record(("x", "int"), name="C")])),
    ),
    "record to a union": Case(
        record(("a", record(("x", "int"), name="A"))),
        [number(3)],
        record(("a", ["null", record(("x", "int"), name="B")])),
    ),
    "string to a union with bytes": Case(record(("a", "string")), [data("x")], record(("a", ["null", "bytes"]))),
    "int to a union with long": Case(record(("a", "int")), [number(9)], record(("a", ["int", "long"]))),
    "int to a union with double": Case(record(("a", "int")), [number(9)], record(("a", ["float", "double"]))),
    "union of int and long": Case(record(("a", ["int", "long"])), [b"\0\6", b"\2\6"], record(("a", "int"))),
    "another type": Case(record(("a", "string")), [data("x")], record(("a", "int"))),
    "a narrower type": Case(record(("a", "long")), [number(1)], record(("a", "int"))),
    "array to map": Case(record(("a", array("int"))), [END], record(("a", map_of("int")))),
    "items of another type": Case(
        record(("a", array("string"))), [END, number(1) + data("x") + END], record(("a", array("int")))
    ),
    "more digits": Case(
        record(("a", logical("bytes", "decimal", precision=6, scale=2))),
        [data(b"\1")],
        record(("a", logical("bytes", "decimal", precision=8, scale=2))),
    ),
    "a decimal with 64 digits that is read with 38": Case(
        record(("a", logical("bytes", "decimal", precision=64, scale=2))),
        [data(b"\1"), data(b"\x7f" * 20), data(b"\0" * 30)],
        record(("a", logical("bytes", "decimal", precision=38, scale=2))),
    ),
    "a decimal with 64 digits that is read as bytes": Case(
        record(("a", logical("bytes", "decimal", precision=64, scale=2))), [data(b"\1")], record(("a", "bytes"))
    ),
    "a decimal with 64 digits that is not read": Case(
        record(("a", array(logical("bytes", "decimal", precision=64, scale=2))), ("b", "int")),
        [number(1) + data(b"\1") + END + number(5)],
        record(("b", "int")),
    ),
    "a record that contains itself and is not read": Case(
        record(("n", ["null", "R"]), ("l", array("R")), ("b", "int")),
        [YES + NO + END + number(1) + number(1) + NO + END + number(2) + END + number(3)],
        record(("b", "int")),
    ),
    "a level of a record that contains itself": Case(
        record(("n", ["null", "R"]), ("b", "int")),
        [YES + YES + NO + numbers(1, 2, 3)],
        record(("n", ["null", record(("b", "int"), name="N")]), ("b", "int")),
    ),
    "an attribute that is no string": Case({**record(("b", "int")), "namespace": None, "doc": None}, [number(3)]),
    "decimal to bytes": Case(
        record(("a", logical("bytes", "decimal", precision=6, scale=2))), [data(b"\1")], record(("a", "bytes"))
    ),
    "bytes to decimal": Case(
        record(("a", "bytes")), [data(b"\1")], record(("a", logical("bytes", "decimal", precision=6, scale=2)))
    ),
    "long to timestamp-millis": Case(
        record(("a", "long")), [number(1000)], record(("a", logical("long", "timestamp-millis")))
    ),
    "int to timestamp-micros": Case(
        record(("a", "int")), [number(1000)], record(("a", logical("long", "timestamp-micros")))
    ),
    "date to numbers": Case(
        record(("a", logical("int", "date")), ("b", logical("int", "date"))),
        [numbers(1, 2)],
        record(("a", "long"), ("b", "double")),
    ),
    "int to date": Case(record(("a", "int")), [number(1)], record(("a", logical("int", "date")))),
    "a string": Case("string", [data("a"), data(""), b"", b"\4a", None]),
    "a long": Case("long", [number(7), b"\x80", b""]),
    "a string or null": Case(["null", "string"], [NO, YES + data("a"), b"\4", b""]),
    "an int that is read as long": Case("int", [number(7)], "long"),
    "an enum of its own": Case(_AB, [number(1), number(2), number(-1)]),
    "a decimal": Case(logical("bytes", "decimal", precision=4, scale=1), [data(b"\1\0")]),
    "an array of its own": Case(array("int"), [numbers(2, 1, 2) + END, END, b"\2"]),
    "a map of its own": Case(map_of("long"), [number(1) + data("k") + number(5) + END, END]),
    "skipped fields": Case(
        _ALL_SKIPPED,
        [
            b"\2abcd" + number(1) + data("k") + numbers(2, 1, 1) + END + END + b"\4" + data("q") + b"\1" + number(5),
            b"\2abcd" + numbers(-1, 5) + data("k") + numbers(1, 1) + END + END + b"\0" + b"\1" + number(5),
            b"\2abcd" + END + b"\6" + b"\1" + number(5),
        ],
        record(("z", "int")),
    ),
}

DIFFERENCES: Final = {
    "bytes after the datum": Case(record(("x", "int")), [number(3) + b"junk"]),
    "a boolean other than 0 and 1": Case(record(("b", "boolean")), [b"\2"]),
    "an integer with more bits than its type": Case(
        record(("i", "int"), ("l", "long")), [b"\x81\x80\x80\x80\x10\0", b"\0" + b"\x80" * 9 + b"\2"]
    ),
    "an `int` of more than five bytes": Case(record(("i", "int")), [b"\x80\x80\x80\x80\x80\0"]),
    "an array or map with a count of -2^63": Case(record(("a", array("int"))), [number(-(1 << 63)) + END]),
    "`time-micros`": Case(record(("t", logical("long", "time-micros"))), [number(2)]),
    "a union of `null` only": Case(record(("i", "int"), ("n", ["null"])), [number(1) + NO]),
    "fields whose names differ only in case": Case(record(("A", "int"), ("a", "int")), [numbers(1, 2)]),
    "a schema that is a union of `null` and a record": Case(["null", record(("x", "int"))], [YES + number(3)]),
    "a schema that is a union of several types": Case(
        ["null", "int", "string"], [NO, YES + number(5), b"\4" + data("a"), b"\6"]
    ),
    "an alias of several fields": Case(
        record(("a", "int"), ("z", "int")), [numbers(1, 2)], record(("b", "int", {"aliases": ["z", "a"]}))
    ),
    "an alias that several fields have": Case(
        record(("a", "int")),
        [number(1)],
        record(("b", "int", {"aliases": ["a"], "default": 9}), ("c", "int", {"aliases": ["a"], "default": 8})),
    ),
    "a decimal that is read with another scale": Case(
        record(("a", logical("bytes", "decimal", precision=6, scale=2))),
        [data(b"\1")],
        record(("a", logical("bytes", "decimal", precision=6, scale=3))),
    ),
    "a timestamp that is read with another unit": Case(
        record(("a", logical("long", "timestamp-millis"))),
        [number(1000)],
        record(("a", logical("long", "timestamp-micros"))),
    ),
    "an invalid symbol or boolean in a field that is not read": Case(
        _ALL_SKIPPED,
        [b"\4abcd" + END + NO + b"\1" + number(5), b"\2abcd" + END + NO + b"\2" + number(5)],
        record(("z", "int")),
    ),
    "a block of an array or map that is not read, with a wrong size": Case(
        _ALL_SKIPPED,
        [b"\2abcd" + numbers(-1, 100) + data("k") + numbers(1, 1) + END + END + NO + b"\1" + number(5)],
        record(("z", "int")),
    ),
}
"""By the first column of the table in docs/avro.md. All datums of a case differ."""

REJECTED: Final = {
    "a record without fields": (record(), None),
    "a default that does not have its type": (record(("a", "int")), record(("b", "int", {"default": "x"}))),
}
"""Schemas with which one of the functions fails, and the other does not, by the first column of the same table."""
