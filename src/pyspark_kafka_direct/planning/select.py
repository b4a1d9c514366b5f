"""Which topic-partitions to read: ``assign``, ``subscribe``, ``subscribePattern``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import MAX_PARTITION, TopicPartition, topics_from_json
from pyspark_kafka_direct.planning.hints import did_you_mean, listed
from pyspark_kafka_direct.planning.patterns import TopicPattern

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_ASSIGN_FORM = 'JSON such as {"topicA":[0,1],"topicB":[2,4]}'


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these topic-partitions."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics to ask the brokers about."""
        return tuple(sorted({tp.topic for tp in self.partitions}))


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose name the pattern is found, internal topics apart (as in Spark's source)."""

    pattern: TopicPattern


Selection: TypeAlias = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class Selected:
    """The assigned topic-partitions, sorted, and warnings to give."""

    partitions: tuple[TopicPartition, ...]
    warnings: tuple[str, ...] = field(default=())


def parse_assign(text: str, option: str = "assign") -> Assign:
    """Read ``{"topicA":[0,1]}``.

    Raises:
        OptionError: Not JSON of that shape, no partition at all, or a name no topic can have.
    """
    partitions: set[TopicPartition] = set()
    try:
        for topic, numbers in topics_from_json(text.strip()).items():
            if not isinstance(numbers, list):
                raise ValueError(f"topic {topic!r} does not map to a list of partitions")
            for number in numbers:
                if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_PARTITION:
                    raise ValueError(f"topic {topic!r}: {number!r} is not a partition number")
                partitions.add(TopicPartition(topic, number))
        if not partitions:
            raise ValueError("no topic-partitions to assign")
    except ValueError as error:
        raise OptionError(f"{option} must be {_ASSIGN_FORM}, got {text!r}: {error}") from None
    _check_names({tp.topic for tp in partitions}, option)
    return Assign(tuple(sorted(partitions)))


def parse_subscribe(text: str, option: str = "subscribe") -> Subscribe:
    """Read a comma-separated list of topics.

    Raises:
        OptionError: No topic in it, or a name no topic can have.
    """
    topics = {name.strip() for name in text.split(",")} - {""}
    if not topics:
        raise OptionError(f"{option} must be a comma-separated list of topics, got {text!r}: no topics to subscribe to")
    _check_names(topics, option)
    return Subscribe(tuple(sorted(topics)))


def parse_subscribe_pattern(text: str, option: str = "subscribePattern") -> SubscribePattern:
    """Read a Java regular expression.

    Raises:
        OptionError: It is empty, malformed, or cannot be translated exactly.
    """
    if not text.strip():
        raise OptionError(f"{option} must be a Java regular expression, got {text!r}: the pattern is empty")
    return SubscribePattern(TopicPattern(text.strip(), option))


def select_partitions(
    selection: Selection, topics: Mapping[str, Collection[int]], internal: Collection[str] = ()
) -> Selected:
    """Return the assigned partitions, given what the brokers have.

    Args:
        selection: What the user asked for.
        topics: Partition numbers of each topic: all topics for a pattern, else at least the named ones that exist.
        internal: Topics the brokers flag as internal; a pattern never matches them.

    Raises:
        TopicNotFoundError: A named topic or partition does not exist, or may not be seen.
    """
    match selection:
        case Assign(partitions):
            _check_exist({tp.topic for tp in partitions}, topics)
            missing = [tp for tp in partitions if tp.partition not in topics[tp.topic]]
            if missing:
                first = missing[0]
                raise TopicNotFoundError(
                    f"assign names partitions that do not exist: {listed(missing)}; topic {first.topic} has partitions "
                    f"{listed(sorted(topics[first.topic]))}",
                    topic=first.topic,
                    partition=first.partition,
                )
            return Selected(partitions)
        case Subscribe(names):
            _check_exist(names, topics)
            return Selected(_all_partitions(names, topics))
        case SubscribePattern(pattern):
            candidates = [name for name in topics if name not in internal]
            names = tuple(name for name in candidates if pattern.occurs_in(name))
            none = () if names else (f"subscribePattern={pattern.text!r} matches none of {len(candidates)} topics",)
            return Selected(_all_partitions(names, topics), none)


def _all_partitions(names: Collection[str], topics: Mapping[str, Collection[int]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(name, number) for name in names for number in topics[name]))


def _check_exist(names: Collection[str], topics: Mapping[str, Collection[int]]) -> None:
    missing = sorted(name for name in names if name not in topics)
    if missing:
        raise TopicNotFoundError(
            f"no such topic, or no permission to describe it: {listed(missing)}{did_you_mean(missing[0], topics)}; "
            "topics are never created by reading",
            topic=missing[0],
        )


def _check_names(names: Collection[str], option: str) -> None:
    for name in sorted(names):
        if not _LEGAL_TOPIC.fullmatch(name) or name in (".", ".."):
            advice = "; for a regular expression use subscribePattern" if option == "subscribe" else ""
            raise OptionError(
                f"{option}: {name!r} cannot be a topic's name (1 to 249 of the characters a-z A-Z 0-9 . _ -){advice}"
            )
