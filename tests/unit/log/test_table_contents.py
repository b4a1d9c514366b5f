"""The contents of a table: the latest value of each key, also if a key has records in two partitions."""

from __future__ import annotations

import pyarrow as pa

from pyspark_kafka_direct.log.table_state import TableContents


def apply(contents: TableContents, partition: int, *records: tuple[bytes | None, bytes | None]) -> bytes | None:
    keys, values = zip(*records, strict=True)
    return contents.apply(partition, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def test_the_last_value_of_a_key_counts() -> None:
    contents = TableContents()
    assert apply(contents, 0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")) is None
    assert apply(contents, 0, (b"b", None), (b"c", None), (b"d", b""), (None, b"3")) is None
    assert contents.copy() == {b"a": b"2", b"d": b""}
    assert len(contents) == 2
    assert (contents.find(b"a"), contents.find(b"b"), contents.find(b"d"), contents.find("a")) == (
        b"2",
        None,
        b"",
        None,
    )


def test_a_value_after_a_tombstone_counts() -> None:
    contents = TableContents()
    apply(contents, 0, (b"a", None), (b"a", b"1"), (b"b", b"1"), (b"b", None))
    assert contents.copy() == {b"a": b"1"}


def test_keys_of_different_partitions() -> None:
    contents = TableContents()
    assert apply(contents, 0, (b"a", b"1")) is None
    assert apply(contents, 2, (b"b", b"2")) is None
    assert contents.copy() == {b"a": b"1", b"b": b"2"}
    assert len(contents) == 2
    assert contents.find(b"b") == b"2"


def test_a_key_in_two_partitions_is_found() -> None:
    contents = TableContents()
    apply(contents, 0, (b"a", b"1"), (b"b", b"1"))
    assert apply(contents, 1, (b"c", b"2"), (b"b", b"2")) == b"b"
    assert contents.copy() == {b"a": b"1", b"b": b"2", b"c": b"2"}
    assert len(contents) == 3
    assert apply(contents, 0, (b"b", None)) == b"b"
    assert contents.find(b"b") is None
    assert apply(contents, 0, (b"b", b"3")) is None
    assert apply(contents, 2, (b"b", b"4"), (b"c", b"4")) in (b"b", b"c")
    assert contents.copy() == {b"a": b"1", b"b": b"4", b"c": b"4"}
    assert len(contents) == 3
