"""Decoding of JSON to structs; see also tests/golden."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payloads.random_json import RandomJson

from pyspark_kafka_direct.payloads.decoded_values import MAX_DECODED_BYTES, MAX_SCHEMA_DEPTH, DecodedValues
from pyspark_kafka_direct.payloads.json.json_values import RANGE, SIZE, TYPE, JsonDecoder, variant_type
from pyspark_kafka_direct.payloads.spark.json_inference import infer_fields

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
MORE_FIELDS = pa.schema(
    [
        *FIELDS,
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64()))),
        pa.field("mo", pa.map_(pa.string(), pa.field("value", pa.list_(INNER)))),
        pa.field("v", variant_type()),
        pa.field("n", pa.decimal128(20, 2)),
        pa.field("z", pa.binary()),
    ]
)

WIDTH = 4000
WIDE = pa.struct([(f"f{number}", pa.float64()) for number in range(WIDTH)])
WIDE_FIELDS = pa.schema({"a": pa.list_(pa.field("element", WIDE)), "b": pa.int8()})


def errors(decoded: DecodedValues) -> list[tuple[int, str] | None]:
    """Position and reason of each row."""
    if decoded.malformed is None:
        return [None] * len(decoded.values)
    reasons, positions, *_ = decoded.malformed
    assert reasons.type == pa.dictionary(pa.int8(), pa.string())
    assert reasons.null_count < len(reasons)
    reasons.validate(full=True)
    rows = zip(positions.to_pylist(), reasons.to_pylist(), strict=True)
    return [None if reason is None else (position, reason) for position, reason in rows]


def test_batches_do_not_share_memory() -> None:
    """The decoder reuses buffers of earlier batches, but not while something refers to them."""
    decoder = JsonDecoder(FIELDS, "corrupt")
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


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=25)
def test_a_value_is_decoded_as_if_it_were_alone(seed: int) -> None:
    drawn = RandomJson(random.Random(seed), MORE_FIELDS.names)
    decoder = JsonDecoder(MORE_FIELDS, "corrupt")
    for _ in range(2):  # batches
        values = [drawn.row() for _ in range(12)]
        decoded = decoder.decode(pa.array(values, pa.binary()))
        decoded.values.validate(full=True)
        alone = [JsonDecoder(MORE_FIELDS, "corrupt").decode(pa.array([value], pa.binary())) for value in values]
        assert repr(decoded.values.to_pylist()) == repr([each.values.to_pylist()[0] for each in alone])  # NaN, too
        assert errors(decoded) == [errors(each)[0] for each in alone]


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=40)
def test_the_last_value_of_a_repeated_key_counts_unless_it_does_not_fit(seed: int) -> None:
    source = random.Random(seed)
    drawn = RandomJson(source, MORE_FIELDS.names)
    name = source.choice([name for name in MORE_FIELDS.names if name != "corrupt"])

    def decode(*values: str) -> tuple[Any, tuple[int, str] | None]:
        text = "{" + ",".join(f'"{name}":{value}' for value in values) + "}"
        decoded = JsonDecoder(MORE_FIELDS).decode(pa.array([text.encode()] * 2))  # of two rows, to see what is removed
        decoded.values.validate(full=True)
        first, second = decoded.values.field(name).to_pylist()
        assert repr(first) == repr(second)
        return first, errors(decoded)[0]

    kinds = {"a": "[1,2]", "ao": '[{"x":1},{"x":null}]', "m": '{"k":1,"l":null}', "mo": '{"k":[{"t":"u"}],"l":[]}'}
    candidates = ["null", "7", '"x"', '"AAAA"', kinds.get(name, "1.5"), *(drawn.value(2) for _ in range(4))]
    values = [value for value in candidates if (error := decode(value)[1]) is None or error[1] in (TYPE, RANGE)]
    source.shuffle(values)
    alone = [decode(value) for value in values]
    found, error = decode(*values)
    fitting = [value for value, problem in alone if problem is None or value is not None]
    assert repr(found) == repr(fitting[-1] if fitting else None), values
    problems = [problem[1] for _, problem in alone if problem is not None]
    assert (error and error[1]) == (problems[0] if problems else None), values


def test_a_column_of_null_values() -> None:
    decoder = JsonDecoder(FIELDS)
    decoded = decoder.decode(pa.nulls(3, pa.binary()))
    assert decoded.values.null_count == 3
    assert decoded.malformed is None
    assert decoder.decode(pa.array([], pa.binary())).values.to_pylist() == []


@pytest.mark.parametrize("levels", [999, 1000, 100_000])
def test_nesting_is_bounded(levels: int) -> None:
    value = b'{"z":' + b"[" * levels + b"]" * levels + b',"i":1}'
    decoded = JsonDecoder(FIELDS).decode(pa.array([value], pa.binary()))
    if levels < 1000:
        assert decoded.malformed is None
        assert decoded.values.to_pylist()[0]["i"] == 1
    else:
        assert errors(decoded) == [(5 + 999, "nested too deeply")]


@pytest.mark.parametrize("name", ["d", "unwanted"])
def test_a_number_has_at_most_a_thousand_digits(name: str) -> None:
    for whole, fraction, exponent in (
        (1000, 0, 0),
        (0, 999, 0),
        (0, 1000, 0),
        (500, 500, 0),
        (1, 0, 999),
        (300, 300, 400),
    ):
        for more in (0, 1):
            digits = "1" * (whole + more) if whole else "0"  # a leading 0 does not count
            fraction_digits = fraction if whole else fraction + more
            number = digits + f".{'1' * fraction_digits}" * bool(fraction) + f"e-{'0' * exponent}" * bool(exponent)
            value = f'{{"{name}":-{number}}}'.encode()
            is_valid = (whole and whole + more) + fraction_digits + exponent <= 1000
            decoded = JsonDecoder(FIELDS).decode(pa.array([value]))
            assert errors(decoded) == [None if is_valid else (len(name) + 4, "invalid number")]
            assert bool(infer_fields([value], case_sensitive=True).fields) == is_valid


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (pa.schema({"a": pa.timestamp("ns")}), r"'a' has the type timestamp\[ns\]"),
        (pa.schema({"x": pa.int8(), "a": pa.timestamp("ns")}), r"'a' has the type timestamp\[ns\]"),
        (pa.schema({"a": pa.struct({"b": pa.list_(pa.time64("us"))})}), r"'a\.b\.item' has the type time64\[us\]"),
        (pa.schema({"a": pa.map_(pa.int32(), pa.int8())}), r"'a' has the type map<int32, int8"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' is named twice"),
        (pa.schema([pa.field("a", pa.int8(), nullable=False)]), "'a' may be missing in an object"),
        (pa.schema({"bad": pa.int8()}), "'bad' has the text of malformed values, so it must be a string, not int8"),
    ],
)
def test_an_invalid_schema_is_rejected(fields: pa.Schema, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JsonDecoder(fields, "bad")


def test_the_memory_of_absent_fields_is_bounded() -> None:
    """A malformed value does not cost the other values of its batch."""
    most = MAX_DECODED_BYTES // (8 * (WIDTH + 1))
    values = [b'{"b": 1, "a": [%s]}' % b",".join([b"{}"] * count) for count in (1, most + 1, 2)]
    decoded = JsonDecoder(WIDE_FIELDS).decode(pa.array(values))
    assert errors(decoded) == [None, (len(values[1]) - 4, SIZE), None]
    assert decoded.values.field("b").to_pylist() == [1, None, 1]
    assert decoded.values.field("a").value_lengths().to_pylist() == [1, None, 2]


@pytest.mark.parametrize("leaf", [pa.string(), variant_type()])
def test_a_schema_of_the_largest_depth_is_decoded(leaf: pa.DataType) -> None:
    data_type = leaf
    for _ in range(MAX_SCHEMA_DEPTH):
        data_type = pa.list_(data_type)
    value = b'{"a": %s"x"%s}' % (b"[" * MAX_SCHEMA_DEPTH, b"]" * MAX_SCHEMA_DEPTH)
    decoded = JsonDecoder(pa.schema({"a": data_type})).decode(pa.array([value]))
    assert (decoded.values.null_count, decoded.malformed) == (0, None)


def test_a_schema_that_is_nested_too_deeply_is_rejected() -> None:
    data_type: pa.DataType = pa.int8()
    for _ in range(70):
        data_type = pa.list_(data_type)
    with pytest.raises(ValueError, match="has more than 60 levels"):
        JsonDecoder(pa.schema({"a": data_type}))
