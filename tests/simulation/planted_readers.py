"""Bugs of readers and planners that no scenario found at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

_range: Final = BugsOf("range_reads", "reader: ")
_batch: Final = BugsOf("micro_batches", "reader: ")
_endless: Final = BugsOf("endless_reads", "reader: ")
_direct: Final = BugsOf("direct_streams", "reader: ")


def _read_to_the_high_watermark() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_reader import PartitionReader

    def decide(original: Any) -> Any:
        def _decide_after_empty(self: Any, context: Any, fetched: Any) -> Any:
            return original(self, context, fetched._replace(last_stable_offset=fetched.high_watermark))

        return _decide_after_empty

    return [Patch(PartitionReader, "_decide_after_empty", decide)]


def _expired_in_the_middle() -> Sequence[Patch]:
    from dataclasses import replace

    from pyspark_kafka_direct.consumer import fetcher

    def evaluate(original: Any) -> Any:
        def evaluate_loss(planned_range: Any, position: int, *args: Any, **options: Any) -> Any:
            if options["from_earliest"]:
                planned_range = replace(planned_range, from_offset=position)
            return original(planned_range, position, *args, **options)

        return evaluate_loss

    return [Patch(fetcher, "evaluate_loss", evaluate)]


def _back_to_the_follower() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica

    def switch(_: Any) -> Any:
        def switch_to_leader(self: Any) -> None:
            self.release()
            self._preferred_replica = None

        return switch_to_leader

    return [Patch(ReadReplica, "switch_to_leader", switch)]


def _rack_is_not_sent() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica

    def init(original: Any) -> Any:
        def leader_only(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            self._leader_only = True

        return leader_only

    return [Patch(ReadReplica, "__init__", init)]


def _follower_decides_on_a_gap() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_reader import PartitionReader

    def decide(original: Any) -> Any:
        return lambda self, context, fetched: original(self, context._replace(on_leader=True), fetched)

    return [Patch(PartitionReader, "_decide_after_empty", decide)]


def _prefetch_is_dropped() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import Fetcher

    def feed(original: Any) -> Any:
        def _feed(self: Any, fetched: Any) -> Any:
            fed = original(self, fetched)
            self._replica._in_flight_offset = -1 if self._replica._in_flight_offset is not None else None
            return fed

        return _feed

    return [Patch(Fetcher, "_feed", feed)]


def _markers_are_gaps() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.range_task import ReadCounts

    def add(original: Any) -> Any:
        def add_decoded(self: Any, decoded: Any) -> None:
            original(self, decoded)
            self.control -= decoded.control
            self.gaps += decoded.control

        return add_decoded

    return [Patch(ReadCounts, "add_decoded", add)]


def _counts_of_the_last_decoder() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import _DecodingHandler

    def skip(_: Any) -> Any:
        def skip_to(self: Any, offset: int) -> None:
            self._decoder = self._new_decoder(from_offset=offset)

        return skip_to

    return [Patch(_DecodingHandler, "skip_to", skip)]


def _error_at_the_start() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher
    from pyspark_kafka_direct.errors import DataLossError

    def evaluate(original: Any) -> Any:
        def evaluate_loss(planned_range: Any, position: int, *args: Any, **options: Any) -> Any:
            try:
                return original(planned_range, position, *args, **options)
            except DataLossError as error:
                error.offset = planned_range.from_offset
                raise

        return evaluate_loss

    return [Patch(fetcher, "evaluate_loss", evaluate)]


def _second_report_of_a_recreation() -> Sequence[Patch]:
    from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
    from pyspark_kafka_direct.planning.data_loss import find_lost_partitions, lower_end_offsets
    from pyspark_kafka_direct.planning.offset_reader import topic_ids_by_partition

    def report(_: Any) -> Any:
        def _report_lost(self: Any, start: Any, start_metadata: Any, snapshot: Any) -> Any:
            known_ids = topic_ids_by_partition(start, start_metadata.topic_ids)
            lost = find_lost_partitions(start, known_ids, snapshot.latest, snapshot.topic_ids)
            lower_ends = lower_end_offsets(start, snapshot.latest)
            self._losses.report_lost(lost, known_ids)
            self._losses.report_offsets_changed(start, lower_ends)
            return lost, lower_ends

        return _report_lost

    return [Patch(MicroBatchPlanner, "_report_lost", report)]


def _queue_is_sent_after_a_sync_commit() -> Sequence[Patch]:
    from pyspark_kafka_direct.spark.offset_committer import AsyncOffsetCommitter

    def commit_sync(original: Any) -> Any:
        def _commit_sync(self: Any, item: Any) -> None:
            with self._changed:
                added, self._added_items = self._added_items, []
            original(self, item)
            with self._changed:
                self._added_items = added + self._added_items

        return _commit_sync

    return [Patch(AsyncOffsetCommitter, "commit_sync", commit_sync)]


def _second_thread_plans_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
    from pyspark_kafka_direct.direct.direct_stream_planner import plan_direct_batch

    def batch_ranges(_: Any) -> Any:
        def plan(self: Any, time_ms: int) -> Any:
            with self._lock:
                ranges = self._state.find_ranges(time_ms)
            if ranges is not None:
                return ranges
            with self._planning_lock:
                with self._lock:
                    position = self._state.position
                self.client.commits.send()
                planned = self.stop_signal.run(lambda: plan_direct_batch(position, self._cluster_view()))
                with self._lock:
                    self._state.add_batch(time_ms, planned.ranges, planned.topic_ids)
                return planned.ranges

        return plan

    return [Patch(CheckpointedStream, "batch_ranges", batch_ranges)]


def _small_batches_do_not_wait() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.read_limits import MinOffsetsGate

    return [Patch(MinOffsetsGate, "admit", lambda _: lambda *_args, **_named: True)]


def _start_is_too_early() -> Sequence[Patch]:
    from pyspark_kafka_direct.datasource import micro_batch_planner

    def resolve(original: Any) -> Any:
        return lambda *args: {tp: max(offset - 1, 0) for tp, offset in original(*args).items()}

    return [Patch(micro_batch_planner, "resolve_start_offsets", resolve)]


def _start_by_time_is_too_early() -> Sequence[Patch]:
    from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

    def offsets(original: Any) -> Any:
        def earlier(self: Any, requested: Any) -> Any:
            found = original(self, requested)
            return {tp: max(offset - (requested[tp] >= 0), 0) for tp, offset in found.items()}

        return earlier

    return [Patch(KafkaOffsetReader, "offsets", offsets)]


def _reported_offsets_are_wrong() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.loss_report import LossReport

    def report(original: Any) -> Any:
        return lambda self, tp, from_offset, log_start: original(self, tp, from_offset + 1, log_start + 1)

    return [Patch(LossReport, "report_aged_out", report)]


def _large_tasks() -> Sequence[Patch]:
    from pyspark_kafka_direct.datasource import micro_batch_planner

    return [
        Patch(
            micro_batch_planner,
            "split_ranges",
            lambda original: lambda ranges, fewest, most: original(ranges, fewest, most and most + 1),
        )
    ]


def _error_does_not_name_the_partition() -> Sequence[Patch]:
    from pyspark_kafka_direct.errors import KafkaDirectError

    def init(original: Any) -> Any:
        def with_other_partition(self: Any, *args: Any, **context: Any) -> None:
            if context.get("offset") is not None and context.get("partition") is not None:
                context["partition"] += 1
            original(self, *args, **context)

        return with_other_partition

    return [Patch(KafkaDirectError, "__init__", init)]


def _poll_returns_early() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    def poll(original: Any) -> Any:
        return lambda self, seconds, *args: original(self, seconds / 2, *args)

    return [Patch(PartitionConsumer, "poll", poll)]


def _poll_is_late() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    def poll(original: Any) -> Any:
        return lambda self, seconds, *args: original(self, seconds + 0.5, *args)

    return [Patch(PartitionConsumer, "poll", poll)]


def _errors_remain() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState

    def succeed(original: Any) -> Any:
        def on_fetch_success(self: Any) -> None:
            error = self.transient_error
            original(self)
            self.transient_error = error

        return on_fetch_success

    return [Patch(TopicPartitionState, "on_fetch_success", succeed)]


BUGS: Final = (
    _range("high watermark", "A range with read_committed is read to the high watermark.", _read_to_the_high_watermark),
    _range(
        "expired in the middle",
        "A range from earliest skips expired records in its middle without a report.",
        _expired_in_the_middle,
    ),
    _range(
        "follower again", "After a follower had no records, the leader may refer to it again.", _back_to_the_follower
    ),
    _range("rack not sent", "Fetches do not name the client's rack.", _rack_is_not_sent),
    _range("follower decides", "An empty response of a follower proves a gap.", _follower_decides_on_a_gap),
    _range("prefetch dropped", "A record batch that was requested early is requested again.", _prefetch_is_dropped),
    _range("markers are gaps", "Transaction markers count as offset gaps.", _markers_are_gaps),
    _range("last decoder counted", "Counts before a skip are lost.", _counts_of_the_last_decoder),
    _range("error at the start", "The error of a loss names the range's start.", _error_at_the_start),
    _batch(
        "second report",
        "The batch that notices a recreated topic also compares the old offsets with the new ends.",
        _second_report_of_a_recreation,
    ),
    _range("error of a partition", "An error names the next partition.", _error_does_not_name_the_partition),
    _endless("early poll", "A poll without rows returns after half of its time.", _poll_returns_early),
    _endless("late poll", "A poll returns half a second late.", _poll_is_late),
    _endless("errors remain", "An error counts as being retried after a response.", _errors_remain),
    _batch("small batches", "minOffsetsPerTrigger does not delay batches.", _small_batches_do_not_wait),
    _batch("early start", "A new query starts one offset too early.", _start_is_too_early),
    _batch("early time", "A start by time is one offset too early.", _start_by_time_is_too_early),
    _batch("reported offsets", "Reports of expired records name the next offsets.", _reported_offsets_are_wrong),
    _batch("large tasks", "A task may have one record more than maxRecordsPerPartition.", _large_tasks),
    _direct(
        "queue after commitSync",
        "commitSync leaves queued offsets, which are sent after it.",
        _queue_is_sent_after_a_sync_commit,
    ),
    _direct(
        "planned twice",
        "Two threads plan the same batch, and the ranges of the first are lost.",
        _second_thread_plans_again,
    ),
)
