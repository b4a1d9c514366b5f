"""Decoding of keys and values: the formats, the modes, and the errors."""

from __future__ import annotations

import itertools
import logging
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import MalformedPayloadError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE
from pyspark_kafka_direct.payloads.json import json_column
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder, variant_type
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.payload_settings import MalformedMode

TP = TopicPartition("flights", 3)
STRUCT = pa.struct({"origin": pa.string(), "delay": pa.float64()})
GOOD, BAD, UNFIT = b'{"origin":"JFK","delay":1.5}', b'{"origin":"LGA', b'{"origin":"EWR","delay":"late"}'


def records(decoder: PayloadDecoder, values: Sequence[bytes | None], first_offset: int = 100) -> pa.RecordBatch:
    rows = [
        {"key": b"k%d" % index, "value": value, "offset": first_offset + index, "partition": 3}
        for index, value in enumerate(values)
    ]
    names = decoder.record_columns
    return pa.RecordBatch.from_pylist([{name: row[name] for name in names} for row in rows], arrow_schema(names))


def decoder(mode: MalformedMode = "PERMISSIVE", columns: Sequence[str] = ("value",)) -> PayloadDecoder:
    settings = PayloadSettings(value=SidePayload("value", "json"), mode=mode)
    types = {
        "value": STRUCT,
        "key": pa.binary(),
        "offset": pa.int64(),
        "partition": pa.int32(),
        "_error": ERROR_TYPE,
    }
    return PayloadDecoder(settings, columns, pa.schema([(name.upper(), types[name]) for name in columns]))


def rows_of(payloads: PayloadDecoder, *batches: pa.RecordBatch) -> list[dict[str, object]]:
    return [row for batch in payloads.decode(iter(batches), TP) for row in batch.to_pylist()]


def test_fields_that_cannot_be_decoded_are_null() -> None:
    payloads = decoder(columns=("offset", "value", "key"))
    assert rows_of(payloads, records(payloads, [GOOD, BAD, UNFIT, None])) == [
        {"OFFSET": 100, "VALUE": {"origin": "JFK", "delay": 1.5}, "KEY": b"k0"},
        {"OFFSET": 101, "VALUE": {"origin": None, "delay": None}, "KEY": b"k1"},
        {"OFFSET": 102, "VALUE": {"origin": "EWR", "delay": None}, "KEY": b"k2"},
        {"OFFSET": 103, "VALUE": None, "KEY": b"k3"},
    ]


def test_malformed_records_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    payloads = decoder("DROPMALFORMED", ("value", "offset"))
    batches = [
        records(payloads, [BAD, GOOD, None]),
        records(payloads, [UNFIT, BAD], 200),
        records(payloads, [GOOD], 300),
    ]
    with caplog.at_level(logging.WARNING):
        decoded = list(payloads.decode(iter(batches), TP))
        assert payloads.take_malformed() == {TP: 3}
        assert not payloads.take_malformed()
    assert [batch.column(1).to_pylist() for batch in decoded] == [[101, 102], [300]]
    (record,) = caplog.records
    assert record.getMessage() == "flights-3: 3 malformed records were dropped (mode=DROPMALFORMED)"


@pytest.mark.parametrize("value_type", [STRUCT, variant_type(), pa.struct({"_corrupt_record": pa.string()})])
@pytest.mark.parametrize("columns", [("value",), ("value", "_error")])
def test_malformed_records_that_no_column_shows_are_logged(
    value_type: pa.DataType, columns: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    types = {"value": value_type, "_error": ERROR_TYPE}
    schema = pa.schema([(name, types[name]) for name in columns])
    payloads = PayloadDecoder(PayloadSettings(value=SidePayload("value", "json")), columns, schema)
    rows_of(payloads, records(payloads, [BAD, GOOD, None]), records(payloads, [BAD]))
    assert payloads.take_malformed() == {TP: 2}
    shown = "_error" in columns or value_type.get_field_index("_corrupt_record") >= 0
    expected = "flights-3: 2 malformed records were read as null (mode=PERMISSIVE); the column _error would say why"
    assert [record.getMessage() for record in caplog.records] == [expected] * (not shown)


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), ("offset", "value", "partition")])
def test_the_query_fails_at_the_first_malformed_record(columns: tuple[str, ...]) -> None:
    payloads = decoder("FAILFAST", columns)
    good = records(payloads, [GOOD, GOOD])
    (first,) = payloads.decode(iter([good]), TP)
    assert first.schema.names == [name.upper() for name in columns]
    with pytest.raises(MalformedPayloadError) as caught:
        list(payloads.decode(iter([good, records(payloads, [GOOD, BAD, UNFIT], 102)]), TP))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.topic, error.partition, error.offset) == ("flights", 3, 103)
    assert str(error) == (
        "The value cannot be decoded as JSON: the JSON is incomplete, at byte 14. Set mode=PERMISSIVE to read what "
        "cannot be decoded as null, or mode=DROPMALFORMED to drop the record. "
        "[topic flights, partition 3, offset 103]"
    )


