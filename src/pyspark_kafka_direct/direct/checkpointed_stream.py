"""One direct stream and the registry of the direct streams of this process.

Spark's ``DirectKafkaInputDStream`` without its consumer: ``start`` finds the starting offsets and ``batch_ranges``
returns the offset ranges of a batch. Spark's checkpoint contains the user's spec and ``StreamCheckpointData``.
Connections, the commit queue and cached RDDs belong to this process and are recreated after a restart.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.direct.checkpoint_data import StreamCheckpointData, StreamSpec, check_checkpoint_version
from pyspark_kafka_direct.direct.direct_stream_planner import plan_direct_batch
from pyspark_kafka_direct.direct.stop_hooks import FLUSH_TIMEOUT_SECONDS, StopSignal, flush_commits
from pyspark_kafka_direct.direct.stream_client import StreamClient, StreamClusterView, create_stream_client
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import with_topic_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.direct.commit_queue import CommitQueue
    from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
    from pyspark_kafka_direct.direct.rate_controller import RateController
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.direct")

STREAM_VERSION = 2


class ContextBinding(Protocol):
    """The stream's binding to its StreamingContext, implemented by ``StreamingContextBinding``."""

    def rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch, the same object at every call."""

    def generate_rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of the batch that Spark is generating."""

    def forget_generated_rdds(self, times_ms: Sequence[int]) -> None:
        """Remove the RDDs of batches that Spark failed to generate."""


