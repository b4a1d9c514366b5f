"""Where reading starts or ends, as the user wrote it: keywords, offsets, timestamps.

The forms are those of Spark's Kafka source (``KafkaSourceProvider.getKafkaOffsetRangeLimit``):

    earliest | latest                                     any letter case
    {"topic":{"0":23,"1":-1,"2":-2}}                      -1 latest, -2 earliest
    {"topic":"earliest","other":{"0":5}}                  a whole topic by keyword (SPARK-58774)
    1700000000000                                         one timestamp for all, in ms since 1970
    {"topic":{"0":1700000000000}}                         timestamps per topic-partition
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    TopicPartition,
    partition_numbers,
    topics_from_json,
)
from pyspark_kafka_direct.planning.hints import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

NoMatch: TypeAlias = Literal["error", "latest"]
"""What a starting timestamp does in a partition that has no record that new."""

_KEYWORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS_FORM = '"earliest", "latest" or JSON such as {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_FORM = 'JSON such as {"topicA":{"0":1700000000000,"1":1700000000000}}, in milliseconds since 1970'
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset of each partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition: high watermark, or last stable offset under ``read_committed``."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition (``EARLIEST``, ``LATEST`` or a number); whole topics by keyword."""

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)
    option: str = field(default="offsets", compare=False)


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """In each partition the first record whose timestamp (ms) is not before the given one."""

    timestamps: Mapping[TopicPartition, int]
    on_no_match: NoMatch = "error"
    option: str = field(default="offsetsByTimestamp", compare=False)


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """In every partition the first record whose timestamp (ms) is not before this one."""

    timestamp: int
    on_no_match: NoMatch = "error"
    option: str = field(default="timestamp", compare=False)


Position: TypeAlias = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


def parse_offsets(text: str, option: str) -> Position:
    """Read ``startingOffsets`` or ``endingOffsets``.

    Raises:
        OptionError: Neither a keyword nor JSON of the right shape; the message names the option.
    """
    text = text.strip()
    if text.lower() in _KEYWORDS:
        return Earliest() if text.lower() == "earliest" else Latest()
    if not text.startswith("{"):
        raise OptionError(f"{option} must be {_OFFSETS_FORM}, got {text!r}{did_you_mean(text, _KEYWORDS)}")
    offsets: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    try:
        for topic, entry in topics_from_json(text).items():
            if isinstance(entry, str):
                topics[topic] = _keyword(topic, entry)
                continue
            for partition, offset in partition_numbers(topic, entry).items():
                if offset < EARLIEST:
                    raise ValueError(f"{offset} for {topic}-{partition} is no offset (-1 is latest, -2 earliest)")
                offsets[TopicPartition(topic, partition)] = offset
    except ValueError as error:
        raise OptionError(f"{option} must be {_OFFSETS_FORM}, got {text!r}: {error}") from None
    return SpecificOffsets(offsets, topics, option)


def parse_timestamps(text: str, option: str, on_no_match: NoMatch = "error") -> SpecificTimestamps:
    """Read ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp`` (ms since 1970).

    Raises:
        OptionError: Not JSON of the right shape, or a negative timestamp.
    """
    text = text.strip()
    timestamps: dict[TopicPartition, int] = {}
    try:
        for topic, entry in topics_from_json(text).items():
            for partition, timestamp in partition_numbers(topic, entry).items():
                if timestamp < 0:
                    raise ValueError(f"{timestamp} for {topic}-{partition} lies before 1970")
                timestamps[TopicPartition(topic, partition)] = timestamp
    except ValueError as error:
        raise OptionError(f"{option} must be {_TIMESTAMPS_FORM}, got {text!r}: {error}") from None
    return SpecificTimestamps(timestamps, on_no_match, option)


