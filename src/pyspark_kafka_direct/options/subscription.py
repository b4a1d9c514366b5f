"""Selections of topic-partitions: ``assign``, ``subscribe``, ``subscribePattern``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import MAX_PARTITION, TopicPartition, topics_from_json
from pyspark_kafka_direct.options.topic_pattern import TopicPattern

if TYPE_CHECKING:
    from collections.abc import Collection

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_ASSIGN_FORM = 'JSON such as {"topicA":[0,1],"topicB":[2,4]}'


@dataclass(frozen=True, slots=True)
class AssignStrategy:
    """Exactly these topic-partitions."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the partitions."""
        return tuple(sorted({tp.topic for tp in self.partitions}))


@dataclass(frozen=True, slots=True)
class SubscribeStrategy:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePatternStrategy:
    """All partitions of the topics whose name matches the pattern, without internal topics (as in Spark's source)."""

    pattern: TopicPattern


SubscriptionStrategy: TypeAlias = AssignStrategy | SubscribeStrategy | SubscribePatternStrategy


def parse_assign(text: str) -> AssignStrategy:
    """Parse ``{"topicA":[0,1]}``."""
    partitions: set[TopicPartition] = set()
    try:
        for topic, partition_ids in topics_from_json(text.strip()).items():
            if not isinstance(partition_ids, list):
                raise ValueError(f"topic {topic!r} does not map to a list of partitions")
            for partition_id in partition_ids:
                is_integer = isinstance(partition_id, int) and not isinstance(partition_id, bool)
                if not is_integer or not 0 <= partition_id <= MAX_PARTITION:
                    raise ValueError(f"topic {topic!r}: {partition_id!r} is not a partition number")
                partitions.add(TopicPartition(topic, partition_id))
        if not partitions:
            raise ValueError("no topic-partitions to assign")
    except ValueError as error:
        raise OptionError(f"assign must be {_ASSIGN_FORM}, got {text!r}: {error}") from None
    _check_topic_names({tp.topic for tp in partitions}, "assign")
    return AssignStrategy(tuple(sorted(partitions)))


def parse_subscribe(text: str, option: str = "subscribe") -> SubscribeStrategy:
    """Parse a comma-separated list of topics."""
    topics = {name.strip() for name in text.split(",")} - {""}
    if not topics:
        raise OptionError(f"{option} must be a comma-separated list of topics, got {text!r}: no topics to subscribe to")
    _check_topic_names(topics, option)
    return SubscribeStrategy(tuple(sorted(topics)))


def parse_subscribe_pattern(text: str) -> SubscribePatternStrategy:
    """Parse a Java regular expression."""
    if not text.strip():
        raise OptionError(f"subscribePattern must be a Java regular expression, got {text!r}: the pattern is empty")
    return SubscribePatternStrategy(TopicPattern(text.strip(), "subscribePattern"))


def pattern_strategy(pattern: re.Pattern[str], option: str) -> SubscribePatternStrategy:
    """Return the selection by a pattern of Python, which is matched in bounded time, with the syntax of Java's."""
    if not isinstance(pattern.pattern, str) or not pattern.pattern:
        raise OptionError(f"{option} must be a pattern of a string that is not empty, got {pattern!r}")
    if pattern.flags & re.VERBOSE:
        raise OptionError(f"{option}: re.VERBOSE is not supported; write the pattern without comments and white space")
    # Topic names are ASCII and have one line, so no other flag makes a difference.
    ignore_case = "(?i)" if pattern.flags & re.IGNORECASE else ""
    return SubscribePatternStrategy(TopicPattern(ignore_case + pattern.pattern, option))


def is_legal_topic(name: str) -> bool:
    """Return whether a topic can have this name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _check_topic_names(names: Collection[str], option: str) -> None:
    for name in sorted(names):
        if not is_legal_topic(name):
            advice = (
                "; separate names by commas; for a regular expression use subscribePattern"
                if option == "subscribe"
                else ""
            )
            raise OptionError(
                f"{option}: {name!r} is not a valid topic name (1 to 249 of the characters a-z A-Z 0-9 . _ -){advice}"
            )
