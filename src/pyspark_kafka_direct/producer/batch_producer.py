"""Sends record batches to the leaders of their partitions until all are acknowledged.

Everything happens in the caller's thread: ``send`` and ``flush`` handle the responses that have arrived, send what may
be sent, and wait only if they have to. ``partition_queue`` decides which batch may be sent, ``produce_errors`` what a
response means.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.deadline import Backoff, Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.broker_channel import BrokerChannel
from pyspark_kafka_direct.producer.leader_lookup import LeaderLookup
from pyspark_kafka_direct.producer.partition_queue import PartitionQueue, ProducerBatch
from pyspark_kafka_direct.producer.produce_channel import (
    NO_OFFSET,
    NO_TIMESTAMP,
    PartitionProduceResponse,
    WrittenRange,
)
from pyspark_kafka_direct.producer.produce_errors import (
    SHORT_BACKOFF_ERRORS,
    WRITING,
    BatchDecision,
    decide_for_error_code,
    error_for_response,
    may_have_been_written,
    with_outcome,
)
from pyspark_kafka_direct.producer.producer_id_manager import AssignedProducerId, ProducerIdManager
from pyspark_kafka_direct.records import set_producer_state, split_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.producer.broker_channel import RequestBatches
    from pyspark_kafka_direct.producer.partition_queue import DeliveryCallback
    from pyspark_kafka_direct.records import EncodedBatch, WritableBytes

__all__ = ["AssignedProducerId", "BatchProducer", "WrittenRange"]

_DELIVERY_TIMEOUT: Final = "kafka.delivery.timeout.ms"
_THROTTLED: Final = "The broker throttles this client (a quota of the cluster): raise the quota or the timeout."
_BUSY: Final = "The broker responds slowly to earlier requests: check its load and the network, or raise the timeout."

# A broker detects duplicates among the last five batches of a producer in a partition.
_MAX_IN_FLIGHT: Final = 5

MIN_STEP_SECONDS: Final = 1.0  # for metadata, a connection or a producer id, even if a batch has expired

_SHORT_BACKOFF: Final = 0.01  # seconds before the first retry after SHORT_BACKOFF_ERRORS


class BatchProducer:
    """Writes record batches, idempotently unless disabled, in order within each partition. Not thread-safe.

    After an error the producer cannot be used again, and unacknowledged batches may have been written. A batch fails
    ``delivery.timeout.ms`` after the first attempt to send it; time in the queue does not count.

    A batch with a callback fails alone if the error concerns only the batch, its partition or its topic: the callback
    is called, and later batches are written without it. Any other error fails all batches.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ProducerSettings,
        assigned_id: AssignedProducerId | None = None,
        *,
        # Called before partitions are first written to, if brokers do not add them (transaction.version below 2).
        add_partitions_to_transaction: Callable[[Collection[TopicPartition]], None] | None = None,
    ) -> None:
        if assigned_id is not None and settings.acks != -1:
            raise ValueError(f"An assigned producer id requires acks=-1 (all), got acks={settings.acks}.")
        self._cluster = cluster
        self._settings = settings
        self._delivery_timeout = settings.delivery_timeout_ms / 1000
        self._system = cluster.pool.system
        self._pid = os.getpid()
        transactional_id = None if assigned_id is None else assigned_id.transactional_id
        self._operation = WRITING if transactional_id is None else f"{WRITING} in a transaction of {transactional_id!r}"
        self._add_partitions_to_transaction = add_partitions_to_transaction
        self._producer_ids = ProducerIdManager(cluster, settings, assigned_id)
        self._leader_lookup = LeaderLookup(cluster)
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        # Dicts without values are ordered sets.
        self._incomplete_partitions: dict[PartitionQueue, None] = {}  # with unacknowledged batches
        self._began_at = self._system.monotonic()  # when `_run_once` was last called
        self._backing_off_partitions: dict[PartitionQueue, None] = {}  # since an error, until an acknowledgement
        self._partitions_without_leader: dict[PartitionQueue, None] = {}
        self._channels: dict[Node, BrokerChannel] = {}
        self._added_partitions: set[TopicPartition] = set()
        self._rejected_sizes: dict[str, int] = {}  # by topic: the smallest batch that was rejected as too large
        self._buffered_bytes = 0
        self._deferred_bytes = 0  # of small batches that wait to share a request
        self.written_ranges: dict[TopicPartition, WrittenRange] = {}  # acknowledged since the last flush
        self._failure: KafkaDirectError | None = None
        self._closed = False

    @property
    def unacknowledged_bytes(self) -> int:
        """The size of the queued and in-flight record batches."""
        return self._buffered_bytes

    def queued_batches(self, partition: TopicPartition) -> int:
        """Return the number of record batches of a partition waiting to be sent."""
        queue = self._partitions.get(partition)
        return 0 if queue is None else queue.queued_batches

    @property
    def expires_at(self) -> float:
        """The monotonic time at which the first unacknowledged batch expires; one in flight may be written already."""
        default = self._system.monotonic() + self._delivery_timeout
        return min((self._batch_expires_at(queue.oldest) for queue in self._incomplete_partitions), default=default)

    @property
    def has_queued_batches(self) -> bool:
        """Whether any record batch is waiting to be sent."""
        has_ready_partitions = any(channel.ready_partitions for channel in self._channels.values())
        return has_ready_partitions or bool(self._partitions_without_leader)

    def descriptors(self) -> list[int]:
        """Return the sockets to wait for: if one is readable, ``poll(0)`` has a response to handle."""
        return [channel.descriptor for channel in self._channels.values() if not channel.idle]

    def enqueue(
        self,
        topic: str,
        batch: EncodedBatch,
        callback: DeliveryCallback,  # may not call the producer
        created_at: float,  # start of delivery.timeout.ms, by the monotonic clock
    ) -> None:
        """Queue a record batch, which is modified; ``poll`` sends it. The caller limits the memory."""
        with self._fail_on_error():
            topic_partition = TopicPartition(topic, batch.partition)
            self._enqueue_batch(topic_partition, batch.records, batch.data, callback=callback, created_at=created_at)

    def send(
        self,
        topic: str,
        batch: EncodedBatch,
        callback: DeliveryCallback | None = None,  # may not call the producer
        *,
        created_at: float | None = None,  # start of delivery.timeout.ms, by the monotonic clock
        more_follows: bool = False,  # more batches, or a flush: small batches wait for them, to share a request
    ) -> None:
        """Send a record batch, which is modified; wait only while unacknowledged batches exceed ``buffer.memory``."""
        with self._fail_on_error():
            size = len(batch.data)
            topic_partition = TopicPartition(topic, batch.partition)
            self._enqueue_batch(topic_partition, batch.records, batch.data, callback=callback, created_at=created_at)
            if more_follows and self._defer_small_batch(batch):
                return
            self._run_once()
            while self._buffered_bytes > max(self._settings.buffer_bytes, size):  # a larger batch may be alone
                self._wait()
                self._run_once()

    def poll(self, seconds: float, wakeup_fds: Collection[int] = ()) -> None:
        """Wait for responses, due retries or the given descriptors, at most some seconds, and handle them."""
        with self._fail_on_error():
            if seconds > 0:
                self._wait(seconds, wakeup_fds)
            self._run_once()

    def flush(self) -> dict[TopicPartition, WrittenRange]:
        """Wait until all batches are acknowledged; return the ranges written since the last flush."""
        with self._fail_on_error():
            self._run_once()
            while self._incomplete_partitions:
                self._wait()
                self._run_once()
        written, self.written_ranges = self.written_ranges, {}
        return written

    def begin_transaction(self, assigned_id: AssignedProducerId | None = None) -> None:
        """Start another transaction after ``flush``; with another id, sequence numbers restart at 0."""
        assert not self._incomplete_partitions, "flush first"
        self._added_partitions.clear()
        if assigned_id is not None:
            self._producer_ids = ProducerIdManager(self._cluster, self._settings, assigned_id)
            self._partitions.clear()

    def close(self) -> None:
        """Release the connections and the producer id, without waiting."""
        self._disconnect()
        if self._pid == os.getpid():
            self._producer_ids.release()

    def replacement(self, error: BaseException) -> BatchProducer:
        """Fail all batches, and return another producer, which fences the requests of this one that arrive late."""
        self._fail_all_batches(error)
        self._disconnect()
        replacement = BatchProducer(self._cluster, self._settings)
        replacement._producer_ids = self._producer_ids  # which know where the next epoch is needed
        return replacement

    @contextmanager
    def _fail_on_error(self) -> Iterator[None]:
        """After an error, fail all batches and send nothing more."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise RuntimeError("The producer is closed; create another one.")
        if self._pid != os.getpid():
            # Both processes would use the same sequence numbers, and brokers would drop records as duplicates.
            raise RuntimeError("The producer belongs to the parent process; create another one after the fork.")
        try:
            yield
        except BaseException as error:
            self._fail_all_batches(error)
            raise

    def _fail_all_batches(self, error: BaseException) -> None:
        """Fail all batches, unless the producer has failed or is closed."""
        if self._closed:
            return
        # Later calls raise it again. After others, such as KeyboardInterrupt, they report that the producer is closed.
        self._failure = error if isinstance(error, KafkaDirectError) else None
        self._closed = True
        for partition in self._incomplete_partitions:
            for batch in partition.abort_batches():
                if batch.callback is not None:
                    failure = with_outcome(error, outcome_unknown=batch.outcome_unknown)
                    batch.callback.on_failed(batch.first_index, batch.record_count, failure)

    def _disconnect(self) -> None:
        """Close the connections, and save the sequence numbers for the next producer."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._producer_ids.save_sequences(self._partitions.values())
        self._closed = True

    def _defer_small_batch(self, batch: EncodedBatch) -> bool:
        """Let a queued batch wait for later ones if it is small, to share a request; return whether it does."""
        self._deferred_bytes += len(batch.data)
        # Encoders return a batch when it is nearly full, or when they are flushed. A batch that is not half full was
        # flushed, unless its records are very large, so others follow at once.
        is_small = batch.uncompressed_bytes < self._settings.batch_bytes // 2
        buffer_has_room = self._buffered_bytes <= self._settings.buffer_bytes
        fills_request = self._deferred_bytes >= self._settings.max_request_bytes
        if is_small and buffer_has_room and not fills_request:
            return True
        self._deferred_bytes = 0
        return False

    def _enqueue_batch(
        self,
        topic_partition: TopicPartition,
        record_count: int,
        data: WritableBytes,
        *,
        callback: DeliveryCallback | None,
        created_at: float | None,
        first_index: int = 0,
    ) -> None:
        """Queue a batch, or its halves if the topic has rejected one of this size; the halves may be split again."""
        rejected_size = self._rejected_sizes.get(topic_partition.topic)
        if rejected_size is not None and len(data) >= rejected_size and record_count > 1:
            first_count = (record_count + 1) // 2  # as in ``split_batch``
            first_half, second_half = split_batch(data)
            for count, half, index in (
                (first_count, first_half, first_index),
                (record_count - first_count, second_half, first_index + first_count),
            ):
                self._enqueue_batch(
                    topic_partition, count, half, first_index=index, callback=callback, created_at=created_at
                )
            return
        partition = self._partitions.get(topic_partition)
        if partition is None:
            idempotent = self._producer_ids.idempotent
            max_in_flight = min(self._settings.max_in_flight, _MAX_IN_FLIGHT) if idempotent else 1
            partition = PartitionQueue(topic_partition, max_in_flight, idempotent=idempotent)
            self._partitions[topic_partition] = partition
        partition.add(record_count, data, first_index, callback, created_at)
        self._buffered_bytes += len(data)
        self._incomplete_partitions[partition] = None
        self._enqueue_partition(partition)

    def _enqueue_partition(self, partition: PartitionQueue) -> None:
        """Register a partition with queued batches at its leader's channel, or for a leader lookup if none is known."""
        if partition.head is None:
            return
        if partition.leader is None:
            self._partitions_without_leader[partition] = None
            return
        channel = self._channels.get(partition.leader)
        if channel is None:
            self._close_unused_channels()
            channel = self._channels[partition.leader] = BrokerChannel(
                self._cluster,
                partition.leader,
                self._settings,
                self._producer_ids.transactional_id,
                adds_partitions=self._add_partitions_to_transaction is None,
            )
        channel.ready_partitions[partition] = None

    def _close_unused_channels(self) -> None:
        """Close channels of former brokers, of which a producer may see many over the years."""
        brokers = set(self._cluster.nodes.values())
        for node, channel in list(self._channels.items()):
            if node not in brokers and channel.idle and not channel.ready_partitions:
                self._channels.pop(node).close()

    def _run_once(self) -> None:
        """Handle responses, find leaders, send batches and check deadlines, without waiting for responses."""
        self._began_at = self._system.monotonic()
        for channel in list(self._channels.values()):
            while channel.has_response or channel.timed_out:
                self._handle_response(channel)
        self._find_leaders()
        for channel in list(self._channels.values()):
            while channel.can_send and (batches := self._drain(channel)):
                self._send(channel, batches)
        now = self._system.monotonic()
        for partition in self._delayed_partitions():
            self._fail_expired(partition, now)

    def _wait(self, seconds: float | None = None, wakeup_fds: Collection[int] = ()) -> None:
        """Wait for a response, a due retry or timeout, a readable descriptor, or the end of the given time."""
        active_channels = [channel for channel in self._channels.values() if not channel.idle]
        if any(channel.has_response for channel in active_channels):
            return
        now = self._system.monotonic()
        wake_times = [channel.response_due for channel in active_channels]
        # `_run_once` may have missed the end of pauses that ended after it began: for these, do not wait.
        wake_times += [
            channel.throttled_until
            for channel in self._channels.values()
            if channel.ready_partitions and channel.throttled_until > self._began_at
        ]
        for partition in self._delayed_partitions():
            if partition.next_attempt_at > self._began_at:
                wake_times.append(partition.next_attempt_at)
            if partition.nothing_in_flight:  # else its head does not expire yet
                wake_times.append(self._batch_expires_at(partition.head))
        if seconds is not None:
            wake_times.append(now + seconds)
        until = min(wake_times, default=now)
        descriptors = [*(channel.descriptor for channel in active_channels), *wakeup_fds]
        self._system.wait_readable(descriptors, max(until - now, 0.0))

    def _find_leaders(self) -> None:
        now = self._system.monotonic()
        due = [partition for partition in self._partitions_without_leader if partition.next_attempt_at <= now]
        if not due:
            return
        for partition, leader_or_error, waiting_is_useless in self._leader_lookup.find(due, self._deadline()):
            if not isinstance(leader_or_error, KafkaDirectError):
                partition.leader = leader_or_error
                del self._partitions_without_leader[partition]
                self._enqueue_partition(partition)
            elif waiting_is_useless:
                self._fail_partition(partition, leader_or_error)
            else:
                self._back_off(partition, leader_or_error)  # it stays without a leader, and is due again after a pause

    def _drain(self, channel: BrokerChannel) -> RequestBatches:
        """Return the batches of the next request: at most one per partition, up to ``max.request.size``."""
        now = self._system.monotonic()
        batches: RequestBatches = {}
        size = 0
        for partition in list(channel.ready_partitions):
            self._fail_expired(partition, now)
            if not partition.may_send(now) or partition.head is None:
                continue  # it stays ready
            size += len(partition.head.data)
            if batches and size > self._settings.max_request_bytes:
                break
            if partition.needs_producer_id and not self._set_producer_id(partition):
                break
            batch = batches[partition] = partition.send(now)
            if partition.partition_sequence is not None and not batch.has_producer_state:
                producer_id, epoch = partition.partition_sequence.producer
                transactional = self._producer_ids.transactional_id is not None
                set_producer_state(batch.data, producer_id, epoch, batch.sequence, transactional=transactional)
                batch.has_producer_state = True
            del channel.ready_partitions[partition]
            self._enqueue_partition(partition)  # behind the others, if it has another batch
        return batches

    def _set_producer_id(self, partition: PartitionQueue) -> bool:
        """Set the producer id or next epoch of a partition; after a transient error, back off and return False."""
        previous = partition.partition_sequence
        try:
            sequence = self._producer_ids.sequence_for(partition.topic_partition, previous, self._deadline())
        except TransientBrokerError as error:
            # All partitions that need an id wait, so that a request that fails is not repeated for each.
            for waiting in chain.from_iterable(each.ready_partitions for each in self._channels.values()):
                if waiting.needs_producer_id:
                    self._back_off(waiting, error)
            return False
        partition.reset_producer_id(sequence)
        return True

    def _send(self, channel: BrokerChannel, batches: RequestBatches) -> None:
        if self._add_partitions_to_transaction is not None:
            new_partitions = [
                queue.topic_partition for queue in batches if queue.topic_partition not in self._added_partitions
            ]
            if new_partitions:
                self._add_partitions_to_transaction(new_partitions)
                self._added_partitions.update(new_partitions)
        try:
            channel.connect(self._deadline(batches.values()))
        except TransientBrokerError as error:
            self._handle_disconnect(channel, error, channel.disconnect(), unsent=batches)
            return
        try:
            channel.send(batches, min(map(self._batch_expires_at, batches.values())))
        except TransientBrokerError as error:
            # The broker may have received the whole request.
            self._handle_disconnect(channel, error, [*channel.disconnect(), *batches.items()])
            return
        if self._settings.acks == 0:
            for partition, batch in batches.items():
                self._acknowledge(partition, batch, NO_OFFSET)

    def _handle_response(self, channel: BrokerChannel) -> None:
        try:
            responses = channel.receive()
        except TransientBrokerError as error:
            self._handle_disconnect(channel, error, channel.disconnect())
            return
        for partition, batch, response in responses:
            self._complete_batch(channel, partition, batch, response)

    def _complete_batch(
        self,
        channel: BrokerChannel,
        partition: PartitionQueue,
        batch: ProducerBatch,
        response: PartitionProduceResponse,
    ) -> None:
        """Acknowledge, fail or retry a batch according to the broker's response."""
        is_oldest = partition.is_oldest(batch)
        decision = decide_for_error_code(
            response.error_code,
            record_count=batch.record_count,
            is_oldest=is_oldest,
            idempotent=self._producer_ids.idempotent,
            can_change_epoch=self._producer_ids.can_change_epoch,
            copy_may_exist=bool(response.error_code) and partition.copy_may_exist(batch),  # it matters after an error
        )
        if decision is BatchDecision.COMPLETE:
            self._acknowledge(partition, batch, response.base_offset, batch.append_time(response.log_append_time_ms))
            return
        batch.outcome_unknown |= may_have_been_written(response.error_code)
        error = error_for_response(
            response,
            partition.topic_partition,
            broker=str(channel.node),
            record_count=batch.record_count,
            data=batch.data,
            operation=self._operation,
        )
        # Batches with a callback fail in order: until it is the oldest, such a batch is sent again.
        if decision is BatchDecision.FAIL and (is_oldest or batch.callback is None):
            self._fail_batch(partition, batch, error)
        elif decision is BatchDecision.SPLIT:
            self._split_batch(partition, batch)  # and send the halves without a pause
        else:
            partition.reenqueue(batch)
            if decision is BatchDecision.RETRY_WITH_NEXT_EPOCH:
                partition.needs_producer_id = True
            if decision is BatchDecision.RETRY_WITH_NEW_LEADER:
                self._forget_leader(partition, channel.node, self._cluster.nodes.get(response.leader))
            if is_oldest:  # later batches may have failed only because of an earlier one
                is_transactional = self._producer_ids.transactional_id is not None
                is_short = is_transactional and response.error_code in SHORT_BACKOFF_ERRORS
                self._back_off(partition, error, is_short=is_short)
        self._enqueue_partition(partition)

    def _split_batch(self, partition: PartitionQueue, batch: ProducerBatch) -> None:
        """Queue the halves of a batch that is too large, and let later batches of its size be split before sending."""
        topic, size = partition.topic_partition.topic, len(batch.data)
        self._rejected_sizes[topic] = min(size, self._rejected_sizes.get(topic, size))
        halves = split_batch(batch.data)
        self._buffered_bytes += len(halves[0]) + len(halves[1]) - size
        partition.split_and_reenqueue(batch, halves)

    def _fail_batch(self, partition: PartitionQueue, batch: ProducerBatch, error: KafkaDirectError) -> None:
        """Fail one batch through its callback; without a callback, raise the error, which fails all batches."""
        if batch.callback is None:
            raise error
        partition.drop(batch)
        self._buffered_bytes -= len(batch.data)
        if partition.is_complete:
            del self._incomplete_partitions[partition]  # but it keeps backing off, so that later batches wait too
        batch.callback.on_failed(
            batch.first_index, batch.record_count, with_outcome(error, outcome_unknown=batch.outcome_unknown)
        )

    def _fail_partition(self, partition: PartitionQueue, error: KafkaDirectError) -> None:
        """Fail the queued batches of a partition that has no leader, and never will."""
        while partition.head is not None:
            self._fail_batch(partition, partition.head, error)
        self._partitions_without_leader.pop(partition, None)

    def _acknowledge(
        self, partition: PartitionQueue, batch: ProducerBatch, offset: int, append_time: int = NO_TIMESTAMP
    ) -> None:
        partition.on_acknowledged(batch)
        self._buffered_bytes -= len(batch.data)
        if batch.callback is not None:
            batch.callback.on_acknowledged(batch.first_index, batch.record_count, offset, append_time)
        if partition.last_error is None:  # else an older batch failed, and the partition keeps backing off
            self._backing_off_partitions.pop(partition, None)
        if partition.is_complete:
            del self._incomplete_partitions[partition]
        next_offset = NO_OFFSET if offset == NO_OFFSET else offset + batch.record_count
        written_range = WrittenRange(offset, next_offset, batch.record_count, len(batch.data))
        previous_range = self.written_ranges.get(partition.topic_partition)
        self.written_ranges[partition.topic_partition] = (
            written_range if previous_range is None else previous_range.including(written_range)
        )

    def _handle_disconnect(
        self,
        channel: BrokerChannel,
        error: KafkaDirectError,
        lost_batches: list[tuple[PartitionQueue, ProducerBatch]],
        unsent: RequestBatches | None = None,
    ) -> None:
        """Queue again the batches whose responses are lost, and the unsent ones, and find the leaders again."""
        unsent = unsent or {}
        for _, batch in lost_batches:
            batch.outcome_unknown = True
        for partition, batch in [*lost_batches, *unsent.items()]:
            partition.reenqueue(batch)
        lost_partitions = dict.fromkeys(partition for partition, _ in lost_batches)
        for partition in {**channel.ready_partitions, **lost_partitions, **unsent}:
            self._forget_leader(partition, channel.node)
            self._back_off(partition, error)
            self._enqueue_partition(partition)

    def _forget_leader(self, partition: PartitionQueue, node: Node, new_leader: Node | None = None) -> None:
        """Replace the leader of a partition if it is this node; without a new leader, the metadata is refreshed."""
        if partition.leader == node:
            if node in self._channels:
                self._channels[node].ready_partitions.pop(partition, None)
            partition.leader = new_leader

    def _back_off(self, partition: PartitionQueue, error: KafkaDirectError, *, is_short: bool = False) -> None:
        backoff = Backoff.of(self._cluster.settings)
        if is_short:
            backoff = backoff._replace(initial=_SHORT_BACKOFF)
        partition.back_off(error, self._system.monotonic(), backoff.pause(partition.attempts, self._system))
        self._backing_off_partitions[partition] = None

    def _fail_expired(self, partition: PartitionQueue, now: float) -> None:
        """Fail the queued batches that have expired, unless one in flight may still be acknowledged before them."""
        while (head := partition.head) is not None and partition.nothing_in_flight:
            if self._batch_expires_at(head) > now:
                return
            cause = partition.last_error
            reason = self._delay_reason(partition, now) if cause is None else f"The last error: {cause.message}"
            topic, partition_id = partition.topic_partition
            # For a callback, `with_outcome` adds what is known of these records.
            outcome = "; some may have been written" if head.callback is None else ""
            error = BrokerTimeoutError(
                f"Records were not acknowledged within {self._delivery_timeout:g} s ({_DELIVERY_TIMEOUT}){outcome}. "
                f"{reason}",
                topic=topic,
                partition=partition_id,
                broker=str(partition.leader) if cause is None else cause.broker,
            )
            error.__cause__ = cause
            self._fail_batch(partition, head, error)

    def _delay_reason(self, partition: PartitionQueue, now: float) -> str:
        channel = None if partition.leader is None else self._channels.get(partition.leader)
        return _THROTTLED if channel is not None and channel.throttled_until > now else _BUSY

    def _delayed_partitions(self) -> list[PartitionQueue]:
        """Return the partitions that cannot send now, because they back off or their connection is in use."""
        waiting = [channel.ready_partitions for channel in self._channels.values() if not channel.can_send]
        return list(dict.fromkeys(chain(self._backing_off_partitions, *waiting)))

    def _batch_expires_at(self, batch: ProducerBatch | None) -> float:
        """Return when a batch expires; before it was tried, or without a batch, the whole timeout is left."""
        started_at = None if batch is None else batch.delivery_started_at
        return (self._system.monotonic() if started_at is None else started_at) + self._delivery_timeout

    def _deadline(self, batches: Iterable[ProducerBatch] = ()) -> Deadline:
        """Return when a step that blocks has to end, because unacknowledged batches and these ones expire."""
        until = min([self.expires_at, *map(self._batch_expires_at, batches)])
        return Deadline(max(until, self._system.monotonic() + MIN_STEP_SECONDS), _DELIVERY_TIMEOUT, self._system)