def parse_timestamp(text: str, option: str, on_no_match: NoMatch = "error") -> GlobalTimestamp:
    """Read ``startingTimestamp`` or ``endingTimestamp`` (ms since 1970).

    Raises:
        OptionError: Not one whole number from 0 to 2^63-1. Spark hands negative numbers to the broker, which takes
            some of them for keywords.
    """
    text = text.strip()
    number = int(text) if _WHOLE.fullmatch(text) and len(text) < 30 else -1
    if not 0 <= number <= MAX_OFFSET:
        raise OptionError(f"{option} must be one timestamp in milliseconds since 1970, got {text!r}")
    return GlobalTimestamp(number, on_no_match, option)


def check_batch_start(position: Position, option: str) -> None:
    """Refuse a batch that starts at the latest offset: it would be empty.

    Raises:
        OptionError: The position, or one partition or topic of it, is ``latest``.
    """
    _check_batch(position, option, "starting", LATEST, "latest")


def check_batch_end(position: Position, option: str) -> None:
    """Refuse a batch that ends at the earliest offset: it would be empty.

    Raises:
        OptionError: The position, or one partition or topic of it, is ``earliest``.
    """
    _check_batch(position, option, "ending", EARLIEST, "earliest")


def check_pair(start: Position, end: Position) -> None:
    """Compare a start and an end that are both explicit, before anything is looked up.

    Raises:
        OffsetPlanError: They name different partitions (Spark's
            MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET), or a start lies after its end
            (UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET).
    """
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        # A topic given by keyword covers partitions that only the broker knows: then the sets are compared later.
        if not start.topics and not end.topics:
            _check_same_partitions(start.option, start.offsets, end.option, end.offsets)
        _check_order("offset", start.option, start.offsets, end.option, end.offsets)
    elif isinstance(start, SpecificTimestamps) and isinstance(end, SpecificTimestamps):
        _check_same_partitions(start.option, start.timestamps, end.option, end.timestamps)
        _check_order("timestamp", start.option, start.timestamps, end.option, end.timestamps)


def _keyword(topic: str, word: str) -> int:
    if word.strip().lower() not in _KEYWORDS:
        raise ValueError(f"topic {topic!r}: {word!r} is neither 'earliest' nor 'latest'{did_you_mean(word, _KEYWORDS)}")
    return _KEYWORDS[word.strip().lower()]


def _check_batch(position: Position, option: str, side: str, sentinel: int, word: str) -> None:
    refused: list[object] = []
    match position:
        case Earliest():
            refused = ["all partitions"] if sentinel == EARLIEST else []
        case Latest():
            refused = ["all partitions"] if sentinel == LATEST else []
        case SpecificOffsets(offsets, topics):
            refused = [tp for tp, offset in offsets.items() if offset == sentinel]
            refused += [f"topic {topic}" for topic, offset in topics.items() if offset == sentinel]
        case _:
            pass
    if refused:
        raise OptionError(
            f"{option}: the {side} offset of {listed(refused)} cannot be {word} ({sentinel}) in a batch query"
        )


def _check_same_partitions(
    start_option: str, start: Mapping[TopicPartition, int], end_option: str, end: Mapping[TopicPartition, int]
) -> None:
    if start.keys() != end.keys():
        raise OffsetPlanError(
            f"{start_option} and {end_option} must name the same topic-partitions; "
            f"only in {start_option}: {listed(sorted(start.keys() - end.keys()))}; "
            f"only in {end_option}: {listed(sorted(end.keys() - start.keys()))}"
        )


def _check_order(
    what: str,
    start_option: str,
    start: Mapping[TopicPartition, int],
    end_option: str,
    end: Mapping[TopicPartition, int],
) -> None:
    for tp in sorted(start.keys() & end.keys()):
        # Negative numbers are keywords and are compared once they are resolved.
        if start[tp] > end[tp] >= 0:
            raise OffsetPlanError(
                f"the specified start {what} {start[tp]} ({start_option}) is greater than the end {what} {end[tp]} "
                f"({end_option}); give a start that is not after the end",
                topic=tp.topic,
                partition=tp.partition,
            )
