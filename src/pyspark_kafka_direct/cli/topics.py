"""Topics as they are named on a command line, and their creation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_PARTITIONS: Final = 10_000  # more would keep a broker on a laptop busy for minutes: take it for a mistake


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int


def parse_topics(texts: Iterable[str]) -> list[NewTopic]:
    """Return the topics that were named: ``orders:3``, ``orders`` with one partition, ``orders:3,payments``.

    Raises:
        OptionError: A name or a number that cannot be, or two different numbers for one topic.
    """
    found: dict[str, NewTopic] = {}
    for text in texts:
        for part in filter(None, (each.strip() for each in text.split(","))):
            topic = _parse(part)
            before = found.setdefault(topic.name, topic)
            if before != topic:
                raise OptionError(
                    f"topic {topic.name!r} is named with {before.partitions} partitions and with {topic.partitions}"
                )
    return list(found.values())


def create_topics(servers: str, topics: Iterable[NewTopic]) -> None:
    """Create topics and wait until they can be used; those that are there stay as they are.

    Raises:
        BrokerError: One could not be created.
    """
    from pyspark_kafka_direct.settings.client import connection_settings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.topics import create_topic

    cluster = Cluster(connection_settings({"bootstrap.servers": servers}).connection)
    for topic in topics:
        create_topic(cluster, topic.name, topic.partitions, {})


def _parse(text: str) -> NewTopic:
    name, colon, number = text.partition(":")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise OptionError(
            f"{text!r} is not a topic: write NAME or NAME:PARTITIONS, such as orders:3. A name has letters without "
            "accents, digits, '.', '_' and '-', at most 249 of them"
        )
    if not colon:
        return NewTopic(name, 1)
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= _MOST_PARTITIONS:
        raise OptionError(
            f"{text!r}: the number of partitions must be a whole number from 1 to {_MOST_PARTITIONS}, got {number!r}"
        )
    return NewTopic(name, int(number))
