"""Bugs of continuous queries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

_bug: Final = BugsOf("continuous")


def _late_transaction() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.kafka_writer import ExactlyOnceKafkaWriter

    return [Patch(ExactlyOnceKafkaWriter, "end_epoch", _ends_the_epoch_before)]


def _ends_the_epoch_before(original: Any) -> Any:
    def end_epoch(self: Any, *epoch: Any) -> None:
        earlier, self.earlier = getattr(self, "earlier", None), epoch
        if earlier is not None:
            original(self, *earlier)

    return end_epoch


def _unfenced_tasks() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.fencing_log import FencingLog

    def append(original: Any) -> Any:
        def changed(self: Any, cluster: Any = None, prefix: Any = None, tasks: int = 0) -> Any:
            entry = original(self, cluster, prefix, tasks)
            return entry if prefix is None else replace(entry, tasks=tasks)

        return changed

    return [Patch(FencingLog, "append", append)]


def _unfenced_producers() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery

    def init(original: Any) -> Any:
        def changed(self: Any, task: int) -> Any:
            self.own_ids = getattr(self, "own_ids", {})
            if task not in self.own_ids:
                self.own_ids[task] = original(self, task)
            return self.own_ids[task]

        return changed

    return [Patch(ExactlyOnceDelivery, "_init_producer_id", init)]


def _group_offsets_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery

    def offsets_ahead(_: Any) -> Any:
        return lambda self, state: {}

    return [Patch(ExactlyOnceDelivery, "offsets_ahead", offsets_ahead)]


def _offsets_before_fencing() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import sink_delivery

    def prepare(original: Any) -> Any:
        def changed(self: Any, query_id: str, partitions: Any, tasks: int) -> None:
            committed = sink_delivery._epoch_offsets(self._group.committed_with_metadata(require_stable=False))
            original(self, query_id, partitions, tasks)
            self._committed = committed

        return changed

    return [Patch(sink_delivery.ExactlyOnceDelivery, "prepare", prepare)]


def _no_offsets_in_transactions() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    def send_offsets(_: Any) -> Any:
        return lambda self, group, offsets: None

    return [Patch(TransactionalProducer, "send_offsets_to_transaction", send_offsets)]


def _unflushed_epoch() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriter

    def end_epoch(_: Any) -> Any:
        def changed(self: Any, epoch: int, positions: Any, recreated_topic_ids: Any = None) -> None:
            self._send_open_batches()
            self._output.begin_epoch(epoch + 1)

        return changed

    return [Patch(KafkaWriter, "end_epoch", end_epoch)]


def _report_before_flush() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_sink import _CustomSinkWriter

    return [Patch(_CustomSinkWriter, "end_epoch", _ends_the_epoch_before)]


def _commit_log_first() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs

    def commit(_: Any) -> Any:
        def changed(self: Any, epoch: int, offsets: Any, at_ms: int) -> None:
            self._write_commit(epoch)
            self._write_offsets(epoch, offsets, at_ms)

        return changed

    return [Patch(CheckpointLogs, "commit", commit)]


def _existing_files_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs

    def create(original: Any) -> Any:
        return lambda self, name, text, may_exist=False: original(self, name, text, may_exist=True)

    return [Patch(CheckpointLogs, "_create", create)]


def _offsets_of_unprocessed_batches() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_task import TaskLoop

    def end_epoch(original: Any) -> Any:
        def changed(self: Any, request: Any) -> None:
            self._positions.update(self._consumer.positions)
            original(self, request)

        return changed

    return [Patch(TaskLoop, "_end_epoch", end_epoch)]


def _epoch_without_a_task() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import epoch_coordinator

    def end_epoch(original: Any) -> Any:
        def changed(self: Any, start: Any, *, last: bool) -> Any:
            result = original(self, start, last=last)
            if len(self._tasks) > 1:
                ahead = {tp: offset + 1 for tp, offset in result.offsets.items() if tp in start.assignment[-1]}
                moved = any(result.offsets[tp] != start.offsets[tp] for tp in ahead)
                result = replace(result, offsets={**result.offsets, **(ahead if moved else {})})
            return result

        return changed

    return [Patch(epoch_coordinator.EpochCoordinator, "_collect_reports", end_epoch)]


def _new_partitions_start_at_their_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner

    def starts(original: Any) -> Any:
        def changed(self: Any, latest: Any, end_offsets: Any, start_offsets: Any) -> Any:
            return {tp: latest[tp] for tp in original(self, latest, end_offsets, start_offsets)}

        return changed

    return [Patch(ContinuousStartPlanner, "_starts_of_new_partitions", starts)]


def _new_partitions_are_not_read() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import partition_discovery

    def detect(original: Any) -> Any:
        return lambda *args: replace(original(*args), end_run=False)

    return [Patch(partition_discovery, "detect_partition_changes", detect)]


def _lost_records_skip_to_the_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import continuous_task

    def resume(_: Any) -> Any:
        return lambda error, position, start, end: end

    return [Patch(continuous_task, "resume_offset", resume)]


def _early_purge() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import checkpoint_logs

    def purge(original: Any) -> Any:
        return lambda epochs, newest, retain: original(epochs, newest + retain + 1, retain)

    return [Patch(checkpoint_logs, "epochs_to_purge", purge)]


def _recovery_moved(offsets: int) -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import checkpoint_logs

    def plan(original: Any) -> Any:
        def changed(state: Any, entries: Any, ahead: Any, path: str) -> Any:
            recovery = original(state, entries, ahead, path)
            if ahead is None and recovery.start is not None:
                start = {tp: offset + offsets for tp, offset in recovery.start.items() if offset}
                return replace(recovery, start={**recovery.start, **start})
            return recovery

        return changed

    return [Patch(checkpoint_logs, "plan_recovery", plan)]


def _batches_after_dropped_rows_are_lost() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_task import TaskLoop

    def process(original: Any) -> Any:
        def changed(self: Any, partition: Any, rows: Any) -> None:
            written = self._written_rows
            original(self, partition, rows)
            if self._written_rows == written:
                self._unprocessed.clear()

        return changed

    return [Patch(TaskLoop, "_process_rows", process)]


def _unexplained_loss() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import continuous_start_planner

    def lower(_: Any) -> Any:
        return lambda starts, latest: {tp: offset - 1 for tp, offset in starts.items() if offset > 1}

    return [Patch(continuous_start_planner, "lower_end_offsets", lower)]


def _positions_beyond_the_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import continuous_start_planner, continuous_task

    def resume(original: Any) -> Any:
        return lambda error, position, start, end: max(position, original(error, position, start, end))

    def lower(_: Any) -> Any:
        return lambda starts, latest: {}

    return [
        Patch(continuous_task, "resume_offset", resume),
        Patch(continuous_start_planner, "lower_end_offsets", lower),
    ]


def _fencing_without_cores() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_execution import ContinuousExecution

    def run(original: Any) -> Any:
        def changed(self: Any, tasks: int) -> None:
            self._logs.fencing_log.append()
            original(self, tasks)

        return changed

    return [Patch(ContinuousExecution, "_run_tasks", run)]


def _end_without_cores() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_execution import ContinuousExecution
    from pyspark_kafka_direct.errors import TaskStartTimeoutError

    def handle(original: Any) -> Any:
        def changed(self: Any, failure: Exception) -> None:
            if isinstance(failure, TaskStartTimeoutError):
                raise failure
            original(self, failure)

        return changed

    return [Patch(ContinuousExecution, "_handle_failure", handle)]


def _recovery_without_group() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import checkpoint_recovery

    def recover(_: Any) -> Any:
        def changed(logs: Any, delivery: Any, at_ms: int) -> Any:
            return logs.recover({}, at_ms).start

        return changed

    return [Patch(checkpoint_recovery, "recover_logs", recover)]


def _recovery_without_fencing() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery

    def init(original: Any) -> Any:
        return lambda self, tasks: original(self, tasks) if self._tasks else []

    return [Patch(ExactlyOnceDelivery, "_init_producer_ids", init)]


def _older_group_offsets() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import sink_delivery

    def ahead(_: Any) -> Any:
        def changed(committed: Any, query: str, topic_ids: Any, **_: Any) -> Any:
            return {
                tp: each.offset
                for tp, each in committed.items()
                if each.metadata.query == query and each.metadata.topic_id == topic_ids.get(tp.topic)
            }

        return changed

    return [Patch(sink_delivery, "offsets_ahead", ahead)]


def _truncations_are_reported_only() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner

    def resume(original: Any) -> Any:
        def changed(self: Any, end_offsets: Any) -> Any:
            starts = original(self, end_offsets)
            truncated = {
                tp for tp in starts if starts[tp] == self.latest.get(tp) and starts[tp] < end_offsets.get(tp, 0)
            }
            return {tp: end_offsets[tp] if tp in truncated else offset for tp, offset in starts.items()}

        return changed

    return [Patch(ContinuousStartPlanner, "resume_offsets", resume)]


def _merged_epochs_forget_new_topics() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult

    def merge(original: Any) -> Any:
        return lambda self, next_epoch: replace(
            original(self, next_epoch), recreated_topic_ids=next_epoch.recreated_topic_ids
        )

    return [Patch(EpochResult, "merged_with", merge)]


def _group_offsets_of_deleted_topics() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous import sink_delivery

    def ahead(original: Any) -> Any:
        def changed(committed: Any, *, topic_ids: Any, **named: Any) -> Any:
            current = {
                tp: each._replace(metadata=replace(each.metadata, topic_id=topic_ids.get(tp.topic)))
                for tp, each in committed.items()
            }
            return original(current, topic_ids=topic_ids, **named)

        return changed

    return [Patch(sink_delivery, "offsets_ahead", ahead)]


BUGS: Final = (
    _bug("late epoch transaction", "An epoch is committed in the logs before its transaction.", _late_transaction),
    _bug("tasks not fenced", "Transactional ids that only an earlier run used are not fenced.", _unfenced_tasks),
    _bug("run not fenced", "A restart does not fence the tasks of the run before.", _unfenced_producers),
    _bug("group offsets ignored", "A recovery ignores the offsets of transactions.", _group_offsets_ignored),
    _bug(
        "group offsets read early",
        "A recovery reads the offsets of transactions before it fences their tasks.",
        _offsets_before_fencing,
    ),
    _bug("no group offsets", "Transactions do not contain offsets.", _no_offsets_in_transactions),
    _bug("epoch without acknowledgements", "An epoch ends before brokers acknowledge its records.", _unflushed_epoch),
    _bug("epoch before flush", "An epoch ends before the user's sink is flushed.", _report_before_flush),
    _bug("commit log first", "An epoch is written to the commit log first.", _commit_log_first),
    _bug("existing epoch files", "An epoch that another driver has written is ignored.", _existing_files_are_ignored),
    _bug("unprocessed batches", "An epoch contains batches that are not processed.", _offsets_of_unprocessed_batches),
    _bug("epoch with offsets ahead", "An epoch has higher offsets than a task has reported.", _epoch_without_a_task),
    _bug(
        "new partitions at end (continuous)",
        "Partitions that are added start at their end.",
        _new_partitions_start_at_their_end,
    ),
    _bug("new partitions unread", "Partitions that are added are not read.", _new_partitions_are_not_read),
    _bug("skip to the end", "After a data loss a task continues at the end of the log.", _lost_records_skip_to_the_end),
    _bug("loss without cause", "A restart reports lost records that exist.", _unexplained_loss),
    _bug(
        "position beyond a truncated log",
        "After an unclean election the query waits until the log is as long as before.",
        _positions_beyond_the_end,
    ),
    _bug(
        "fencing without cores",
        "A driver fences others before its tasks have cores.",
        _fencing_without_cores,
        was_real=True,
    ),
    _bug(
        "end without cores",
        "A query ends because other jobs take its cores.",
        _end_without_cores,
        was_real=True,
    ),
    _bug(
        "recovery from the logs alone",
        "recover_checkpoint ignores the offsets of transactions.",
        _recovery_without_group,
    ),
    _bug("recovery without fencing", "recover_checkpoint does not fence tasks.", _recovery_without_fencing),
    _bug(
        "group offsets of earlier epochs",
        "Offsets of transactions precede those of a micro-batch query that ran later.",
        _older_group_offsets,
    ),
    _bug(
        "start beyond a truncated log",
        "A run reports that a log was truncated, and starts at the old offset.",
        _truncations_are_reported_only,
    ),
    _bug(
        "merged epoch without topic ids",
        "An epoch that is merged with the next one loses the ids of recreated topics.",
        _merged_epochs_forget_new_topics,
    ),
    _bug(
        "group offsets of a deleted topic",
        "Offsets of transactions count for the topic that was recreated since then.",
        _group_offsets_of_deleted_topics,
    ),
    _bug("early purge", "Epochs are purged that a restart needs.", _early_purge),
    _bug("recovery one too far", "A recovery at-least-once skips a record.", partial(_recovery_moved, 1)),
    _bug("recovery one too low", "A recovery at-least-once reads a committed record.", partial(_recovery_moved, -1)),
    _bug(
        "batches after dropped rows",
        "Batches that were polled with one whose rows are all dropped are lost.",
        _batches_after_dropped_rows_are_lost,
    ),
)
