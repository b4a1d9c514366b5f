"""The topic of a log: creating it, and which of its partitions are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline

_COMPACTED: Final = {"cleanup.policy": "compact"}
_WORDS: Final = ("partitions", "replication_factor", "configs")


@dataclass(frozen=True, slots=True)
class Creation:
    """How the topic of a log is created where it is not there.

    Attributes:
        partitions: How many.
        replicas: How many brokers keep each; ``None``: as many as the cluster's default says.
        configs: Its configuration; it is compacted unless this says otherwise.
    """

    partitions: int
    replicas: int | None
    configs: Mapping[str, str]


class Found(NamedTuple):
    """The topic as it is now.

    Attributes:
        topic_id: Its id, which a topic of the same name that is created later does not have.
        partitions: Those of its partitions that are read.
    """

    topic_id: UUID | None
    partitions: list[TopicPartition]


def parse_creation(given: Mapping[str, Any]) -> Creation:
    """Check what was given as ``create``.

    Raises:
        OptionError: An unknown word, or a value that cannot be used.
    """
    if not isinstance(given, Mapping):
        raise OptionError(f"create must be a dict with {', '.join(_WORDS)}, got {type(given).__name__}")
    for word in given:
        if word not in _WORDS:
            raise OptionError(f"create has no {word!r}; it takes {', '.join(_WORDS)}")
    configs = given.get("configs") or {}
    if not isinstance(configs, Mapping):
        raise OptionError(f"configs in create must be a dict of the topic's settings, got {type(configs).__name__}")
    texts = {str(name): _text(value) for name, value in configs.items()}
    replicas = given.get("replication_factor")
    return Creation(
        _number("partitions", given.get("partitions", 1)),
        None if replicas is None else _number("replication_factor", replicas),
        {**_COMPACTED, **texts},
    )


def ensure_topic(cluster: Cluster, topic: str, creation: Creation, deadline: Deadline) -> None:
    """Create the topic unless it is there; one that is there is left as it is.

    Raises:
        AuthorizationError: The principal may not create it.
        BrokerError: It could not be created.
    """
    if topic not in cluster.topics([topic], deadline=deadline):
        create_topic(cluster, topic, creation.partitions, creation.configs, deadline, replicas=creation.replicas)


def look_at(cluster: Cluster, topic: str, wanted: Callable[[int], bool] | None, deadline: Deadline) -> Found:
    """Return the topic as it is now.

    Args:
        cluster: The cluster.
        topic: The topic.
        wanted: Which of its partitions are read; ``None``: all.
        deadline: End of the wait.

    Raises:
        TopicNotFoundError: There is no such topic.
        OptionError: None of its partitions is wanted.
        BrokerError: The cluster could not be asked.
    """
    metadata = cluster.topics([topic], deadline=deadline).get(topic)
    if metadata is None:
        cluster.ask_another()
        raise TopicNotFoundError(
            "The topic does not exist, or may not be seen (a missing DESCRIBE permission looks the same). Create it, "
            "or let the log do so: create={}.",
            topic=topic,
        )
    numbers = sorted(metadata.partitions)
    if not numbers:
        raise TransientBrokerError("The topic has no partitions yet.", topic=topic)
    chosen = [number for number in numbers if wanted is None or wanted(number)]
    if not chosen:
        raise OptionError(f"partitions leaves none of the topic's {len(numbers)} to be read", topic=topic)
    return Found(metadata.topic_id, [TopicPartition(topic, number) for number in chosen])


def _number(word: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{word} in create must be a whole number from 1, got {value!r}")
    return value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
