"""Conversion of Spark's Arrow batches to rows for the producer."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.payloads.avro.encoder_program import AvroEncoderSettings
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.json.encoder_settings import JsonEncoderSettings
from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
from pyspark_kafka_direct.payloads.write_rows import (
    HEADERS,
    append_headers,
    split_rows,
    stamp_headers,
    to_producer_rows,
)
from pyspark_kafka_direct.payloads.write_schema import WriteSchema

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings

NOW = 1_700_000_000_000
STAMP = {"a": b"1", "b": b""}
US = pa.timestamp("us", "UTC")


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def header(key: str | None, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def times(*micros: int | None) -> list[int]:
    rows_in = batch(value=pa.array([b"v"] * len(micros)), at=pa.array(micros, pa.int64()).cast(US))
    timestamps: list[int] = to_producer_rows(rows_in, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    return timestamps


def test_other_columns_are_dropped() -> None:
    rows = to_producer_rows(batch(other=pa.array([1, 2]), text=pa.array(["x", None])), WriteSchema(1), NOW)
    assert rows.schema == pa.schema([("value", pa.binary()), ("timestamp", pa.int64())])
    assert rows.to_pydict() == {"value": [b"x", None], "timestamp": [NOW, NOW]}


def test_every_column() -> None:
    rows_in = batch(
        topic=pa.array(["t", "u"]),
        partition=pa.array([None, 3], pa.int32()),
        key=pa.array(["k", None]),
        headers=pa.array([[{"key": "h", "value": b"x"}], None], HEADERS),
        value=pa.array([b"\xff", b""]),
        timestamp=pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], US),
    )
    schema = WriteSchema(value=4, key=2, topic=0, headers=3, partition=1, timestamp=5)
    assert to_producer_rows(rows_in, schema, NOW).to_pydict() == {
        "value": [b"\xff", b""],
        "key": [b"k", None],
        "topic": ["t", "u"],
        "partition": [None, 3],
        "headers": [[{"key": "h", "value": b"x"}], None],
        "timestamp": [1_767_225_600_000, NOW],
    }


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_strings_become_bytes(arrow_type: pa.DataType) -> None:
    rows_in = batch(value=pa.array(["žluť", None, ""], pa.string()).cast(arrow_type))
    rows = to_producer_rows(rows_in.slice(1), WriteSchema(0, key=0), NOW)
    assert rows.schema.field("value").type == rows.schema.field("key").type == pa.binary()
    assert rows.column("value").to_pylist() == [None, b""]
    whole = to_producer_rows(rows_in, WriteSchema(0), NOW)
    assert whole.column("value").to_pylist() == ["žluť".encode(), None, b""]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("value", pa.array([{"a": 1}], pa.struct({"a": pa.duration("us")})), r"field 'a' has the type duration\[us\]"),
        ("value", pa.array([[2**62]], pa.list_(pa.timestamp("s"))), "out of bounds"),
        ("key", pa.array([[1]], pa.list_(pa.uint8())), "field 'element' has the type uint8"),
        ("key", pa.array([1]).dictionary_encode(), "incompatible with dictionary"),
        ("topic", pa.array([[1]]), "Unsupported cast"),
        ("headers", pa.array([1]), "Unsupported cast|cast"),
        ("timestamp", pa.array([2**62], pa.timestamp("s")), "out of bounds"),
    ],
)
def test_a_column_that_cannot_be_converted_is_a_final_error(name: str, values: pa.Array, message: str) -> None:
    columns = {"value": pa.array([b""]), name: values}
    schema = WriteSchema(**{column: index for index, column in enumerate(columns)})
    with pytest.raises(ColumnError, match=rf"{name} attribute: .* cannot be written: .*({message})"):
        to_producer_rows(batch(**columns), schema, NOW)


def test_strings_are_not_copied() -> None:
    value = pa.array(["abc", "def"])
    rows = to_producer_rows(batch(value=value), WriteSchema(0), NOW)
    assert rows.column("value").buffers()[2].address == value.buffers()[2].address


def test_large_headers_types() -> None:
    large = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    rows_in = batch(value=pa.array([b""]), headers=pa.array([[("h", b"x")]], large))
    rows = to_producer_rows(rows_in, WriteSchema(0, headers=1), NOW)
    assert rows.schema.field("headers").type == HEADERS
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_times_are_truncated_to_milliseconds_as_in_spark() -> None:
    assert times(1_999, 2_000, None, 0) == [1, 2, NOW, 0]


@pytest.mark.parametrize("micros", [-1_000, -2_000_000, -(2**63)])
def test_times_before_1970_are_rejected_as_in_java(micros: int) -> None:
    """With -1, a record has no timestamp, and topics with CreateTime take its records for the oldest."""
    with pytest.raises(ColumnError) as caught:
        times(5, None, micros, 0)
    assert str(caught.value).startswith(f"Invalid timestamp: {-(-micros // 1000)}. Timestamp should always be non-neg")
    assert times() == []


def test_doubles_are_seconds() -> None:
    rows_in = batch(value=pa.array([b""] * 4), at=pa.array([1.5, None, float("nan"), float("inf")]))
    timestamps = to_producer_rows(rows_in, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    assert timestamps == [1500, NOW, NOW, NOW]
    negative = batch(value=pa.array([b""]), at=pa.array([-0.25]))
    with pytest.raises(ColumnError, match="Invalid timestamp: -250"):
        to_producer_rows(negative, WriteSchema(0, timestamp=1), NOW)


def test_doubles_out_of_range_saturate() -> None:
    """Like Java's cast. Milliseconds or microseconds instead of seconds must not become times before 1970."""
    rows_in = batch(value=pa.array([b""] * 3), at=pa.array([1.7e12, 1.7e15, 1e308]))
    timestamps = to_producer_rows(rows_in, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    latest = (2**63 - 1024) // 1000
    assert timestamps == [1_700_000_000_000_000, latest, latest]


def header_lists(headers: pa.Array) -> list[list[tuple[str, bytes | None]] | None]:
    rows: list[Any] = headers.to_pylist()
    return [None if row is None else [(each["key"], each["value"]) for each in row] for row in rows]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_of_any_unit(unit: str, zone: str | None) -> None:
    at = pa.array([1_700_000_000, None], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    rows = to_producer_rows(batch(value=pa.array([b"v"] * 2), at=at), WriteSchema(0, timestamp=1), NOW + 1)
    assert rows.column("timestamp").to_pylist() == [1_700_000_000_000, NOW + 1]


def test_large_types_are_cast() -> None:
    header = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    headers = pa.array([[{"key": "h", "value": b"x"}]], pa.large_list(header))
    rows_in = batch(value=pa.array(["v"], pa.large_string()), headers=headers, topic=pa.array(["t"], pa.large_string()))
    rows = to_producer_rows(rows_in, WriteSchema(0, headers=1, topic=2), NOW)
    assert [rows.column(name).type for name in ("value", "headers", "topic")] == [pa.binary(), HEADERS, pa.string()]
    assert rows.to_pylist()[0]["headers"] == [{"key": "h", "value": b"x"}]


def test_a_stamp_follows_the_headers_of_the_row() -> None:
    own = pa.array([[("x", b"y"), ("x", None)], None, [], [("z", b"")]], HEADERS)
    stamps = [("a", b"1"), ("b", b"")]
    expected = [[("x", b"y"), ("x", None), *stamps], stamps, stamps, [("z", b""), *stamps]]
    assert header_lists(append_headers(own, 4, STAMP)) == expected
    assert header_lists(append_headers(own.slice(2), 2, STAMP)) == expected[2:]
    assert header_lists(append_headers(None, 2, STAMP)) == [stamps, stamps]
    assert append_headers(own, 4, STAMP).type == HEADERS


def test_a_null_list_may_hide_entries() -> None:
    entries = pa.array([("x", b"1"), ("y", b"2"), ("z", b"3")], HEADERS.value_type)
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    own = pa.ListArray.from_arrays(offsets, entries, mask=pa.array([False, True, False]))
    stamps = [("a", b"1"), ("b", b"")]
    expected = [[("x", b"1"), *stamps], stamps, [("z", b"3"), *stamps]]
    assert header_lists(append_headers(own, 3, STAMP)) == expected
    assert header_lists(append_headers(own.slice(1), 2, STAMP)) == expected[1:]


def test_a_row_has_only_the_schema_id_that_it_is_written_with() -> None:
    new, old, other = (header("__value_schema_id", b"\0\0\0\0\7"), header("__value_schema_id", b"1"), header("o", b"2"))
    key_id, nameless = header("__key_schema_id", b"3"), header(None, None)
    rows_in = batch(
        value=pa.array(["{}"] * 5),
        headers=pa.array(
            [[old, other], None, [], [nameless, other, old, key_id, old], [{**old, "value": None}]], HEADERS
        ),
        key=pa.array(["k"] * 5),
    )
    others: list[Any] = [[other], [], [], [nameless, other, key_id], []]

    def headers_with(**settings: EncoderSettings) -> list[Any]:
        rows = to_producer_rows(
            rows_in.slice(1), WriteSchema(0, headers=1, key=2), NOW, None, PayloadEncoders(settings, "t")
        )
        found: list[Any] = rows.column("headers").to_pylist()
        return found

    in_header = JsonEncoderSettings(header=("__value_schema_id", b"\0\0\0\0\7"))
    assert headers_with(value=in_header) == [[*each, new] for each in others[1:]]
    assert [each or [] for each in headers_with(value=JsonEncoderSettings(b"\0\0\0\0\7"))] == others[1:]
    without_key_id = [[each for each in row or [] if each != key_id] for row in rows_in.column(1)[1:].to_pylist()]
    assert [each or [] for each in headers_with(key=JsonEncoderSettings())] == without_key_id
    without_ids = [[each for each in row if each != key_id] for row in others[1:]]
    of_both: dict[str, EncoderSettings] = {side: JsonEncoderSettings() for side in ("key", "value")}
    assert [each or [] for each in headers_with(**of_both)] == without_ids
    assert headers_with() == rows_in.column(1)[1:].to_pylist()  # the original bytes, whose schema is that of the ids
    rows = to_producer_rows(
        rows_in.set_column(2, "key", pa.array([{"k": 1}] * 5)),
        WriteSchema(0, headers=1, key=2),
        NOW,
        STAMP,
        PayloadEncoders({"value": in_header}, "t"),
    )
    stamps = [header(name, value) for name, value in STAMP.items()]
    without_ids = [[each for each in row if each != key_id] for row in others]
    assert rows.column("headers").to_pylist() == [[*row, *stamps, new] for row in without_ids]


def test_the_error_of_a_row_names_the_schema_that_does_not_allow_it() -> None:
    schema = parse_avro_schema('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}')
    settings = AvroEncoderSettings(schema=schema, source="version 2 of t-value, schema id 5")
    encoders = PayloadEncoders({"value": settings}, "t")
    with pytest.raises(ColumnError, match=r"value\.n is null.* \(version 2 of t-value, schema id 5\)\. Filter out"):
        encoders.encode("value", pa.array([{"n": None}], pa.struct({"n": pa.int32()})), lambda _: None)


def test_json_does_not_have_the_schema_id_of_the_row_that_it_is_made_from() -> None:
    key_id, value_id, other = header("__key_schema_id", b"3"), header("__value_schema_id", b"1"), header("o", b"2")
    headers = pa.array([[key_id, value_id, other]], HEADERS)
    struct, text = pa.array([{"a": 1}]), pa.array(['{"a": 1}'])
    for key, value, remaining in (
        (text, struct, [key_id, other]),
        (struct, text, [value_id, other]),
        (text, text, [key_id, value_id, other]),  # which may be the original
    ):
        rows = to_producer_rows(batch(value=value, headers=headers, key=key), WriteSchema(0, headers=1, key=2), NOW)
        assert rows.column("headers").to_pylist() == [remaining]


def test_rows_get_the_stamp() -> None:
    rows = to_producer_rows(batch(value=pa.array([b"v"])), WriteSchema(0), NOW, STAMP)
    assert header_lists(rows.column("headers")) == [[("a", b"1"), ("b", b"")]]


def test_slices_have_some_mib_and_at_least_one_row() -> None:
    small = batch(value=pa.array([b"v"] * 10_000))
    assert [each.num_rows for each in split_rows(small)] == [10_000]
    large = batch(value=pa.array([b"v" * 100_000] * 100))
    slices = list(split_rows(large))
    assert [each.num_rows for each in slices] == [20, 20, 20, 20, 20]
    assert pa.Table.from_batches(slices).combine_chunks() == pa.Table.from_batches([large]).combine_chunks()
    huge = batch(value=pa.array([b"v" * (5 << 20)] * 2))
    assert [each.num_rows for each in split_rows(huge)] == [1, 1]
    assert list(split_rows(small.slice(0, 0))) == []
    assert [each.num_rows for each in split_rows(large.slice(50, 20))] == [20]
    assert list(split_rows(large.slice(50, 0))) == []


def test_slices_have_some_mib_if_large_rows_are_next_to_each_other() -> None:
    rows = batch(value=pa.array([b"v"] * 990 + [b"v" * 1_000_000] * 10))
    slices = list(split_rows(rows))
    assert max(each.nbytes for each in slices) < 5 << 20
    assert len(slices) < 30
    assert pa.Table.from_batches(slices).combine_chunks() == pa.Table.from_batches([rows]).combine_chunks()


def test_large_rows_between_small_ones_are_not_encoded_together() -> None:
    """A slice of several rows has at most 4 MiB, twice the size that is aimed at."""
    rows = batch(value=pa.array(([b"v"] * 9 + [b"v" * 500_000]) * 20 + [b"v" * 500_000] * 10))
    assert max(each.nbytes for each in split_rows(rows) if each.num_rows > 1) <= 4 << 20


def test_an_invalid_row_names_its_topic() -> None:
    schema = parse_avro_schema('{"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}]}')
    settings = {"value": AvroEncoderSettings(schema=schema)}
    values = pa.array([{"i": 1}, {"i": None}], pa.struct({"i": pa.int32()}))
    rows = batch(value=values, topic=pa.array(["t", "u"]))
    with pytest.raises(ColumnError, match=r"A row for topic u cannot be written as Avro: value\.i is null"):
        to_producer_rows(rows, WriteSchema(0, topic=1), NOW, encoders=PayloadEncoders(settings, None))
    with pytest.raises(ColumnError, match=r"A row for topic given cannot be written as Avro"):
        to_producer_rows(rows, WriteSchema(0), NOW, encoders=PayloadEncoders(settings, "given"))


def test_the_stamp_of_a_batch_query_has_no_batch() -> None:
    assert stamp_headers("q", 7, 2, 1) == {
        "spark.query.id": b"q",
        "spark.batch.id": b"7",
        "spark.partition.id": b"2",
        "spark.attempt": b"1",
    }
    assert stamp_headers(None, None, 0, 0) == {"spark.partition.id": b"0", "spark.attempt": b"0"}
