"""What ``write_arrow`` writes and returns, on a simulated cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pyspark_kafka_direct import (
    BrokerError,
    BrokerTimeoutError,
    ColumnError,
    OptionError,
    OutcomeUnknownError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.arrow.writer import WriteResult, WrittenPartition
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.payloads import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_registry import FakeRegistry
    from tests.unit.arrow.slice_cluster import SliceCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'
ROWS = pa.table(
    {
        "key": pa.array([b"k", None, b""], pa.binary()),
        "value": pa.array([b"v" * 2000, b"", None], pa.binary()),
        "partition": pa.array([1, 0, 1], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"\0"}, {"key": "h", "value": None}], [], None], HEADERS),
        "timestamp": pa.array([1, 2_000_000_000_000, 0], pa.timestamp("ms", "UTC")),
        "offset": pa.array([7, 8, 9], pa.int64()),
    }
)


def written(cluster: SliceCluster, topics: Any = "t", **arguments: Any) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values in the topics, by partition and offset."""
    rows = cluster.read(topics, columns=["key", "value"], **arguments).read_all().to_pylist()
    return [(row["key"], row["value"]) for row in rows]


def values(cluster: SliceCluster, topics: Any = "t", **arguments: Any) -> list[bytes | None]:
    return [value for _, value in written(cluster, topics, **arguments)]


def batches(*batch_values: list[bytes]) -> Iterator[pa.RecordBatch]:
    for each in batch_values:
        yield pa.record_batch({"value": pa.array(each, pa.binary())})


def test_each_column_is_written_and_the_result_has_the_offsets(cluster: SliceCluster) -> None:
    cluster.append(T1, 3)
    result = cluster.write("t", ROWS)
    sizes = [result.partitions[tp].bytes for tp in (T0, T1)]
    assert result == WriteResult(
        records=3,
        bytes=sum(sizes),
        partitions={T0: WrittenPartition(1, 0, 0, sizes[0]), T1: WrittenPartition(2, 3, 4, sizes[1])},
    )
    assert sizes[1] > 2000
    columns = ["key", "value", "partition", "headers", "timestamp"]
    found = cluster.read("t", columns=columns, start='{"t":{"0":0,"1":3}}').read_all().to_pylist()
    time = datetime.fromtimestamp(0, UTC)
    assert [tuple(row.values()) for row in found] == [
        (None, b"", 0, None, datetime.fromtimestamp(2_000_000_000, UTC)),
        (
            b"k",
            b"v" * 2000,
            1,
            [{"key": "h", "value": b"\0"}, {"key": "h", "value": None}],
            time.replace(microsecond=1000),
        ),
        (b"", None, 1, None, time),
    ]


def test_rows_name_their_topics(cluster: SliceCluster) -> None:
    result = cluster.write(None, pa.table({"topic": ["u", "t", "u"], "value": ["1", "2", "3"]}))
    assert {tp.topic: each.records for tp, each in result.partitions.items()} == {"t": 1, "u": 2}
    assert (values(cluster, "u"), values(cluster)) == ([b"1", b"3"], [b"2"])
    cluster.write("u", pa.table({"topic": ["t"], "value": ["4"]}))  # the argument replaces the column
    assert values(cluster, "u") == [b"1", b"3", b"4"]


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"value": ["a", "b"]}),
        pa.record_batch({"value": ["a", "b"]}),
        pa.table({"value": ["a", "b"]}).to_reader(max_chunksize=1),
        pa.array([{"value": "a"}, {"value": "b"}]),
        pa.table({"value": pa.array(["a", "b"]).dictionary_encode()}),
        pa.table({"value": pa.array(["a", "b"], pa.large_string())}),
        pa.table({"value": pa.array([b"a", b"b"], pa.binary(1))}),
        pa.table({"value": pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "text", "v"), pa.array(["a", "b"]))}),
        pl.DataFrame({"value": ["a", "b"]}),
        pl.DataFrame({"value": [b"a", b"b"]}),
        pl.DataFrame({"value": pl.Series(["a", "b"], dtype=pl.Categorical)}),
        pd.DataFrame({"value": ["a", "b"]}),
        [pa.record_batch({"value": ["a"]}), pa.record_batch({"value": ["b"]})],
    ],
    ids=lambda data: type(data).__name__,
)
def test_the_data_of_any_library(cluster: SliceCluster, data: Any) -> None:
    assert cluster.write("u", data).records == 2
    assert values(cluster, "u") == [b"a", b"b"]


