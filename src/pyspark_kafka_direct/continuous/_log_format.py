"""What stands in the logs of a query's checkpoint: the text that Spark writes and reads, and nothing else.

    metadata       {"id":"3fa1c1a5-..."}                                        the query, once and for all
    offsets/7      v1                                                           where epoch 7 ends
                   {"batchWatermarkMs":0,"batchTimestampMs":1795346400000,"conf":{"spark.sql.shuffle.partitions":"200"}}
                   {"flights":{"0":123,"1":98}}
    commits/7      v1                                                           that it is done
                   {"nextBatchWatermarkMs":0}

No line ends the last one. An epoch is to Spark a batch. So a micro-batch query goes on where a continuous one has
stopped, and the other way round. ``conf`` has settings of the session that a query keeps for good; watermarks are of
no use here, but a micro-batch query that had one finds it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import EMPTY_BATCH, partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.runtime.offset_log import NAMED, PLAIN, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_COMMITS: Final = ("v1", "v2")  # v2 has names of files of state beside the watermark


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the offset log.

    Attributes:
        offsets: Where the epoch ends: the next offset to read of each partition.
        timestamp_ms: When it was planned, or ended, in milliseconds since 1970.
        watermark_ms: The watermark of a micro-batch query.
        conf: Settings of the session that the query keeps.
        is_start: Whether it is an empty first epoch, whose end is where the query starts.
    """

    offsets: Mapping[TopicPartition, int]
    timestamp_ms: int = 0
    watermark_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    is_start: bool = False


def format_offsets(entry: Entry) -> str:
    """Return the text of ``offsets/N``."""
    metadata = {
        "batchWatermarkMs": entry.watermark_ms,
        "batchTimestampMs": entry.timestamp_ms,
        "conf": dict(entry.conf),
    }
    offsets = partition_offsets_to_json(entry.offsets)
    if entry.is_start:
        offsets = _to_json({**json.loads(offsets), EMPTY_BATCH: {}})
    return "\n".join([PLAIN, _to_json(metadata), offsets])


def parse_offsets(text: str, place: str) -> Entry:
    """Read ``offsets/N``.

    Args:
        text: The file.
        place: Where it is, for errors.

    Raises:
        OffsetPlanError: It is of another version, or damaged.
        OptionError: It is of a query that cannot go on as a continuous one.
    """
    lines = read_lines(text.removesuffix("\n"), place)
    if lines.version == NAMED:
        raise OptionError(
            f"{place} is of version {NAMED}, which names the sources of a query. A continuous query understands "
            f"{PLAIN} only: give it a checkpoint of its own."
        )
    if len(lines.sources) > 1:
        raise OptionError(
            f"{place} has the offsets of {len(lines.sources)} sources, and a continuous query reads one: give it a "
            "checkpoint of its own."
        )
    if not lines.sources or lines.sources[0] is None:
        raise OffsetPlanError(f"{place} has no offsets: {text!r}. The checkpoint is damaged, or of another source.")
    metadata = _object(lines.metadata or "{}", place)
    conf = metadata.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise OffsetPlanError(f"{place}: conf is expected to map names to texts, got {conf!r}")
    try:
        offsets = partition_offsets_from_json(lines.sources[0])
    except OffsetPlanError as error:
        raise OffsetPlanError(f"{place} is not of a Kafka source: {error}") from None
    return Entry(
        offsets=offsets,
        timestamp_ms=_milliseconds(metadata, "batchTimestampMs", place),
        watermark_ms=_milliseconds(metadata, "batchWatermarkMs", place),
        conf=conf,
        is_start=EMPTY_BATCH in json.loads(lines.sources[0]),
    )


def format_commit(watermark_ms: int = 0) -> str:
    """Return the text of ``commits/N``."""
    return "\n".join([PLAIN, _to_json({"nextBatchWatermarkMs": watermark_ms})])


def parse_commit(text: str, place: str) -> int:
    """Read ``commits/N``, and return the watermark for the next batch.

    Args:
        text: The file.
        place: Where it is, for errors.

    Raises:
        OffsetPlanError: It is of another version, or damaged.
        OptionError: It is of a query with state.
    """
    version, _, rest = text.partition("\n")
    if version not in _COMMITS:
        raise OffsetPlanError(
            f"{place} is of version {version!r}, and {' and '.join(_COMMITS)} are understood: give the query a "
            "checkpoint of its own."
        )
    metadata = _object(rest or "{}", place)
    if metadata.get("stateUniqueIds"):
        refuse_state(place)
    return _milliseconds(metadata, "nextBatchWatermarkMs", place)


def format_metadata(query_id: str) -> str:
    """Return the text of ``metadata``."""
    return _to_json({"id": query_id})


def parse_metadata(text: str, place: str) -> str:
    """Read ``metadata``, and return the query's id.

    Args:
        text: The file.
        place: Where it is, for errors.

    Raises:
        OffsetPlanError: It is damaged.
    """
    query_id = _object(text, place).get("id")
    if not isinstance(query_id, str) or not query_id:
        raise OffsetPlanError(f"{place} has no id of a query: {text!r}. The checkpoint is damaged.")
    return query_id


def refuse_state(place: str) -> None:
    """Refuse the checkpoint of a query that has state.

    Raises:
        OptionError: Always.
    """
    raise OptionError(
        f"{place} shows that the query of this checkpoint keeps state (it aggregates, joins, or drops duplicates). A "
        "continuous query has none, and writes none for the other one to go on with: give it a checkpoint of its own."
    )


def _milliseconds(metadata: Mapping[str, Any], name: str, place: str) -> int:
    value = metadata.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise OffsetPlanError(f"{place}: {name} is expected to be a whole number, got {value!r}")
    return value


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise OffsetPlanError(f"{place} is expected to have a JSON object, got {text!r}. The checkpoint is damaged.")
    return value


def _to_json(value: object) -> str:
    """Write JSON as Spark does: no blanks, and letters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