def test_keys_and_values_are_decoded_by_themselves() -> None:
    settings = PayloadSettings(
        key=SidePayload("key", "json"),
        value=SidePayload("value", "string"),
        mode="DROPMALFORMED",
        corrupt_record="text",
    )
    schema = pa.schema({"key": pa.struct({"id": pa.int32(), "text": pa.string()}), "value": pa.string()})
    payloads = PayloadDecoder(settings, ("key", "value"), schema)
    batch = pa.RecordBatch.from_pydict(
        {"key": [b'{"id":1}', b"{", b'{"id":2}'], "value": [b"a", b"b", None]}, arrow_schema(("key", "value"))
    )
    assert rows_of(payloads, batch.slice(0, 3)) == [
        {"key": {"id": 1, "text": None}, "value": "a"},
        {"key": {"id": 2, "text": None}, "value": None},
    ]


def error(side: str, stage: str, message: str) -> dict[str, object]:
    return {"side": side, "stage": stage, "class": "MalformedPayloadError", "message": message, "schema_id": None}


def test_errors_are_a_column() -> None:
    payloads = decoder(columns=("value", "_error", "offset"))
    assert payloads.record_columns == ("value", "offset")
    rows = rows_of(payloads, records(payloads, [GOOD, BAD, None, UNFIT]), records(payloads, [GOOD], 200))
    assert [row["_ERROR"] for row in rows] == [
        None,
        error("value", "parse", "the JSON is incomplete, at byte 14"),
        None,
        error("value", "convert", "the value does not have the type of its column, at byte 24"),
        None,
    ]


def test_the_error_of_the_first_side_is_reported() -> None:
    settings = PayloadSettings(key=SidePayload("key", "json"), value=SidePayload("value", "json"))
    schema = pa.schema({"value": STRUCT, "key": STRUCT, "_error": ERROR_TYPE})
    payloads = PayloadDecoder(settings, ("value", "key", "_error"), schema)
    batch = pa.RecordBatch.from_pydict(
        {"value": [GOOD, BAD, GOOD], "key": [BAD, b"1", GOOD]}, arrow_schema(("value", "key"))
    )
    (decoded,) = payloads.decode(iter([batch]), TP)
    sides = [row and (row["side"], row["message"]) for row in decoded.column(2).to_pylist()]
    incomplete = "the JSON is incomplete, at byte 14"
    assert sides == [("key", incomplete), ("value", incomplete), None]
    failing = PayloadDecoder(replace(settings, mode="FAILFAST"), ("value", "key"), schema.remove(2))
    batch = batch.append_column("offset", pa.array([5, 6, 7]))
    with pytest.raises(MalformedPayloadError, match=r"^The key cannot be decoded .*offset 5\]"):
        list(failing.decode(iter([batch]), TP))


