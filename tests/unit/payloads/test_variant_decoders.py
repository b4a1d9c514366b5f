"""Decoding of JSON to VARIANTs, whose bytes are those of PySpark's ``VariantBuilder``; see also tests/golden."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils
from tests.unit.payloads.test_json_decoders import errors

from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder, is_variant

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


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(values, st.booleans())
@example({f"k{number}": [number] for number in range(300)}, True)
@example([[number] * 3 for number in range(300)], False)
def test_the_bytes_are_those_of_pyspark(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    content, metadata = VariantUtils.parse_json(text)
    decoded = JsonDecoder(None).decode(pa.array([text.encode()], pa.binary()))
    assert decoded.malformed is None
    assert decoded.values.to_pylist() == [{"value": content, "metadata": metadata}]


def test_the_type_is_that_of_spark() -> None:
    decoder = JsonDecoder(None)
    decoded = decoder.decode(pa.array([b"1", None, b"{"], pa.binary()))
    assert is_variant(decoded.values.type)
    assert decoded.values.to_pylist() == [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None, None]
    assert errors(decoded) == [None, None, (1, "the JSON is incomplete")]
    assert is_variant(decoder.decode(pa.array([], pa.binary())).values.type)


@pytest.mark.slow
def test_batches_do_not_share_memory() -> None:
    """The decoder reuses buffers of earlier batches, but not while something refers to them."""
    decoder = JsonDecoder(None)
    numbers = random.Random(5)
    retained: list[tuple[pa.Array, list[object]]] = []
    for _ in range(200):
        expected = ["s" * numbers.randrange(30) for _ in range(50)]
        values = [json.dumps({f"key{len(text) % 3}": text}).encode() for text in expected]
        decoded = decoder.decode(pa.array(values, pa.binary())).values
        rows = decoded.to_pylist()
        objects: list[object] = [VariantUtils.to_python(**row) for row in rows]
        assert objects == [{f"key{len(text) % 3}": text} for text in expected]
        retained.append((decoded, rows))
        if numbers.random() < 0.7:
            del retained[numbers.randrange(len(retained))]
        for kept, rows_before in retained[-8:]:
            assert kept.to_pylist() == rows_before


@pytest.mark.parametrize("levels", [1000, 1001, 100_000])
def test_nesting_is_bounded(levels: int) -> None:
    decoded = JsonDecoder(None).decode(pa.array([b"[" * levels + b"]" * levels], pa.binary()))
    assert errors(decoded) == [None if levels <= 1000 else (1000, "nested too deeply")]
