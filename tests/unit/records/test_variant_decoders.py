"""Both VARIANT decoders: on the same values they return the same bytes, and those of PySpark's ``VariantBuilder``."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils
from tests.examples import seeds
from tests.unit.records.random_json import RandomJson
from tests.unit.records.test_json_decoders import errors

from pyspark_kafka_direct.records import IMPLEMENTATION, DecodedValues, JsonDecoder, create_json_decoder
from pyspark_kafka_direct.records.json_values import JsonRequest, is_variant, variant_type
from pyspark_kafka_direct.records.python.json_decoder import create_json_decoder as create_python_decoder

STRUCT = pa.schema(
    {
        "i": pa.int32(),
        "o": variant_type(),
        "a": pa.list_(pa.field("element", variant_type())),
        "corrupt": pa.string(),
    }
)

# PySpark sorts keys by code points, and Spark by UTF-16 units.
texts = st.text(st.characters(max_codepoint=0xD7FF), max_size=70)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**39)
    | st.integers(-(2**16), 2**16)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=5).map(float)
    | texts,
    lambda children: st.lists(children, max_size=5) | st.dictionaries(texts, children, max_size=5),
    max_leaves=20,
)


def decoders(fields: pa.Schema | None = None) -> list[JsonDecoder]:
    request = JsonRequest(fields, "corrupt")
    if IMPLEMENTATION != "native":
        return [create_python_decoder(request)]
    return [create_python_decoder(request), create_json_decoder(fields, "corrupt")]


def comparable(decoded: DecodedValues) -> Any:
    decoded.values.validate(full=True)
    return decoded.values.to_pylist(), errors(decoded)


def test_the_decoders_agree() -> None:
    @seeds(400)
    def check(source: random.Random) -> None:
        rows = [RandomJson(source, ()).row() for _ in range(source.randint(0, 8))]
        array = pa.array(rows, pa.binary()).slice(source.randint(0, min(2, len(rows))))
        first, *others = [comparable(decoder.decode(array)) for decoder in decoders()]
        for other in others:
            assert other == first, rows

    check()


def test_the_decoders_agree_on_variants_in_structs() -> None:
    def assert_agreement(rows: list[bytes | None]) -> None:
        first, *others = [comparable(decoder.decode(pa.array(rows, pa.binary()))) for decoder in decoders(STRUCT)]
        for other in others:
            assert repr(other) == repr(first), rows

    @seeds(200)
    def check(source: random.Random) -> None:
        assert_agreement([RandomJson(source, STRUCT.names).row() for _ in range(source.randint(0, 4))])

    check()
    assert_agreement(
        [
            b'{"o":{"x":1,"x":1},"i":1}',
            b'{"o":{"x":1},"o":null,"o":{"y":"\\ud83d"},"i":1}',
            b'{"a":[1,"x",{"x":1,"x":1}]}',
        ]
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(values, st.booleans())
@example({f"k{number}": [number] for number in range(300)}, True)
@example([[number] * 3 for number in range(300)], False)
def test_the_bytes_are_those_of_pyspark(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    content, metadata = VariantUtils.parse_json(text)
    for decoder in decoders():
        decoded = decoder.decode(pa.array([text.encode()], pa.binary()))
        assert decoded.malformed is None
        assert decoded.values.to_pylist() == [{"value": content, "metadata": metadata}]


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
def test_the_type_is_that_of_spark(decoder: JsonDecoder) -> None:
    decoded = decoder.decode(pa.array([b"1", None, b"{"], pa.binary()))
    assert is_variant(decoded.values.type)
    assert decoded.values.to_pylist() == [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None, None]
    assert errors(decoded) == [None, None, (1, "the JSON is incomplete")]
    assert is_variant(decoder.decode(pa.array([], pa.binary())).values.type)


@pytest.mark.slow
@pytest.mark.skipif(IMPLEMENTATION != "native", reason="the native decoder was not built (no Rust toolchain)")
def test_batches_do_not_share_memory() -> None:
    """The native decoder reuses buffers of earlier batches, but not while something refers to them."""
    decoder = create_json_decoder(None)
    numbers = random.Random(5)
    retained: list[tuple[pa.Array, list[str]]] = []
    for _ in range(200):
        expected = ["s" * numbers.randrange(30) for _ in range(50)]
        values = [json.dumps({f"key{len(text) % 3}": text}).encode() for text in expected]
        retained.append((decoder.decode(pa.array(values, pa.binary())).values, expected))
        if numbers.random() < 0.7:
            del retained[numbers.randrange(len(retained))]
        for kept, content in retained[-8:]:
            objects: list[object] = [VariantUtils.to_python(**row) for row in kept.to_pylist()]
            assert objects == [{f"key{len(text) % 3}": text} for text in content]


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize("levels", [1000, 1001, 100_000])
def test_nesting_is_bounded(decoder: JsonDecoder, levels: int) -> None:
    decoded = decoder.decode(pa.array([b"[" * levels + b"]" * levels], pa.binary()))
    assert errors(decoded) == [None if levels <= 1000 else (1000, "nested too deeply")]