@pytest.mark.parametrize("columns", [("key", "value", "_error"), ("_error", "value", "key")])
def test_the_stage_of_an_error_is_that_of_its_format(columns: tuple[str, ...]) -> None:
    text = SidePayload("key", "string", charset="US-ASCII")
    for key, value in ((text, SidePayload("value", "json")), (SidePayload("key", "json"), replace(text, side="value"))):
        json_side, other = ("key", "value") if key.format == "json" else ("value", "key")
        types = {json_side: STRUCT, other: pa.string(), "_error": ERROR_TYPE}
        payloads = PayloadDecoder(
            PayloadSettings(key, value), columns, pa.schema([(name, types[name]) for name in columns])
        )
        data = {json_side: [UNFIT, BAD, GOOD, GOOD], other: [b"a", b"b", b"\xff", b"c"]}
        names = payloads.record_columns
        batch = pa.RecordBatch.from_pydict({name: data[name] for name in names}, arrow_schema(names))
        found = [row["_error"] for decoded in payloads.decode(iter([batch]), TP) for row in decoded.to_pylist()]
        assert [each and (each["side"], each["stage"]) for each in found] == [
            (json_side, "convert"),
            (json_side, "parse"),
            (other, "parse"),
            None,
        ]


@pytest.mark.parametrize("values", [[], [None, None], [BAD, BAD], [GOOD, None], [GOOD, BAD]])
def test_every_batch_has_the_types_of_the_schema(values: list[bytes | None]) -> None:
    """Spark compares the types of the first batch only."""
    modes: tuple[MalformedMode, ...] = ("PERMISSIVE", "DROPMALFORMED")
    for mode in modes:
        payloads = decoder(mode, ("value", "key", "offset", "_error"))
        for batch in payloads.decode(iter([records(payloads, values), records(payloads, [GOOD])]), TP):
            types = [STRUCT, pa.binary(), pa.int64(), ERROR_TYPE]
            assert batch.schema == pa.schema(list(zip(("VALUE", "KEY", "OFFSET", "_ERROR"), types, strict=True)))
            batch.validate(full=True)


def test_the_text_of_malformed_records_is_in_the_field_for_it() -> None:
    schema = pa.schema({"value": pa.struct({"text": pa.string(), "delay": pa.float64()})})
    payloads = PayloadDecoder(
        PayloadSettings(value=SidePayload("value", "json"), corrupt_record="text"), ("value",), schema
    )
    assert rows_of(payloads, records(payloads, [GOOD, BAD])) == [
        {"value": {"text": None, "delay": 1.5}},
        {"value": {"text": BAD.decode(), "delay": None}},
    ]


def test_malformed_variants_are_null_and_have_an_error() -> None:
    names = ("value", "_error")
    schema = pa.schema({"value": variant_type(), "_error": ERROR_TYPE})
    payloads = PayloadDecoder(PayloadSettings(value=SidePayload("value", "json")), names, schema)
    first, second, third = rows_of(payloads, records(payloads, [b'{"a":1}', b'{"a":1,"a":2}', b"[1,"]))
    assert first == {
        "value": {"value": b"\x02\x01\x00\x00\x02\x0c\x01", "metadata": b"\x01\x01\x00\x01a"},
        "_error": None,
    }
    assert second["value"] is third["value"] is None
    errors = [error for row in (second, third) if isinstance(error := row["_error"], dict)]
    assert [(error["stage"], error["message"]) for error in errors] == [
        ("convert", "an object has a key twice, at byte 12"),
        ("parse", "the JSON is incomplete, at byte 3"),
    ]


def test_strings_are_not_copied_or_checked() -> None:
    schema = pa.schema({"value": pa.string()})
    payloads = PayloadDecoder(PayloadSettings(value=SidePayload("value", "string")), ("value",), schema)
    batch = records(payloads, [b"a", b"\xff", None, "é".encode()]).slice(1)
    (decoded,) = payloads.decode(iter([batch]), TP)
    assert decoded.column(0).cast(pa.binary()).to_pylist() == [b"\xff", None, "é".encode()]
    assert decoded.column(0).buffers()[2].address == batch.column(0).buffers()[2].address


