"""Columns of tables: files in several formats, folders, and the log of Spark's file sink."""

from __future__ import annotations

import bz2
import gzip
import json
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_kafka_direct.cli import table_files
from pyspark_kafka_direct.cli.source_offsets import RowComparison
from pyspark_kafka_direct.cli.table_files import open_table
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = ("partition", "offset")


def rows(location: object, names: Sequence[str] = NAMES) -> list[tuple[Any, ...]]:
    """Return the rows of a table; text as strings."""
    found: list[tuple[Any, ...]] = []
    for columns in open_table(str(location), names).read():
        RowComparison("flights", {}).add(columns[-2:])  # which accepts each column
        found += zip(*(column.to_pylist() for column in columns), strict=True)
    return [tuple(each.decode() if isinstance(each, bytes) else each for each in row) for row in found]


def write_parquet(path: Path, *offsets: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"partition": [0] * len(offsets), "offset": list(offsets)}), path)
    return str(path)


def write_log(folder: Path, entry: str, *paths: str, action: str = "add") -> None:
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": path, "size": 1, "isDir": False, "action": action}) for path in paths]
    (folder / "_spark_metadata" / entry).write_text("\n".join(["v1", *lines]))


def test_files_of_each_format(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.snappy.parquet", 1)
    (tmp_path / "b.csv").write_text('offset,value,partition\n2,"a\\"b\nc",0\nx,,\n')
    (tmp_path / "c.json").write_text(
        '{"partition":0,"offset":3}\n\n{"offset":"4","partition":[1]}\n{"offset":\n\1\n\1\n'
    )
    with gzip.open(tmp_path / "d.json.gz", "wt") as file:
        file.write('{"partition":0,"offset":5,"value":"\\u0001"}\n')
    for ignored in ("_SUCCESS", ".b.csv.crc", "_temporary/0/e.parquet", "x=1/_temporary/e.parquet", "0/.e.parquet"):
        (tmp_path / ignored).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ignored).touch()
    assert rows(tmp_path) == [
        (0, 1), ("0", "2"), (None, "x"), ("0", "3"), ("[1]", "4"), (None, None), (None, None), (None, None), ("0", "5"),
    ]  # fmt: skip
    assert rows(f"file://{tmp_path}/a.snappy.parquet") == [(0, 1)]


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_each_codec_of_text_files(tmp_path: Path, suffix: str) -> None:
    text = b"partition,offset\n0,7\n" if suffix == "csv" else b'{"partition":0,"offset":7}\n'
    (tmp_path / f"a.{suffix}.gz").write_bytes(gzip.compress(text))
    (tmp_path / f"b.{suffix}.bz2").write_bytes(bz2.compress(text))
    (tmp_path / f"c.{suffix}").write_bytes(text)
    assert rows(tmp_path) == [("0", "7")] * 3


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_a_file_that_is_read_in_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(table_files, "_BATCH_ROWS", 2)
    monkeypatch.setattr(table_files, "_BLOCK_BYTES", 64)
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        write_parquet(path, *range(20))
    elif suffix == "csv":
        path.write_text("partition,offset\n" + "".join(f"0,{number:010}\n" for number in range(20)))
    else:
        path.write_text("".join(f'{{"partition":0,"offset":{number}}}\n' for number in range(20)))
    assert [int(offset) for _, offset in rows(path)] == [*range(20)]


def test_files_without_rows(tmp_path: Path) -> None:
    for name in ("a.csv", "b.json"):
        (tmp_path / name).touch()
    with gzip.open(tmp_path / "c.json.gz", "wt"):
        pass
    (tmp_path / "d.csv").write_text("partition,offset\n")
    (tmp_path / "e.json").write_text("\n")
    write_parquet(tmp_path / "f.parquet")
    assert rows(tmp_path) == []
    (tmp_path / "g.csv").write_text("partition,offset\n0,1\n")
    assert rows(tmp_path) == [("0", "1")]
    (tmp_path / "empty").mkdir()
    assert rows(tmp_path / "empty") == []


def test_columns_in_names_of_folders(tmp_path: Path) -> None:
    for folder in ("topic=a%2Fb/partition=3", "topic=c/partition=__HIVE_DEFAULT_PARTITION__", "_x=1"):
        write_parquet(tmp_path / folder / "x.parquet", 7)
    assert sorted(rows(tmp_path, ("topic", *NAMES)), key=str) == [
        ("a/b", "3", 7), ("c", "__HIVE_DEFAULT_PARTITION__", 7), (None, 0, 7)]  # fmt: skip
    table = open_table(str(tmp_path), NAMES)
    assert len([*table.read()]) == 3
    assert {*table.known_columns} == {"_x", "topic", "partition", "offset"}