class CheckpointedStream:
    """The offsets and batches of one stream; thread-safe."""

    # A batch is planned only while Spark generates, between begin_generation and end_generation. If Spark generates the
    # next batch or writes its checkpoint without end_generation, the generation has failed, and
    # roll_back_failed_generation discards the batches that were planned in it.

    # Not pickled: `_init_transient` sets them for a new and for a restored stream, and also the two locks.
    _client: StreamClient | None
    _deleted_offset_counts: dict[int, int]  # by batch, until Spark gets the batch's input info
    _warned_of_secrets: bool
    context_binding: ContextBinding | None  # None until the first batch after a restart
    stop_signal: StopSignal
    system: System

    def __init__(
        self, stream_id: str, spec: StreamSpec, controller: RateController | None, system: System = SYSTEM
    ) -> None:
        self.stream_id = stream_id  # unique, and the same after a restart
        self.spec = spec
        self.controller = controller
        self.persisted = False  # whether the user persists the RDDs of the stream
        self._state = StreamCheckpointData()
        self._is_restored = False
        self._init_transient(system)

    def start(self) -> None:
        """Find the offsets at which a new stream starts."""
        with self._planning_lock:
            position = self._cluster_view().start()
            with self._lock:
                self._state.start(position)

    def batch_ranges(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """Return the ranges of a batch, one per partition: the first call plans them, later calls return the same."""
        with self._lock:  # not held during broker requests: running jobs must not wait for the next plan
            ranges = self._state.find_ranges(time_ms)
        if ranges is not None:
            return ranges
        with self._planning_lock:
            with self._lock:  # another thread may have planned the batch while this one waited
                ranges, position = self._state.find_ranges(time_ms), self._state.position
            if ranges is None:
                self.client.commits.send()  # as Spark does: queued offsets are committed when the next batch is planned
                planned = self.stop_signal.run(lambda: plan_direct_batch(position, self._cluster_view()))
                with self._lock:
                    # If the user calls slice, another thread may plan the batch. If the generation of the batch failed
                    # before the plan ended, the batch is empty, and a later batch gets the records.
                    ranges = self._state.find_ranges(time_ms)
                    if ranges is None:
                        ranges = planned.ranges
                        self._state.add_batch(time_ms, ranges, planned.topic_ids)
                        if planned.deleted_offset_count:
                            self._deleted_offset_counts[time_ms] = planned.deleted_offset_count
            return ranges

    def take_deleted_offset_count(self, time_ms: int) -> int:
        """Return how many offsets of the batch had deleted records when it was planned; 0 from the second call on."""
        with self._lock:
            return self._deleted_offset_counts.pop(time_ms, 0)

    def planned_ranges(self, time_ms: int) -> list[OffsetRange]:
        """Return the ranges of a batch that was planned; raises InvalidOffsetsError if there is none."""
        with self._lock:
            return with_topic_ids(self._state.planned_ranges(time_ms), self._state.position.topic_ids)

    def begin_generation(self, time_ms: int) -> None:
        """Record that Spark starts to generate a batch."""
        self.roll_back_failed_generation()
        with self._lock:
            self._state.begin_generation(time_ms)

    def end_generation(self) -> None:
        """Record that Spark has generated a batch and submits its jobs."""
        with self._lock:
            self._state.end_generation()

    def roll_back_failed_generation(self) -> None:
        """Discard the batches planned in a failed generation; called on Spark's thread, outside a generation."""
        with self._lock:
            failed = self._state.unfinished_batches()
        if not failed:
            return
        if self.context_binding is not None:
            # First: if this raises, the next call retries it. Without the lock, because it calls the JVM.
            self.context_binding.forget_generated_rdds(failed)
        with self._lock:
            self._state.roll_back_generation()
            for time_ms in failed:
                self._deleted_offset_counts.pop(time_ms, None)
        _log.warning(
            "Spark failed to generate the batch at %d ms, so none of its jobs runs. The next batch starts at the same "
            "offsets",
            failed[-1],  # the newest; windows also generate earlier ones
        )

    def forget_batches(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Drop the batches that are no longer needed, and return their times."""
        with self._lock:
            return self._state.forget_batches(is_needed)

    @property
    def current_offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition, after the last planned batch."""
        with self._lock:
            return dict(self._state.position.offsets)

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """The ids of the topics, if the brokers have topic ids."""
        with self._lock:
            return dict(self._state.position.topic_ids)

    @property
    def client(self) -> StreamClient:
        """The client, created at first use: if a restored option is invalid, a batch fails, not the restore."""
        with self._lock:
            client = self._client
            if client is None:
                client = self._client = create_stream_client(self.spec.strategy, ConnectionPool(self.system))
            return client

    @property
    def commit_queue(self) -> CommitQueue | None:
        """The queue of offset commits; ``None`` before the client is created."""
        client = self._client
        return None if client is None else client.commits

    def close(self) -> None:
        """Close the connections of a stream whose context is stopped."""
        client = self._client
        if client is not None:
            client.close()

    def _cluster_view(self) -> StreamClusterView:
        return StreamClusterView(self.client, self.spec, self.controller, is_restored=self._is_restored)

    def __getstate__(self) -> dict[str, Any]:
        self._warn_of_secrets()
        with self._lock:
            return {
                "version": STREAM_VERSION,
                "stream_id": self.stream_id,
                "spec": {field.name: getattr(self.spec, field.name) for field in fields(StreamSpec)},
                "persisted": self.persisted,
                "controller": self.controller,
                "state": self._state.__getstate__(),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_pinned_threads()
        check_checkpoint_version(state, STREAM_VERSION)
        self.stream_id = state["stream_id"]
        self.spec = StreamSpec(**state["spec"])
        self.persisted = state["persisted"]
        self.controller = state["controller"]
        self._state = StreamCheckpointData()
        self._state.__setstate__(state["state"])
        self._is_restored = True
        self._init_transient(SYSTEM)

    def _warn_of_secrets(self) -> None:
        """Warn once if the checkpoint gets passwords; what a user's own strategy pickles is not known."""
        parameters_in_checkpoint = getattr(self.spec.strategy, "has_literal_parameters", False)
        client = self._client  # only a client has parsed the parameters
        if parameters_in_checkpoint and client is not None and client.contains_secrets and not self._warned_of_secrets:
            self._warned_of_secrets = True
            _log.warning(
                "Spark's checkpoint contains the kafkaParams of a direct stream, with passwords in plain text. Pass a "
                "function that returns the kafkaParams to the consumer strategy, so that the checkpoint contains only "
                "the function."
            )

    def _init_transient(self, system: System) -> None:
        """Initialize the attributes that are not pickled."""
        self.system = system
        self._warned_of_secrets = False
        self._lock = system.reentrant_lock()
        self._planning_lock = system.lock()
        self._client = None
        self._deleted_offset_counts = {}
        self.stop_signal = StopSignal(system)
        self.context_binding = None


def check_pinned_threads() -> None:
    """Raise OptionError if PYSPARK_PIN_THREAD is off."""
    # Without pinned threads each callback from the JVM runs in another JVM thread, and Spark's locks deadlock.
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise OptionError(
            "a direct stream requires PYSPARK_PIN_THREAD=true, which is PySpark's default: otherwise Spark's locks "
            "block every call of the stream into the JVM while a batch is generated"
        )


# The registry. Spark pickles each Python function of a stream's graph separately into its checkpoint. If each function
# held the stream, a restart would create several independent copies. So only ``BeginGeneration`` holds the stream, and
# every other function holds its id and finds the stream here. A restored stream is registered when Spark first
# generates one of its batches, and replaces a stream with the same id. Until then the older stream may still be
# running, for example if ``getOrCreate`` is called twice.
_registry_lock = threading.Lock()
_streams: dict[str, CheckpointedStream] = {}
# Stopped streams stay available while they are referenced.
_stopped_streams: WeakValueDictionary[str, CheckpointedStream] = WeakValueDictionary()


def register_stream(stream: CheckpointedStream) -> None:
    """Register a stream that is bound to its StreamingContext."""
    with _registry_lock:
        _streams[stream.stream_id] = stream


def unregister_stream(stream: CheckpointedStream) -> None:
    """Release a stream whose context is stopped; it can be found as long as other objects reference it."""
    with _registry_lock:
        if _streams.get(stream.stream_id) is stream:
            _stopped_streams[stream.stream_id] = _streams.pop(stream.stream_id)


def find_stream(stream_id: str) -> CheckpointedStream:
    """Return the stream with this id; raises OptionError if this process, such as an executor, has none."""
    with _registry_lock:
        stream = _streams.get(stream_id) or _stopped_streams.get(stream_id)
    if stream is None:
        raise OptionError(
            "a direct stream can only be used on the driver, in the process that runs its StreamingContext. Call "
            "commitAsync in the function passed to foreachRDD, not in a function that runs on records"
        )
    return stream


def registered_streams() -> list[CheckpointedStream]:
    """Return all streams of this process, including stopped ones that are still referenced."""
    with _registry_lock:
        return [*_streams.values(), *_stopped_streams.values()]


def _flush_at_exit() -> None:
    """Send queued commits if the application exits without a stop, as after an error of ``awaitTermination``."""
    flush_commits(registered_streams(), FLUSH_TIMEOUT_SECONDS)


atexit.register(_flush_at_exit)