def test_the_bytes_of_malformed_records_are_in_a_binary_field() -> None:
    struct = pa.struct({"delay": pa.float64(), "_corrupt_record": pa.binary()})
    settings = PayloadSettings(key=SidePayload("key", "json"), value=SidePayload("value", "json"))
    payloads = PayloadDecoder(settings, ("key", "value"), pa.schema({"key": struct, "value": struct}))
    pairs = [
        (b"{}", b'{"delay":1}'),
        (b"{", b"\xff"),
        (b"", b"["),
        (b"{", None),
        (b" ", b"  "),
        (None, b'{"delay":"\xff"}'),
        (b"{1}", b'{"delay": 2 }'),
    ]
    names = payloads.record_columns
    batch = pa.RecordBatch.from_pylist([dict(zip(names, pair, strict=True)) for pair in pairs], arrow_schema(names))
    decoded = rows_of(payloads, batch)

    def expected(delay: float | None, original: bytes | None) -> dict[str, object]:
        return {"delay": delay, "_corrupt_record": original}

    assert [row["key"] for row in decoded] == [
        expected(None, None),
        expected(None, b"{"),
        expected(None, b""),
        expected(None, b"{"),
        None,
        None,
        expected(None, b"{1}"),
    ]
    assert [row["value"] for row in decoded] == [
        expected(1, None),
        expected(None, b"\xff"),
        expected(None, b"["),
        None,
        None,
        expected(None, b'{"delay":"\xff"}'),
        expected(2, b'{"delay": 2 }'),
    ]
    assert rows_of(payloads, batch.slice(0, 1)) == [{"key": expected(None, None), "value": expected(1, None)}]
    assert rows_of(payloads, batch.slice(6)) == [{"key": expected(None, b"{1}"), "value": expected(2, pairs[6][1])}]
    assert rows_of(payloads, batch.slice(2, 1)) == [{"key": expected(None, b""), "value": expected(None, b"[")}]


@pytest.mark.parametrize("names", [*itertools.permutations(["origin", "_corrupt_record", "delay"])])
def test_the_field_for_original_bytes_may_be_anywhere(names: tuple[str, ...]) -> None:
    types = {"origin": pa.string(), "delay": pa.float64(), "_corrupt_record": pa.binary()}
    schema = pa.schema({"value": pa.struct([(name, types[name]) for name in names])})
    payloads = PayloadDecoder(PayloadSettings(value=SidePayload("value", "json")), ("value",), schema)
    first, second = rows_of(payloads, records(payloads, [GOOD, BAD]))
    assert first == {"value": {"origin": "JFK", "delay": 1.5, "_corrupt_record": None}}
    assert second == {"value": {"origin": None, "delay": None, "_corrupt_record": BAD}}


AVRO = '{"type":"record","name":"R","fields":[{"name":"origin","type":"string"},{"name":"delay","type":"double"}]}'
DATUM = b"\x06JFK" + b"\0" * 6 + b"\xf8\x3f"


def avro_decoder(mode: MalformedMode, *columns: str) -> PayloadDecoder:
    types = {
        "value": pa.struct({"delay": pa.float64(), "_corrupt_record": pa.binary()}),
        "offset": pa.int64(),
        "_error": ERROR_TYPE,
    }
    settings = PayloadSettings(value=SidePayload("value", "avro", schema=AVRO), mode=mode)
    return PayloadDecoder(settings, columns, pa.schema([(name, types[name]) for name in columns]))


def test_malformed_avro_has_an_error_and_its_bytes() -> None:
    payloads = avro_decoder("PERMISSIVE", "value", "_error")
    first, second, third = rows_of(payloads, records(payloads, [DATUM, DATUM[:-1], None]))
    assert first == {"value": {"delay": 1.5, "_corrupt_record": None}, "_error": None}
    assert third == {"value": None, "_error": None}
    assert second["value"] == {"delay": None, "_corrupt_record": DATUM[:-1]}
    assert second["_error"] == {
        "side": "value",
        "stage": "parse",
        "class": "MalformedPayloadError",
        "message": "the datum is incomplete, at byte 4",
        "schema_id": None,
    }


def test_malformed_avro_can_fail_the_task_or_be_dropped() -> None:
    payloads = avro_decoder("FAILFAST", "value")
    with pytest.raises(
        MalformedPayloadError, match="The value cannot be decoded as Avro: bytes after the end"
    ) as caught:
        rows_of(payloads, records(payloads, [DATUM, DATUM + b"x"]))
    assert caught.value.offset == 101
    payloads = avro_decoder("DROPMALFORMED", "value", "offset")
    assert [row["offset"] for row in rows_of(payloads, records(payloads, [DATUM[1:], DATUM]))] == [101]


