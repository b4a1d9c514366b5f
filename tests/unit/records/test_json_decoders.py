"""Both JSON decoders: on the same values they return the same structs, errors, positions and reasons."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.records import IMPLEMENTATION, DecodedValues, JsonDecoder, create_json_decoder
from pyspark_kafka_direct.records.json_values import (
    MAX_DECODED_BYTES,
    MAX_SCHEMA_DEPTH,
    SIZE,
    JsonRequest,
    variant_type,
)
from pyspark_kafka_direct.records.python.json_decoder import create_json_decoder as create_python_decoder

INNER = pa.struct({"x": pa.int32(), "t": pa.string()})
FIELDS = pa.schema(
    {
        "b": pa.bool_(),
        "y": pa.int8(),
        "h": pa.int16(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "s": pa.string(),
        "o": INNER,
        "a": pa.list_(pa.field("element", pa.int32())),
        "ao": pa.list_(pa.field("element", INNER)),
        "corrupt": pa.string(),
    }
)

WIDTH = 4000
WIDE = pa.struct([(f"f{number}", pa.float64()) for number in range(WIDTH)])
WIDE_FIELDS = pa.schema({"a": pa.list_(pa.field("element", WIDE)), "b": pa.int8()})

keys = st.sampled_from([*FIELDS.names, "unwanted", "a key of more than sixteen bytes", "é", "x", "t", "\\u0069"])
scalars = st.sampled_from(
    [
        *["null", "true", "false", "0", "-0", "1", "-128", "128", "255", "256", "32768", "2147483648", "12345678"],
        *["9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "01", "1.", ".5", "+1", "-"],
        *["0.1", "-0.0", "1.50", "1e3", "1E-7", "1e400", "1e39", "1e-50", "16777217.0", "9007199254740993", "tru"],
        *["1.00000017881393432617187499", "1.00000017881393432617187500", "7.0385307e-26", "3.4028235677973366e38"],
        *["NaN", "Infinity", "+Infinity", "-INF", "INF", '"NaN"', "'-Infinity'", '"1"', '""', "'q'", "'a\"b\\''"],
        *['"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\ud83dx"', '"\\x"', '"\\u12"', '"\\u00e9\\n\\/"', '"é中"'],
        *['"0123456789abcdef"', '"0123456789abcdef0123456789abcdef!"', '"' + "long " * 20 + '"', '"\t"', '"\x7f"'],
    ]
) | st.floats(allow_nan=False, allow_infinity=False).map(repr)
blanks = st.sampled_from(["", "", "", " ", "\n\t\r "])


def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.builds(lambda key, space, value: f'"{key}":{space}{value}', keys, blanks, values)
    objects = st.builds(
        lambda fields, space: "{" + f",{space}".join(fields) + "}", st.lists(fields, max_size=6), blanks
    )
    arrays = st.builds(lambda values, space: "[" + f",{space}".join(values) + "]", st.lists(values, max_size=3), blanks)
    return objects | arrays


@st.composite
def damaged(draw: st.DrawFn, values: st.SearchStrategy[str]) -> bytes:
    value = bytearray(draw(values).encode())
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value)))
        match draw(st.integers(0, 2)):
            case 0:
                del value[at:]
            case 1:
                value[at:at] = draw(
                    st.sampled_from([b'"', b"'", b"\\", b"{", b"]", b",", b"\x00", b"\xff", b"\xe2\x82"])
                )
            case 2:
                del value[at : at + 1]
    return bytes(value)


json_values = st.recursive(scalars, containers, max_leaves=12)
objects = containers(json_values).filter(lambda value: value.startswith("{"))
some_values = (
    st.none() | damaged(objects) | damaged(json_values) | st.sampled_from([b"", b" \n", b"null", b"[]", b"{}"])
)


def decoders(fields: pa.Schema = FIELDS) -> list[JsonDecoder]:
    request = JsonRequest(fields, "corrupt")
    if IMPLEMENTATION != "native":
        return [create_python_decoder(request)]
    return [create_python_decoder(request), create_json_decoder(fields, "corrupt")]


def errors(decoded: DecodedValues) -> list[tuple[int, str] | None]:
    """Position and reason of each row."""
    if decoded.malformed is None:
        return [None] * len(decoded.values)
    reasons, positions, _ = decoded.malformed
    assert reasons.type == pa.dictionary(pa.int8(), pa.string())
    assert reasons.null_count < len(reasons)
    reasons.validate(full=True)
    rows = zip(positions.to_pylist(), reasons.to_pylist(), strict=True)
    return [None if reason is None else (position, reason) for position, reason in rows]


def comparable(decoded: DecodedValues) -> Any:
    decoded.values.validate(full=True)
    assert decoded.values.type == pa.struct(list(FIELDS))
    return repr(decoded.values.to_pylist()), errors(decoded)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(some_values, max_size=8), st.integers(0, 2))
def test_the_decoders_agree(values: list[bytes | None], offset: int) -> None:
    array = pa.array(values, pa.binary()).slice(min(offset, len(values)))
    first, *others = [comparable(decoder.decode(array)) for decoder in decoders()]
    for other in others:
        assert other == first


@pytest.mark.skipif(IMPLEMENTATION != "native", reason="the native decoder was not built (no Rust toolchain)")
def test_batches_do_not_share_memory() -> None:
    """The native decoder reuses buffers of earlier batches, but not while something refers to them."""
    decoder = create_json_decoder(FIELDS, "corrupt")
    numbers = random.Random(5)
    retained: list[tuple[pa.StructArray, list[Any]]] = []
    for _ in range(200):
        expected = [{"i": numbers.randrange(1 << 31), "s": "s" * numbers.randrange(30)} for _ in range(50)]
        values = [f'{{"i": {each["i"]}, "s": "{each["s"]}"}}'.encode() for each in expected]
        structs = decoder.decode(pa.array(values, pa.binary())).values
        assert isinstance(structs, pa.StructArray)
        retained.append((structs, expected))
        if numbers.random() < 0.7:
            del retained[numbers.randrange(len(retained))]
        for kept, content in retained[-8:]:
            assert [{"i": row["i"], "s": row["s"]} for row in kept.to_pylist()] == content


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
def test_a_column_of_null_values(decoder: JsonDecoder) -> None:
    decoded = decoder.decode(pa.nulls(3, pa.binary()))
    assert decoded.values.null_count == 3
    assert decoded.malformed is None
    assert decoder.decode(pa.array([], pa.binary())).values.to_pylist() == []


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize("levels", [999, 1000, 100_000])
def test_nesting_is_bounded(decoder: JsonDecoder, levels: int) -> None:
    value = b'{"z":' + b"[" * levels + b"]" * levels + b',"i":1}'
    decoded = decoder.decode(pa.array([value], pa.binary()))
    if levels < 1000:
        assert decoded.malformed is None
        assert decoded.values.to_pylist()[0]["i"] == 1
    else:
        assert errors(decoded) == [(5 + 999, "nested too deeply")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (pa.schema({"a": pa.timestamp("ns")}), r"'a' has the type timestamp\[ns\]"),
        (pa.schema({"a": pa.struct({"b": pa.list_(pa.time64("us"))})}), r"'a\.b\.item' has the type time64\[us\]"),
        (pa.schema({"a": pa.map_(pa.int32(), pa.int8())}), r"'a' has the type map<int32, int8"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' is named twice"),
        (pa.schema([pa.field("a", pa.int8(), nullable=False)]), "'a' may be missing in an object"),
        (pa.schema({"bad": pa.int8()}), "'bad' has the text of malformed values, so it must be a string, not int8"),
    ],
)
def test_an_invalid_schema_is_rejected(fields: pa.Schema, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_json_decoder(fields, "bad")


@pytest.mark.parametrize("decoder", decoders(WIDE_FIELDS), ids=lambda decoder: type(decoder).__name__)
def test_the_memory_of_absent_fields_is_bounded(decoder: JsonDecoder) -> None:
    """A malformed value does not cost the other values of its batch."""
    most = MAX_DECODED_BYTES // (8 * (WIDTH + 1))
    values = [b'{"b": 1, "a": [%s]}' % b",".join([b"{}"] * count) for count in (1, most + 1, 2)]
    decoded = decoder.decode(pa.array(values))
    assert errors(decoded) == [None, (len(values[1]) - 4, SIZE), None]
    assert decoded.values.field("b").to_pylist() == [1, None, 1]
    assert decoded.values.field("a").value_lengths().to_pylist() == [1, None, 2]


@pytest.mark.parametrize("leaf", [pa.string(), variant_type()])
def test_a_schema_of_the_largest_depth_is_decoded(leaf: pa.DataType) -> None:
    data_type = leaf
    for _ in range(MAX_SCHEMA_DEPTH):
        data_type = pa.list_(data_type)
    value = b'{"a": %s"x"%s}' % (b"[" * MAX_SCHEMA_DEPTH, b"]" * MAX_SCHEMA_DEPTH)
    decoded = create_json_decoder(pa.schema({"a": data_type})).decode(pa.array([value]))
    assert (decoded.values.null_count, decoded.malformed) == (0, None)


def test_a_schema_that_is_nested_too_deeply_is_rejected() -> None:
    data_type: pa.DataType = pa.int8()
    for _ in range(70):
        data_type = pa.list_(data_type)
    with pytest.raises(ValueError, match="has more than 60 levels"):
        create_json_decoder(pa.schema({"a": data_type}))
