"""The size of a batch of decoded values: decoders end it before the limit; see also tests/golden."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.payloads.avro.avro_values import AvroDecoder
from pyspark_kafka_direct.payloads.avro.resolution import resolve
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder, variant_type
from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

FIELDS: Final = pa.schema(
    {
        "i": pa.int32(),
        "s": pa.string(),
        "l": pa.list_(pa.struct({"x": pa.int64(), "d": pa.decimal128(9, 2)})),
        "m": pa.map_(pa.string(), pa.list_(pa.bool_())),
        "v": variant_type(),
        "_bad": pa.string(),
    }
)
AVRO_SCHEMA: Final = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A" * 30, "B"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "boolean"}}},
    ],
}
AVRO_FIELDS: Final = pa.schema(
    {
        "i": pa.int64(),
        "s": pa.string(),
        "e": pa.string(),
        "l": pa.list_(pa.int32()),
        "m": pa.map_(pa.string(), pa.list_(pa.bool_())),
    }
)
small = st.integers(0, 5)
json_objects = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(0, 9) | st.just("x"),
        "s": st.text("a\u00e4", max_size=40),
        "l": st.lists(st.just({}) | st.just({"x": 1, "d": 2.5}), max_size=9),
        "m": st.dictionaries(st.text("ab", max_size=3), st.lists(st.booleans(), max_size=9), max_size=3),
        "v": st.recursive(st.integers(0, 300) | st.text("ab", max_size=9), st.lists, max_leaves=9),
    },
)
json_values = st.lists(
    st.none()
    | st.sampled_from([b"", b"{", b'{"s":"\xff"}x'])
    | json_objects.map(lambda value: json.dumps(value).encode()),
    max_size=30,
)
limits = st.sampled_from([1, 50, 100, 300, 1000, 5000])


def batches(decode: Callable[[pa.BinaryArray], DecodedValues], values: pa.BinaryArray) -> Iterator[DecodedValues]:
    """Decode a column as callers do."""
    start = 0
    while start < len(values):
        decoded = decode(values.slice(start))
        assert 0 < len(decoded.values) <= len(values) - start
        start += len(decoded.values)
        yield decoded


def facts(decoded: DecodedValues) -> tuple[list[Any], list[Any] | None]:
    """Return the values, and why they are malformed."""
    decoded.values.validate(full=True)
    malformed = decoded.malformed
    return decoded.values.to_pylist(), malformed and [malformed.reasons.to_pylist(), malformed.positions.to_pylist()]


@pytest.mark.parametrize("fields", [FIELDS, None], ids=["struct", "variant"])
@settings(deadline=None)
@example([b'{"s": "", "i": "x", "v": []}'], 1)
@given(json_values, limits)
def test_json_batches_end_before_the_limit(fields: pa.Schema | None, values: list[bytes | None], limit: int) -> None:
    column = pa.array(values, pa.binary())
    found = [facts(decoded) for decoded in batches(JsonDecoder(fields, "_bad", max_bytes=limit).decode, column)]
    whole = JsonDecoder(fields, "_bad").decode(column)
    rows = [row for rows, _ in found for row in rows]
    reasons = [reason for rows, malformed in found for reason in (malformed[0] if malformed else [None] * len(rows))]
    # A row may be both malformed and too large; then the reason is the first, and the second leaves values out.
    expected = [each for each, reason in zip(whole.values.to_pylist(), reasons, strict=True) if reason is None]
    assert [row for row, reason in zip(rows, reasons, strict=True) if reason is None] == expected
    _check_sizes(found, limit, *((24, 0) if fields is None else (72, 32)))


def _check_sizes(found: list[tuple[list[Any], list[Any] | None]], limit: int, row_bytes: int, item_bytes: int) -> None:
    for rows, _ in found:
        inner = sum(len(row["s"] or "") + len(row["l"] or []) * item_bytes for row in rows if row and "s" in row)
        assert len(rows) == 1 or len(rows) * row_bytes + inner <= limit


def zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def items(encoded: list[bytes]) -> bytes:
    return (zigzag(len(encoded)) + b"".join(encoded) if encoded else b"") + b"\0"


def sized(text: str) -> bytes:
    return zigzag(len(text.encode())) + text.encode()


ENUM: Final = {"type": "enum", "name": "E", "symbols": ["A" * 500, "B"]}
LONG: Final = "x" * 5000
PROTO_ENUM: Final = f"enum E {{ {'A' * 500} = 0; }}"
# Schemas of writers and readers, values of some bytes, and their decoded field v, which has about 5,000.
LARGER_THAN_THEIR_BYTES: Final[dict[str, tuple[Any, Any, bytes, pa.DataType, Any]]] = {
    "symbols": (
        {"type": "array", "items": ENUM},
        None,
        items([zigzag(0)] * 10),
        pa.list_(pa.string()),
        ["A" * 500] * 10,
    ),
    "a default": (None, {"type": "string", "default": LONG}, b"", pa.string(), LONG),
    "items of a default": (
        None,
        {"type": {"type": "array", "items": "string"}, "default": [LONG[:2500]] * 2},
        b"",
        pa.list_(pa.string()),
        [LONG[:2500]] * 2,
    ),
    "items": ({"type": "array", "items": "null"}, None, items([b""] * 600), pa.list_(pa.null()), [None] * 600),
    "symbols of Protobuf": (
        f"repeated E v = 1; {PROTO_ENUM}",
        None,
        b"\n\n" + b"\0" * 10,
        pa.list_(pa.string()),
        ["A" * 500] * 10,
    ),
    "a default of Protobuf": (f'optional string v = 1 [default = "{LONG}"];', None, b"", pa.string(), LONG),
}


@pytest.mark.parametrize("name", LARGER_THAN_THEIR_BYTES)
def test_what_is_not_in_a_value_counts(name: str) -> None:
    written, read, value, data_type, expected = LARGER_THAN_THEIR_BYTES[name]
    fields = pa.schema({"v": data_type})

    def decoder(limit: int) -> AvroDecoder | ProtobufDecoder:
        if isinstance(written, str):
            schema = parse_protobuf_schema(f"message M {{ {written} }}")
            return ProtobufDecoder(fields, make_program(schema, schema.message(None), fields), limit)
        writer, reader = (
            parse_avro_schema(
                json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", **field}] if field else []})
            ).root
            for field in ({"type": written} if written else None, read or {"type": written})
        )
        avro = AvroDecoder(fields, limit)
        avro.add_program(resolve(writer, reader, fields))
        return avro

    column = pa.array([value] * 9, pa.binary())
    found = list(batches(decoder(21_000).decode, column))
    assert [row for decoded in found for row in decoded.values.to_pylist()] == [{"v": expected}] * 9
    assert all(decoded.malformed is None for decoded in found)
    assert max(len(decoded.values) for decoded in found) == 4
    for decoded in batches(decoder(4000).decode, column):  # which a value has by itself
        assert decoded.values.to_pylist() == [{"v": None}] * len(decoded.values)
        assert decoded.malformed is not None
        assert set(decoded.malformed.reasons.to_pylist()) == {"the decoded value is too large"}


def test_the_text_of_malformed_json_counts() -> None:
    fields = pa.schema({"i": pa.int32(), "_bad": pa.string()})
    values = ["{" + " " * 5000] * 6
    found = list(
        batches(JsonDecoder(fields, "_bad", max_bytes=21_000).decode, pa.array([each.encode() for each in values]))
    )
    assert [row["_bad"] for decoded in found for row in decoded.values.to_pylist()] == values
    assert [len(decoded.values) for decoded in found] == [2, 2, 2]  # each value is in memory twice


avro_datums = st.builds(
    lambda i, s, e, ints, entries: b"".join(
        [
            zigzag(i),
            b"\0" if s is None else b"\2" + sized(s),
            zigzag(e),
            items([b"\2" + zigzag(value) for value in ints]),
            items([sized(key) + items([b"\1"] * count) for key, count in entries]),
        ]
    ),
    small,
    st.none() | st.text("a\u00e4", max_size=40),
    st.integers(0, 2),  # there are two symbols
    st.lists(small, max_size=9),
    st.lists(st.tuples(st.text("ab", max_size=3), small), max_size=3),
)


@settings(deadline=None)
@given(st.lists(st.none() | avro_datums | avro_datums.map(lambda datum: datum[:-1]), max_size=30), limits)
def test_avro_batches_end_before_the_limit(values: list[bytes | None], limit: int) -> None:
    schema = parse_avro_schema(json.dumps(AVRO_SCHEMA)).root
    program = resolve(schema, schema, AVRO_FIELDS)
    column = pa.array(values, pa.binary())
    decoder = AvroDecoder(AVRO_FIELDS, limit)
    decoder.add_program(program)
    _check_sizes([facts(decoded) for decoded in batches(decoder.decode, column)], limit, 48, 8)


PEAK: Final = """
import sys
import pyarrow as pa
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.offsets import TopicPartition
from tests.unit.records.peak_memory import peak_memory

