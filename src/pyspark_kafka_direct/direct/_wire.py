"""How one direct stream asks brokers, in this process: nothing of it is in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.direct._commits import CommitQueue
from pyspark_kafka_direct.direct._starts import high_watermarks, offsets_of_new, starting_offsets
from pyspark_kafka_direct.direct.rates import max_messages_per_partition
from pyspark_kafka_direct.direct.strategies import DiscoversPartitions, start_of
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.planning.direct import Position, ids_of
from pyspark_kafka_direct.runtime.cluster import existing_partitions
from pyspark_kafka_direct.settings.kafka_params import driver_parameters
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.direct._spec import StreamSpec
    from pyspark_kafka_direct.direct.rates import RateController
    from pyspark_kafka_direct.direct.strategies import ConsumerStrategy
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.kafka_params import KafkaParameters
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_SETTLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Wire:
    """How brokers are asked.

    Attributes:
        parameters: The user's parameters, read.
        cluster: Answers about topics and offsets.
        group: The group of ``group.id``, if there is one.
        commits: What waits to be committed for it.
    """

    parameters: KafkaParameters
    cluster: Cluster
    group: Group | None
    commits: CommitQueue

    @property
    def holds_secrets(self) -> bool:
        """Whether there is a password or a key among the parameters."""
        return _holds_secret(self.parameters.settings.security)


def connect(strategy: ConsumerStrategy, pool: ConnectionPool = POOL) -> Wire:
    """Read the parameters; connections are made when something is asked.

    Args:
        strategy: Has the parameters.
        pool: Has the connections, and the system where the brokers are.

    Raises:
        OptionError: A parameter that cannot be used.
    """
    parameters = driver_parameters(strategy.executor_params)
    cluster = Cluster(parameters.settings, pool=pool)
    group = None if parameters.group_id is None else Group(cluster, parameters.group_id)
    return Wire(parameters, cluster, group, CommitQueue(group, pool.system))


class WireView:
    """A ``planning.direct.DirectView`` for one plan: looks again for 5 seconds at most.

    Args:
        wire: How brokers are asked.
        spec: What the user asked for.
        controller: Backpressure, if it is on.
    """

    def __init__(self, wire: Wire, spec: StreamSpec, controller: RateController | None) -> None:
        self._wire = wire
        self._spec = spec
        self._controller = controller
        self._settled: Deadline | None = None  # counts from the first look that found too little

    def start(self) -> Position:
        """Return where a new stream begins."""
        wire = self._wire
        wanted = start_of(self._spec.strategy, wire.cluster)
        level, reset = wire.parameters.fetch.isolation_level, wire.parameters.auto_offset_reset
        offsets = starting_offsets(wanted, wire.cluster, level, wire.group, reset)
        return Position(offsets, ids_of(self.assigned(offsets)))

    def assigned(self, tracked: Collection[TopicPartition]) -> dict[TopicPartition, UUID | None]:
        """Return the partitions that exist now; metadata is fresh after it."""
        strategy, cluster = self._spec.strategy, self._wire.cluster
        if isinstance(strategy, DiscoversPartitions):
            return dict(strategy.assigned(cluster))
        topics = cluster.topics({tp.topic for tp in tracked})
        return {tp: topics[tp.topic].topic_id for tp in existing_partitions(topics, tracked)}

    def starts_of_new(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions begin that have appeared under the stream."""
        wire = self._wire
        level, reset = wire.parameters.fetch.isolation_level, wire.parameters.auto_offset_reset
        return offsets_of_new(partitions, wire.cluster, level, wire.group, reset)

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where the logs of these partitions end."""
        level = self._wire.parameters.fetch.isolation_level
        return self._wire.cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level=level)

    def written(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of these partitions."""
        return high_watermarks(self._wire.cluster, partitions)

    def most(
        self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        """Return how many records each partition may have: backpressure, and the limits of partitions."""
        controller = self._controller
        return max_messages_per_partition(
            begins,
            latest,
            rate=None if controller is None else controller.latest_rate(),
            initial_rate=0 if controller is None else controller.initial_rate,
            batch_seconds=self._spec.batch_seconds,
            config=self._spec.config,
        )

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where the logs of these partitions begin, with ``failOnDataLoss`` false; else nothing."""
        if self._wire.parameters.fail_on_data_loss:
            return {}
        return self._wire.cluster.offsets(dict.fromkeys(partitions, EARLIEST))

    def wait(self) -> bool:
        """Pause before looking again; return false after 5 seconds."""
        if self._settled is None:
            self._settled = self._wire.cluster.deadline(_SETTLE_SECONDS)
        if self._settled.expired:
            return False
        self._wire.cluster.pool.system.sleep(self._wire.parameters.settings.retry_backoff_ms / 1000)
        return True


def _holds_secret(settings: Any) -> bool:
    if isinstance(settings, Secret):
        return bool(settings.reveal())
    return is_dataclass(settings) and any(_holds_secret(getattr(settings, each.name)) for each in fields(settings))
