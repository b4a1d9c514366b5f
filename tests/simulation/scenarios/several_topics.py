"""The topics that a scenario writes to, each with another number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.environment import Environment

_MOST: Final = 3  # partitions of a topic


def draw_topics(rng: random.Random) -> dict[str, int]:
    """Draw the parameters ``topics``, their number, and ``partitions``, those of the first topic."""
    return {"partitions": rng.randint(1, _MOST), "topics": rng.choice((1, 1, 2, 3))}


def partition_counts(names: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, int]:
    """Return the topics with their numbers of partitions."""
    partitions = parameters["partitions"]
    return {name: 1 + (partitions - 1 + number) % _MOST for number, name in enumerate(names[: parameters["topics"]])}


def create_topics(environment: Environment, names: Sequence[str]) -> dict[str, int]:
    """Create the drawn topics, deal the batches of the drawn log to them, and return their partition counts."""
    parameters = environment.plan.parameters
    counts = partition_counts(names, parameters)
    for number, (topic, partitions) in enumerate(counts.items()):
        environment.cluster.create_topic(topic, partitions)
        environment.write_log(topic, partitions, parameters["log"][number :: len(counts)])
    return counts


def draw_place(rng: random.Random, counts: Mapping[str, int]) -> int:
    """Draw a partition of one of the topics, as a number that also means a partition if there are fewer topics."""
    topic = rng.randrange(len(counts))
    return topic * _MOST + rng.randrange(tuple(counts.values())[topic])


def partition_at(counts: Mapping[str, int], place: int) -> TopicPartition:
    """Return the partition that was drawn."""
    names = tuple(counts)
    name = names[place // _MOST % len(names)]
    return TopicPartition(name, place % _MOST % counts[name])


def all_places(counts: Mapping[str, int]) -> tuple[int, ...]:
    """Return all partitions."""
    return tuple(topic * _MOST + index for topic, count in enumerate(counts.values()) for index in range(count))
