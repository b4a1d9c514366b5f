"""Bugs of reads without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

_bug: Final = BugsOf("endless_reads", "endless: ")


class _AnyCount(int):
    """A number of seeks that equals each other one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _first_epoch_of_a_response() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import EpochHistory, EpochStart
    from pyspark_kafka_direct.records import scan_batches

    def add(_: Any) -> Any:
        def add_batches(self: Any, records: Any, position: int) -> None:
            first = scan_batches(records, position).batches[0]
            self.add(EpochStart(first.leader_epoch, max(first.base_offset, position)))

        return add_batches

    return [Patch(EpochHistory, "add_batches", add)]


def _checks_from_before_a_seek_count() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher_manager import FetcherManager

    def check(original: Any) -> Any:
        def check_in_background(self: Any, reasons: Any, *more: Any) -> None:
            counts = {partition: partition.seek_count for partition in reasons}
            for partition, count in counts.items():
                partition.seek_count = _AnyCount(count)
            try:
                original(self, reasons, *more)
            finally:
                for partition, count in counts.items():
                    partition.seek_count = count

        return check_in_background

    return [Patch(FetcherManager, "check_in_background", check)]


def _slow_responses_are_evidence_of_a_gap() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_reader import PartitionReader

    def decide(original: Any) -> Any:
        return lambda self, context, end: original(self, context._replace(sent_at=context.received_at), end)

    return [Patch(PartitionReader, "_decide_on_gap", decide)]


def _epochs_of_discarded_rows_remain() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import EpochHistory

    return [Patch(EpochHistory, "truncate", lambda _: lambda self, offset: None)]


def _epoch_of_fetched_rows() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState

    def last(_: Any) -> Any:
        return property(lambda self: self.reader.last_fetched_epoch)

    return [Patch(TopicPartitionState, "last_returned_epoch", last)]


def _truncated_to_the_end_of_the_epoch() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import EpochHistory

    return [Patch(EpochHistory, "diverges_at", lambda _: lambda self, epoch, end_offset: end_offset)]


def _late_wakeup() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher_manager import FetcherManager

    return [Patch(FetcherManager, "wait", lambda original: lambda self, until, _: original(self, until, ()))]


def _polls_of_any_size() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    def collect(original: Any) -> Any:
        def _collect_batches(self: Any) -> Any:
            self._max_bytes = 1 << 40
            return original(self)

        return _collect_batches

    return [Patch(PartitionConsumer, "_collect_batches", collect)]


def _id_of_the_deleted_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState

    def seek(original: Any) -> Any:
        def seek(self: Any, offset: int) -> None:
            topic_id = self.topic_id
            original(self, offset)
            self.topic_id = topic_id

        return seek

    return [Patch(TopicPartitionState, "seek", seek)]


def _topic_that_the_caller_does_not_know() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    def seek(_: Any) -> Any:
        def seek(self: Any, partition: Any, offset: int) -> None:
            self._partitions[partition].seek(offset)
            self._pending_errors.pop(self._partitions[partition], None)

        return seek

    return [Patch(PartitionConsumer, "seek", seek)]


def _epoch_before_it_is_confirmed() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState

    def confirmed_epoch(_: Any) -> Any:
        return property(lambda self: self.leader_epoch)

    return [Patch(TopicPartitionState, "confirmed_epoch", confirmed_epoch)]


def _response_of_an_earlier_leader() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.broker_fetcher import InFlightFetch

    def is_stale(original: Any) -> Any:
        return property(lambda self: original.fget(self._replace(leader_epoch=self.partition.leader_epoch)))

    return [Patch(InFlightFetch, "is_stale", is_stale)]


def _topic_that_one_broker_lacks() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher_manager
    from pyspark_kafka_direct.errors import TransientBrokerError

    return [Patch(fetcher_manager, "TopicNotFoundError", lambda _: TransientBrokerError)]


BUGS: Final = (
    _bug(
        "first epoch", "Of a response, only the first batch's leader epoch is remembered.", _first_epoch_of_a_response
    ),
    _bug(
        "checks before a seek",
        "The outcome of a check from before a seek is applied.",
        _checks_from_before_a_seek_count,
    ),
    _bug(
        "slow responses",
        "The time of a slow response counts as time without data.",
        _slow_responses_are_evidence_of_a_gap,
    ),
    _bug("epochs remain", "Leader epochs of discarded rows are remembered.", _epochs_of_discarded_rows_remain),
    _bug(
        "fetched epoch",
        "A consumer that resumes gets the leader epoch of rows that were not returned.",
        _epoch_of_fetched_rows,
    ),
    _bug(
        "end of the epoch",
        "A truncation is assumed to begin where the common leader epoch ends.",
        _truncated_to_the_end_of_the_epoch,
    ),
    _bug("late wakeup", "A poll does not end when one of its descriptors becomes readable.", _late_wakeup),
    _bug("large polls", "A poll returns all fetched rows, of any size.", _polls_of_any_size),
    _bug("old id", "After a topic was recreated, its old id remains.", _id_of_the_deleted_topic),
    _bug(
        "unknown topic",
        "A seek reads a recreated topic although the caller does not know of it.",
        _topic_that_the_caller_does_not_know,
        was_real=True,
    ),
    _bug(
        "early epoch",
        "The confirmed epoch is that of a leader whose log was not compared yet.",
        _epoch_before_it_is_confirmed,
    ),
    _bug(
        "earlier leader",
        "A late response of a leader counts after it was deposed and elected again.",
        _response_of_an_earlier_leader,
    ),
    _bug(
        "one broker",
        "A topic counts as missing if one broker lacks it during a check.",
        _topic_that_one_broker_lacks,
    ),
)
