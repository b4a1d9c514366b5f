"""The connections, consumer group and commit queue of one direct stream in this process; they are not checkpointed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.consumer.open_transactions import BlockedPartitionWarnings
from pyspark_kafka_direct.consumer.query_metadata import existing_partitions
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.consumer_strategies import DiscoversPartitions, requested_starting_offsets
from pyspark_kafka_direct.direct.direct_stream_planner import (
    LogOffsets,
    OffsetResetStrategy,
    StreamPosition,
    decide_new_partition_offsets,
    decide_start_offsets,
)
from pyspark_kafka_direct.direct.rate_controller import max_messages_per_partition
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.offset_specs import OffsetSpec
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.planning.offset_reader import (
    MAX_METADATA_RESPONSES,
    are_topic_ids_current,
    contradicting_metadata_error,
    contradiction_pause,
)
from pyspark_kafka_direct.planning.offset_resolution import look_up_starts, positions_at
from pyspark_kafka_direct.spark.token_file import token_clusters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
    from pyspark_kafka_direct.direct.consumer_strategies import ConsumerStrategy
    from pyspark_kafka_direct.direct.rate_controller import RateController
    from pyspark_kafka_direct.options.kafka_params import KafkaParameters
    from pyspark_kafka_direct.options.positions import Position
    from pyspark_kafka_direct.options.settings import IsolationLevel

_log = logging.getLogger("pyspark_kafka_direct.direct")


@dataclass(frozen=True, slots=True)
class StreamClient:
    """Sends the broker requests of one stream."""

    parameters: KafkaParameters
    cluster: ClusterClient
    group: ConsumerGroup | None
    commits: CommitQueue
    blocked_warnings: BlockedPartitionWarnings

    @property
    def contains_secrets(self) -> bool:
        """Whether the parameters contain a password or a key."""
        return _contains_secret(self.parameters.connection.security)

    def close(self) -> None:
        """Close all connections, those in use as soon as their requests end; later requests open new ones."""
        self.cluster.pool.close()


def create_stream_client(strategy: ConsumerStrategy, pool: ConnectionPool) -> StreamClient:
    """Create the client from the strategy's parameters; connections open with the first request.

    The pool must not be shared, because ``close`` closes it.
    """
    parameters = parse_kafka_params(strategy.executor_params, token_clusters=token_clusters())
    if parameters.group_id is None:
        warn_once(
            "group.id is not set: the stream does not start at committed offsets, and commitAsync and commitSync fail. "
            "Set it to a group of its own if the stream is to commit offsets"
        )
    cluster = ClusterClient(parameters.connection, pool=pool)
    group = None if parameters.group_id is None else ConsumerGroup(cluster, parameters.group_id)
    blocked_warnings = BlockedPartitionWarnings(cluster, partial(_log.warning, "%s"))
    return StreamClient(parameters, cluster, group, CommitQueue(group, pool.system), blocked_warnings)


class StreamClusterView:
    """Reads metadata and offsets for one plan (a ``DirectOffsetReader``)."""

    def __init__(
        self,
        client: StreamClient,
        spec: StreamSpec,
        controller: RateController | None,
        *,
        is_restored: bool = False,  # from a checkpoint
    ) -> None:
        self._client = client
        self._spec = spec
        self._controller = controller
        self._is_restored = is_restored

    def start(self) -> StreamPosition:
        """Return the position at which a new stream starts."""
        requested = requested_starting_offsets(self._spec.strategy, self._client.cluster)
        names = {tp.topic for tp in requested}
        for _ in range(MAX_METADATA_RESPONSES):
            topic_ids = self.known_topic_ids(names)
            offsets = self._resolve_starting_offsets(requested)
            # Otherwise a broker lags behind, or a topic was recreated: ids and offsets may be of different topics.
            if are_topic_ids_current(topic_ids, self.known_topic_ids):
                return StreamPosition(offsets, self.known_topic_ids(names))
            self.wait()
        raise contradicting_metadata_error(requested)

    def assigned(self, tracked: Collection[TopicPartition]) -> dict[TopicPartition, UUID | None]:
        """Return the partitions that exist now, and refresh the metadata."""
        strategy = self._spec.strategy
        cluster = self._client.cluster
        if isinstance(strategy, DiscoversPartitions):
            return dict(strategy.assigned(cluster))
        topics = cluster.topics({tp.topic for tp in tracked})
        return {tp: topics[tp.topic].topic_id for tp in existing_partitions(topics, tracked)}

    def known_topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        """Return the topic ids of the metadata that the last offsets came with, as far as they are known."""
        return self._client.cluster.known_topic_ids(topics)

    def new_partition_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets at which new partitions start."""
        client = self._client
        level = client.parameters.fetch.isolation_level
        reset = client.parameters.auto_offset_reset
        # Offsets that are committed for a partition that the checkpoint lacks may be those of a batch that is generated
        # again: it must contain its records again.
        group = None if self._is_restored else client.group
        return resolve_new_partition_offsets(partitions, client.cluster, level, group, reset)

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of these partitions for the stream's isolation level."""
        level = self._client.parameters.fetch.isolation_level
        latest = self._client.cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level=level)
        if level == "read_committed":  # the ends are last stable offsets, where an open transaction stops the stream
            self._client.blocked_warnings.check(latest)
        return latest

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of these partitions."""
        return high_watermarks(self._client.cluster, partitions)

    def record_limits(
        self, from_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        """Return the record limit of each partition, from backpressure and the limits of partitions."""
        controller = self._controller
        return max_messages_per_partition(
            from_offsets,
            latest,
            rate=None if controller is None else controller.latest_rate(),
            initial_rate=0 if controller is None else controller.initial_rate,
            batch_seconds=self._spec.batch_seconds,
            config=self._spec.config,
        )

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offsets of these partitions if ``failOnDataLoss`` is false, otherwise nothing."""
        if self._client.parameters.fetch.fail_on_data_loss:
            return {}
        return self._client.cluster.offsets(dict.fromkeys(partitions, EARLIEST))

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> set[TopicPartition]:
        """Return which of these partitions, with topic ids if known, brokers agree to be missing or recreated."""
        return self._client.cluster.confirm_missing(suspects)

    def wait(self) -> None:
        """Pause before a retry, and use another broker for it."""
        cluster = self._client.cluster
        cluster.use_next_broker()
        cluster.pool.system.sleep(contradiction_pause(cluster.settings.retry_backoff_max_ms / 1000))

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        """Read offsets only from leaders of the highest epoch that brokers report."""
        self._client.cluster.raise_epoch_floors(topics)

    def _resolve_starting_offsets(
        self, requested: Mapping[TopicPartition, Position | None]
    ) -> dict[TopicPartition, int]:
        client = self._client
        level = client.parameters.fetch.isolation_level
        reset = client.parameters.auto_offset_reset
        offsets = resolve_requested_positions(client.parameters.starting_timestamp, requested, client.cluster, level)
        return resolve_starting_offsets(
            {tp: offsets.get(tp) for tp in requested}, client.cluster, level, client.group, reset
        )


