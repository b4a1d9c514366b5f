"""Positions where reading starts or ends, as users write them: keywords, offsets or timestamps.

The forms are those of Spark's Kafka source (``KafkaSourceProvider.getKafkaOffsetRangeLimit``):

    earliest | latest                                     any letter case
    {"topic":{"0":23,"1":-1,"2":-2}}                      -1 latest, -2 earliest
    {"topic":"earliest","other":{"0":5}}                  a whole topic by keyword (SPARK-58774)
    1700000000000                                         one timestamp for all partitions, in ms since 1970
    {"topic":{"0":1700000000000}}                         a timestamp per topic-partition
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import (
    EARLIEST,
    LATEST,
    TopicPartition,
    partition_values_from_json,
    topics_from_json,
)
from pyspark_kafka_direct.options.hints import did_you_mean, listed
from pyspark_kafka_direct.options.option_messages import ignored_warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.options.option_parser import ParsedConfig

OffsetOrigin: TypeAlias = Literal["given", "earliest", "latest", "timestamp"]

# What a starting timestamp means in a partition without a record that new.
NoMatchStrategy: TypeAlias = Literal["error", "latest"]

STARTING_TIMESTAMP_OPTIONS: Final = ("startingTimestamp", "startingOffsetsByTimestamp")
STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"

_KEYWORDS = {"earliest": EARLIEST, "latest": LATEST}
_SECONDS_SINCE_2001: Final = range(10**9, 10**10)  # as milliseconds, these are times of January to April 1970
_OFFSETS_FORM = '"earliest", "latest" or JSON such as {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_FORM = 'JSON such as {"topicA":{"0":1700000000000,"1":1700000000000}}, in milliseconds since 1970'
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset of each partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition: the high watermark, or the last stable offset with ``read_committed``."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition, or ``EARLIEST`` or ``LATEST``; a keyword may stand for a whole topic."""

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)
    option: str = field(default="offsets", compare=False)


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """In each partition the first record with this timestamp (ms) or a later one."""

    timestamps: Mapping[TopicPartition, int]
    on_no_match: NoMatchStrategy = "error"
    option: str = field(default="offsetsByTimestamp", compare=False)


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """In every partition the first record with this timestamp (ms) or a later one."""

    timestamp: int
    on_no_match: NoMatchStrategy = "error"
    option: str = field(default="timestamp", compare=False)


OffsetSpec: TypeAlias = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


@dataclass(frozen=True, slots=True)
class CommittedStart:
    """The committed offsets of the query's consumer group."""

    fallback: Earliest | Latest | None = None  # for partitions without a committed offset; None: they are an error


StartingOffsetSpec: TypeAlias = OffsetSpec | CommittedStart


TimestampSpec: TypeAlias = GlobalTimestamp | SpecificTimestamps


def parse_offset_spec(text: str, option: str) -> OffsetSpec:
    """Parse ``startingOffsets`` or ``endingOffsets``."""
    text = text.strip()
    if text.lower() in _KEYWORDS:
        return Earliest() if text.lower() == "earliest" else Latest()
    if not text.startswith("{"):
        is_committed = text.lower() == "committed"  # valid in a stream, which parses it before
        hint = "; only streams start at committed offsets" if is_committed else did_you_mean(text, _KEYWORDS)
        raise OptionError(f"{option} must be {_OFFSETS_FORM}, got {text!r}{hint}")
    offsets: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    try:
        for topic, entry in topics_from_json(text).items():
            if isinstance(entry, str):
                topics[topic] = _keyword_offset(topic, entry)
                continue
            for partition, offset in partition_values_from_json(topic, entry).items():
                if offset < EARLIEST:
                    raise ValueError(
                        f"{offset} for {topic}-{partition} is not an offset (-1 is latest, -2 is earliest)"
                    )
                offsets[TopicPartition(topic, partition)] = offset
    except ValueError as error:
        raise OptionError(f"{option} must be {_OFFSETS_FORM}, got {text!r}: {error}") from None
    return SpecificOffsets(offsets, topics, option)


def parse_timestamps_by_partition(text: str, option: str, on_no_match: NoMatchStrategy = "error") -> SpecificTimestamps:
    """Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp`` (ms since 1970)."""
    text = text.strip()
    timestamps: dict[TopicPartition, int] = {}
    try:
        for topic, entry in topics_from_json(text).items():
            for partition, timestamp in partition_values_from_json(topic, entry).items():
                if timestamp < 0:
                    raise ValueError(f"{timestamp} for {topic}-{partition} is before 1970")
                timestamps[TopicPartition(topic, partition)] = timestamp
    except ValueError as error:
        raise OptionError(f"{option} must be {_TIMESTAMPS_FORM}, got {text!r}: {error}") from None
    return SpecificTimestamps(timestamps, on_no_match, option)


def check_batch_start(spec: OffsetSpec, option: str) -> None:
    """Reject a batch that starts at the latest offset: it would be empty."""
    _check_no_keyword(spec, option, side="starting", keyword="latest")


