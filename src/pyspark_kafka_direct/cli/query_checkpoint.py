"""The checkpoint of a streaming query, read with pyarrow's file systems: no Spark is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError, OptionError
from pyspark_kafka_direct.offsets import partition_offsets_from_json, recorded_first_start
from pyspark_kafka_direct.producer.file_systems import mask_secrets, masked_repr, open_file_system
from pyspark_kafka_direct.spark.checkpoint_files import FENCING_LOG_FOLDER, REWOUND_CONF, parse_offset_seq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow.fs import FileInfo

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.spark.checkpoint_files import OffsetSeq

_MAX_FILE_BYTES: Final = 64 << 20  # of an entry: a million partitions have about 20 MB


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """An entry of the offset log."""

    time_ms: int | None  # when it was planned, in ms since 1970
    watermark_ms: int | None
    conf: Mapping[str, str]  # settings that the query keeps, and marks of this package
    sources: Mapping[str, Mapping[TopicPartition, int]]  # the end offsets of each Kafka source, by its name or number


class QueryCheckpoint:
    """A checkpoint, whose files Spark may change meanwhile.

    Attributes:
        planned: The ids of the batches in the offset log, in order.
        committed: The ids of the batches in the commit log, in order.
        has_state: Whether the query has state, as aggregations and joins do.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        uri = location if "://" in location or location.startswith("file:") else str(Path(location).absolute())
        self._batches: dict[int, PlannedBatch] = {}
        self._files, self._path = open_file_system(uri)
        self.committed = self._batch_ids("commits")  # before the planned ones, so that each of them is planned
        self.planned = self._batch_ids("offsets")
        if not self.planned:
            raise OptionError(
                f"{masked_repr(location)} has no batch in a folder offsets; name the checkpointLocation of a query "
                "that has started"
            )
        self.has_state = bool(self._names("state"))

    @property
    def query_id(self) -> str | None:
        """The id of the query, which it keeps over restarts."""
        query_id = _json_object(self._read("metadata") or "").get("id")
        return None if query_id is None else str(query_id)

    @property
    def is_continuous(self) -> bool:
        """Whether a continuous query of this package has written it."""
        return bool(self._names(FENCING_LOG_FOLDER))

    def is_rewound(self, batch_id: int) -> bool:
        """Return whether ``kafka-direct checkpoint rewind`` has added a batch."""
        return REWOUND_CONF in self.batch(batch_id).conf

    @property
    def local_path(self) -> Path | None:
        """The folder, if it is in the local file system."""
        from pyarrow import fs

        return Path(self._path) if isinstance(self._files, fs.LocalFileSystem) else None

    def batch(self, batch_id: int) -> PlannedBatch:
        """Return an entry of the offset log.

        Raises:
            InvalidOffsetsError: The entry does not exist or is invalid.
        """
        if batch_id in self._batches:
            return self._batches[batch_id]
        entry = self._entry(batch_id)
        where = f"{masked_repr(self._location)}: offsets/{batch_id}"
        sources = {name: _kafka_offsets(line, where) for name, line in _sources(entry).items()}
        metadata = _json_object(entry.metadata)
        conf = metadata.get("conf")
        batch = self._batches[batch_id] = PlannedBatch(
            _milliseconds(metadata.get("batchTimestampMs")),
            _milliseconds(metadata.get("batchWatermarkMs")),
            conf if isinstance(conf, dict) else {},
            {name: offsets for name, offsets in sources.items() if offsets is not None},
        )
        return batch

    def last_sources(self, name: str | None = None) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the end offsets of the Kafka sources in the last batch, or of the one with this name or number.

        Raises:
            OptionError: There is no such source.
        """
        sources = self.batch(self.planned[-1]).sources
        if name is None:
            return sources
        if name not in sources:
            known = ", ".join(sources) or "none"
            raise OptionError(f"--source: the checkpoint has no Kafka source {name!r} (it has: {known})")
        return {name: sources[name]}

    def text(self, name: str) -> str:
        """Return the content of a file such as ``offsets/7``.

        Raises:
            InvalidOffsetsError: It does not exist.
        """
        text = self._read(name)
        if text is None:
            raise InvalidOffsetsError(f"{masked_repr(self._location)} has no longer the file {name}; run it again")
        return text

    def first_start(self, source: str) -> Mapping[TopicPartition, int] | None:
        """Return where the first batch of a Kafka source starts, or None if the checkpoint no longer has it.

        Raises:
            InvalidOffsetsError: The entry of the first batch is invalid.
        """
        if 0 in self.planned:  # of this package
            start = recorded_first_start(_json_object(_sources(self._entry(0)).get(source) or ""))
            if start is not None:
                return start
        name = f"sources/{source}/0"
        initial = self._read(name)  # of Spark's own source: a zero byte, the version and the offsets
        where = f"{masked_repr(self._location)}: {name}"
        return None if initial is None else _kafka_offsets(initial.rstrip("\n").rpartition("\n")[2], where)

    def has_spark_start(self, source: str) -> bool:
        """Return whether Spark's own source has started the query, which keeps its start in the checkpoint."""
        return self._read(f"sources/{source}/0") is not None

    def _entry(self, batch_id: int) -> OffsetSeq:
        name = f"offsets/{batch_id}"
        return parse_offset_seq(self.text(name).removesuffix("\n"), name)

    def _batch_ids(self, folder: str) -> list[int]:
        return sorted(int(each.base_name) for each in self._list(folder) if each.is_file and _is_number(each.base_name))

    def _names(self, folder: str) -> list[str]:
        return [each.base_name for each in self._list(folder)]

    def _list(self, folder: str) -> list[FileInfo]:
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True)
        try:
            return list(self._files.get_file_info(selector))
        except NotADirectoryError:
            return []
        except (OSError, ValueError) as error:
            raise self._unreadable(folder, error) from None

    def _read(self, name: str) -> str | None:
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as file:
                data: bytes = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._unreadable(name, error) from None
        if len(data) > _MAX_FILE_BYTES:
            raise InvalidOffsetsError(f"{masked_repr(self._location)}: the file {name} is larger than 64 MiB")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidOffsetsError(
                f"{masked_repr(self._location)}: the file {name} is damaged: it is not UTF-8"
            ) from None

    def _unreadable(self, name: str, error: OSError | ValueError) -> KafkaDirectError:
        message = mask_secrets(f"{self._location}: {name} cannot be read: {error}", self._location)
        return KafkaDirectError(f"{message}. Check the location, the network and the permissions")


def _sources(entry: OffsetSeq) -> dict[str, str | None]:
    """Return the offsets of the sources by their names or numbers."""
    return dict(zip(entry.names_or_numbers, entry.sources, strict=True))


def _kafka_offsets(line: str | None, where: str) -> Mapping[TopicPartition, int] | None:
    """Return the offsets of a source, or None if it is not a Kafka source, or has none yet.

    Raises:
        InvalidOffsetsError: The JSON is damaged, so that it may be of a Kafka source.
    """
    try:
        return None if line is None else partition_offsets_from_json(line)
    except InvalidOffsetsError:
        if line is not None and line.startswith("{") and not _json_object(line):
            raise InvalidOffsetsError(f"{where} has damaged offsets: they are not valid JSON") from None
        return None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name == str(int(name))


def _milliseconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < 2**63 else None


def _json_object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