def test_a_file_that_lacks_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [1, 2]}), tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", 5)
    table = open_table(str(tmp_path), NAMES)
    assert [[column.to_pylist() for column in columns] for columns in table.read()] == [
        [[None, None], [None, None]], [[0], [5]]]  # fmt: skip
    assert list(table.known_columns) == ["value", "partition", "offset"]


def test_the_log_of_the_file_sink(tmp_path: Path) -> None:
    files = [write_parquet(tmp_path / f"with space/{number}.parquet", number) for number in range(6)]
    uris = [f"file://{path.replace(' ', '%20')}" for path in files]
    write_log(tmp_path, "0", uris[0])
    write_log(tmp_path, "1", uris[1])
    write_log(tmp_path, "9", uris[2])
    assert rows(tmp_path) == [(0, 0), (0, 1), (0, 2)]
    write_log(tmp_path, "4.compact", uris[0], uris[5])
    write_log(tmp_path, "9.compact", uris[2], files[3])  # without those that have expired
    write_log(tmp_path, "10", f"file://{tmp_path}/deleted.parquet", uris[4], f"{tmp_path}/too.parquet")
    write_log(tmp_path, ".11.tmp", uris[5])
    assert rows(tmp_path) == [(0, 2), (0, 3), (0, 4)]
    assert open_table(str(tmp_path), NAMES).deleted_files == [f"{tmp_path}/deleted.parquet", f"{tmp_path}/too.parquet"]
    write_log(tmp_path, "11", uris[4], action="delete")
    assert rows(tmp_path) == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("v2\n", "is not an entry of the log"),
        ("v1\n{", "has an invalid line"),
        ("v1\n[]", "has an invalid line"),
        ('v1\n{"path":7}', "has an invalid line"),
        ('v1\n{"path":"nowhere://x/y"}', "has an invalid line"),
        ("v1\n" + "[" * 100_000, "has an invalid line"),
    ],
)
def test_a_damaged_log(tmp_path: Path, entry: str, message: str) -> None:
    write_log(tmp_path, "0")
    (tmp_path / "_spark_metadata/0").write_text(entry)
    with pytest.raises(OptionError, match=message):
        rows(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.parquet", b"PAR1 is damaged", "x.parquet' cannot be read"),
        ("x.csv", b"offset,partition\n1\n", "x.csv' cannot be read"),
        ("x.csv", b"offset,partition\n1,\x1b[2J,3\n", r"cannot be read: [^\x1b]+\\x1b"),
        ("x.json.gz", b"no gzip", "x.json.gz' cannot be read"),
        ("x.orc", b"ORC", "is not a Parquet, JSON or CSV file"),
        ("metadata/v1.metadata.json", b"{}", "is an Iceberg table"),
        ("_delta_log/00000000000000000000.json", b"{", "cannot be read by deltalake"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=message):
        rows(tmp_path)


def test_any_file_may_be_of_another_kind(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.orc", "c.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(OptionError, match=r"b\.orc' is not a Parquet"):
        rows(tmp_path)
    (tmp_path / "metadata").mkdir()
    for name in ("v1.metadata.json", "version-hint.text", *(f"snap-{number}.avro" for number in range(9))):
        (tmp_path / "metadata" / name).touch()
    with pytest.raises(OptionError, match="is an Iceberg table"):
        rows(tmp_path)


def test_a_delta_table_has_the_rows_of_its_last_version(tmp_path: Path) -> None:
    def write(*offsets: int, **options: Any) -> None:
        table = pa.table({"partition": pa.array([0] * len(offsets), pa.int32()), "offset": list(offsets)})
        deltalake.write_deltalake(str(tmp_path), table, **options)

    write(1, 2)
    write(3, mode="overwrite")
    write(4, mode="append")
    assert sorted(rows(tmp_path)) == [(0, 3), (0, 4)]
    assert rows(tmp_path, ("missing", "offset"))[0][0] is None


def test_delta_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(OptionError, match=r"pip install 'pyspark-kafka-direct\[delta\]'"):
        rows(tmp_path)


def test_secrets_of_a_uri_are_masked() -> None:
    with pytest.raises(OptionError) as raised:
        open_table("s3://key:secret@bucket/x?endpoint_override=127.0.0.1:1&scheme=ftp", NAMES)
    assert "secret" not in str(raised.value)
