"""The partitions that a direct stream reads and where it starts: ``ConsumerStrategies``.

Spark's ``ConsumerStrategy`` creates a consumer. Here a strategy only returns partitions and offsets. The first of these
that exists sets the starting offset: the checkpoint, the offsets of the strategy, the group's committed offsets,
``auto.offset.reset``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET, MAX_PARTITION, TopicPartition
from pyspark_kafka_direct.options import subscription
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.positions import parse_position
from pyspark_kafka_direct.options.topic_pattern import TopicPattern
from pyspark_kafka_direct.planning.subscription import select_partitions

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, TopicMetadata
    from pyspark_kafka_direct.options.positions import Position

__all__ = ["ConsumerStrategies", "ConsumerStrategy", "DiscoversPartitions"]

KafkaParams: TypeAlias = "Mapping[str, object] | Callable[[], Mapping[str, object]]"
"""Client properties by their Java names, or a function that returns them.

The checkpoint contains only the function, which is called again after a restart. Passwords that the function reads from
the environment or a vault never reach the checkpoint.
"""

StartingPosition: TypeAlias = int | str | datetime | timedelta
"""An offset, or a position such as ``"-1h"``, ``"earliest"``, ``"last 1000"`` or a ``datetime`` with a time zone."""


class ConsumerStrategy(Protocol):
    """The partitions that a stream reads, and its client properties.

    It is pickled into Spark's checkpoint. A custom strategy implements the two members below.
    """

    @property
    def executor_params(self) -> Mapping[str, object]:
        """The driver's client properties by their Java names; executors change them as Spark's fixKafkaParams does."""

    def on_start(
        self, cluster: ClusterClient, current_offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, StartingPosition | None]:
        """Return the partitions to read, each with its starting offset.

        Args:
            cluster: Returns metadata and offsets of topics.
            current_offsets: The offsets of the stream. It is empty, because only a new stream calls this; a stream that
                is restored from a checkpoint resumes from its offsets.

        Returns:
            Offsets by topic-partition, or other positions such as ``"-1h"``; ``None`` for the committed offset of the
            group, or else ``auto.offset.reset``.
        """


@runtime_checkable
class DiscoversPartitions(Protocol):
    """A strategy that also finds partitions created later; for other strategies, the partitions are fixed."""

    def assigned(self, cluster: ClusterClient) -> Mapping[TopicPartition, UUID | None]:
        """Return the partitions that exist now.

        The stream calls this before each batch. If a partition that it returned earlier is missing, the stream fails.

        Args:
            cluster: Returns metadata of topics.

        Returns:
            The topic id of each partition; ``None`` if the id is not known.
        """


class ConsumerStrategies:
    """Creates strategies, under the names of Spark's ``ConsumerStrategies``."""

    @staticmethod
    def Subscribe(  # noqa: N802 (Spark's spelling)
        topics: str | Iterable[str],
        kafkaParams: KafkaParams,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, StartingPosition] | None = None,
    ) -> ConsumerStrategy:
        """Read all partitions of some topics.

        Args:
            topics: The topic names, or one name. The topics must exist.
            kafkaParams: Client properties by their Java names, or a function that returns them (see ``KafkaParams``).
            offsets: Starting offsets of some or all partitions, or other positions, such as ``"-1h"``.

        Raises:
            OptionError: ``topics`` is empty, or a name is not valid.
            InvalidOffsetsError: ``offsets`` is not a mapping from topic-partitions to offsets or positions.
        """
        if not isinstance(topics, Iterable):
            raise OptionError(f"Subscribe takes a list of topic names, got {topics!r}")
        names = [topics] if isinstance(topics, str) else list(topics)
        # A comma would separate two names in the list that is parsed below.
        if not names or not all(isinstance(name, str) and name.strip() and "," not in name for name in names):
            raise OptionError(f"Subscribe takes a list of topic names, got {names!r}")
        return _Subscribe(subscription.parse_subscribe(",".join(names), "Subscribe"), kafkaParams, offsets)

    @staticmethod
    def SubscribePattern(  # noqa: N802 (Spark's spelling)
        pattern: str,
        kafkaParams: KafkaParams,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, StartingPosition] | None = None,
    ) -> ConsumerStrategy:
        """Read all partitions of the topics whose whole name matches, including topics that are created later.

        Args:
            pattern: A Java regular expression, as a string. Kafka's internal topics never match.
            kafkaParams: Client properties by their Java names, or a function that returns them (see ``KafkaParams``).
            offsets: Starting offsets of some or all partitions, or other positions, such as ``"-1h"``.

        Raises:
            OptionError: The pattern is empty, malformed, or cannot be translated exactly.
            InvalidOffsetsError: ``offsets`` is not a mapping from topic-partitions to offsets or positions.
        """
        if not isinstance(pattern, str) or not pattern.strip():
            raise OptionError(f"SubscribePattern takes a Java regular expression as a string, got {pattern!r}")
        return _SubscribePattern(TopicPattern(pattern.strip(), "SubscribePattern"), kafkaParams, offsets)

    @staticmethod
    def Assign(  # noqa: N802 (Spark's spelling)
        topicPartitions: Iterable[TopicPartition],  # noqa: N803 (Spark's spelling)
        kafkaParams: KafkaParams,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, StartingPosition] | None = None,
    ) -> ConsumerStrategy:
        """Read exactly these topic-partitions, also if more partitions are created later.

        Args:
            topicPartitions: The topic-partitions. They must exist.
            kafkaParams: Client properties by their Java names, or a function that returns them (see ``KafkaParams``).
            offsets: Starting offsets of some or all partitions, or other positions, such as ``"-1h"``.

        Raises:
            OptionError: ``topicPartitions`` is empty, or an element is not a topic-partition.
            InvalidOffsetsError: ``offsets`` is not a mapping from topic-partitions to offsets or positions.
        """
        if not isinstance(topicPartitions, Iterable):
            raise OptionError(f"Assign takes a list of topic-partitions, got {topicPartitions!r}")
        partitions = tuple(sorted({parse_topic_partition(value) for value in topicPartitions}))
        if not partitions:
            raise OptionError("Assign takes at least one topic-partition, got none")
        return _Assign(subscription.AssignStrategy(partitions), kafkaParams, offsets)