def resolve_requested_positions(
    times: OffsetSpec | None,
    requested: Mapping[TopicPartition, Position | None],
    cluster: ClusterClient,
    isolation_level: IsolationLevel,
) -> dict[TopicPartition, int]:
    """Return the offsets of requested positions, and those of ``times``, if any, for the other partitions."""
    given = {tp: position for tp, position in requested.items() if position is not None}
    # A requested position has priority over a time.
    spec = OffsetSpec(given) if times is None else replace(times, partitions={**times.partitions, **given})
    now_ms = int(cluster.pool.system.wall_time() * 1000)
    positions = positions_at(spec, given if times is None else requested, "start", now_ms)

    def fetch(lookups: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return cluster.offsets(lookups, isolation_level=isolation_level) if lookups else {}

    def fetch_confirmed(lookups: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        if lookups:
            cluster.raise_epoch_floors({tp.topic for tp in lookups})
        return fetch(lookups)

    starts = look_up_starts(positions, fetch_confirmed, fetch, option=spec.option)
    return {tp: start.offset for tp, start in starts.items()}


def resolve_starting_offsets(
    requested: Mapping[TopicPartition, int | None],
    cluster: ClusterClient,
    isolation_level: IsolationLevel,
    group: ConsumerGroup | None,
    reset_strategy: OffsetResetStrategy,
) -> dict[TopicPartition, int]:
    """Return the starting offsets: requested ones, else committed ones, else those of ``auto.offset.reset``."""
    committed = _committed_offsets(group, [tp for tp, offset in requested.items() if offset is None])
    logs = _fetch_log_offsets(cluster, requested, isolation_level)
    starts = decide_start_offsets(requested, committed, logs, reset=reset_strategy, group=_group_id(group))
    _warn(starts.warnings)
    return starts.offsets


def resolve_new_partition_offsets(
    partitions: Collection[TopicPartition],
    cluster: ClusterClient,
    isolation_level: IsolationLevel,
    group: ConsumerGroup | None,
    reset_strategy: OffsetResetStrategy,
) -> dict[TopicPartition, int]:
    """Return the starting offsets of partitions created after the stream started: committed offset, or log start.

    ``auto.offset.reset=none`` rejects a committed offset outside the log; ``latest`` has no effect.
    """
    committed = _committed_offsets(group, partitions)
    logs = _fetch_log_offsets(cluster, partitions, isolation_level)
    starts = decide_new_partition_offsets(committed, logs, reset=reset_strategy, group=_group_id(group))
    _warn(starts.warnings)
    return starts.offsets


def high_watermarks(cluster: ClusterClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the high watermarks: unlike last stable offsets, they are after the records of open transactions."""
    return cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level="read_uncommitted")


def _committed_offsets(
    group: ConsumerGroup | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {} if group is None or not partitions else group.committed(partitions)


def _fetch_log_offsets(
    cluster: ClusterClient, partitions: Collection[TopicPartition], isolation_level: IsolationLevel
) -> dict[TopicPartition, LogOffsets]:
    if not partitions:
        return {}
    # An offset outside the log is replaced for good, so a deposed leader must not report the log's end.
    cluster.raise_epoch_floors({tp.topic for tp in partitions})
    starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
    readable = cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level=isolation_level)
    # An offset after the last stable offset is in the log. If it was treated as out of range, the stream would start at
    # another offset.
    ends = high_watermarks(cluster, partitions) if isolation_level == "read_committed" else readable
    return {tp: LogOffsets(starts[tp], readable[tp], ends[tp]) for tp in partitions}


def _group_id(group: ConsumerGroup | None) -> str | None:
    return None if group is None else group.group_id


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)


def _contains_secret(settings: Any) -> bool:
    if isinstance(settings, Secret):
        return bool(settings.reveal())
    return is_dataclass(settings) and any(_contains_secret(getattr(settings, field.name)) for field in fields(settings))
