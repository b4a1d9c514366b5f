"""The columns of a query: those of Spark, or of a user's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.spark import session_time_zone
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def struct(*fields: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_full_schema_matches_the_decoder(include_headers: bool) -> None:
    schema = kafka_schema(include_headers)
    columns = read_schema(schema).columns
    assert ("headers" in columns) is include_headers
    assert to_arrow_schema(schema, timezone="UTC") == arrow_schema(columns)


def test_a_schema_may_name_columns_in_any_order_and_case() -> None:
    schema = struct(("OFFSET", LongType(), False), ("Value", BinaryType()), ("headers", HEADERS))
    assert read_schema(schema).columns == ("offset", "value", "headers")


@pytest.mark.parametrize("name", ["Value", "value"])
def test_batches_get_the_names_and_nullability_of_the_users_schema(name: str) -> None:
    schema = read_schema(struct((name, BinaryType()), ("offset", LongType(), False)))
    batches = [
        pa.RecordBatch.from_pydict({"value": [b"a"], "offset": [offset]}, schema=arrow_schema(["value", "offset"]))
        for offset in (1, 2)
    ]
    for offset, renamed in enumerate(schema.renamed(iter(batches)), 1):
        assert renamed.schema == to_arrow_schema(schema.schema, timezone="UTC")
        assert renamed.to_pylist() == [{name: b"a", "offset": offset}]
    assert offset == 2


def test_batches_with_the_names_of_spark_are_not_changed() -> None:
    schema = read_schema(struct(("value", BinaryType()), ("key", BinaryType())))
    batch = pa.RecordBatch.from_pydict({"value": [b"a"], "key": [None]}, schema=arrow_schema(["value", "key"]))
    assert [same is batch for same in schema.renamed(iter([batch, batch]))] == [True, True]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(("valeu", BinaryType())), r"no column 'valeu'.*Did you mean 'value'"),
        (struct(("leaderEpoch", IntegerType())), r"no column 'leaderEpoch'"),
        (struct(("value", StringType())), r"'value' is binary, not string.*cast it in the query"),
        (struct(("offset", IntegerType())), r"'offset' is bigint, not int"),
        (struct(("key", BinaryType()), ("KEY", BinaryType())), r"named twice"),
        (struct(("headers", HEADERS, False)), r"may be null"),
    ],
)
def test_an_invalid_schema_is_rejected(schema: StructType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_schema(schema)


@pytest.mark.parametrize(
    ("kinds", "zone"),
    [
        ((IntegerType(), TimestampType()), "Asia/Tokyo"),
        ((TimestampType(), IntegerType()), "Asia/Tokyo"),
        ((IntegerType(), IntegerType()), "UTC"),
    ],
)
def test_a_task_decodes_timestamps_in_the_time_zone_of_the_session(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[DataType, DataType], zone: str
) -> None:
    decoded: list[DecodedColumns] = []

    class Reader:
        def read_decoded(self, task: object, columns: DecodedColumns) -> list[pa.RecordBatch]:
            decoded.append(columns)
            return []

    monkeypatch.setattr(session_time_zone, "task_time_zone", lambda default: "Asia/Tokyo")
    payloads = PayloadSettings(key=SidePayload("key", "json"), value=SidePayload("value", "json"))
    key, value = (struct(("a", kind)) for kind in kinds)
    schema = read_schema(struct(("offset", LongType(), False), ("key", key), ("value", value)), payloads)
    reader: Any = Reader()
    task: Any = None
    assert list(schema.read(reader, task)) == []
    assert [(each.columns, each.time_zone) for each in decoded] == [(("offset", "key", "value"), zone)]


def test_a_task_without_payload_formats_reads_the_wanted_columns() -> None:
    class Reader:
        def read(self, task: object, columns: tuple[str, ...]) -> list[pa.RecordBatch]:
            return [pa.RecordBatch.from_pydict({"offset": [1], "value": [b"a"]}, schema=arrow_schema(columns))]

    reader: Any = Reader()
    task: Any = None
    (batch,) = read_schema(struct(("Offset", LongType(), False), ("value", BinaryType()))).read(reader, task)
    assert batch.to_pylist() == [{"Offset": 1, "value": b"a"}]