def requested_starting_offsets(
    strategy: ConsumerStrategy, cluster: ClusterClient
) -> dict[TopicPartition, Position | None]:
    """Return the starting positions of a strategy, after checking the result of a custom strategy."""
    requested = strategy.on_start(cluster, {})
    if not isinstance(requested, Mapping):
        raise OptionError(
            f"on_start of {type(strategy).__name__} must return a dict from topic-partitions to offsets, or to None "
            f"for the default, but it returned {type(requested).__name__}"
        )
    offsets = _parse_offsets({tp: offset for tp, offset in requested.items() if offset is not None})
    return {parse_topic_partition(tp): None for tp in requested} | offsets


def parse_topic_partition(value: object) -> TopicPartition:
    """Return a user's topic-partition, which may be a plain pair; raises OptionError."""
    match value:
        case (str(topic), int(partition)) if (
            topic and not isinstance(partition, bool) and 0 <= partition <= MAX_PARTITION
        ):
            return TopicPartition(topic, partition)
    raise OptionError(f"a topic-partition must be TopicPartition(topic, partition), got {value!r}")


class _BaseConsumerStrategy(ABC):
    """The common part of the three strategies."""

    def __init__(
        self, selection: object, parameters: KafkaParams, offsets: Mapping[TopicPartition, StartingPosition] | None
    ) -> None:
        if not callable(parameters) and not isinstance(parameters, Mapping):
            raise OptionError(
                f"kafkaParams must be a dict, or a function that returns one, got {type(parameters).__name__}"
            )
        self._selection = selection
        # Copied, so that later changes of the caller's dict have no effect.
        self._parameters = parameters if callable(parameters) else dict(parameters)
        given = {} if offsets is None else offsets
        _parse_offsets(given)  # rejects what is invalid; what was given is parsed again when the stream starts
        self._offsets = {parse_topic_partition(tp): offset for tp, offset in given.items()}

    @property
    def executor_params(self) -> Mapping[str, object]:
        """The client properties; if they are a function, each access calls it."""
        params = self._parameters() if callable(self._parameters) else self._parameters
        if not isinstance(params, Mapping):
            raise OptionError(
                f"the function passed as kafkaParams must return a dict, but it returned {type(params).__name__}"
            )
        return params

    @property
    def has_literal_parameters(self) -> bool:
        """Whether the client properties themselves are pickled with the strategy."""
        return not callable(self._parameters)

    def assigned(self, cluster: ClusterClient) -> Mapping[TopicPartition, UUID | None]:
        """Return the partitions that exist now, with their topic ids."""
        return {tp: topic.topic_id for topic in self._topics(cluster) for tp in self._partitions(topic)}

    def on_start(
        self, cluster: ClusterClient, current_offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, StartingPosition | None]:
        """Return the partitions to read, each with its starting position, or ``None`` if the user has set none."""
        if current_offsets:  # of a stream that resumes, as in Spark
            return dict(current_offsets)
        assigned = self._existing_partitions(cluster, self.assigned(cluster))
        unassigned = sorted(tp for tp in self._offsets if tp not in assigned)
        if unassigned:
            cluster.topics({tp.topic for tp in unassigned})  # raises if the principal may not describe one
            raise InvalidOffsetsError(
                f"the offsets contain partitions that are not read: {listed(unassigned)}. The stream reads "
                f"{listed(sorted(assigned))}",
                topic=unassigned[0].topic,
                partition=unassigned[0].partition,
            )
        return {tp: self._offsets.get(tp) for tp in assigned}

    def __repr__(self) -> str:
        # Without the parameters, which contain secrets.
        return f"{type(self).__name__.removeprefix('_')}({self._selection!r})"

    @abstractmethod
    def _topics(self, cluster: ClusterClient) -> Iterable[TopicMetadata]:
        """Return metadata of the topics to read that exist."""

    def _partitions(self, topic: TopicMetadata) -> Iterable[TopicPartition]:
        return (TopicPartition(topic.name, partition) for partition in topic.partitions)

    @abstractmethod
    def _existing_partitions(
        self, cluster: ClusterClient, assigned: Mapping[TopicPartition, UUID | None]
    ) -> Collection[TopicPartition]:
        """Return the partitions to read; raise if a topic or partition of the strategy does not exist."""