def test_a_relation_and_a_slice_are_streams(cluster: SliceCluster) -> None:
    cluster.write("u", duckdb.sql("select 'k' || range as key, {'n': range} as value from range(3)"))
    assert written(cluster, "u") == [(b"k%d" % n, b'{"n":%d}' % n) for n in range(3)]
    copied = cluster.write("t", cluster.read("u"))
    assert copied.partitions.keys() <= {T0}  # a slice has the partitions of its records
    assert values(cluster) == values(cluster, "u")


def test_headers_of_polars(cluster: SliceCluster) -> None:
    cluster.write("u", pl.DataFrame({"value": ["a"], "headers": [[{"key": "h", "value": b"x"}]]}))
    assert cluster.read("u", columns=["headers"]).read_all().to_pylist() == [{"headers": [{"key": "h", "value": b"x"}]}]


def test_without_acknowledgements_there_are_no_offsets(cluster: SliceCluster) -> None:
    result = cluster.write("u", pa.table({"value": ["a", "b"]}), acks="0", **{"enable.idempotence": "false"})
    size = result.bytes
    assert result == WriteResult(2, size, {U0: WrittenPartition(2, None, None, size)})
    assert values(cluster, "u") == [b"a", b"b"]


def test_nested_types_of_other_libraries(cluster: SliceCluster) -> None:
    frame = pl.DataFrame(
        {
            "category": pl.Series(["x", None, "x"], dtype=pl.Categorical),
            "count": pl.Series([1, 2**32 - 1, 3], dtype=pl.UInt32),
            "vector": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.UInt8, 2)),
        }
    )
    nested = pa.table(frame.select(pl.struct(pl.struct("category").alias("c"), "count", "vector").alias("value")))
    cluster.write("u", nested.slice(1))
    cluster.write("u", frame.select(pl.col("vector").alias("value")).head(1))
    assert values(cluster, "u") == [
        b'{"c":{},"count":4294967295}',
        b'{"c":{"category":"x"},"count":3,"vector":[3,4]}',
        b"[1,2]",
    ]
    too_large = pl.DataFrame({"value": [{"n": 2**64 - 1}]}, schema={"value": pl.Struct({"n": pl.UInt64})})
    with pytest.raises(ColumnError, match="cannot be converted: Integer value 18446744073709551615 not in range"):
        cluster.write("u", too_large)


def test_columns_that_have_only_nulls(cluster: SliceCluster) -> None:
    cluster.write("u", pa.table({"value": ["a", "b"]}))
    cluster.write("t", cluster.read("u", columns=["key", "value", "headers"]).read_pandas())  # it loses the types
    assert sorted(written(cluster)) == [(None, b"a"), (None, b"b")]
    nothing = pl.DataFrame({name: [None] for name in ("key", "value", "headers", "partition", "timestamp")})
    cluster.write("u", nothing)
    cluster.write("u", nothing, valueFormat="avro", valueSchema=SCHEMA)
    assert written(cluster, "u")[2:] == [(None, None)] * 2
    with pytest.raises(ColumnError, match="contains a null topic"):
        cluster.write(None, nothing.with_columns(topic=None))