WIDE = pa.struct([("delay", pa.float64()), *((f"f{number}", pa.int32()) for number in range(500))])


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_batch_that_would_be_too_large_is_split(mode: MalformedMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides are decoded, and end their batches at other rows."""
    monkeypatch.setattr(json_column, "JsonDecoder", partial(JsonDecoder, max_bytes=1 << 20))
    names = ("key", "offset", "value")
    types = [WIDE, pa.int64(), pa.struct([*WIDE, *((f"g{number}", pa.int8()) for number in range(200))])]
    settings = PayloadSettings(key=SidePayload("key", "json"), value=SidePayload("value", "json"), mode=mode)
    payloads = PayloadDecoder(settings, names, pa.schema(list(zip(names, types, strict=True))))
    rows = 312
    offsets = pa.array(range(100, 100 + rows), pa.int64())
    keys = pa.array([b'{"delay":%d}' % row for row in range(rows)], pa.binary())
    malformed = {234, 311}
    values = pa.array([b"{" if row in malformed else b'{"delay":%d}' % row for row in range(rows)], pa.binary())
    batch = pa.record_batch([keys, offsets, values], list(payloads.record_columns))
    sizes, seen = [], []
    for decoded in payloads.decode([batch], TP):
        assert max(decoded.column(0).nbytes, decoded.column(2).nbytes) <= 1 << 20
        sizes.append(decoded.num_rows)
        delays = [decoded.column(side).field("delay").to_pylist() for side in (0, 2)]
        seen += list(zip(decoded.column("offset").to_pylist(), *delays, strict=True))
    assert len(sizes) == 3, "the wider value ends two batches, and the key one"
    expected = [(100 + row, row, None if row in malformed else row) for row in range(rows)]
    assert seen == [row for row in expected if mode == "PERMISSIVE" or row[2] is not None]
    assert payloads.take_malformed() == {TP: 2}


def test_ids_in_headers_of_a_batch_that_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_column, "JsonDecoder", partial(JsonDecoder, max_bytes=1))
    settings = PayloadSettings(SidePayload("key", "string"), SidePayload("value", "json", framing="header"))
    schema = pa.schema({"key": pa.string(), "value": STRUCT, "_error": ERROR_TYPE})
    payloads = PayloadDecoder(settings, tuple(schema.names), schema)
    assert payloads.record_columns == ("key", "value", "headers")
    ids = [5, 7, None, 9]
    headers = [[] if each is None else [{"key": "__value_schema_id", "value": b"\0\0\0\0%c" % each}] for each in ids]
    values = [BAD if each is not None else b"\0\0\0\0\3" + BAD for each in ids]
    batch = pa.RecordBatch.from_pydict(
        {"key": [b"k"] * 4, "value": values, "headers": headers}, arrow_schema(payloads.record_columns)
    )
    decoded = list(payloads.decode([batch], TP))
    assert [each.num_rows for each in decoded] == [1] * 4
    errors = [each.column(2).to_pylist()[0] for each in decoded]
    assert [(each["message"], each["schema_id"]) for each in errors] == [
        (f"the JSON is incomplete, at byte {14 if each else 19}", each or 3) for each in ids
    ]


OUT_OF_MEMORY = """
import resource
from pathlib import Path
import pyarrow as pa
from tests.unit.payloads.test_payload_decoder import PayloadDecoder, PayloadSettings, SidePayload, records, rows_of
struct = pa.struct({"delays": pa.list_(pa.int64())})
sides = {side: SidePayload(side, "json") for side in ("key", "value")}
payloads = PayloadDecoder(PayloadSettings(**sides), ("key", "value"), pa.schema({"key": struct, "value": struct}))
batch = records(payloads, [b'{"delays":[' + b"1," * (6 << 20) + b"1]}"])
rows_of(payloads, batch.slice(0, 0))  # to load everything
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (8 << 20), resource.RLIM_INFINITY))
try:
    rows_of(payloads, batch)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
def test_a_worker_without_memory_gets_advice() -> None:
    """With the memory limit of ``spark.executor.pyspark.memory``."""
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=True, timeout=300
    )
    assert re.match(
        r"RecordTooLargeError: .*not enough memory to decode keys as JSON and values as JSON\..*spark\.executor",
        ended.stdout,
    ), ended
    assert "[topic flights, partition 3" in ended.stdout
