"""The content of the files in a checkpoint, as Spark writes and reads it.

    metadata       {"id":"3fa1c1a5-..."}                                        the query
    offsets/7      v1                                                           the end offsets of epoch 7
                   {"batchWatermarkMs":0,"batchTimestampMs":1795346400000,"conf":{"spark.sql.shuffle.partitions":"200"}}
                   {"flights":{"0":123,"1":98}}
    commits/7      v1                                                           epoch 7 is committed
                   {"nextBatchWatermarkMs":0}

The last line has no line feed. To Spark, an epoch is a batch, so a micro-batch query can resume where a continuous
query stopped, and vice versa. ``conf`` has session settings that a query keeps. A continuous query has no watermark,
but it preserves the one of an earlier micro-batch query. Unlike Spark, it writes ``offsets/7`` after the output of the
epoch, and says so by ``pyspark_kafka_direct.outputWritten`` in ``conf``, which Spark ignores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import EMPTY_FIRST_BATCH, partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.spark.checkpoint_files import OFFSET_LOG_V1, OFFSET_LOG_V2, parse_offset_seq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_OUTPUT_WRITTEN: Final = "pyspark_kafka_direct.outputWritten"
_COMMIT_VERSIONS: Final = ("v1", "v2")  # v2 also has ids of state files


@dataclass(frozen=True, slots=True)
class OffsetLogEntry:
    offsets: Mapping[TopicPartition, int]  # the next offset to read of each partition
    timestamp_ms: int = 0  # since 1970
    watermark_ms: int = 0  # of a micro-batch query
    conf: Mapping[str, str] = field(default_factory=dict)
    is_start: bool = False  # an empty first epoch, whose end is the start of the query
    is_output_written: bool = False  # a continuous query planned the epoch, after its output had been written


def format_offset_entry(entry: OffsetLogEntry) -> str:
    metadata = {
        "batchWatermarkMs": entry.watermark_ms,
        "batchTimestampMs": entry.timestamp_ms,
        "conf": {**entry.conf, **({_OUTPUT_WRITTEN: "true"} if entry.is_output_written else {})},
    }
    offsets_json = partition_offsets_to_json(entry.offsets)
    if entry.is_start:
        offsets_json = _to_json({**json.loads(offsets_json), EMPTY_FIRST_BATCH: {}})
    return "\n".join([OFFSET_LOG_V1, _to_json(metadata), offsets_json])


def parse_offset_entry(text: str, path: str) -> OffsetLogEntry:
    """Parse ``offsets/N``; ``path`` is for error messages."""
    lines = parse_offset_seq(text.removesuffix("\n"), path)
    if lines.version == OFFSET_LOG_V2:
        raise OptionError(
            f"{path} has version {OFFSET_LOG_V2}, which names the sources of a query. A continuous query supports only "
            f"{OFFSET_LOG_V1}: give it its own checkpoint."
        )
    if len(lines.sources) > 1:
        raise OptionError(
            f"{path} has the offsets of {len(lines.sources)} sources, but a continuous query reads one: give it its "
            "own checkpoint."
        )
    if not lines.sources or lines.sources[0] is None:
        raise InvalidOffsetsError(f"{path} has no offsets: {text!r}. The checkpoint is damaged, or of another source.")
    metadata = _json_object(lines.metadata or "{}", path)  # Spark accepts an empty line
    conf = metadata.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise InvalidOffsetsError(f"{path}: conf must map names to strings, got {conf!r}")
    try:
        offsets = partition_offsets_from_json(lines.sources[0])
    except InvalidOffsetsError as error:
        raise InvalidOffsetsError(f"{path} does not have the offsets of a Kafka source: {error}") from None
    return OffsetLogEntry(
        offsets=offsets,
        timestamp_ms=_milliseconds(metadata, "batchTimestampMs", path),
        watermark_ms=_milliseconds(metadata, "batchWatermarkMs", path),
        conf={name: value for name, value in conf.items() if name != _OUTPUT_WRITTEN},
        is_start=EMPTY_FIRST_BATCH in json.loads(lines.sources[0]),
        is_output_written=_OUTPUT_WRITTEN in conf,
    )


def format_commit(watermark_ms: int = 0) -> str:
    return "\n".join([OFFSET_LOG_V1, _to_json({"nextBatchWatermarkMs": watermark_ms})])


def parse_commit(text: str, path: str) -> int:
    """Parse ``commits/N``, and return the watermark for the next batch."""
    version, _, rest = text.partition("\n")
    if version not in _COMMIT_VERSIONS:
        raise InvalidOffsetsError(
            f"{path} has version {version!r}, but only {' and '.join(_COMMIT_VERSIONS)} are supported: give the query "
            "its own checkpoint."
        )
    metadata = _json_object(rest or "{}", path)  # Spark accepts a file without this line
    if metadata.get("stateUniqueIds"):
        reject_stateful_query(path)
    return _milliseconds(metadata, "nextBatchWatermarkMs", path)


def format_metadata(query_id: str) -> str:
    return _to_json({"id": query_id})


def parse_metadata(text: str, path: str) -> str:
    """Parse ``metadata``, and return the query's id."""
    query_id = _json_object(text, path).get("id")
    if not isinstance(query_id, str) or not query_id:
        raise InvalidOffsetsError(f"{path} has no query id: {text!r}. The checkpoint is damaged.")
    return query_id


def reject_stateful_query(path: str) -> None:
    raise OptionError(
        f"{path} shows that the query of this checkpoint is stateful (it aggregates, joins, or drops duplicates). A "
        "continuous query has no state, and the other query could not resume without it: give each its own checkpoint."
    )


def _milliseconds(metadata: Mapping[str, Any], name: str, path: str) -> int:
    value = metadata.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOffsetsError(f"{path}: {name} must be an integer, got {value!r}")
    return value


def _json_object(text: str, path: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidOffsetsError(f"{path} must have a JSON object, got {text!r}. The checkpoint is damaged.")
    return value


def _to_json(value: object) -> str:
    """Return compact JSON without escapes, as Spark writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
