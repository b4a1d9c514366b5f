"""Topic-partitions, offset ranges, and offsets as JSON in the format of Spark's own Kafka source.

A map of offsets always contains the *next offset to read* of each partition. Its JSON, ``{"topic":{"0":23,"1":45}}``,
is what Spark keeps in a checkpoint and what ``startingOffsets`` accepts (``org.apache.spark.sql.kafka010.JsonUtils``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from uuid import UUID

from pyspark_kafka_direct.errors import InvalidOffsetsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST = -2
"""The log start offset, where an offset is expected (the same number as in Kafka's ListOffsets)."""

LATEST = -1
"""The end of the log, where an offset is expected."""

MAX_OFFSET = (1 << 63) - 1
"""Offsets are signed 64-bit integers in Kafka's protocol."""

MAX_PARTITION = (1 << 31) - 1
"""Partitions are signed 32-bit integers in Kafka's protocol."""

EMPTY_FIRST_BATCH = "(start)"
"""A key in a checkpoint that marks an offset as the end of the empty first batch, where the query starts.

The end of a first batch that is not empty has the batch's start in keys such as ``(start){"topic":{"0":23}}``.

No topic can have such a name. It has no partitions, so every reader ignores it, including Spark's own source.
"""

REWOUND = "(rewound)"
"""A key in a checkpoint that marks an offset as the end of an empty batch that goes back; readers ignore it, too."""

# Spark's JSON reader rejects keys of more than 50,000 characters. Without escapes, a partition takes 283 at most.
_PARTITIONS_PER_START_KEY = 100


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then numerically by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets of one topic-partition from ``from_offset`` (inclusive) to ``until_offset`` (exclusive).

    Args:
        topic: The topic name.
        partition: The partition number.
        from_offset: The first offset.
        until_offset: The offset after the last one.
        topic_id: The id of the topic when the range was planned, if it is known. With an id, reading the range from a
            topic that was recreated since is data loss. As in Spark, only the first four fields are compared.

    Raises:
        InvalidOffsetsError: An empty topic, a negative number, ``from_offset`` after ``until_offset``, or a topic id
            that is not a ``UUID``.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    topic_id: UUID | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise InvalidOffsetsError(f"an offset range needs a topic name, got {self.topic!r}")
        _require_integer("partition", self.partition, MAX_PARTITION, self.topic)
        _require_integer("from_offset", self.from_offset, MAX_OFFSET, self.topic)
        _require_integer("until_offset", self.until_offset, MAX_OFFSET, self.topic)
        if self.from_offset > self.until_offset:
            raise InvalidOffsetsError(
                f"the range starts at offset {self.from_offset}, after its end {self.until_offset}; "
                "use a start that is not after the end",
                topic=self.topic,
                partition=self.partition,
            )
        if self.topic_id is not None and not isinstance(self.topic_id, UUID):
            raise InvalidOffsetsError(f"topic_id must be a UUID, got {self.topic_id!r}", topic=self.topic)

    @classmethod
    def create(cls, topic: str | TopicPartition, *numbers: int) -> OffsetRange:
        """Create a range from ``(topic, partition, from, until)`` or ``(topic_partition, from, until)``, as in Spark.

        Raises:
            InvalidOffsetsError: As for the constructor; also for another number of arguments.
        """
        partition_fields = (topic.topic, topic.partition) if isinstance(topic, TopicPartition) else (topic,)
        values = (*partition_fields, *numbers)
        if len(values) != 4:
            raise InvalidOffsetsError(
                "an offset range takes (topic, partition, from, until) or (topic_partition, from, until), "
                f"got {(topic, *numbers)!r}"
            )
        return cls(*values)

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition of this range."""
        return TopicPartition(self.topic, self.partition)

    def topicPartition(self) -> TopicPartition:  # noqa: N802 (Spark's spelling)
        """Return topic and partition, as ``OffsetRange.topicPartition()`` of Spark's direct stream does."""
        return self.topic_partition

    @property
    def fromOffset(self) -> int:  # noqa: N802 (Spark's spelling)
        """``from_offset`` in Spark's spelling."""
        return self.from_offset

    @property
    def untilOffset(self) -> int:  # noqa: N802 (Spark's spelling)
        """``until_offset`` in Spark's spelling."""
        return self.until_offset

    def count(self) -> int:
        """Return the number of offsets; it may exceed that of records (compaction, control and aborted records)."""
        return self.until_offset - self.from_offset


class OffsetStore(Protocol):
    """Stores the next offsets to read of a job, so that it resumes there after a restart."""

    def load(self) -> Mapping[TopicPartition, int]:
        """Return the next offset to read of each partition; empty at the first start."""

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store next offsets to read; they are durable when this returns. Other partitions keep their offsets."""


def partition_offsets_to_json(offsets: Mapping[TopicPartition, int] | Mapping[TopicPartition, int | str]) -> str:
    """Serialize offsets as ``{"topic":{"0":23}}``: topics sorted, partitions sorted numerically, no spaces.

    Spark compares offsets as strings, so equal offsets must always give the same string.
    """
    topics: dict[str, dict[str, int | str]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def partition_offsets_from_json(text: str) -> dict[TopicPartition, int]:
    """Parse offsets such as ``{"topic":{"0":23}}``.

    Raises:
        InvalidOffsetsError: The text is not JSON of that form; the message explains why.
    """
    try:
        return {
            TopicPartition(topic, partition): offset
            for topic, entry in topics_from_json(text).items()
            for partition, offset in partition_values_from_json(topic, entry).items()
        }
    except ValueError as error:
        raise InvalidOffsetsError(f'offsets must look like {{"topic":{{"0":23}}}}, got {text!r}: {error}') from None


def record_first_start(
    end: Mapping[TopicPartition, int], start: Mapping[TopicPartition, int]
) -> dict[str, dict[str, int]]:
    """Return the end of the first batch as a JSON object that also records the start of the batch."""
    topics: dict[str, dict[str, int]] = json.loads(partition_offsets_to_json(end))
    if start == end:  # the offsets themselves are the start, and need no second copy
        return {**topics, EMPTY_FIRST_BATCH: {}}
    partitions = sorted(start)
    for index in range(0, max(len(partitions), 1), _PARTITIONS_PER_START_KEY):  # a key also if there was no partition
        recorded = {tp: start[tp] for tp in partitions[index : index + _PARTITIONS_PER_START_KEY]}
        topics[EMPTY_FIRST_BATCH + partition_offsets_to_json(recorded)] = {}
    return topics


def recorded_first_start(topics: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """Return the start that a JSON object by ``record_first_start`` records, or ``None`` if it records none.

    Raises:
        InvalidOffsetsError: The recorded start is damaged.
    """
    if EMPTY_FIRST_BATCH in topics:  # the batch starts at its own end
        return partition_offsets_from_json(json.dumps(topics))
    start_keys = [key for key in topics if key.startswith(EMPTY_FIRST_BATCH)]
    if not start_keys:
        return None
    return {
        tp: offset
        for key in start_keys
        for tp, offset in partition_offsets_from_json(key.removeprefix(EMPTY_FIRST_BATCH)).items()
    }


_RANGE_KEYS = ("topic", "partition", "fromOffset", "untilOffset")
_TOPIC_ID_KEY = "topicId"


def with_topic_ids(ranges: Iterable[OffsetRange], topic_ids: Mapping[str, UUID | None]) -> list[OffsetRange]:
    """Return the ranges with the ids of their topics; a range that has an id keeps it."""
    return [
        offset_range if offset_range.topic_id else replace(offset_range, topic_id=topic_ids.get(offset_range.topic))
        for offset_range in ranges
    ]


def offset_ranges_to_json(ranges: Iterable[OffsetRange]) -> str:
    """Serialize ranges as ``[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]``, in their order.

    A range with a topic id also has ``"topicId":"0f8c..."``.
    """
    return json.dumps([_offset_range_entry(offset_range) for offset_range in ranges])


def offset_ranges_from_json(text: str) -> tuple[OffsetRange, ...]:
    """Parse ranges such as ``[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]``, in their order.

    Raises:
        ValueError: Not JSON of that form, or an invalid range.
    """
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("not a JSON list")
    return tuple(_parse_offset_range(index, entry) for index, entry in enumerate(entries))


def _offset_range_entry(offset_range: OffsetRange) -> dict[str, object]:
    entry = {key: getattr(offset_range, key) for key in _RANGE_KEYS}
    return entry if offset_range.topic_id is None else entry | {_TOPIC_ID_KEY: str(offset_range.topic_id)}


def _parse_offset_range(index: int, entry: object) -> OffsetRange:
    if not isinstance(entry, dict) or set(entry) - {_TOPIC_ID_KEY} != set(_RANGE_KEYS):
        raise ValueError(f"entry {index} must have exactly the keys {', '.join(_RANGE_KEYS)}, and may have topicId")
    try:
        return OffsetRange(
            *cast("tuple[str, int, int, int]", tuple(entry[key] for key in _RANGE_KEYS)),
            topic_id=_parse_topic_id(entry.get(_TOPIC_ID_KEY)),
        )
    except InvalidOffsetsError as error:
        raise ValueError(f"entry {index}: {error}") from None


def _parse_topic_id(value: object) -> UUID | None:
    if value is None:
        return None
    try:
        return UUID(cast("str", value))
    except (ValueError, AttributeError):  # AttributeError: it is not a string
        raise InvalidOffsetsError(f"topicId must be a UUID such as {UUID(int=0)}, got {value!r}") from None


def topics_from_json(text: str) -> dict[str, Any]:
    """Parse a JSON object whose keys are topics; the values are returned as they are.

    Raises:
        ValueError: Not JSON, not an object, or a duplicate key (Python's JSON reader would drop one silently).
    """
    try:
        topics = json.loads(text, object_pairs_hook=_object_without_duplicates)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(topics, dict):
        raise ValueError("not a JSON object")
    if "" in topics:
        raise ValueError("a topic name is empty")
    return topics


def partition_entries_from_json(topic: str, entry: object) -> dict[int, object]:
    """Parse the partition numbers of one topic's ``{"0":23,"1":45}``; the values are returned as they are.

    Raises:
        ValueError: ``entry`` is not such an object.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"topic {topic!r} does not map partitions to integers")
    values: dict[int, object] = {}
    for key, value in entry.items():
        partition = int64_from_json(key)
        if partition is None or not 0 <= partition <= MAX_PARTITION:
            raise ValueError(f"topic {topic!r}: {key!r} is not a partition number")
        if partition in values:
            raise ValueError(f"topic {topic!r}: partition {partition} occurs twice")
        values[partition] = value
    return values


def partition_values_from_json(topic: str, entry: object) -> dict[int, int]:
    """Parse one topic's ``{"0":23,"1":45}``: a 64-bit integer for each partition.

    Raises:
        ValueError: ``entry`` is not such an object, or one of its integers is out of range.
    """
    integers: dict[int, int] = {}
    for partition, value in partition_entries_from_json(topic, entry).items():
        integer = int64_from_json(value)
        if integer is None:
            raise ValueError(f"topic {topic!r}, partition {partition}: {value!r} is not a 64-bit integer")
        integers[partition] = integer
    return integers


def int64_from_json(value: object) -> int | None:
    """Return a 64-bit integer, which may also be a string (``"23"``), as for Spark's JSON reader; else ``None``."""
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else None
    if not isinstance(value, int) or isinstance(value, bool) or not -MAX_OFFSET - 1 <= value <= MAX_OFFSET:
        return None
    return value


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # int() accepts more than Spark, such as "1_000"


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"{key!r} occurs twice")
        result[key] = value
    return result


def _require_integer(name: str, value: int, maximum: int, topic: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise InvalidOffsetsError(f"{name} must be an integer from 0 to {maximum}, got {value!r}", topic=topic)
