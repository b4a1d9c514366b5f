"""Positions where reading starts or ends, as users write them: keywords, offsets or times.

Some forms are those of Spark's Kafka source (``KafkaSourceProvider.getKafkaOffsetRangeLimit``):

    earliest | latest                                     any letter case
    {"topic":{"0":23,"1":-1,"2":-2}}                      -1 latest, -2 earliest
    {"topic":"earliest","other":{"0":5}}                  a whole topic by keyword (SPARK-58774)
    1700000000000                                         one timestamp for all partitions, in ms since 1970
    {"topic":{"0":1700000000000}}                         a timestamp per topic-partition

The others are our own. All words may also be values in JSON:

    now                                                   the same as latest
    2026-11-28T06:00Z | -1h                               the first record at this time or later
    last 1000                                             the last offsets of each partition
    {"topic":{"0":23,"*":"-1h"},"*":"earliest"}           "*" is the rest of a topic, or all other topics
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import (
    EARLIEST,
    LATEST,
    TopicPartition,
    int64_from_json,
    partition_entries_from_json,
    topics_from_json,
)
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.option_messages import ignored_warning
from pyspark_kafka_direct.options.positions import (
    KEYWORDS,
    TIMES_FORM,
    AtTime,
    BeforeNow,
    LastOffsets,
    NoMatchStrategy,
    Position,
    parse_position,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.options.option_parser import ParsedConfig

OffsetOrigin: TypeAlias = Literal["given", "earliest", "latest", "timestamp", "last"]

STARTING_TIMESTAMP_OPTIONS: Final = ("startingTimestamp", "startingOffsetsByTimestamp")
STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"

_REST: Final = "*"  # no topic can have this name
_SECONDS_SINCE_2001: Final = range(10**9, 10**10)  # as milliseconds, these are times of January to April 1970
_OFFSETS_FORM: Final = (
    f'"earliest", "latest" or "now", {TIMES_FORM}, "last 1000", or JSON such as '
    '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
)
_TIMES_BY_PARTITION_FORM: Final = (
    'JSON such as {"topicA":{"0":1700000000000,"1":1700000000000}}, in milliseconds since 1970'
)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Positions of partitions: that of the partition has priority over that of its topic, and that over the rest."""

    partitions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    topics: Mapping[str, Position] = field(default_factory=dict)
    others: Position | None = None  # None: each partition must be named, or its topic
    option: str = field(default="offsets", compare=False)

    @property
    def names_only_partitions(self) -> bool:
        """Whether the positions say which partitions are read."""
        return not self.topics and self.others is None

    @property
    def has_times(self) -> bool:
        """Whether some positions are times."""
        return any(isinstance(position, AtTime | BeforeNow) for position in self.positions())

    def position(self, partition: TopicPartition) -> Position | None:
        """Return the position of a partition, or ``None`` if it has none."""
        return self.partitions.get(partition, self.topics.get(partition.topic, self.others))

    def by_name(self) -> dict[TopicPartition | str, Position]:
        """Return the positions by partition, or by the words with which messages name the partitions."""
        positions: dict[TopicPartition | str, Position] = dict(self.partitions.items())
        positions.update({f"topic {topic}": position for topic, position in self.topics.items()})
        if self.others is not None:
            positions["other partitions" if positions else "all partitions"] = self.others
        return positions

    def positions(self) -> Iterator[Position]:
        """Return all positions."""
        return iter(self.by_name().values())


AT_EARLIEST: Final = OffsetSpec(others=EARLIEST)
AT_LATEST: Final = OffsetSpec(others=LATEST)


@dataclass(frozen=True, slots=True)
class CommittedStart:
    """The committed offsets of the query's consumer group."""

    fallback: OffsetSpec | None = None  # for partitions without a committed offset; None: they are an error


StartingOffsetSpec: TypeAlias = OffsetSpec | CommittedStart


class _ParsePosition(Protocol):
    """Parses one position; raises ``ValueError``."""

    def __call__(self, value: object, where: str = "") -> Position: ...


