"""Plans the batches of one direct stream: on the driver, from metadata and offsets, with no consumer and no group.

``DirectKafkaInputDStream`` of Spark, without its consumer: ``start`` finds where to begin, ``batch`` gives the offset
ranges of a batch. Two things go into Spark's checkpoint: what the user asked for, and ``StreamState``. Connections, the
queue of commits and the RDDs at hand are of this process and made anew after a restart.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.direct import _registry
from pyspark_kafka_direct.direct._commits import CommitQueue
from pyspark_kafka_direct.direct._starts import offsets_of_new, starting_offsets
from pyspark_kafka_direct.direct._state import StreamState, check_version
from pyspark_kafka_direct.direct._stopping import StopSignal
from pyspark_kafka_direct.direct.parameters import driver_parameters
from pyspark_kafka_direct.direct.rates import max_messages_per_partition
from pyspark_kafka_direct.direct.strategies import DiscoversPartitions, start_of
from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST, OffsetRange
from pyspark_kafka_direct.planning._hints import listed
from pyspark_kafka_direct.planning.backpressure import clamp
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.settings import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.direct._spark_side import SparkSide
    from pyspark_kafka_direct.direct.locations import LocationStrategy
    from pyspark_kafka_direct.direct.parameters import KafkaParameters
    from pyspark_kafka_direct.direct.rates import PerPartitionConfig, RateController
    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.direct.strategies import ConsumerStrategy
    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.direct")

_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What the user asked for; pickled into the checkpoint, so it cannot change with a restart.

    Attributes:
        strategy: Which partitions, from where.
        locations: Where tasks should run.
        config: Limits of the partitions.
        batch_seconds: The batch interval.
        key_decoder: Makes something of a key's bytes.
        value_decoder: The same for values.
        assume_consecutive: Each offset is a record.
    """

    strategy: ConsumerStrategy
    locations: LocationStrategy
    config: PerPartitionConfig
    batch_seconds: float
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None
    assume_consecutive: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """How brokers are asked, of this process.

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


class StreamPlanner:
    """The plan of one stream; for several threads.

    Attributes:
        spark: The stream's connection with its StreamingContext; ``None`` until the first batch after a restart.
        persisted: Whether the stream's batches are persisted.
        stopping: Given when the context is stopped.

    Args:
        stream_id: Unlike that of any other stream, restarts included.
        spec: What the user asked for.
        controller: Backpressure, if it is on.
    """

    _made: Wire | None
    _warned: bool
    spark: SparkSide | None
    stopping: StopSignal

    def __init__(self, stream_id: str, spec: StreamSpec, controller: RateController | None) -> None:
        self.stream_id = stream_id
        self.spec = spec
        self.controller = controller
        self.persisted = False
        self._state = StreamState()
        self._live()

    def start(self) -> None:
        """Find out where a new stream begins.

        Raises:
            OptionError: A parameter that cannot be used.
            OffsetPlanError: There is no offset to start at, or a given one is not in the log.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        with self._planning:
            wire = self.wire
            wanted = start_of(self.spec.strategy, wire.cluster)
            current = starting_offsets(wanted, wire.cluster, wire.group, wire.parameters.auto_offset_reset)
            topic_ids = _known(self._assigned(current))
            with self._lock:
                self._state.current, self._state.topic_ids = current, topic_ids

    def batch(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """The ranges of a batch, one for each partition, empty ones too; the same ones however often it is asked for.

        Args:
            time_ms: The batch's time in milliseconds.

        Raises:
            OffsetPlanError: The batch is an old one that was forgotten.
            TopicNotFoundError: A partition that was read is gone.
            DataLossError: A topic was deleted and created anew, or a log ends before what was read of it.
            BrokerError: The cluster could not be asked within ``default.api.timeout.ms``.
        """
        with self._lock:  # not held while brokers are asked: jobs that run must not wait for the next plan
            ranges = self._state.ranges(time_ms)
        if ranges is not None:
            return ranges
        with self._planning:
            with self._lock:
                ranges, current = self._state.ranges(time_ms), self._state.current
            if ranges is None:
                self.wire.commits.send()
                assigned, ranges = self.stopping.run(lambda: self._decide(current))
                with self._lock:
                    self._state.add(time_ms, ranges, _known(assigned))
            return ranges

    def forget(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Forget batches that Spark will not ask for again; returns their times."""
        with self._lock:
            return self._state.forget(is_needed)

    @property
    def current_offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition, after the last batch that was planned."""
        with self._lock:
            return dict(self._state.current)

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """The ids of the topics, where brokers have ids."""
        with self._lock:
            return dict(self._state.topic_ids)

    @property
    def wire(self) -> Wire:
        """How brokers are asked; made when it is first needed, so that an error of the settings is one of a batch."""
        with self._lock:
            made = self._made
            if made is None:
                made = self._made = _connect(self.spec.strategy)
            return made

    def _decide(
        self, current: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, UUID | None], tuple[OffsetRange, ...]]:
        assigned = self._assigned_for_sure(current)
        return assigned, self._plan(current, assigned)

    def _plan(
        self, current: Mapping[TopicPartition, int], assigned: Mapping[TopicPartition, UUID | None]
    ) -> tuple[OffsetRange, ...]:
        cluster = self.wire.cluster
        self._check_still_there(current, assigned)
        new = [tp for tp in assigned if tp not in current]
        if new:
            _log.info("new partitions: %s", listed(sorted(new)))
            current = {
                **current,
                **offsets_of_new(new, cluster, self.wire.group, self.wire.parameters.auto_offset_reset),
            }
        try:
            latest = cluster.offsets(dict.fromkeys(current, LATEST))
        except TopicNotFoundError:  # it went since the question before
            self._check_still_there(current, self._assigned_for_sure(current))
            raise
        _check_not_cut(current, latest)
        controller = self.controller
        most = max_messages_per_partition(
            current,
            latest,
            rate=None if controller is None else controller.latest_rate(),
            initial_rate=0 if controller is None else controller.initial_rate,
            batch_seconds=self.spec.batch_seconds,
            config=self.spec.config,
        )
        ends = clamp(current, latest, most)
        return tuple(OffsetRange(tp.topic, tp.partition, current[tp], ends[tp]) for tp in sorted(current))

    def _assigned(self, tracked: Mapping[TopicPartition, int]) -> dict[TopicPartition, UUID | None]:
        """The partitions there are now; metadata is fresh after it."""
        strategy = self.spec.strategy
        if isinstance(strategy, DiscoversPartitions):
            return dict(strategy.assigned(self.wire.cluster))
        topics = self.wire.cluster.topics({tp.topic for tp in tracked})
        there = (tp for tp in tracked if tp.topic in topics and tp.partition in topics[tp.topic].partitions)
        return {tp: topics[tp.topic].topic_id for tp in there}

    def _assigned_for_sure(self, tracked: Mapping[TopicPartition, int]) -> dict[TopicPartition, UUID | None]:
        """The same, but what is missing is looked for again for a while: a broker may lag behind the others."""
        wire = self.wire
        deadline = Deadline.after(_SETTLE_SECONDS)
        while True:
            assigned = self._assigned(tracked)
            if deadline.expired or all(tp in assigned for tp in tracked):
                return assigned
            time.sleep(wire.parameters.settings.retry_backoff_ms / 1000)

    def _check_still_there(
        self, current: Mapping[TopicPartition, int], assigned: Mapping[TopicPartition, UUID | None]
    ) -> None:
        for tp, topic_id in assigned.items():
            before = self.topic_ids.get(tp.topic)
            if before is not None and topic_id is not None and before != topic_id:
                raise DataLossError(
                    "The topic was deleted and created anew under the stream, so its offsets mean other records now. "
                    "Start the stream with another checkpoint folder, or none.",
                    topic=tp.topic,
                )
        gone = sorted(tp for tp in current if tp not in assigned)
        if gone:
            raise TopicNotFoundError(
                f"Partitions that were being read are gone: {listed(gone)}. Their topic was deleted, or may not be "
                "seen any more. Start the stream without them, with another checkpoint folder, or none.",
                topic=gone[0].topic,
                partition=gone[0].partition,
            )

    @property
    def queued_commits(self) -> CommitQueue | None:
        """What waits to be committed; ``None`` if nothing ever did."""
        made = self._made
        return None if made is None else made.commits

    def __getstate__(self) -> dict[str, Any]:
        self._warn_of_secrets()
        with self._lock:
            return {
                "version": 1,
                "stream_id": self.stream_id,
                "spec": {each.name: getattr(self.spec, each.name) for each in fields(StreamSpec)},
                "persisted": self.persisted,
                "controller": self.controller,
                "state": self._state.__getstate__(),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_version(state)
        self.stream_id = state["stream_id"]
        self.spec = StreamSpec(**state["spec"])
        self.persisted = state["persisted"]
        self.controller = state["controller"]
        self._state = StreamState()
        self._state.__setstate__(state["state"])
        self._live()
        _registry.enter(self)

    def _warn_of_secrets(self) -> None:
        kept = getattr(self.spec.strategy, "keeps_parameters", False)
        if kept and not self._warned and _holds_secret(self.wire.parameters.settings.security):
            self._warned = True
            _log.warning(
                "Spark's checkpoint holds the kafkaParams of a direct stream, passwords in clear. Give the consumer "
                "strategy a function that returns them instead: then the checkpoint holds only the function."
            )

    def _live(self) -> None:
        """What is of this process only."""
        self._warned = False
        self._lock = threading.RLock()
        self._planning = threading.Lock()
        self._made = None
        self.stopping = StopSignal()
        self.spark = None


def _connect(strategy: ConsumerStrategy) -> Wire:
    parameters = driver_parameters(strategy.executor_params)
    cluster = Cluster(parameters.settings)
    group = None if parameters.group_id is None else Group(cluster, parameters.group_id)
    return Wire(parameters, cluster, group, CommitQueue(group))


def _holds_secret(settings: Any) -> bool:
    if isinstance(settings, Secret):
        return bool(settings.reveal())
    return is_dataclass(settings) and any(_holds_secret(getattr(settings, each.name)) for each in fields(settings))


def _known(assigned: Mapping[TopicPartition, UUID | None]) -> dict[str, UUID]:
    return {tp.topic: topic_id for tp, topic_id in assigned.items() if topic_id is not None}


def _check_not_cut(current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
    for tp, offset in current.items():
        if latest[tp] < offset:
            raise DataLossError(
                f"The log ends at offset {latest[tp]}, before {offset}, where reading is to go on: records were lost "
                "(an unclean leader election), or the offset to start at never was right. Start the stream from an "
                "offset that exists, with another checkpoint folder, or none.",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