def test_no_data_is_written(cluster: SliceCluster) -> None:
    empty: list[Any] = [[], iter([]), pa.table({"value": pa.array([], pa.string())})]
    for data in empty:
        assert cluster.write("t", data) == WriteResult(records=0, bytes=0, partitions={})
    assert cluster.write("t", [], transactional_id="x").records == 0


def test_all_parts_of_large_batches_are_written(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rows, "_SPLIT_BYTES", 1000)
    given = [b"%0100d" % number for number in range(40)]
    assert cluster.write("u", batches(given, given)).records == 80
    assert values(cluster, "u") == given * 2


def test_the_data_is_a_stream_of_bounded_memory(cluster: SliceCluster) -> None:
    read_at: list[int] = []

    def stream() -> Iterator[pa.RecordBatch]:
        for _ in range(8):
            read_at.append(cluster.sent("Produce"))
            yield pa.record_batch({"value": pa.array([b"x" * 1000] * 600, pa.binary())})

    assert cluster.write("t", stream(), params={"buffer.memory": "200000", "batch.size": "50000"}).records == 4800
    assert read_at == sorted(set(read_at))  # each batch is sent before the next one is read
    with pytest.raises(ColumnError, match=r"Batch 1 has the columns 'key: string', and the first one 'value: binary'"):
        cluster.write("t", [*batches([b"a"]), pa.record_batch({"key": ["a"]})])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, b'{"n":1,"s":"x"}'),
        ({"valueFormat": "json"}, b'{"n":1,"s":"x"}'),
        (
            {
                "valueFormat": "avro",
                "valueSchema": SCHEMA.replace("}]", '},{"name":"s","type":"string"}]'),
            },
            b"\2\2x",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": 'syntax = "proto3"; message R { int64 n = 1; string s = 2; }'},
            b"\x08\1\x12\1x",
        ),
    ],
)
def test_values_are_encoded(cluster: SliceCluster, options: dict[str, str], expected: bytes) -> None:
    for data in (pa.table({"value": [{"n": 1, "s": "x"}]}), pl.DataFrame({"value": [{"n": 1, "s": "x"}]})):
        cluster.write("u", data, **options)
    assert values(cluster, "u") == [expected] * 2


def test_values_are_encoded_with_a_schema_of_a_registry(cluster: SliceCluster, registry: FakeRegistry) -> None:
    registry.add("u-value", SCHEMA)
    settings = {"schema.registry.url": registry.url}
    cluster.write("u", pa.table({"value": [{"n": 3}]}), params=settings, valueFormat="avro")
    assert values(cluster, "u") == [b"\0\0\0\0\1\6"]
    cluster.write(
        "t", pa.table({"value": [{"m": 3}]}), valueFormat="avro", params={**settings, "auto.register.schemas": "true"}
    )
    assert values(cluster)[0][:5] == b"\0\0\0\0\2"  # type: ignore[index]


def test_a_transaction_is_committed_or_aborted(cluster: SliceCluster) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches([b"x" * 100] * 9000)
        raise KeyboardInterrupt

    result = cluster.write("t", batches([b"a"], [b"b"]), transactional_id="w")
    assert result.records == 2
    committed = {"isolation.level": "read_committed"}
    assert sorted(values(cluster, params=committed)) == [b"a", b"b"]  # type: ignore[type-var]
    with pytest.raises(KeyboardInterrupt) as caught:
        cluster.write("t", failing(), transactional_id="w", params={"batch.size": "10000"})
    assert caught.value.__notes__ == ["The transaction was aborted, so no record is committed."]
    assert len(values(cluster)) > 2
    assert sorted(values(cluster, params=committed)) == [b"a", b"b"]  # type: ignore[type-var]
    assert cluster.write("u", batches([b"c"]), transactional_id="w").partitions[U0].last_offset == 0


def test_a_transaction_whose_end_is_not_known_says_so(cluster: SliceCluster) -> None:
    cluster.every("EndTxn", "stall_response")
    with pytest.raises((OutcomeUnknownError, BrokerTimeoutError)) as caught:
        cluster.write("t", batches([b"a"]), transactional_id="w")
    assert "aborted" not in str(caught.value)


