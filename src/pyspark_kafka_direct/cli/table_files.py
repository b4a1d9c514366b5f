"""Columns of tables: folders with Parquet, JSON or CSV files, those of Spark's file sink, and Delta tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from pyspark_kafka_direct.errors import OptionError, printable
from pyspark_kafka_direct.producer.file_systems import arrow_uri, mask_secrets, masked_repr, open_file_system

if TYPE_CHECKING:
    from collections.abc import Callable

Columns: TypeAlias = Iterator[Sequence[pa.Array]]
"""Batches of rows, each as the wanted columns; a column that a file lacks has the type null."""

_SINK_LOG: Final = "_spark_metadata"
_SINK_LOG_ENTRY: Final = re.compile(r"([0-9]{1,18})(\.compact)?")
_MAX_LOG_BYTES: Final = 256 << 20  # of an entry
_SUFFIX: Final = re.compile(r"\.(parquet|json|csv)(?:\.[a-z0-9]+)?$")  # and perhaps one of a codec
_BLOCK_BYTES: Final = 16 << 20  # of JSON and CSV; a line must not be longer
_NO_LINES: Final = "Empty CSV file"  # the error for a file of JSON or CSV without lines, which Spark may write
_BATCH_ROWS: Final = 65_536
_EXPORT: Final = (
    "write its columns with the source's topic, partition and offset to Parquet "
    '(spark.table(...).select("topic", "partition", "offset").write.parquet(...)), and compare with these files'
)


class _Folder(NamedTuple):
    files: fs.FileSystem
    path: str


class Table(NamedTuple):
    """The present files of a table."""

    kind: str
    deleted_files: Sequence[str]  # that are in the log of Spark's file sink, but do not exist
    known_columns: Mapping[str, None]  # of the files that were read, for messages; those of JSON are unknown
    read: Callable[[], Columns]


def open_table(location: str, names: Sequence[str]) -> Table:
    """Return the present files of a table, to read the columns with these names.

    Raises:
        OptionError: There is no table, or it is of another kind.
    """
    uri = location if "://" in location or location.startswith("file:") else str(Path(location).absolute())
    files, path = open_file_system(uri)
    try:
        return _open(files, path.rstrip("/"), uri, names)
    except (OSError, pa.ArrowException) as error:
        raise OptionError(_unreadable(location, error)) from None


def _open(files: fs.FileSystem, root: str, uri: str, names: Sequence[str]) -> Table:
    info = files.get_file_info(root)
    if info.type is fs.FileType.NotFound:
        raise OptionError(f"{masked_repr(uri)} does not exist")
    if info.type is fs.FileType.File:
        return _of_files("file", _Folder(files, root.rpartition("/")[0]), [root], names)
    inside = {each.base_name for each in files.get_file_info(fs.FileSelector(root))}
    if "_delta_log" in inside:
        return _delta_table(uri, names)
    if "metadata" in inside and any(
        each.base_name.endswith(".metadata.json")
        for each in files.get_file_info(fs.FileSelector(f"{root}/metadata", allow_not_found=True))
    ):
        raise OptionError(f"{masked_repr(uri)} is an Iceberg table, which cannot be read here: {_EXPORT}")
    if _SINK_LOG in inside:
        committed = _committed_files(files, root)
        found = files.get_file_info(committed)
        deleted = [each.path for each in found if each.type is not fs.FileType.File]
        present = [each.path for each in found if each.type is fs.FileType.File]
        return _of_files("committed files of Spark's file sink", _Folder(files, root), present, names, deleted)
    listed = files.get_file_info(fs.FileSelector(root, recursive=True))
    present = [each.path for each in listed if each.type is fs.FileType.File and not _is_hidden(each.path, root)]
    return _of_files("files", _Folder(files, root), sorted(present), names)


def _is_hidden(path: str, root: str) -> bool:
    """Return whether Spark ignores a file: names that begin with ``_`` or ``.``, except for ``_name=value``."""
    parts = PurePosixPath(path).relative_to(root).parts
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in parts)


def _committed_files(files: fs.FileSystem, root: str) -> list[str]:
    """Return the files in the log of Spark's file sink: in its last compact entry, and in the entries after it."""
    entries = [
        (int(match[1]), match[2] is not None, each.path)
        for each in files.get_file_info(fs.FileSelector(f"{root}/{_SINK_LOG}"))
        if (match := _SINK_LOG_ENTRY.fullmatch(each.base_name))
    ]
    last_compact = max((batch for batch, is_compact, _ in entries if is_compact), default=-1)
    paths: dict[str, None] = {}
    for batch, is_compact, path in sorted(entries):
        if batch < last_compact or (batch == last_compact and not is_compact):
            continue
        with files.open_input_stream(path) as file:
            data = file.read(_MAX_LOG_BYTES + 1)
        version, *lines = data.decode("utf-8", errors="replace").split("\n")
        if version != "v1" or len(data) > _MAX_LOG_BYTES:
            raise OptionError(f"{path!r} is not an entry of the log of Spark's file sink, or is larger than 256 MiB")
        for line in filter(None, lines):
            name, action = _log_line(line, path)
            if action == "delete":
                paths.pop(name, None)
            else:
                paths[name] = None
    return list(paths)


def _log_line(line: str, path: str) -> tuple[str, object]:
    try:
        entry: dict[str, Any] = json.loads(line)
        uri = entry["path"]
        is_uri = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri) is not None
        return fs.FileSystem.from_uri(arrow_uri(uri, is_escaped=True))[1] if is_uri else uri, entry.get("action")
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise OptionError(f"{path!r} has an invalid line: {printable(str(error))}") from None