def parse_offset_spec(value: object, option: str, on_no_match: NoMatchStrategy = "latest") -> OffsetSpec:
    """Parse ``startingOffsets`` or ``endingOffsets``; Python also has dicts, ``datetime`` and ``timedelta``."""
    parse_word = partial(parse_position, at_time=on_no_match, before_now=on_no_match)
    try:
        if isinstance(value, Mapping):
            topics = _by_topic(value)
        elif isinstance(value, str) and value.lstrip().startswith("{"):
            topics = topics_from_json(value)
        else:
            return OffsetSpec(others=parse_word(value), option=option)
        return _parse_map(topics, option, partial(_parse_offset, parse_word=parse_word), parse_shared=parse_word)
    except ValueError as error:
        is_committed = isinstance(value, str) and value.strip().lower() == "committed"  # a stream parses it before
        reason = "; only streams start at committed offsets" if is_committed else f": {error}"
        raise OptionError(f"{option} must be {_OFFSETS_FORM}, got {value!r}{reason}") from None


def parse_timestamps_by_partition(text: str, option: str, on_no_match: NoMatchStrategy | None = None) -> OffsetSpec:
    """Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``."""
    try:
        return _parse_map(topics_from_json(text), option, partial(parse_time, on_no_match=on_no_match))
    except ValueError as error:
        raise OptionError(f"{option} must be {_TIMES_BY_PARTITION_FORM}, got {text!r}: {error}") from None


def check_batch_start(spec: OffsetSpec, option: str) -> None:
    """Reject a batch that starts at the latest offset: it would be empty."""
    _check_no_keyword(spec, option, side="starting", keyword="latest")


def check_batch_end(spec: OffsetSpec, option: str) -> None:
    """Reject a batch that ends at the earliest offset, which would be empty, or before its last offsets."""
    _check_no_keyword(spec, option, side="ending", keyword="earliest")
    last = [name for name, position in spec.by_name().items() if isinstance(position, LastOffsets)]
    if last:
        raise OptionError(
            f"{option}: the end of {listed(last)} cannot be 'last N', which is where reading starts: end at an "
            "offset, a time or now"
        )


def check_start_and_end(start: OffsetSpec, end: OffsetSpec) -> None:
    """Compare a start with an end of the same kind; others are compared when they are resolved."""
    # As in Spark, offsets and times are each compared with the assigned partitions.
    if start.names_only_partitions and end.names_only_partitions and start.has_times == end.has_times:
        _check_same_partitions(start, end)
    starts, ends = start.by_name(), end.by_name()
    # A position for several partitions is compared with one for the same partitions.
    have_same_keys = start.partitions.keys() == end.partitions.keys() and start.topics.keys() == end.topics.keys()
    names = starts.keys() & ends.keys() if have_same_keys else start.partitions.keys() & end.partitions.keys()
    for name in sorted(names, key=str):
        if _is_after(starts[name], ends[name]):
            tp = name if isinstance(name, TopicPartition) else None
            raise InvalidOffsetsError(
                f"the specified start {_described(starts[name])} ({start.option}) is greater than the end "
                f"{_described(ends[name])} ({end.option}); give a start that is not after the end",
                topic=tp and tp.topic,
                partition=tp and tp.partition,
            )


def parse_timestamps(
    parsed: ParsedConfig, names: tuple[str, str], on_no_match: NoMatchStrategy | None
) -> OffsetSpec | None:
    """Parse one timestamp, or else timestamps by partition; return ``None`` if neither is given."""
    timestamp_option, timestamps_option = names
    if timestamp_option in parsed.given_names:
        position = parse_time(parsed.get_string(timestamp_option), on_no_match=on_no_match)
        return OffsetSpec(others=position, option=timestamp_option)
    if timestamps_option in parsed.given_names:
        return parse_timestamps_by_partition(parsed.get_string(timestamps_option) or "", timestamps_option, on_no_match)
    return None


def given_strategy(parsed: ParsedConfig) -> NoMatchStrategy | None:
    """Return what a starting time means without a record that new, or ``None`` if the user does not say it."""
    if STRATEGY_OPTION not in parsed.given_names:
        return None
    return "error" if parsed.get_string(STRATEGY_OPTION) == "error" else "latest"


def timestamp_warnings(spec: OffsetSpec | None) -> list[str]:
    """Return a warning if a timestamp seems to be in seconds; Kafka would find all records after it."""
    if spec is None:
        return []
    timestamps = (position.timestamp for position in spec.positions() if isinstance(position, AtTime))
    in_seconds = next((timestamp for timestamp in timestamps if timestamp in _SECONDS_SINCE_2001), None)
    if in_seconds is None:
        return []
    return [f"{spec.option}: {in_seconds} ms is a time in 1970; if it is in seconds, multiply it by 1000"]


