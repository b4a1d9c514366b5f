"""Selection of the existing topic-partitions by a strategy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.hints import listed, missing_topic_advice
from pyspark_kafka_direct.options.subscription import (
    AssignStrategy,
    SubscribePatternStrategy,
    SubscribeStrategy,
    SubscriptionStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class SelectedPartitions:
    """The assigned topic-partitions, sorted, and warnings to log."""

    partitions: tuple[TopicPartition, ...]
    warnings: tuple[str, ...] = field(default=())


def select_partitions(
    strategy: SubscriptionStrategy,
    topics: Mapping[str, Collection[int]],
    internal: Collection[str] = (),
    *,
    servers: str = "the brokers",  # for the error about a missing topic
) -> SelectedPartitions:
    """Return the assigned partitions.

    ``topics`` has the partitions of all topics for a pattern, else at least those of the named topics that exist.
    """
    match strategy:
        case AssignStrategy(partitions):
            _check_exist({tp.topic for tp in partitions}, topics, servers)
            missing = [tp for tp in partitions if tp.partition not in topics[tp.topic]]
            if missing:
                first = missing[0]
                raise TopicNotFoundError(
                    f"assign names partitions that do not exist: {listed(missing)}; topic {first.topic} has partitions "
                    f"{listed(sorted(topics[first.topic]))}",
                    topic=first.topic,
                    partition=first.partition,
                )
            return SelectedPartitions(partitions)
        case SubscribeStrategy(names):
            _check_exist(names, topics, servers)
            return SelectedPartitions(_all_partitions(names, topics))
        case SubscribePatternStrategy(pattern):
            candidates = [name for name in topics if name not in internal]
            names = tuple(pattern.occurs_in(candidates))
            warnings = () if names else (f"{pattern.option}={pattern.text!r} matches none of {len(candidates)} topics",)
            return SelectedPartitions(_all_partitions(names, topics), warnings)


def restrict_to_existing(strategy: SubscriptionStrategy, topics: Mapping[str, Collection[int]]) -> SubscriptionStrategy:
    """Return the strategy without missing topics and partitions.

    A running stream must not fail because a topic was deleted: whether that is a loss depends on what it had read of
    the topic, and on ``failOnDataLoss``.
    """
    match strategy:
        case AssignStrategy(partitions):
            return AssignStrategy(tuple(tp for tp in partitions if tp.partition in topics.get(tp.topic, ())))
        case SubscribeStrategy(names):
            return SubscribeStrategy(tuple(name for name in names if name in topics))
        case SubscribePatternStrategy():
            return strategy


def _all_partitions(names: Collection[str], topics: Mapping[str, Collection[int]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(name, partition_id) for name in names for partition_id in topics[name]))


def _check_exist(names: Collection[str], topics: Mapping[str, Collection[int]], servers: str) -> None:
    missing = sorted(name for name in names if name not in topics)
    if missing:
        raise TopicNotFoundError(
            f"no such topic: {listed(missing)}{missing_topic_advice(missing[0], topics, servers)}; reading never "
            "creates topics",
            topic=missing[0],
        )