name, rows = sys.argv[1], int(sys.argv[2])
types = [pa.float64(), pa.string(), pa.int64(), pa.list_(pa.int32())]
fields = [(f"f{number}", types[number % 4]) for number in range(600)]
if name == "json":
    settings = PayloadSettings(value=SidePayload("value", "json"))
    values = [b'{"f%d":1}' % (row % 600) for row in range(rows)]
else:
    kinds = ["double", "string", "long", {"type": "array", "items": "int"}]
    schema = {"type": "record", "name": "R", "fields": [
        {"name": field, "type": ["null", kinds[number % 4]]} for number, (field, _) in enumerate(fields)]}
    import json
    settings = PayloadSettings(value=SidePayload("value", "avro", json.dumps(schema)))
    values = [b"\\0" * 600] * rows
decoder = PayloadDecoder(settings, ("value",), pa.schema({"value": pa.struct(fields)}))
batch = pa.record_batch({"value": pa.array(values, pa.binary())})
before = peak_memory()
read = largest = 0
for decoded in decoder.decode([batch], TopicPartition("t", 0)):
    read += decoded.num_rows
    largest = max(largest, decoded.nbytes)
print(read, largest >> 20, (peak_memory() - before) >> 20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["json", "avro"])
def test_a_wide_sparse_schema_has_bounded_memory(format_name: str) -> None:
    """In one batch, the columns would have 0.2 GiB."""
    rows = 60_000
    arguments = [sys.executable, "-c", PEAK, format_name, str(rows)]
    found = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    read, largest_mib, peak_mib = map(int, found)
    assert read == rows
    assert largest_mib <= 128
    assert peak_mib < 450