def check_batch_end(spec: OffsetSpec, option: str) -> None:
    """Reject a batch that ends at the earliest offset: it would be empty."""
    _check_no_keyword(spec, option, side="ending", keyword="earliest")


def check_start_and_end(start: OffsetSpec, end: OffsetSpec) -> None:
    """Compare an explicit start with an explicit end of the same kind; others are compared when they are resolved."""
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        # A keyword for a whole topic covers partitions known only from metadata: then the sets are compared later.
        if not start.topics and not end.topics:
            _check_same_partitions(start.option, start.offsets, end.option, end.offsets)
        _check_order("offset", start.option, start.offsets, end.option, end.offsets)
    elif isinstance(start, SpecificTimestamps) and isinstance(end, SpecificTimestamps):
        _check_same_partitions(start.option, start.timestamps, end.option, end.timestamps)
        _check_order("timestamp", start.option, start.timestamps, end.option, end.timestamps)


def parse_timestamps(
    parsed: ParsedConfig, names: tuple[str, str], on_no_match: NoMatchStrategy
) -> TimestampSpec | None:
    """Parse one timestamp, or else timestamps by partition; return ``None`` if neither is given."""
    timestamp_option, timestamps_option = names
    if timestamp_option in parsed.given_names:
        return GlobalTimestamp(parsed.get_int(timestamp_option), on_no_match, timestamp_option)
    if timestamps_option in parsed.given_names:
        return parse_timestamps_by_partition(parsed.get_string(timestamps_option) or "", timestamps_option, on_no_match)
    return None


def timestamp_warnings(spec: TimestampSpec | None) -> list[str]:
    """Return a warning if a timestamp seems to be in seconds; Kafka would find all records after it."""
    match spec:
        case GlobalTimestamp(timestamp):
            timestamps = [timestamp]
        case SpecificTimestamps(by_partition):
            timestamps = list(by_partition.values())
        case None:
            return []
    in_seconds = next((timestamp for timestamp in timestamps if timestamp in _SECONDS_SINCE_2001), None)
    if in_seconds is None:
        return []
    return [f"{spec.option}: {in_seconds} ms is a time in 1970; if it is in seconds, multiply it by 1000"]


def precedence_warnings(parsed: ParsedConfig, names: Sequence[str]) -> list[str]:
    """Return a warning for each given option after the first one, which takes precedence."""
    given_names = [name for name in names if name in parsed.given_names]
    return [ignored_warning(parsed.source, name, f"{given_names[0]} takes precedence") for name in given_names[1:]]


def _keyword_offset(topic: str, word: str) -> int:
    if word.strip().lower() not in _KEYWORDS:
        raise ValueError(f"topic {topic!r}: {word!r} is neither 'earliest' nor 'latest'{did_you_mean(word, _KEYWORDS)}")
    return _KEYWORDS[word.strip().lower()]


def _check_no_keyword(spec: OffsetSpec, option: str, *, side: str, keyword: str) -> None:
    """Raise an error if a position is this keyword, or the number that stands for it."""
    sentinel = _KEYWORDS[keyword]
    rejected: list[object] = []
    match spec:
        case Earliest():
            rejected = ["all partitions"] if sentinel == EARLIEST else []
        case Latest():
            rejected = ["all partitions"] if sentinel == LATEST else []
        case SpecificOffsets(offsets, topics):
            rejected = [tp for tp, offset in offsets.items() if offset == sentinel]
            rejected += [f"topic {topic}" for topic, offset in topics.items() if offset == sentinel]
        case _:
            pass  # timestamps have no keywords
    if rejected:
        raise OptionError(
            f"{option}: the {side} offset of {listed(rejected)} cannot be {keyword} ({sentinel}) in a batch query, "
            "which would be empty: use an offset or a timestamp"
        )


def _check_same_partitions(
    start_option: str, start: Mapping[TopicPartition, int], end_option: str, end: Mapping[TopicPartition, int]
) -> None:
    if start.keys() != end.keys():
        # One of the differences may be empty: it is shown as "none".
        raise InvalidOffsetsError(
            f"{start_option} and {end_option} must name the same topic-partitions; "
            f"only in {start_option}: {listed(sorted(start.keys() - end.keys()))}; "
            f"only in {end_option}: {listed(sorted(end.keys() - start.keys()))}"
        )


def _check_order(
    kind: str,
    start_option: str,
    start: Mapping[TopicPartition, int],
    end_option: str,
    end: Mapping[TopicPartition, int],
) -> None:
    """Raise an error if a partition starts after its end."""
    for tp in sorted(start.keys() & end.keys()):
        # Negative numbers stand for keywords and are compared after they are resolved.
        if start[tp] > end[tp] >= 0:
            raise InvalidOffsetsError(
                f"the specified start {kind} {start[tp]} ({start_option}) is greater than the end {kind} {end[tp]} "
                f"({end_option}); give a start that is not after the end",
                topic=tp.topic,
                partition=tp.partition,
            )


@dataclass(frozen=True, slots=True)
class ResolvedOffset:
    """A resolved start or end offset of a partition, and how it was determined."""

    offset: int
    origin: OffsetOrigin
