"""Bugs of shared logs and tables."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch, does_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_bug: Final = BugsOf("shared_log", "shared log: ")
_MANY = 1 << 40


class _StableEnds:
    """A cluster client that returns last stable offsets instead of high watermarks."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def offsets(self, requested: Any, **options: Any) -> Any:
        return self._cluster.offsets(requested, **options | {"isolation_level": "read_committed"})


def _last_stable_offset_is_the_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.topic_observer import TopicObserver

    def fetch(original: Any) -> Any:
        def fetch_ends(self: Any, *args: Any) -> Any:
            cluster, self._cluster = self._cluster, _StableEnds(self._cluster)
            try:
                return original(self, *args)
            finally:
                self._cluster = cluster

        return fetch_ends

    return [Patch(TopicObserver, "fetch_ends", fetch)]


def _replicas_are_not_asked() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.witnesses import _MetadataRequests

    def send_to(original: Any) -> Any:
        return lambda self, nodes, deadline, are_last: original(self, nodes[:1], deadline, are_last=are_last)

    return [Patch(_MetadataRequests, "send_to", send_to)]


def _unresponsive_replicas_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.witnesses import Witnesses

    return [Patch(Witnesses, "track_unresolved", lambda _: lambda self, unresolved: None)]


def _later_leaders_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import topic_observer

    return [Patch(topic_observer, "has_later_leader", lambda _: lambda epochs, topic_id, reports: False)]


def _added_partitions_are_not_read() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.topic_observer import TopicObserver

    def reported(original: Any) -> Any:
        return lambda self, reports, topic_id: original(self, (), topic_id)

    return [Patch(TopicObserver, "_reported_partitions", reported)]


def _table_accepts_added_partitions() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableState

    return [Patch(TableState, "check_partition_count", lambda _: lambda self, topic: None)]


def _late_reads_get_earlier_ends() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.pending_reads import PendingReads

    def complete(original: Any) -> Any:
        def complete_reached(self: Any, state: Any) -> None:
            if self.ends is not None:
                self._active_reads += self._queued_reads
                self._queued_reads = []
            original(self, state)

        return complete_reached

    return [Patch(PendingReads, "complete_reached", complete)]


def _reads_do_not_wait_for_sends() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.pending_reads import PendingReads

    return [Patch(PendingReads, "activate", lambda original: lambda self, completed_count: original(self, _MANY))]


def _one_partition_suffices() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import pending_reads

    def reached(_: Any) -> Any:
        return lambda offsets, positions: any(positions.get(each, 0) >= offsets[each] for each in offsets)

    return [Patch(pending_reads, "all_reached", reached)]


def _last_record_is_not_awaited() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import pending_reads

    def reached(_: Any) -> Any:
        return lambda offsets, positions: all(positions.get(each, 0) >= offsets[each] - 1 for each in offsets)

    return [Patch(pending_reads, "all_reached", reached)]


def _batch_is_delivered_again_after_an_error() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.record_callbacks import LogCallbacks

    def deliver(original: Any) -> Any:
        def deliver_again(self: Any, partition: Any, rows: Any) -> Any:
            error = original(self, partition, rows)
            if error is not None:
                original(self, partition, rows)
            return error

        return deliver_again

    return [Patch(LogCallbacks, "deliver", deliver)]


def _rest_of_a_batch_is_skipped_after_an_error() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.record_callbacks import LogCallbacks, to_log_records

    def deliver(original: Any) -> Any:
        def deliver_until_error(self: Any, partition: Any, rows: Any) -> Any:
            if self.on_record is None:
                return original(self, partition, rows)
            for record in to_log_records(partition, rows):
                try:
                    self.on_record(record)
                except Exception as error:
                    return error
            return None

        return deliver_until_error

    return [Patch(LogCallbacks, "deliver", deliver)]


def _reset_is_not_reported() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.record_callbacks import LogCallbacks

    return [Patch(LogCallbacks, "report_reset", lambda _: lambda self, error: False)]


