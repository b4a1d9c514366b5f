"""Topic-partitions, offset ranges, and offsets as JSON in the shape Spark's own Kafka source writes.

An offset is the number of a record within its topic-partition. A map of offsets always holds the *next offset to
read*. Its JSON, ``{"topic":{"0":23,"1":45}}``, is what Spark keeps in a checkpoint and what ``startingOffsets`` takes
(``org.apache.spark.sql.kafka010.JsonUtils``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pyspark_kafka_direct.errors import OffsetPlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST = -2
"""Stands for the log start offset where an offset is expected (Kafka's ListOffsets uses the same number)."""

LATEST = -1
"""Stands for the end of the log where an offset is expected."""

MAX_OFFSET = (1 << 63) - 1
"""Offsets are signed 64-bit numbers in Kafka's protocol."""

MAX_PARTITION = (1 << 31) - 1
"""Partition numbers are signed 32-bit numbers in Kafka's protocol."""

EMPTY_BATCH = "(start)"
"""Marks the end of an empty first batch in a checkpoint, which is where the query starts.

No topic can have this name, and as it has no partitions, it is no offset to any reader, Spark's own source included.
"""


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by partition as a number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one topic-partition from ``from_offset`` up to, but without, ``until_offset``.

    Raises:
        OffsetPlanError: An empty topic, a negative number, or ``from_offset`` after ``until_offset``.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise OffsetPlanError(f"an offset range needs the name of a topic, got {self.topic!r}")
        _require_number("partition", self.partition, MAX_PARTITION, self.topic)
        _require_number("from_offset", self.from_offset, MAX_OFFSET, self.topic)
        _require_number("until_offset", self.until_offset, MAX_OFFSET, self.topic)
        if self.from_offset > self.until_offset:
            raise OffsetPlanError(
                f"the range starts at offset {self.from_offset}, after its end {self.until_offset}; "
                "give a start that is not after the end",
                topic=self.topic,
                partition=self.partition,
            )

    @classmethod
    def create(cls, topic: str | TopicPartition, *numbers: int) -> OffsetRange:
        """Make a range from ``(topic, partition, from, until)`` or ``(topic_partition, from, until)``, as in Spark.

        Raises:
            OffsetPlanError: As when the class is called; also for another number of arguments.
        """
        place = (topic.topic, topic.partition) if isinstance(topic, TopicPartition) else (topic,)
        values = (*place, *numbers)
        if len(values) != 4:
            raise OffsetPlanError(
                "an offset range is made of (topic, partition, from, until) or (topic_partition, from, until), "
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
        """Return the number of offsets; records may be fewer (compaction holes, control and aborted records)."""
        return self.until_offset - self.from_offset


class OffsetStore(Protocol):
    """Where a job keeps how far it has come, so that it goes on from there when it is started again."""

    def load(self) -> Mapping[TopicPartition, int]:
        """Return the next offset to read of each partition; empty at the first start."""

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep the next offsets to read; durable when it returns. Partitions that are not named stay as they are."""


def partition_offsets_to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Write offsets as ``{"topic":{"0":23}}``: topics sorted, partitions sorted as numbers, no blanks.

    Spark compares offsets as text, so equal offsets must always give the same text.
    """
    topics: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def partition_offsets_from_json(text: str) -> dict[TopicPartition, int]:
    """Read offsets written as ``{"topic":{"0":23}}``.

    Raises:
        OffsetPlanError: The text is not JSON of that shape; the message says what is wrong.
    """
    try:
        return {
            TopicPartition(topic, partition): offset
            for topic, entry in topics_from_json(text).items()
            for partition, offset in partition_numbers(topic, entry).items()
        }
    except ValueError as error:
        raise OffsetPlanError(f'offsets are expected as e.g. {{"topic":{{"0":23}}}}, got {text!r}: {error}') from None


_RANGE_KEYS = ("topic", "partition", "fromOffset", "untilOffset")


def offset_ranges_to_json(ranges: Iterable[OffsetRange]) -> str:
    """Write ranges as ``[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]``, in their order."""
    return json.dumps([{key: getattr(each, key) for key in _RANGE_KEYS} for each in ranges])


def offset_ranges_from_json(text: str) -> tuple[OffsetRange, ...]:
    """Read ranges written as ``[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]``, in their order.

    Raises:
        ValueError: Not JSON of that shape, or a range that cannot be.
    """
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("not a list")
    return tuple(_offset_range(index, entry) for index, entry in enumerate(entries))


def _offset_range(index: int, entry: object) -> OffsetRange:
    if not isinstance(entry, dict) or set(entry) != set(_RANGE_KEYS):
        raise ValueError(f"entry {index} must have exactly the keys {', '.join(_RANGE_KEYS)}")
    try:
        return OffsetRange(*cast("tuple[str, int, int, int]", tuple(entry[key] for key in _RANGE_KEYS)))
    except OffsetPlanError as error:
        raise ValueError(f"entry {index}: {error}") from None


def topics_from_json(text: str) -> dict[str, Any]:
    """Read a JSON object whose keys are topics; what each topic maps to is left as it is.

    Raises:
        ValueError: Not JSON, not an object, or a key that occurs twice (a JSON reader would drop one in silence).
    """
    try:
        topics = json.loads(text, object_pairs_hook=_object_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(topics, dict):
        raise ValueError("not a JSON object")
    if "" in topics:
        raise ValueError("a topic's name is empty")
    return topics


def partition_numbers(topic: str, entry: object) -> dict[int, int]:
    """Read one topic's ``{"0":23,"1":45}``: from partition to a 64-bit number (an offset or a timestamp).

    A number may also be written as text (``"23"``), as Spark's JSON reader takes it.

    Raises:
        ValueError: Something else than whole numbers within their range.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"topic {topic!r} does not map partitions to numbers")
    numbers: dict[int, int] = {}
    for key, value in entry.items():
        partition = _whole(key)
        if partition is None or not 0 <= partition <= MAX_PARTITION:
            raise ValueError(f"topic {topic!r}: {key!r} is not a partition number")
        number = _whole(value)
        if number is None or not -MAX_OFFSET - 1 <= number <= MAX_OFFSET:
            raise ValueError(f"topic {topic!r}, partition {partition}: {value!r} is not a whole 64-bit number")
        if partition in numbers:
            raise ValueError(f"topic {topic!r}: partition {partition} occurs twice")
        numbers[partition] = number
    return numbers


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return None


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"{key!r} occurs twice")
        result[key] = value
    return result


def _require_number(name: str, value: int, largest: int, topic: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise OffsetPlanError(f"{name} must be a whole number from 0 to {largest}, got {value!r}", topic=topic)
