"""Bugs of writers, logs and connections that someone planted who had not read the tests, and that no scenario found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch, does_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = "strangers: "


def _pool_keeps_late_connections() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool

    def close(_: Any) -> Any:
        return lambda self: self.clear()

    return [Patch(ConnectionPool, "close", close)]


def _leader_of_the_first_partition() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def leaders(original: Any) -> Any:
        def leaders_of(self: Any, partitions: Any, deadline: Any, **named: Any) -> Any:
            found = original(self, partitions, deadline, **named)
            first = next(iter(found.values()), None)
            return {tp: leader and first and leader._replace(node=first.node) for tp, leader in found.items()}

        return leaders_of

    return [Patch(ClusterClient, "leaders", leaders)]


def _config_of_another_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import admin

    first: dict[Any, str] = {}

    def describe(original: Any) -> Any:
        def describe_configs(connection: Any, resource: Any, name: str, names: Any, limit: Any) -> Any:
            return original(connection, resource, first.setdefault(connection, name), names, limit)

        return describe_configs

    return [Patch(admin, "_describe_configs", describe)]


def _halves_share_a_sequence() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def split(original: Any) -> Any:
        def split_and_reenqueue(self: Any, batch: Any, halves: Any) -> None:
            original(self, batch, halves)
            for half in self._queued:
                if half.queue_position[:-1] == batch.queue_position:
                    half.sequence = batch.sequence

        return split_and_reenqueue

    return [Patch(PartitionQueue, "split_and_reenqueue", split)]


def _halves_start_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def split(original: Any) -> Any:
        def split_and_reenqueue(self: Any, batch: Any, halves: Any) -> None:
            batch.delivery_started_at = None
            original(self, batch, halves)

        return split_and_reenqueue

    return [Patch(PartitionQueue, "split_and_reenqueue", split)]


def _halves_count_as_unwritten() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def split(original: Any) -> Any:
        def split_and_reenqueue(self: Any, batch: Any, halves: Any) -> None:
            original(self, batch, halves)
            for half in self._queued:
                if half.queue_position[:-1] == batch.queue_position:
                    half.outcome_unknown = False

        return split_and_reenqueue

    return [Patch(PartitionQueue, "split_and_reenqueue", split)]


def _sequence_of_an_unacknowledged_batch_is_used_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.producer_id_manager import ProducerIdManager

    def save(original: Any) -> Any:
        def save_sequences(self: Any, partitions: Any) -> None:
            original(self, partitions)
            for each in partitions:
                if self._producer_state is not None and each.oldest is not None and each.oldest.sequence >= 0:
                    sequence = each.partition_sequence._replace(sequence=each.oldest.sequence)
                    self._producer_state.sequences[each.topic_partition] = sequence

        return save_sequences

    return [Patch(ProducerIdManager, "save_sequences", save)]


def _sequence_of_a_dropped_batch_is_used_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue
    from pyspark_kafka_direct.producer.producer_id_manager import ProducerIdManager

    dropped: dict[Any, int] = {}

    def drop(original: Any) -> Any:
        def drop_batch(self: Any, batch: Any) -> None:
            original(self, batch)
            if self.needs_producer_id and self.partition_sequence is not None and batch.sequence >= 0:
                dropped[self] = batch.sequence

        return drop_batch

    def save(original: Any) -> Any:
        def save_sequences(self: Any, partitions: Any) -> None:
            original(self, partitions)
            for each in partitions:
                if each in dropped and each.is_complete and each.needs_producer_id and self._producer_state is not None:
                    sequence = each.partition_sequence._replace(sequence=dropped[each])
                    self._producer_state.sequences[each.topic_partition] = sequence

        return save_sequences

    return [Patch(PartitionQueue, "drop", drop), Patch(ProducerIdManager, "save_sequences", save)]


def _rejected_try_forgets_the_applied_one() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.transaction_coordinator import EndTxnTries
    from pyspark_kafka_direct.protocol.error_codes import ErrorCode

    def after(original: Any) -> Any:
        def after_response(self: Any, code: int) -> Any:
            return (
                EndTxnTries(None, self.unanswered)
                if code == ErrorCode.CONCURRENT_TRANSACTIONS
                else original(self, code)
            )

        return after_response

    return [Patch(EndTxnTries, "after_response", after)]


def _definite_error_forgets_the_lost_response() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def complete(original: Any) -> Any:
        def _complete_batch(self: Any, channel: Any, partition: Any, batch: Any, response: Any) -> None:
            if response.error_code:
                batch.outcome_unknown = False
            original(self, channel, partition, batch, response)

        return _complete_batch

    return [Patch(BatchProducer, "_complete_batch", complete)]


def _next_epoch_does_not_add_partitions() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def begin(original: Any) -> Any:
        def begin_transaction(self: Any, assigned_id: Any = None) -> None:
            added = set(self._added_partitions)
            original(self, assigned_id)
            if assigned_id is not None:
                self._added_partitions |= added

        return begin_transaction

    return [Patch(BatchProducer, "begin_transaction", begin)]


def _content_of_the_last_batch_is_not_compared() -> Sequence[Patch]:
    from dataclasses import replace

    from pyspark_kafka_direct.planning import commit_decision

    def decide(original: Any) -> Any:
        return lambda state, attempt, token: original(replace(state, digest=attempt.digest), attempt, token)

    return [Patch(commit_decision, "_decide_replay", decide)]


def _later_epochs_are_not_waited_for() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_state import LogState
    from pyspark_kafka_direct.planning.data_loss import is_other_topic

    def may_lack(_: Any) -> Any:
        return lambda self, partition, topic_id, leader_epoch: is_other_topic(self.topic_id, topic_id)

    return [Patch(LogState, "may_lack", may_lack)]


def _truncations_are_reported_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    errors: dict[Any, Any] = {}

    def resume(original: Any) -> Any:
        def _resume_after_truncation(self: Any, error: Any, offset: int) -> None:
            original(self, error, offset)
            errors[self] = error

        return _resume_after_truncation

    def fetch(original: Any) -> Any:
        def _fetch_end_offsets(self: Any, *, needs_ends: bool) -> None:
            original(self, needs_ends=needs_ends)
            if needs_ends and self in errors:
                self.pending_reads.fail_active(errors.pop(self))

        return _fetch_end_offsets

    return [Patch(LogWorker, "_resume_after_truncation", resume), Patch(LogWorker, "_fetch_end_offsets", fetch)]


def _moves_back_are_not_reported() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_task import DataLossHandler, Losses

    def take(original: Any) -> Any:
        def take_losses(self: Any) -> Losses:
            losses: Losses = original(self)
            losses.reset_positions.clear()
            return losses

        return take_losses

    return [Patch(DataLossHandler, "take_losses", take)]


def _ids_of_recreated_topics_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.kafka_writer import ExactlyOnceKafkaWriter

    def end(original: Any) -> Any:
        def end_epoch(self: Any, epoch: int, positions: Any, recreated_topic_ids: Any = None) -> None:
            original(self, epoch, positions, {tp: self._topic_ids.get(tp) for tp in recreated_topic_ids or ()})

        return end_epoch

    return [Patch(ExactlyOnceKafkaWriter, "end_epoch", end)]


def _replaced_drivers_write() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.fencing_log import FencingLog

    return [Patch(FencingLog, "check_newest", does_nothing)]


def _keys_are_hashed_otherwise() -> Sequence[Patch]:
    import zlib

    from pyspark_kafka_direct.producer import accumulator

    return [Patch(accumulator, "partition_for_key", lambda _: lambda key, partitions: zlib.crc32(key) % partitions)]


def _flush_waits_for_the_first_record() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

    def flush(original: Any) -> Any:
        def flush_first(self: Any, seconds: float | None = None) -> None:
            sent, self._sent_count = self._sent_count, min(self._sent_count, self._completed_count + 1)
            try:
                original(self, seconds)
            finally:
                self._sent_count = max(sent, self._sent_count)

        return flush_first

    return [Patch(AsyncProducer, "flush", flush)]


def _commit_pauses() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def end(original: Any) -> Any:
        def _end_transaction(self: Any, **named: Any) -> None:
            original(self, **named)
            self._cluster.pool.system.sleep(10.0)

        return _end_transaction

    return [Patch(TransactionalProducer, "_end_transaction", end)]


_connections = BugsOf("connections", _PREFIX)
_producers = BugsOf("producers", _PREFIX)
_shared_log = BugsOf("shared_log", _PREFIX)
_continuous = BugsOf("continuous", _PREFIX)

BUGS: Final = (
    _connections(
        "closed pool",
        "A connection that is released after the pool was closed stays open.",
        _pool_keeps_late_connections,
    ),
    _connections("leaders", "All partitions have the leader of the first one.", _leader_of_the_first_partition),
    _connections(
        "other config", "The configuration is that of the first topic of the connection.", _config_of_another_topic
    ),
    _producers(
        "split sequence", "Both halves of a split batch have the same sequence number.", _halves_share_a_sequence
    ),
    _producers(
        "split timeout",
        "After a batch is split, delivery.timeout.ms of its halves starts again.",
        _halves_start_again,
    ),
    _producers(
        "split outcome",
        "The halves of a batch that may have been written count as not written.",
        _halves_count_as_unwritten,
    ),
    _producers(
        "close with unacknowledged batches",
        "A closed producer with unacknowledged batches leaves its sequence number to the next one.",
        _sequence_of_an_unacknowledged_batch_is_used_again,
    ),
    _producers(
        "dropped batch",
        "The next producer of a process uses the sequence numbers of a dropped batch again.",
        _sequence_of_a_dropped_batch_is_used_again,
    ),
    _producers(
        "rejected commit",
        "A commit that was applied, then rejected as concurrent, then failed raises a definite error.",
        _rejected_try_forgets_the_applied_one,
    ),
    _producers(
        "definite error",
        "A definite error after a lost response erases that the batch may have been written.",
        _definite_error_forgets_the_lost_response,
    ),
    _producers(
        "partitions of the next epoch",
        "Below transaction.version 2, partitions are not added to a transaction after the epoch was incremented.",
        _next_epoch_does_not_add_partitions,
    ),
    _producers("other hash", "Keys are hashed in another way than by Java's client.", _keys_are_hashed_otherwise),
    _producers("first flush", "flush waits for the first incomplete record only.", _flush_waits_for_the_first_record),
    _producers("pause", "The end of a transaction takes ten seconds more.", _commit_pauses),
    BugsOf("exactly_once", _PREFIX)(
        "other content",
        "A batch with the last id, but other content, is skipped.",
        _content_of_the_last_batch_is_not_compared,
    ),
    _shared_log(
        "wait_for of a later epoch",
        "wait_for returns for a record of a later leader epoch that was not read.",
        _later_epochs_are_not_waited_for,
    ),
    _shared_log(
        "truncation twice", "After a truncation a later read fails for it again.", _truncations_are_reported_again
    ),
    _continuous(
        "move back", "A position that moves back after a loss is not reported as such.", _moves_back_are_not_reported
    ),
    _continuous(
        "old topic id",
        "Offsets of a recreated topic are committed with the old topic id.",
        _ids_of_recreated_topics_are_ignored,
    ),
    _continuous("replaced driver", "A replaced driver still writes to the logs.", _replaced_drivers_write),
)