class _Subscribe(_BaseConsumerStrategy):
    _selection: subscription.SubscribeStrategy

    def _topics(self, cluster: ClusterClient) -> Iterable[TopicMetadata]:
        return cluster.topics(self._selection.topics).values()

    def _existing_partitions(
        self, cluster: ClusterClient, assigned: Mapping[TopicPartition, UUID | None]
    ) -> Collection[TopicPartition]:
        if {tp.topic for tp in assigned} >= set(self._selection.topics):
            return assigned.keys()
        # A topic is missing, or the broker that responded lags behind.
        return _select_among_all(self._selection, cluster)


class _SubscribePattern(_BaseConsumerStrategy):
    _selection: TopicPattern

    def _topics(self, cluster: ClusterClient) -> Iterable[TopicMetadata]:
        pattern = self._selection
        topics = cluster.all_topics(required=lambda name: bool(pattern.matches([name])))
        candidates = [name for name, topic in topics.items() if not topic.internal]
        return [topics[name] for name in pattern.matches(candidates)]

    def _existing_partitions(
        self, cluster: ClusterClient, assigned: Mapping[TopicPartition, UUID | None]
    ) -> Collection[TopicPartition]:
        return assigned.keys()  # a pattern may match no topic yet


class _Assign(_BaseConsumerStrategy):
    _selection: subscription.AssignStrategy

    def _topics(self, cluster: ClusterClient) -> Iterable[TopicMetadata]:
        return cluster.topics(self._selection.topics).values()

    def _partitions(self, topic: TopicMetadata) -> Iterable[TopicPartition]:
        partitions = self._selection.partitions
        return (tp for tp in partitions if tp.topic == topic.name and tp.partition in topic.partitions)

    def _existing_partitions(
        self, cluster: ClusterClient, assigned: Mapping[TopicPartition, UUID | None]
    ) -> Collection[TopicPartition]:
        if len(assigned) == len(self._selection.partitions):
            return assigned.keys()
        # A partition is missing, or the broker that responded lags behind.
        return _select_among_all(self._selection, cluster)


def _select_among_all(
    selection: subscription.SubscribeStrategy | subscription.AssignStrategy, cluster: ClusterClient
) -> Collection[TopicPartition]:
    """Return the partitions if another broker has them all; raise TopicNotFoundError with the closest existing name."""
    topics = cluster.all_topics(required=selection.topics.__contains__)
    all_partitions = {name: topic.partitions.keys() for name, topic in topics.items()}
    return select_partitions(selection, all_partitions, servers=cluster.settings.bootstrap_string).partitions


def _parse_offsets(offset_map: Mapping[TopicPartition, StartingPosition]) -> dict[TopicPartition, Position]:
    if not isinstance(offset_map, Mapping):
        raise InvalidOffsetsError(f"offsets must map topic-partitions to offsets, got {type(offset_map).__name__}")
    offsets: dict[TopicPartition, Position] = {}
    for key, offset in offset_map.items():
        tp = parse_topic_partition(key)
        try:
            offsets[tp] = _parse_offset(offset)
        except ValueError as error:
            raise InvalidOffsetsError(
                f"a starting offset must be an integer of at least 0, got {offset!r}: {error}",
                topic=tp.topic,
                partition=tp.partition,
            ) from None
    return offsets


def _parse_offset(offset: StartingPosition) -> Position:
    if not isinstance(offset, int) or isinstance(offset, bool):
        return parse_position(offset)
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"{offset} is not an offset; use 'earliest' or 'latest' instead of -2 or -1")
    return offset
