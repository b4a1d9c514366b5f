"""Which topic-partitions a direct stream reads, and from where: ``ConsumerStrategies``.

Spark's ``ConsumerStrategy`` makes a consumer; here no consumer is needed, so a strategy only names partitions and
offsets. Where a stream starts is decided in this order: its checkpoint, the offsets given here, what the group has
committed, ``auto.offset.reset``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET, MAX_PARTITION, TopicPartition
from pyspark_kafka_direct.planning import select
from pyspark_kafka_direct.planning.hints import listed
from pyspark_kafka_direct.planning.patterns import TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark_kafka_direct.wire.cluster import Cluster, TopicMetadata

__all__ = ["ConsumerStrategies", "ConsumerStrategy", "DiscoversPartitions"]

Parameters: TypeAlias = "Mapping[str, object] | Callable[[], Mapping[str, object]]"
"""Client settings by their Java names, or a function that gives them.

Of a function the checkpoint holds only the function, which is called again after a restart. So passwords that it takes
from the environment or a vault never reach the checkpoint.
"""


class ConsumerStrategy(Protocol):
    """Which partitions a stream reads, and with which settings. It is pickled into Spark's checkpoint.

    A class of your own needs the two members below.
    """

    @property
    def executor_params(self) -> Mapping[str, object]:
        """Client settings by their Java names, as the driver takes them; executors get them as fixKafkaParams would."""

    def on_start(
        self, cluster: Cluster, current_offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the partitions to read, each with the offset to start at.

        Args:
            cluster: Answers questions about topics and offsets.
            current_offsets: Where the stream stands. Empty, as only a new stream asks: one that comes back from a
                checkpoint goes on from there.

        Returns:
            Offsets; ``None`` for what the group has committed, else what ``auto.offset.reset`` says.
        """


@runtime_checkable
class DiscoversPartitions(Protocol):
    """A strategy that also finds partitions that appear later. Without it those of the start are all there are."""

    def assigned(self, cluster: Cluster) -> Mapping[TopicPartition, UUID | None]:
        """Return the partitions that exist now, each with the id of its topic; ``None`` if that is not known.

        The stream asks before each batch. A partition that was there before and is missing fails the stream.
        """