def _truncated_log_is_read_from_its_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import log_worker

    def reread(original: Any) -> Any:
        def reread_offset(error: Any, position: int, start: int, end: int, **more: Any) -> int | None:
            return None if original(error, position, start, end, **more) is None else end

        return reread_offset

    return [Patch(log_worker, "reread_offset", reread)]


def _recreated_topic_keeps_positions() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    def recreated(original: Any) -> Any:
        def _on_topic_recreated(self: Any, topic: Any) -> None:
            positions = {each: offset for each, offset in self.positions.items() if each in topic.partitions}
            original(self, topic)
            self.state = replace(self.state, positions=positions)

        return _on_topic_recreated

    return [Patch(LogWorker, "_on_topic_recreated", recreated)]


def _removed_partition_is_awaited() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import topic_observer

    return [Patch(topic_observer, "_missing_partition", lambda _: lambda topic, partitions: None)]


def _send_callback_twice() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

    def fail(original: Any) -> Any:
        def _fail(self: Any, records: Sequence[Any], errors: Iterable[BaseException]) -> None:
            errors = list(errors)
            original(self, records, errors)
            for record, error in zip(records, errors, strict=False):  # a failed record is reported by its batch, too
                if record.callback is not None:
                    self._callbacks.append(partial(record.callback, None, error))

        return _fail

    return [Patch(AsyncProducer, "_fail", fail)]


def _table_keeps_deleted_keys() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableContents

    def apply(original: Any) -> Any:
        def apply_values(self: Any, partition: Any, keys: Any, values: Any) -> Any:
            valid = values.is_valid()
            return original(self, partition, keys.filter(valid), values.filter(valid))

        return apply_values

    return [Patch(TableContents, "apply", apply)]


def _table_applies_the_first_value() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableContents

    def apply(original: Any) -> Any:
        return lambda self, partition, keys, values: original(self, partition, keys[::-1], values[::-1])

    return [Patch(TableContents, "apply", apply)]


def _table_is_not_cleared() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableState

    return [Patch(TableState, "begin_reload", lambda _: lambda self: None)]


def _reloaded_table_is_not_shown() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableState

    return [Patch(TableState, "end_reload", lambda _: lambda self: None)]


def _stop_forgets_pending_reads() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.pending_reads import PendingReads

    return [Patch(PendingReads, "fail_all", does_nothing)]


def _one_failed_read_only() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.pending_reads import PendingReads

    return [Patch(PendingReads, "_pop_active", lambda original: lambda self: original(self)[:1])]


def _ends_are_requested_once() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    return [Patch(LogWorker, "_is_stalled", lambda _: lambda self: False)]


def _wait_for_returns_at_once() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    return [Patch(LogWorker, "has_delivered", lambda _: lambda self, offsets: True)]


def _wait_for_ignores_suspected_truncations() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    return [Patch(LogWorker, "has_delivered", lambda _: lambda self, offsets: self.state.has_delivered(offsets))]


def _second_loss_clears_nothing() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableState

    def begin(original: Any) -> Any:
        def begin_reload(self: Any) -> None:
            if self._reloaded is None:
                original(self)

        return begin_reload

    return [Patch(TableState, "begin_reload", begin)]


def _positions_before_delivery() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    def poll(original: Any) -> Any:
        def _poll(self: Any) -> None:
            consumer = self._consumer
            poll_consumer = consumer.poll

            def poll_and_complete(*args: Any) -> Any:
                batches = poll_consumer(*args)
                self.state = replace(self.state, positions=dict(consumer.positions))
                self._complete_reached_reads()
                return batches

            consumer.poll = poll_and_complete
            try:
                original(self)
            finally:
                consumer.poll = poll_consumer

        return _poll

    return [Patch(LogWorker, "_poll", poll)]


def _consumer_is_not_closed() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    return [Patch(PartitionConsumer, "close", lambda _: lambda self: None)]