def precedence_warnings(parsed: ParsedConfig, names: Sequence[str]) -> list[str]:
    """Return a warning for each given option after the first one, which takes precedence."""
    given_names = [name for name in names if name in parsed.given_names]
    return [ignored_warning(parsed.source, name, f"{given_names[0]} takes precedence") for name in given_names[1:]]


def _by_topic(positions: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a dict of Python, whose keys are topics and topic-partitions, in the form of JSON."""
    topics: dict[str, Any] = {}
    for name, entry in positions.items():
        if name == _REST:
            topics[_REST] = entry
            continue
        added: Mapping[Any, Any] = entry if isinstance(entry, Mapping) else {_REST: entry}
        if isinstance(name, TopicPartition):
            topic, added = name.topic, {name.partition: entry}
        elif isinstance(name, str) and name:
            topic = name
        else:
            raise ValueError(f"{name!r} is neither a topic nor a TopicPartition")
        known = topics.setdefault(topic, {})
        for partition, position in added.items():
            if str(partition) in known:
                raise ValueError(f"topic {topic!r}: partition {partition} occurs twice")
            known[str(partition)] = position
    return topics


def _parse_map(
    entries: Mapping[str, Any],  # by topic
    option: str,
    parse_value: _ParsePosition,
    parse_shared: _ParsePosition | None = None,  # for several partitions, which do not share a number; None: they do
) -> OffsetSpec:
    """Parse positions by topic and partition."""
    partitions: dict[TopicPartition, Position] = {}
    topics: dict[str, Position] = {}
    for topic, entry in entries.items():
        if topic == _REST or isinstance(entry, str) or (parse_shared is None and not isinstance(entry, dict)):
            topics[topic] = (parse_shared or parse_value)(entry, f" for topic {topic!r}")
            continue
        named = {key: value for key, value in entry.items() if key != _REST} if isinstance(entry, dict) else entry
        for partition, value in partition_entries_from_json(topic, named).items():
            tp = TopicPartition(topic, partition)
            partitions[tp] = parse_value(value, f" for {tp}")
        if _REST in entry:
            topics[topic] = (parse_shared or parse_value)(entry[_REST], f" for {_REST!r} of topic {topic!r}")
    return OffsetSpec(partitions, topics, topics.pop(_REST, None), option)


def _parse_offset(value: object, where: str = "", *, parse_word: _ParsePosition) -> Position:
    offset = int64_from_json(value)
    if offset is None and isinstance(value, str | datetime | timedelta):
        return parse_word(value, where)
    if offset is None:
        raise ValueError(f"{value!r} is not a 64-bit integer{where}")
    if offset < EARLIEST:
        raise ValueError(
            f"{offset}{where} is not an offset (-1 is latest, -2 is earliest); a time before now needs a unit (-1h)"
        )
    return offset


def _check_no_keyword(spec: OffsetSpec, option: str, *, side: str, keyword: str) -> None:
    """Raise an error if a position is this keyword, or the number that stands for it."""
    sentinel = KEYWORDS[keyword]
    rejected = [name for name, position in spec.by_name().items() if position == sentinel]
    if rejected:
        raise OptionError(
            f"{option}: the {side} offset of {listed(rejected)} cannot be {keyword} ({sentinel}) in a batch query, "
            "which would be empty: use an offset or a timestamp"
        )


def _check_same_partitions(start: OffsetSpec, end: OffsetSpec) -> None:
    if start.partitions.keys() != end.partitions.keys():
        # One of the differences may be empty: it is shown as "none".
        raise InvalidOffsetsError(
            f"{start.option} and {end.option} must name the same topic-partitions; "
            f"only in {start.option}: {listed(sorted(start.partitions.keys() - end.partitions.keys()))}; "
            f"only in {end.option}: {listed(sorted(end.partitions.keys() - start.partitions.keys()))}"
        )


def _is_after(start: Position, end: Position) -> bool:
    match start, end:
        case int(), int():
            return start > end >= 0  # negative numbers stand for keywords and are compared after they are resolved
        case AtTime(), AtTime():
            return start.timestamp > end.timestamp
        case BeforeNow(), BeforeNow():
            return start.milliseconds < end.milliseconds
    return False


def _described(position: Position) -> str:
    return f"offset {position}" if isinstance(position, int) else str(position)


@dataclass(frozen=True, slots=True)
class ResolvedOffset:
    """A resolved start or end offset of a partition, and how it was determined."""

    offset: int
    origin: OffsetOrigin
