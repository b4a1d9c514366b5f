"""Bugs of producers and of the exactly-once sink."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import Patch, PlantedBug, does_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

_SINK: Final = "exactly_once"
_PRODUCERS: Final = "producers"


def _sequences_continue() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def begin(original: Any) -> Any:
        def begin_transaction(self: Any, assigned_id: Any = None) -> None:
            partitions = dict(self._partitions)
            original(self, assigned_id)
            if assigned_id is not None:
                producer = (assigned_id.producer_id, assigned_id.epoch)
                for queue in partitions.values():
                    state = queue.partition_sequence
                    queue.partition_sequence = state._replace(producer=type(state.producer)(*producer))
                self._partitions.update(partitions)

        return begin_transaction

    return [Patch(BatchProducer, "begin_transaction", begin)]


def _new_sequence_for_retries() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def reenqueue(original: Any) -> Any:
        def changed(self: Any, batch: Any) -> None:
            original(self, batch)
            if not self._in_flight:
                batch.sequence, batch.has_producer_state = -1, False

        return changed

    return [Patch(PartitionQueue, "reenqueue", reenqueue)]


def _next_epoch_for_retries() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def handle(original: Any) -> Any:
        def changed(self: Any, channel: Any, error: Any, lost: Any, unsent: Any = None) -> None:
            original(self, channel, error, lost, unsent)
            for partition, _ in lost:
                partition.needs_producer_id = not partition._in_flight and self._producer_ids.can_change_epoch

        return changed

    return [Patch(BatchProducer, "_handle_disconnect", handle)]


def _unconfirmed_commit() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
    from pyspark_kafka_direct.errors import TransientBrokerError

    def end_transaction(original: Any) -> Any:
        def changed(self: Any, producer: Any, *, transaction_v2: bool, **others: Any) -> Any:
            coordinator = self._coordinator

            def call(request: Any, *arguments: Any) -> Any:
                def believed(connection: Any, limit: Any) -> Any:
                    try:
                        return request(connection, limit)
                    except TransientBrokerError:
                        return producer._replace(epoch=producer.epoch + transaction_v2)

                return coordinator.call(believed, *arguments)

            self._coordinator = SimpleNamespace(call=call)
            try:
                return original(self, producer, transaction_v2=transaction_v2, **others)
            finally:
                self._coordinator = coordinator

        return changed

    return [Patch(TransactionCoordinatorClient, "end_transaction", end_transaction)]


def _unknown_commit_counts_as_failed() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.transaction_coordinator import EndTxnTries
    from pyspark_kafka_direct.errors import BrokerError

    def error(_: Any) -> Any:
        return lambda _, operation, reason, broker, *, fenced=False: BrokerError(
            f"was aborted: {reason}", broker=broker
        )

    return [Patch(EndTxnTries, "outcome_unknown_error", error)]


def _no_fencing() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    producers: dict[Any, Any] = {}

    def init(original: Any) -> Any:
        def init_transactions(self: Any, deadline: Any = None) -> None:
            key = (self._cluster.pool.system.world, self.transactional_id)
            if key in producers:
                self.resume_transaction(producers[key], deadline, in_progress=False)
            else:
                original(self, deadline)
                producers.clear()
                producers[key] = self.producer_id_and_epoch

        return init_transactions

    return [Patch(TransactionalProducer, "init_transactions", init)]


def _fencing_forgotten() -> Sequence[Patch]:
    from pyspark_kafka_direct.errors import ProducerFencedError
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def commit(original: Any) -> Any:
        def changed(self: Any) -> Any:
            try:
                return original(self)
            except ProducerFencedError:
                return {}

        return changed

    return [Patch(TransactionalProducer, "commit", commit)]


def _state_outside_the_transaction() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer import exactly_once
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def send_and_commit(_: Any) -> Any:
        def changed(self: Any, transaction: Any, batches: Any, stored: Any) -> Any:
            for topic, batch in batches:
                transaction.send(topic, batch, more_follows=True)
            written = transaction.commit()
            producer = BatchProducer(self._cluster, self._settings)
            producer.send(self._store.topic, self._store.encode(self._transactional_id, self._new_value()))
            producer.flush()
            producer.close()
            return exactly_once.CommitResult(True, written)

        return changed

    return [Patch(exactly_once._BatchCommitter, "_send_and_commit", send_and_commit)]


def _state_before_fencing() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer import exactly_once
    from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

    def run(original: Any) -> Any:
        def changed(self: Any, batches: Any) -> Any:
            stored = self._store.read(self._transactional_id)
            self._store.read_decided = lambda *_: stored
            return original(self, batches)

        return changed

    return [
        Patch(exactly_once._BatchCommitter, "run", run),
        Patch(SinkStateStore, "check_newest", lambda _: lambda *_: None),
    ]


def _state_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.commit_decision import CommitBatch, SkipBatch
    from pyspark_kafka_direct.producer import exactly_once

    def decide(original: Any) -> Any:
        def changed(state: Any, attempt: Any, token: Any = None) -> Any:
            repeated = state is not None and state.query == attempt.query and state.batch == attempt.batch
            decision = original(state, attempt, token)
            return CommitBatch() if repeated and isinstance(decision, SkipBatch) else decision

        return changed

    return [Patch(exactly_once, "decide_commit", decide)]


def _next_batch_is_skipped() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.commit_decision import SkipBatch
    from pyspark_kafka_direct.producer import exactly_once

    def decide(original: Any) -> Any:
        def changed(state: Any, attempt: Any, token: Any = None) -> Any:
            if state is not None and state.batch < attempt.batch and state.run != attempt.run:
                return SkipBatch()  # "a new run starts with the batch that the last run has sent"
            return original(state, attempt, token)

        return changed

    return [Patch(exactly_once, "decide_commit", decide)]


def _no_abort_before_a_rerun() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def abort(_: Any) -> Any:
        def changed(self: Any, deadline: Any = None) -> None:
            self._drop_producer()
            self._in_transaction = False

        return changed

    return [Patch(TransactionalProducer, "abort", abort)]


def _partitions_not_added() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def add(original: Any) -> Any:
        def changed(self: Any, partitions: Any) -> None:
            original(self, list(partitions)[:1])  # "the others follow with the first write"

        return changed

    return [Patch(TransactionalProducer, "_add_partitions", add)]


def _acknowledged_when_sent() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def send(original: Any) -> Any:
        def changed(self: Any, channel: Any, batches: Any) -> None:
            original(self, channel, batches)
            for partition, batch in list(batches.items()):
                if batch.callback is not None and batch in partition._in_flight:
                    batch.callback.on_acknowledged(batch.first_index, batch.record_count, -1, -1)

        return changed

    return [Patch(BatchProducer, "_send", send)]


def _commit_before_the_flush() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def flush(original: Any) -> Any:
        def changed(self: Any) -> Any:
            if self._producer is not None:
                self._producer.poll(0.0)
            return {}

        return changed

    return [Patch(TransactionalProducer, "flush", flush)]


def _timeout_denies_the_write() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer import batch_producer

    return [Patch(batch_producer, "may_have_been_written", lambda _: lambda code: False)]


def _retries_are_not_ordered() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def insert(_: Any) -> Any:
        def changed(self: Any, batch: Any) -> None:
            self._queued.append(batch)
            batch.sequence, batch.has_producer_state = -1, False

        return changed

    return [Patch(PartitionQueue, "_insert_in_order", insert)]


def _future_completed_twice() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def fail(original: Any) -> Any:
        def changed(self: Any, partition: Any, batch: Any, error: Any) -> None:
            original(self, partition, batch, error)
            partition.add(batch.record_count, batch.data, batch.first_index, None, batch.delivery_started_at)
            self._incomplete_partitions[partition] = None
            self._enqueue_partition(partition)  # "one more try, nobody waits for it"

        return changed

    return [Patch(BatchProducer, "_fail_batch", fail)]


def _tasks_counted_twice() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.staging import StagedBatches

    def iterate(original: Any) -> Any:
        def changed(self: Any) -> Any:
            batches = list(original(self))
            self._reads = getattr(self, "_reads", 0) + 1
            return iter(batches if self._reads == 1 else batches[1:])  # "the first one was sent by the first try"

        return changed

    return [Patch(StagedBatches, "__iter__", iterate)]


def _old_runs_fence_open_transactions() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.commit_decision import SinkState
    from pyspark_kafka_direct.producer import exactly_once

    def check(original: Any) -> Any:
        def changed(self: Any, stored: Any) -> None:
            undecided = stored.undecided
            if undecided is None or SinkState.from_json(undecided.value).query != self._attempt.query:
                original(self, stored)

        return changed

    return [Patch(exactly_once._BatchCommitter, "_check_before_fencing", check)]


def _rejections_are_certain() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import transaction_coordinator

    tries = transaction_coordinator.EndTxnTries

    def after(original: Any) -> Any:
        def changed(self: Any, code: int) -> Any:
            if code in transaction_coordinator._NOT_APPLIED_ERRORS:
                return tries(None, self.unanswered)
            return original(self, code)

        return changed

    return [Patch(tries, "after_response", after)]


def _abort_replaces_the_error() -> Sequence[Patch]:
    from contextlib import nullcontext

    from pyspark_kafka_direct.producer import exactly_once

    return [Patch(exactly_once, "contextlib", lambda _: SimpleNamespace(suppress=lambda *_: nullcontext()))]


def _warned_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.exactly_once import _TransactionTimer

    def check(original: Any) -> Any:
        def changed(self: Any) -> None:
            original(self)
            self._has_warned = False

        return changed

    return [Patch(_TransactionTimer, "check", check)]


def _no_pause_after_fencing() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer import exactly_once

    return [Patch(exactly_once, "_MIN_FENCED_PAUSE", lambda _: 0.0)]


def _jobs_share_an_id() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.exactly_once import ExactlyOnceOptions

    return [Patch(ExactlyOnceOptions, "transactional_id", lambda _: lambda self, _: self.query_transactional_id)]


def _unnamed_jobs_leave_states() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.exactly_once import _BatchCommitter

    return [Patch(_BatchCommitter, "_new_value", lambda _: lambda self: self._attempt.state().to_json().encode())]


def _files_remain() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.staging import StagedBatches

    return [Patch(StagedBatches, "delete", does_nothing)]


def _any_policy() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition

    return [Patch(CompactedPartition, "_check_policy", does_nothing)]


def _second_writes_are_skipped() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning import commit_decision

    def decide(original: Any) -> Any:
        def changed(state: Any, attempt: Any, token: str) -> Any:
            return commit_decision.SkipBatch() if state.digest == attempt.digest else original(state, attempt, token)

        return changed

    return [Patch(commit_decision, "_decide_replay", decide)]


BUGS: Final = (
    PlantedBug(
        "sequences-continue-after-an-epoch",
        _PRODUCERS,
        "Sequence numbers are not reset after the epoch was incremented.",
        _sequences_continue,
    ),
    PlantedBug(
        "new-sequence-for-retries",
        _PRODUCERS,
        "A batch that is sent again gets a new sequence number, so it is no duplicate for the broker.",
        _new_sequence_for_retries,
    ),
    PlantedBug(
        "next-epoch-for-retries",
        _PRODUCERS,
        "A batch without a response is sent again in the next epoch.",
        _next_epoch_for_retries,
    ),
    PlantedBug(
        "unconfirmed-commit",
        _SINK,
        "EndTxn counts as successful although its response was lost.",
        _unconfirmed_commit,
    ),
    PlantedBug(
        "unknown-commit-counts-as-failed",
        _PRODUCERS,
        "A commit without a response is reported as aborted.",
        _unknown_commit_counts_as_failed,
    ),
    PlantedBug("no-fencing", _PRODUCERS, "A second producer continues with the epoch of the first one.", _no_fencing),
    PlantedBug("fencing-forgotten", _PRODUCERS, "The commit of a fenced producer succeeds.", _fencing_forgotten),
    PlantedBug(
        "state-outside-the-transaction",
        _SINK,
        "The sink state record is written after the transaction of its batch.",
        _state_outside_the_transaction,
    ),
    PlantedBug(
        "state-before-fencing",
        _SINK,
        "The sink state is read before earlier writers are fenced, and its offset is not checked.",
        _state_before_fencing,
    ),
    PlantedBug("state-ignored", _SINK, "A batch that was sent before is sent again.", _state_ignored),
    PlantedBug("next-batch-skipped", _SINK, "A new run skips the first batch it has to send.", _next_batch_is_skipped),
    PlantedBug(
        "no-abort-before-a-rerun",
        _PRODUCERS,
        "A transaction is not aborted, so the next one continues it.",
        _no_abort_before_a_rerun,
    ),
    PlantedBug(
        "partitions-not-added",
        _SINK,
        "Below transaction.version 2 only the first partition is added to a transaction.",
        _partitions_not_added,
    ),
    PlantedBug(
        "acknowledged-when-sent", _PRODUCERS, "Records are acknowledged before the response.", _acknowledged_when_sent
    ),
    PlantedBug(
        "commit-before-the-flush", _PRODUCERS, "EndTxn does not wait for batches in flight.", _commit_before_the_flush
    ),
    PlantedBug(
        "timeout-denies-the-write",
        _PRODUCERS,
        "An error states that records were not written, although they may have been.",
        _timeout_denies_the_write,
        was_real=True,
    ),
    PlantedBug(
        "retries-are-not-ordered", _PRODUCERS, "A batch is sent again after newer batches.", _retries_are_not_ordered
    ),
    PlantedBug(
        "sent-after-its-failure",
        _PRODUCERS,
        "A batch is sent once more after it was reported as failed.",
        _future_completed_twice,
    ),
    PlantedBug(
        "old-run-fences",
        _SINK,
        "An old run fences a newer one whose transaction is open.",
        _old_runs_fence_open_transactions,
    ),
    PlantedBug(
        "rejection-is-certain",
        _SINK,
        "A commit without a response, whose retry is rejected, fails for certain.",
        _rejections_are_certain,
    ),
    PlantedBug(
        "staged-batches-read-once",
        _SINK,
        "The second try of a commit lacks the first staged batch.",
        _tasks_counted_twice,
    ),
    PlantedBug(
        "failed-abort-replaces-the-error",
        _SINK,
        "If a failed transaction cannot be aborted, this error replaces the one that explains the failure.",
        _abort_replaces_the_error,
    ),
    PlantedBug(
        "warned-for-each-record-batch",
        _SINK,
        "After half of the timeout, each record batch logs the warning of a slow transaction again.",
        _warned_again,
    ),
    PlantedBug(
        "no-pause-after-fencing",
        _SINK,
        "A fenced writer takes the transactional id back at once.",
        _no_pause_after_fencing,
    ),
    PlantedBug(
        "jobs-share-an-id", _SINK, "Batch jobs with the same prefix have one transactional id.", _jobs_share_an_id
    ),
    PlantedBug(
        "unnamed-jobs-leave-states",
        _SINK,
        "A job without a name leaves a record in the sink state topic.",
        _unnamed_jobs_leave_states,
    ),
    PlantedBug("staged-files-remain", _SINK, "The staged files of committed batches are not deleted.", _files_remain),
    PlantedBug("any-cleanup-policy", _SINK, "A sink state topic that deletes old records is accepted.", _any_policy),
    PlantedBug(
        "second-write-skipped",
        _SINK,
        "A second write of a batch in foreachBatch is skipped without an error.",
        _second_writes_are_skipped,
    ),
)