def _fenced_writer_claims_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.errors import ProducerFencedError
    from pyspark_kafka_direct.log.single_writer import SingleWriter

    def write(original: Any) -> Any:
        def write_again(self: Any, records: Any) -> Any:
            try:
                return original(self, records)
            except ProducerFencedError:
                self.claim(self._cluster.deadline())
                return original(self, records)

        return write_again

    return [Patch(SingleWriter, "write", write)]


def _single_writer_starts_without_the_last_writes() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_reads import LogReads

    def read(original: Any) -> Any:
        def read_at_start(self: Any, *arguments: Any) -> None:
            if self._thread.state == "starting":  # not after the claim
                original(self, *arguments)

        return read_at_start

    return [Patch(LogReads, "read_at_start", read)]


def _last_epochs_of_records_that_are_read_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    def open_consumer(original: Any) -> Any:
        def _open_consumer(self: Any) -> None:
            epochs, new_consumer = dict(self.state.last_epochs), self._new_consumer

            def keep_epochs(start: Any) -> Any:
                kept = {tp: epoch for tp, epoch in epochs.items() if tp in start.offsets}
                return new_consumer(start._replace(last_epochs=kept))

            self._new_consumer = keep_epochs
            try:
                original(self)
            finally:
                self._new_consumer = new_consumer

        return _open_consumer

    return [Patch(LogWorker, "_open_consumer", open_consumer)]


def _idle_writer_ignores_later_ones() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.single_writer import SingleWriter

    return [Patch(SingleWriter, "_others_have_written", lambda _: lambda self: False)]


def _current_as_of_the_first_read() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_state import LogState

    def at_ends(original: Any) -> Any:
        return lambda self, requested_at: original(self, self.current_as_of or requested_at)

    return [Patch(LogState, "at_ends", at_ends)]


def _headers_are_lost() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import record_callbacks

    return [Patch(record_callbacks, "_header_tuples", lambda _: lambda headers: ())]


def _metadata_in_each_iteration() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    def fetch(original: Any) -> Any:
        def _fetch_topic(self: Any, deadline: Any) -> Any:
            topic = original(self, deadline)
            self._refresh_at = 0.0
            return topic

        return _fetch_topic

    return [Patch(LogWorker, "_fetch_topic", fetch)]


def _callbacks_of_the_start_cannot_use_the_log() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_thread import LogThread

    def check(original: Any) -> Any:
        def check_state(self: Any, operation: str) -> None:
            is_current, self._thread_id = self._thread_id, None
            try:
                original(self, operation)
            finally:
                self._thread_id = is_current

        return check_state

    return [Patch(LogThread, "check_state", check)]


def _store_loads_the_last_save_only() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore

    def save(original: Any) -> Any:
        def save_and_replace(self: Any, offsets: Any) -> None:
            original(self, offsets)
            self._saved_offsets = dict(offsets)

        return save_and_replace

    return [Patch(KafkaOffsetStore, "save", save)]


def _deleted_offsets_come_back() -> Sequence[Patch]:
    from pyspark_kafka_direct.log import offset_store_records

    def apply(original: Any) -> Any:
        def _apply_record(state: Any, key: Any, value: Any) -> None:
            if value is not None:
                original(state, key, value)

        return _apply_record

    return [Patch(offset_store_records, "_apply_record", apply)]