class ConsumerStrategies:
    """Makes strategies, under the names of Spark's ``ConsumerStrategies``."""

    @staticmethod
    def Subscribe(  # noqa: N802 (Spark's spelling)
        topics: Iterable[str],
        kafkaParams: Parameters,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> ConsumerStrategy:
        """Read all partitions of some topics.

        Args:
            topics: Their names. They must exist.
            kafkaParams: Client settings by their Java names, or a function that gives them (see ``Parameters``).
            offsets: Where to start, for some or all of the partitions.

        Raises:
            OptionError: No topic, or a name that no topic can have.
            OffsetPlanError: ``offsets`` is not a map from topic-partitions to offsets.
        """
        names = [topics] if isinstance(topics, str) or not isinstance(topics, Iterable) else list(topics)
        if not names or not all(isinstance(name, str) and name.strip() and "," not in name for name in names):
            raise OptionError(f"Subscribe takes a list of the names of topics, got {names!r}")
        return _Subscribe(select.parse_subscribe(",".join(names), "Subscribe"), kafkaParams, offsets)

    @staticmethod
    def SubscribePattern(  # noqa: N802 (Spark's spelling)
        pattern: str,
        kafkaParams: Parameters,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> ConsumerStrategy:
        """Read all partitions of the topics whose whole name matches, also of topics that are created later.

        Args:
            pattern: A Java regular expression, as text. Kafka's internal topics never match.
            kafkaParams: Client settings by their Java names, or a function that gives them (see ``Parameters``).
            offsets: Where to start, for some or all of the partitions.

        Raises:
            OptionError: The pattern is empty, malformed, or cannot be translated exactly.
            OffsetPlanError: ``offsets`` is not a map from topic-partitions to offsets.
        """
        if not isinstance(pattern, str) or not pattern.strip():
            raise OptionError(f"SubscribePattern takes a Java regular expression as text, got {pattern!r}")
        return _SubscribePattern(TopicPattern(pattern.strip(), "SubscribePattern"), kafkaParams, offsets)

    @staticmethod
    def Assign(  # noqa: N802 (Spark's spelling)
        topicPartitions: Iterable[TopicPartition],  # noqa: N803 (Spark's spelling)
        kafkaParams: Parameters,  # noqa: N803 (Spark's spelling)
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> ConsumerStrategy:
        """Read exactly these topic-partitions, whatever else is created later.

        Args:
            topicPartitions: The partitions; they must exist.
            kafkaParams: Client settings by their Java names, or a function that gives them (see ``Parameters``).
            offsets: Where to start, for some or all of the partitions.

        Raises:
            OptionError: No partition, or something that is none.
            OffsetPlanError: ``offsets`` is not a map from topic-partitions to offsets.
        """
        if not isinstance(topicPartitions, Iterable):
            raise OptionError(f"Assign takes a list of topic-partitions, got {topicPartitions!r}")
        partitions = tuple(sorted({topic_partition(each) for each in topicPartitions}))
        if not partitions:
            raise OptionError("Assign takes at least one topic-partition, got none")
        return _Assign(select.Assign(partitions), kafkaParams, offsets)


class _Strategy(ABC):
    """What the three have in common."""

    def __init__(self, selection: object, parameters: Parameters, offsets: Mapping[TopicPartition, int] | None) -> None:
        if not callable(parameters) and not isinstance(parameters, Mapping):
            raise OptionError(
                f"kafkaParams must be a dict, or a function that gives one, got {type(parameters).__name__}"
            )
        self._selection = selection
        # Copied, so that what the caller does to a dict later changes nothing.
        self._parameters = parameters if callable(parameters) else dict(parameters)
        self._offsets = _offsets({} if offsets is None else offsets)

    @property
    def executor_params(self) -> Mapping[str, object]:
        """Client settings by their Java names."""
        given = self._parameters() if callable(self._parameters) else self._parameters
        if not isinstance(given, Mapping):
            raise OptionError(f"the function given as kafkaParams must give a dict, it gave {type(given).__name__}")
        return given

    @property
    def keeps_parameters(self) -> bool:
        """Whether the settings themselves are pickled with the strategy."""
        return not callable(self._parameters)

    def assigned(self, cluster: Cluster) -> Mapping[TopicPartition, UUID | None]:
        """See ``DiscoversPartitions``."""
        return {tp: topic.topic_id for topic in self._topics(cluster) for tp in self._partitions(topic)}

    def on_start(
        self, cluster: Cluster, current_offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """See ``ConsumerStrategy``."""
        if current_offsets:
            return dict(current_offsets)
        assigned = self.assigned(cluster)
        self._check_start(cluster, assigned)
        foreign = sorted(tp for tp in self._offsets if tp not in assigned)
        if foreign:
            raise OffsetPlanError(
                f"offsets are given for partitions that are not read: {listed(foreign)}; read are "
                f"{listed(sorted(assigned))}",
                topic=foreign[0].topic,
                partition=foreign[0].partition,
            )
        return {tp: self._offsets.get(tp) for tp in assigned}

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}({self._selection!r})"  # never the settings: they hold secrets

    @abstractmethod
    def _topics(self, cluster: Cluster) -> Iterable[TopicMetadata]:
        """Return metadata of the topics to read, those that exist."""

    def _partitions(self, topic: TopicMetadata) -> Iterable[TopicPartition]:
        return (TopicPartition(topic.name, number) for number in topic.partitions)

    @abstractmethod
    def _check_start(self, cluster: Cluster, assigned: Mapping[TopicPartition, UUID | None]) -> None:
        """Refuse to start on what does not exist."""


class _Subscribe(_Strategy):
    _selection: select.Subscribe

    def _topics(self, cluster: Cluster) -> Iterable[TopicMetadata]:
        return cluster.topics(self._selection.topics).values()

    def _check_start(self, cluster: Cluster, assigned: Mapping[TopicPartition, UUID | None]) -> None:
        _check_exist(self._selection, cluster, assigned)


class _SubscribePattern(_Strategy):
    _selection: TopicPattern

    def _topics(self, cluster: Cluster) -> Iterable[TopicMetadata]:
        topics = cluster.all_topics().values()
        return [topic for topic in topics if not topic.internal and self._selection.matches(topic.name)]

    def _check_start(self, cluster: Cluster, assigned: Mapping[TopicPartition, UUID | None]) -> None:
        """Check nothing: a pattern may well match no topic yet."""


class _Assign(_Strategy):
    _selection: select.Assign

    def _topics(self, cluster: Cluster) -> Iterable[TopicMetadata]:
        return cluster.topics(self._selection.topics).values()

    def _partitions(self, topic: TopicMetadata) -> Iterable[TopicPartition]:
        wanted = self._selection.partitions
        return (tp for tp in wanted if tp.topic == topic.name and tp.partition in topic.partitions)

    def _check_start(self, cluster: Cluster, assigned: Mapping[TopicPartition, UUID | None]) -> None:
        if len(assigned) < len(self._selection.partitions):
            _check_exist(self._selection, cluster, assigned)


def _check_exist(
    selection: select.Subscribe | select.Assign, cluster: Cluster, assigned: Mapping[TopicPartition, UUID | None]
) -> None:
    """Raise for what is missing, with the closest name there is: only for that are all names asked for."""
    found = {tp.topic for tp in assigned}
    if isinstance(selection, select.Subscribe) and found >= set(selection.topics):
        return
    topics = cluster.all_topics()
    select.select_partitions(selection, {name: topic.partitions.keys() for name, topic in topics.items()})


def start_of(strategy: ConsumerStrategy, cluster: Cluster) -> dict[TopicPartition, int | None]:
    """Ask a strategy where a new stream begins; one of a user's own may answer anything.

    Raises:
        OptionError: The answer is no map from topic-partitions.
        OffsetPlanError: An offset in it is none.
    """
    wanted = strategy.on_start(cluster, {})
    if not isinstance(wanted, Mapping):
        raise OptionError(
            f"on_start of {type(strategy).__name__} must give a dict from topic-partitions to offsets, or to None "
            f"where none is given; it gave {type(wanted).__name__}"
        )
    given = _offsets({tp: offset for tp, offset in wanted.items() if offset is not None})
    return {topic_partition(tp): None for tp in wanted} | given


def topic_partition(given: object) -> TopicPartition:
    """Read a user's topic-partition, which may be a plain pair.

    Raises:
        OptionError: It is none.
    """
    match given:
        case (str(topic), int(number)) if topic and not isinstance(number, bool) and 0 <= number <= MAX_PARTITION:
            return TopicPartition(topic, number)
    raise OptionError(f"a topic-partition is TopicPartition(topic, partition), got {given!r}")


def _offsets(given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not isinstance(given, Mapping):
        raise OffsetPlanError(f"offsets must map topic-partitions to offsets, got {type(given).__name__}")
    offsets: dict[TopicPartition, int] = {}
    for key, offset in given.items():
        tp = topic_partition(key)
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
            raise OffsetPlanError(
                f"an offset to start at is a whole number from 0 on, got {offset!r}",
                topic=tp.topic,
                partition=tp.partition,
            )
        offsets[tp] = offset
    return offsets