def _of_files(
    kind: str, folder: _Folder, paths: Sequence[str], names: Sequence[str], deleted: Sequence[str] = ()
) -> Table:
    suffixes = {path: _SUFFIX.search(path) for path in paths}
    other = next((path for path, suffix in suffixes.items() if suffix is None), None)
    if other is not None:
        raise OptionError(f"{other!r} is not a Parquet, JSON or CSV file by its name; {_EXPORT}")
    readers = {"parquet": _parquet, "json": _json, "csv": _csv}
    known: dict[str, None] = {}

    def read() -> Columns:
        for path, suffix in suffixes.items():
            assert suffix is not None
            folders = _folder_columns(path, folder.path)
            try:
                known.update(dict.fromkeys(folders))
                wanted = [name for name in names if name not in folders]
                for rows, found in readers[suffix[1]](folder.files, path, wanted, known):
                    yield [
                        pa.repeat(folders[name], rows) if name in folders else found.get(name, pa.nulls(rows))
                        for name in names
                    ]
            except (OSError, pa.ArrowException, ValueError) as error:
                if str(error).startswith(_NO_LINES):
                    continue
                raise OptionError(_unreadable(path, error)) from None

    return Table(kind, deleted, known, read)


def _folder_columns(path: str, root: str) -> dict[str, str]:
    """Return the columns that folders such as ``partition=0`` contain."""
    folders = PurePosixPath(path).relative_to(root).parts[:-1] if path.startswith(f"{root}/") else ()
    return {
        unquote(name): unquote(value) for name, equals, value in (each.partition("=") for each in folders) if equals
    }


_Found: TypeAlias = Iterator[tuple[int, dict[str, pa.Array]]]  # numbers of rows, and the columns that the file has


def _parquet(files: fs.FileSystem, path: str, names: Sequence[str], known: dict[str, None]) -> _Found:
    from pyarrow import parquet

    with files.open_input_file(path) as source, parquet.ParquetFile(source) as file:
        known.update(dict.fromkeys(file.schema_arrow.names))
        present = [name for name in names if name in file.schema_arrow.names]
        if not present:
            yield file.metadata.num_rows, {}
            return
        for batch in file.iter_batches(_BATCH_ROWS, columns=present):
            yield batch.num_rows, {name: batch.column(name) for name in present}


def _csv(files: fs.FileSystem, path: str, names: Sequence[str], known: dict[str, None]) -> _Found:
    from pyarrow import csv

    with (
        files.open_input_stream(path) as source,
        csv.open_csv(
            source,
            csv.ReadOptions(block_size=_BLOCK_BYTES),
            csv.ParseOptions(escape_char="\\", newlines_in_values=True),
            csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=True),
        ) as reader,
    ):
        known.update(dict.fromkeys(reader.schema.names))
        present = [name for name in names if name in reader.schema.names]
        for batch in reader:
            yield batch.num_rows, {name: batch.column(name) for name in present}


def _json(files: fs.FileSystem, path: str, names: Sequence[str], known: dict[str, None]) -> _Found:
    """Read one JSON object per line; values of any type become strings, as with Spark's ``from_json``."""
    from pyarrow import csv

    from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder

    decoder = JsonDecoder(pa.schema([(name, pa.string()) for name in names]))
    skipped: list[object] = []

    def skip(row: object) -> str:
        skipped.append(row)
        return "skip"

    with (
        files.open_input_stream(path) as source,
        csv.open_csv(
            source,
            csv.ReadOptions(column_names=["line"], block_size=_BLOCK_BYTES),
            # JSON has no control characters, so a line is one value.
            csv.ParseOptions(delimiter="\1", quote_char=False, invalid_row_handler=skip),
            csv.ConvertOptions(column_types={"line": pa.binary()}),
        ) as reader,
    ):
        for batch in reader:
            lines = batch.column("line")
            start = 0
            while start < len(lines):
                structs = decoder.decode(lines.slice(start)).values
                yield len(structs), {name: structs.field(name) for name in names}
                start += len(structs)
    if skipped:
        yield len(skipped), {}


def _delta_table(uri: str, names: Sequence[str]) -> Table:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise OptionError(
            "Delta tables require deltalake, which is not installed: pip install 'pyspark-kafka-direct[delta]', or "
            f"{_EXPORT}"
        ) from None
    try:
        dataset = DeltaTable(uri).to_pyarrow_dataset()
    except (DeltaError, OSError, ValueError, ImportError) as error:
        message = f"The Delta table {masked_repr(uri)} cannot be read by deltalake: {error}. Instead, {_EXPORT}"
        raise OptionError(mask_secrets(message, uri)) from None
    present = [name for name in names if name in dataset.schema.names]

    def read() -> Columns:
        try:
            for batch in dataset.to_batches(columns=present, batch_size=_BATCH_ROWS):
                yield [batch.column(name) if name in present else pa.nulls(batch.num_rows) for name in names]
        except (OSError, pa.ArrowException) as error:
            raise OptionError(_unreadable(uri, error)) from None

    return Table("Delta table", (), dict.fromkeys(dataset.schema.names), read)


def _unreadable(location: str, error: Exception) -> str:
    return (
        f"{masked_repr(location)} cannot be read: {printable(mask_secrets(str(error), location))}"  # it may quote rows
    )
