"""Topics on a command line, and their creation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_PARTITIONS: Final = 10_000  # more would keep a broker on a laptop busy for minutes, and is probably a mistake


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int


def parse_topics(arguments: Iterable[str]) -> list[NewTopic]:
    """Parse topics such as ``orders:3``, ``orders`` (one partition) or ``orders:3,payments``."""
    topics: dict[str, NewTopic] = {}
    for argument in arguments:
        for part in filter(None, (item.strip() for item in argument.split(","))):
            topic = _parse_topic(part)
            existing = topics.setdefault(topic.name, topic)
            if existing != topic:
                raise OptionError(
                    f"topic {topic.name!r} has two different numbers of partitions: {existing.partitions} and "
                    f"{topic.partitions}"
                )
    return list(topics.values())


def create_topics(servers: str, topics: Iterable[NewTopic], configs: Mapping[str, str] | None = None) -> None:
    """Create the topics that do not exist, and wait until they can be used."""
    from pyspark_kafka_direct.client.admin import create_topic
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

    cluster = ClusterClient(parse_kafka_params({"bootstrap.servers": servers}).connection)
    for topic in topics:
        create_topic(cluster, topic.name, topic.partitions, configs or {})


def _parse_topic(argument: str) -> NewTopic:
    name, colon, partitions = argument.partition(":")
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise OptionError(
            f"{argument!r} is not a topic: use NAME or NAME:PARTITIONS, such as orders:3. A name has 1 to 249 of the "
            "characters a-z A-Z 0-9 . _ -"
        )
    if not colon:
        return NewTopic(name, 1)
    if not partitions.isascii() or not partitions.isdecimal() or not 1 <= int(partitions) <= _MAX_PARTITIONS:
        raise OptionError(
            f"{argument!r}: the number of partitions must be an integer from 1 to {_MAX_PARTITIONS}, got {partitions!r}"
        )
    return NewTopic(name, int(partitions))
