"""Decoders of the user: what they receive, and what is checked of what they return."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import OptionError, RecordTooLargeError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable

TP = TopicPartition("flights", 3)
STRUCT = pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int32())))])


@pytest.fixture
def decode(monkeypatch: pytest.MonkeyPatch) -> Callable[..., pa.Array]:
    """Decode the values ``a``, null and ``b`` with the decoder that a factory returns."""

    def decode(factory: Any, data_type: pa.DataType = STRUCT) -> pa.Array:
        module = ModuleType("my_decoders")
        module.nested = SimpleNamespace(make=factory)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_decoders", module)
        settings = PayloadSettings(value=SidePayload("value", "my_decoders:nested.make"))
        decoder = PayloadDecoder(settings, ("value", "offset"), pa.schema({"v": data_type, "o": pa.int64()}))
        batch = pa.RecordBatch.from_pydict(
            {"value": [b"a", None, b"b"], "offset": [5, 6, 7]}, arrow_schema(decoder.record_columns)
        )
        (decoded,) = decoder.decode(iter([batch]), TP)
        assert decoded.schema.names == ["v", "o"]
        return decoded.column(0)

    return decode


def test_the_factory_receives_the_type_and_the_decoder_the_values(decode: Callable[..., pa.Array]) -> None:
    calls: list[object] = []

    def factory(data_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
        calls.append(data_type)
        return lambda values: pa.array([value and {"a": [len(value)]} for value in values.to_pylist()], data_type)

    assert decode(factory).to_pylist() == [{"a": [1]}, None, {"a": [1]}]
    assert calls == [STRUCT]


def test_a_decoder_may_return_bytes(decode: Callable[..., pa.Array]) -> None:
    assert decode(lambda data_type: lambda values: values, pa.binary()).to_pylist() == [b"a", None, b"b"]


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (
            None,
            r"my_decoders:nested\.make\(\) must return a function that decodes an Arrow array, not builtins.NoneType",
        ),
        (lambda values: values.to_pylist(), "the decoder must return a pyarrow.Array, not builtins.list"),
        (lambda values: pa.chunked_array([values]), r"pyarrow.Array, such as chunked_array.combine_chunks\(\), not"),
        (lambda values: values, r"of the type that the factory receives, struct<a: list<.*>>, not binary; return"),
        (
            lambda values: pa.nulls(3, pa.struct({"a" * 600: pa.int32()})),
            rf"struct<a: list<.*>>, not struct<{'a' * 493}\.\.\.; return",
        ),
        (lambda values: pa.nulls(2, STRUCT), "got 2 rows for 3 values; return null for a value that cannot be decoded"),
    ],
)
def test_an_unusable_decoder_is_an_error(decode: Callable[..., pa.Array], decoder: object, message: str) -> None:
    with pytest.raises(OptionError, match=rf"option valueFormat: .*{message}"):
        decode(lambda _: decoder)


def test_a_factory_that_is_no_function_is_an_error(decode: Callable[..., pa.Array]) -> None:
    with pytest.raises(OptionError, match=r"'my_decoders:nested\.make' is not a function that returns a decoder"):
        decode("make")


def test_a_decoder_without_memory_is_named(decode: Callable[..., pa.Array]) -> None:
    def fail(_: pa.Array) -> NoReturn:
        raise pa.ArrowMemoryError("realloc failed")

    message = r"not enough memory to decode values as my_decoders:nested\.make\. Give"
    with pytest.raises(RecordTooLargeError, match=message):
        decode(lambda _: fail)
