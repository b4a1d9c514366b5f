"""A warning about wanted fields that no JSON value has."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct import functions
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.json import missing_fields
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = pa.struct(
    {"id": pa.int64(), "carrier": pa.string(), "at": pa.struct({"city": pa.string()}), "l": pa.list_(pa.int64())}
)
WHOLE = {"id": 1, "carrier": "UA", "at": {"city": "Ulm"}, "l": [1]}
TOPIC = TopicPartition("flights", 0)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    option_messages.warn_once.cache_clear()

    def take() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return sorted(found)

    return take


def decoder(side: str = "value", data_type: pa.DataType = ROW, **fields: Any) -> PayloadDecoder:
    payload = SidePayload(side, "json", **fields)  # type: ignore[arg-type]
    return PayloadDecoder(PayloadSettings().with_side(payload), [side], pa.schema({side: data_type}))


def read(decode: PayloadDecoder, *values: Any, side: str = "value") -> list[Any]:
    data = [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in values]
    batch = pa.RecordBatch.from_pydict({side: data}, arrow_schema([side]))
    (decoded,) = decode.decode([batch], TOPIC)
    found: list[Any] = decoded.column(0).to_pylist()
    return found


@pytest.mark.parametrize("side", ["key", "value"])
def test_a_misspelt_name_is_reported_once(side: str, warnings: Callable[[], list[str]]) -> None:
    values = [{**WHOLE, "carrier": None, "carier": "UA", "other": 1} for _ in range(3)]
    for value in values:
        del value["carrier"]
    for _ in range(2):  # each batch of a stream has its own decoder
        decode = decoder(side)
        assert [row["carrier"] for row in read(decode, None, *values, side=side)[1:]] == [None] * 3
        read(decode, *values, side=side)
    text = f"flights, {side}s: no value has the field 'carrier', so it is null; did you mean 'carier'?"
    assert warnings() == [text]


def test_a_misspelt_name_of_a_later_value_and_of_both_sides(warnings: Callable[[], list[str]]) -> None:
    read(decoder(), {"id": 1}, {"id": 1, "carier": "UA"})
    missing = "s: no value has the field 'carrier', so it is null; did you mean 'carier'?"
    assert warnings() == [f"flights, value{missing}"]
    settings = PayloadSettings(SidePayload("key", "json"), SidePayload("value", "json"))
    decode = PayloadDecoder(settings, ["key", "value"], pa.schema({"key": ROW, "value": ROW}))
    data = [json.dumps({**WHOLE, "carrier": None, "Carier": 1}).replace('"carrier": null, ', "").encode()]
    batch = pa.RecordBatch.from_pydict({"key": data, "value": data}, arrow_schema(["key", "value"]))
    list(decode.decode([batch], TOPIC))
    missing = missing.replace("carier", "Carier")
    assert warnings() == [f"flights, key{missing}", f"flights, value{missing}"]


def test_fields_of_structs(warnings: Callable[[], list[str]]) -> None:
    read(decoder(), {**WHOLE, "at": {"City": "Ulm"}}, {**WHOLE, "at": None})
    assert warnings() == ["flights, values: no value has the field 'at.city', so it is null; did you mean 'City'?"]
    nested = pa.struct(
        {"id": pa.int64(), "by": pa.struct({"at": pa.struct({"zip": pa.string(), "city": pa.string()})})}
    )
    read(decoder(data_type=nested), {"id": 1, "by": {"at": {"zip": "89073", "City": "Ulm"}}})
    assert warnings() == ["flights, values: no value has the field 'by.at.city', so it is null; did you mean 'City'?"]
    read(decoder(data_type=nested), {"Id": 1, "by": {"at": {"Zip": "89073", "city": "Ulm"}}})
    assert warnings() == [
        "flights, values: no value has the field 'by.at.zip', so it is null; did you mean 'Zip'?",
        "flights, values: no value has the field 'id', so it is null; did you mean 'Id'?",
    ]
    other = pa.struct({"Town": pa.string(), "at": pa.struct({"town": pa.string()})})  # the same name elsewhere
    read(decoder(data_type=other), {"Town": "Ulm", "at": {"Town": "Ulm"}})
    assert warnings() == ["flights, values: no value has the field 'at.town', so it is null; did you mean 'Town'?"]
    read(decoder(), {**WHOLE, "at": {"place": "Ulm"}}, {"At": 1})
    assert warnings() == [], "a value without similar names is no sample"
    read(decoder(), {"id": 1, "carrier": "UA", "l": [1], "At": {"city": "Ulm"}})
    assert warnings() == ["flights, values: no value has the field 'at', so it is null; did you mean 'At'?"]


def test_a_name_that_is_like_no_other_needs_more_values(warnings: Callable[[], list[str]]) -> None:
    value = {"id": 1, "at": {"city": "Ulm"}, "l": [1], "airline": "UA"}
    decode = decoder()
    read(decode, *[value] * 19)
    assert warnings() == []
    read(decode, *[value] * 20)
    assert warnings() == ["flights, values: no value has the field 'carrier', so it is null; check its name"]


def test_many_names_are_data_and_take_no_time(warnings: Callable[[], list[str]]) -> None:
    values = [{"carier": "UA", **{f"carrier-{row}-{number}": 1 for number in range(1000)}} for row in range(20)]
    started = time.process_time()
    read(decoder(data_type=pa.struct({f"carrier{number}": pa.string() for number in range(20)})), *values)
    assert time.process_time() - started < 2, "comparing 20,000 names takes 0.2 s for each field"
    assert set(warnings()) == {
        f"flights, values: no value has the field 'carrier{number}', so it is null; check its name"
        for number in range(20)
    }


@pytest.mark.parametrize(
    "values",
    [
        [WHOLE] * 30,
        [{**WHOLE, "carrier": None, "carier": 1}] * 30,  # it is there
        [{"id": 1, "at": {"city": "Ulm"}, "l": [1]}] * 30,  # there is no other field: it may be optional
        [{**WHOLE, "carier": 1}, {"id": 1, "carier": 1, "at": {"city": "Ulm"}, "l": [1]}],  # one value has it
        [None, b"", b" ", b"[1]", b"5", b"{", b"[" * 100_000],
        [b'{"carier": "' + b"x" * 100_000 + b'"}'],  # too large to be parsed twice
    ],
)
def test_no_warning(values: list[Any], warnings: Callable[[], list[str]]) -> None:
    read(decoder(), *values)
    assert [text for text in warnings() if "no value has" in text] == []


def test_a_variant_and_the_field_for_malformed_values_have_no_names(warnings: Callable[[], list[str]]) -> None:
    corrupt = pa.struct({"id": pa.int64(), "_corrupt_record": pa.string()})
    read(decoder(data_type=corrupt), *[{"id": 1, "corrupt_record": 1}] * 30)
    assert warnings() == []


def test_values_behind_schema_ids(warnings: Callable[[], list[str]]) -> None:
    value = b"\0\0\0\0\1" + json.dumps({"id": 1, "carier": "UA"}).encode()
    assert read(decoder(framing="confluent"), value)[0]["id"] == 1
    assert "flights, values: no value has the field 'carrier', so it is null; did you mean 'carier'?" in warnings()


def test_fields_are_looked_for_in_some_batches(
    warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = decoder()
    for _ in range(101):
        read(decode, {"id": 1})
    monkeypatch.setattr(missing_fields, "_objects", None)  # not called any more
    read(decode, {"carier": 1})
    assert warnings() == []


def test_the_function(warnings: Callable[[], list[str]]) -> None:
    function = functions._decode_function(pa.schema(list(ROW)), "_corrupt_record", "UTC", failing=False)
    assert function(pa.array(['{"id": 1, "Carrier": "UA"}', None])).to_pylist()[0]["id"] == 1
    assert "from_json: no value has the field 'carrier', so it is null; did you mean 'Carrier'?" in warnings()


def test_fields_with_values_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = decoder()
    read(decode, WHOLE)

    def parse(_: object) -> None:
        raise AssertionError("the values are parsed a second time")

    monkeypatch.setattr(missing_fields, "_objects", parse)
    monkeypatch.setattr(missing_fields, "_is_null", parse)
    assert read(decode, {"other": 1}) == [dict.fromkeys(WHOLE)]