def test_an_interrupt_while_a_transaction_ends(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TransactionCoordinatorClient, "end_transaction", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        cluster.write("t", batches([b"a"]), transactional_id="w")
    assert caught.value.__notes__ == ["The transaction may have been committed or not."]


def test_a_fenced_transaction(cluster: SliceCluster) -> None:
    def fencing() -> Iterator[pa.RecordBatch]:
        yield from batches([b"a"])
        cluster.write("u", batches([b"b"]), transactional_id="w")

    with pytest.raises(ProducerFencedError):
        cluster.write("t", fencing(), transactional_id="w")
    assert values(cluster, ["t", "u"], params={"isolation.level": "read_committed"}) == [b"b"]


def test_an_error_says_how_many_records_are_confirmed(cluster: SliceCluster) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        partitions = pa.array([0, 1] * 100, pa.int32())
        yield pa.record_batch({"value": [b"x" * 1000] * 200, "partition": partitions})
        raise KeyError("of the data")

    small = {"batch.size": "10000", "buffer.memory": "20000"}
    with pytest.raises(KeyError, match="of the data") as caught:
        cluster.write("t", failing(), params=small)
    [note] = caught.value.__notes__
    confirmed = int(note.partition(" ")[0])
    assert 100 < confirmed <= len(values(cluster)), "more than one partition has"
    assert "records are confirmed to be written" in note
    with pytest.raises(KeyError) as caught:
        cluster.write("t", failing(), params={**small, "acks": "0"})
    found = re.match(
        "0 records are confirmed to be written, and ([1-9][0-9]*) more may have", caught.value.__notes__[0]
    )
    assert found is not None
    assert 100 < int(found[1]) <= 200, "of more than one batch"


def test_a_broker_that_fails_is_an_error(cluster: SliceCluster) -> None:
    cluster.every("Produce", "stall_response")
    with pytest.raises(BrokerError, match=r"0 records are confirmed to be written, and 1 more may have been written\."):
        cluster.write("u", batches([b"a"]), params={"delivery.timeout.ms": "5000", "request.timeout.ms": "1000"})


@pytest.mark.parametrize(
    ("data", "arguments", "error", "message"),
    [
        (pa.table({"key": ["a"]}), {}, ColumnError, "Required attribute 'value' not found among the columns key"),
        (pa.table({"value": [1]}), {}, ColumnError, "value attribute unsupported type bigint"),
        (
            pa.table({"value": ["a"], "partition": [0]}),
            {},
            ColumnError,
            "partition attribute unsupported type bigint. partition must be a",
        ),
        (
            pa.table({"value": ["a"] * 3, "partition": pa.array([0, 1, 2], pa.int32())}),
            {},
            ColumnError,
            "Row 2 names partition 2, but the topic has the partitions 0 to 1",
        ),
        (
            pa.table({"value": ["a"] * 9, "timestamp": pa.array([0.0] * 6 + [-1.0, 0.0, -1.0])}),
            {},
            ColumnError,
            r"Invalid timestamp: -1000.*The first such row is 6, counted from 0\. 0 records are confirmed",
        ),
        (
            pa.table({"value": [{"n": 1}, {"n": None}]}),
            {
                "valueFormat": "avro",
                "valueSchema": SCHEMA,
            },
            ColumnError,
            r"A row for topic t cannot be written as Avro.*The first such row is 1, counted from 0\.",
        ),
        (
            pa.table({"value": ["a", "b" * 2000]}),
            {"params": {"max.request.size": "1000"}},
            RecordTooLargeError,
            "Row 1",
        ),
        (5, {}, OptionError, "data must be a pyarrow Table.*; got int"),
        ("value", {}, OptionError, "data must be .*; got str"),
        ([{"value": 1}], {}, OptionError, "data must be .*; got list of dict"),
        (pl.Series([1]), {}, OptionError, "data must be .*Series"),
        (
            pd.DataFrame({"value": ["a", 1]}),
            {},
            OptionError,
            "data must be .*DataFrame: .*Conversion failed for column",
        ),
        (ROWS, {"topic": 5}, OptionError, "topic and transactional_id are names or None, got 5 and None"),
        (ROWS, {"transactional_id": ""}, OptionError, "topic and transactional_id are names or None"),
        (
            pa.table({"value": ["a"] * 3, "topic": ["t", "u", None]}),
            {"topic": None},
            ColumnError,
            "contains a null topic.*row 2 of the task",
        ),
        (ROWS, {"topic": None}, ColumnError, "topic option required when no 'topic' attribute is present"),
        (ROWS, {"topic": "a b"}, OptionError, "topic"),
        (ROWS, {"topic": "missing"}, TopicNotFoundError, "Topic 'missing' does not exist"),
        (
            ROWS,
            {"params": {"linger.ms": "5", "topic": "u"}},
            OptionError,
            "write_arrow has the argument topic in place of topic",
        ),
        (
            ROWS,
            {"params": {"transactional.id": "u"}},
            OptionError,
            r"write_arrow has the argument transactional_id in place of transactional\.id",
        ),
        (
            ROWS,
            {"deliveryGuarantee": "exactly-once"},
            OptionError,
            "write_arrow has the argument transactional_id in place of deliveryGuarantee",
        ),
        (ROWS, {"stampBatch": "true", "jobId": "j"}, OptionError, "write_arrow does not have jobId, stampBatch, "),
        (ROWS, {"transactional_id": "x", "acks": "1"}, OptionError, "acks must be all with transactional_id"),
        (ROWS, {"valueFormt": "json"}, OptionError, "valueFormt is unknown; did you mean 'valueFormat'"),
        (ROWS, {"transactionalId": "x"}, OptionError, "transactionalId is unknown; did you mean 'transactional_id'"),
        (ROWS, {"params": {"acks": "1"}, "acks": "all"}, OptionError, "acks is given twice: in params and as an arg"),
    ],
)
def test_invalid_data_and_arguments(
    cluster: SliceCluster, data: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cluster.write(arguments.pop("topic", "t"), data, **arguments)
    assert values(cluster, ["t", "u"]) == []


@pytest.mark.parametrize("size", [1, 2, 5, 30])
@pytest.mark.parametrize("bad", [0, 7, 29])
def test_an_error_names_the_row_of_the_data_in_whichever_batch_it_is(
    cluster: SliceCluster, size: int, bad: int
) -> None:
    times = [0.0] * bad + [-1.0] * (30 - bad)
    unwritable = pa.table({"value": ["a"] * 30, "timestamp": times})
    with pytest.raises(ColumnError, match=rf"The first such row is {bad}, counted from 0\."):
        cluster.write("t", unwritable.to_batches(size))
    partitions = pa.array([0] * bad + [2] * (30 - bad), pa.int32())
    unknown = pa.table({"value": ["a"] * 30, "partition": partitions})
    with pytest.raises(ColumnError, match=f"Row {bad} names partition 2"):
        cluster.write("t", unknown.to_batches(size))


def test_it_works_without_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "import pyarrow as pa; from pyspark_kafka_direct import write_arrow, ColumnError\n"
        "options = {'valueFormat': 'avro', 'valueSchema': sys.argv[1]}\n"
        "data = pa.table({'value': [{'n': 'x'}]})\n"
        "try: write_arrow('t', data, {'bootstrap.servers': 'nowhere.invalid:9092'}, **options)\n"
        "except ColumnError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, SCHEMA], capture_output=True, text=True, check=True, timeout=300)
    assert "value attribute cannot be written as Avro" in done.stdout