BUGS: Final = (
    _bug("stable end", "A read to the end does not wait for open transactions.", _last_stable_offset_is_the_end),
    _bug("late reads", "A later read to the end gets the ends of an earlier one.", _late_reads_get_earlier_ends),
    _bug("sends not awaited", "A read to the end does not wait for earlier sends.", _reads_do_not_wait_for_sends),
    _bug("one partition", "A read to the end waits for one partition only.", _one_partition_suffices),
    _bug("last record", "A read to the end does not wait for the last record.", _last_record_is_not_awaited),
    _bug("early positions", "Reads complete before the callback has the records.", _positions_before_delivery),
    _bug(
        "batch again",
        "After an error of a callback the batch is delivered again.",
        _batch_is_delivered_again_after_an_error,
    ),
    _bug(
        "batch cut",
        "After an error of a callback the rest of the batch is lost.",
        _rest_of_a_batch_is_skipped_after_an_error,
    ),
    _bug("reset not reported", "on_reset is not called.", _reset_is_not_reported),
    _bug("truncated to the end", "A truncated log is read from its new end.", _truncated_log_is_read_from_its_end),
    _bug("recreated position", "A recreated topic is read from the old positions.", _recreated_topic_keeps_positions),
    _bug(
        "removed partition",
        "A read waits for a partition that the recreated topic lacks.",
        _removed_partition_is_awaited,
        was_real=True,
    ),
    _bug("two send callbacks", "A failed record is reported twice.", _send_callback_twice),
    _bug("deleted keys", "A table keeps deleted keys.", _table_keeps_deleted_keys),
    _bug("first value", "A table takes the first value of a batch.", _table_applies_the_first_value),
    _bug("reload not shown", "A table keeps the contents of before a reset.", _reloaded_table_is_not_shown),
    _bug(
        "added partitions not read",
        "A log does not read partitions that its topic gets.",
        _added_partitions_are_not_read,
        was_real=True,
    ),
    _bug(
        "added partitions accepted",
        "A table accepts partitions that its topic gets.",
        _table_accepts_added_partitions,
        was_real=True,
    ),
    _bug("replicas not asked", "One broker is asked whether a leader was deposed.", _replicas_are_not_asked),
    _bug(
        "unresponsive replicas",
        "A read to the end does not wait for replicas that do not respond.",
        _unresponsive_replicas_are_ignored,
    ),
    _bug("deposed leader", "The end of a deposed leader counts.", _later_leaders_are_ignored, was_real=True),
    _bug("table not cleared", "A table keeps what a truncation took back.", _table_is_not_cleared),
    _bug("second loss", "A second loss leaves what a reload has loaded.", _second_loss_clears_nothing),
    _bug("pending after stop", "stop() does not fail pending reads.", _stop_forgets_pending_reads),
    _bug("one failed read", "An error fails one of several pending reads.", _one_failed_read_only),
    _bug("ends once", "After a truncation a read waits for an end that is lost.", _ends_are_requested_once),
    _bug("wait_for at once", "wait_for does not wait.", _wait_for_returns_at_once),
    _bug(
        "wait_for and truncation",
        "wait_for an offset ignores that the log may be truncated.",
        _wait_for_ignores_suspected_truncations,
    ),
    _bug("writer claims again", "A fenced single writer claims its id again.", _fenced_writer_claims_again),
    _bug(
        "stale single writer",
        "A single writer does not read after it has fenced earlier ones.",
        _single_writer_starts_without_the_last_writes,
    ),
    _bug(
        "old last epochs",
        "A log that is read again names leader epochs of records before.",
        _last_epochs_of_records_that_are_read_again,
    ),
    _bug(
        "idle writer",
        "A single writer whose id has expired ignores that another table has written.",
        _idle_writer_ignores_later_ones,
    ),
    _bug("current_as_of", "current_as_of does not advance.", _current_as_of_the_first_read),
    _bug("headers", "Records of a log have no headers.", _headers_are_lost),
    _bug("metadata again", "A log requests metadata in each iteration.", _metadata_in_each_iteration),
    _bug(
        "callbacks of the start",
        "Callbacks cannot use a log during its start.",
        _callbacks_of_the_start_cannot_use_the_log,
    ),
    _bug("store: last save", "load() returns the offsets of the last save only.", _store_loads_the_last_save_only),
    _bug("store: deleted offsets", "Deleted offsets are there again at the next start.", _deleted_offsets_come_back),
    _bug("consumer leaks", "stop() does not close the consumer.", _consumer_is_not_closed),
)
