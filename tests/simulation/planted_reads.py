"""Bugs of range reads."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

_bug: Final = BugsOf("range_reads")


def _rows_before_the_start() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher

    def create(original: Any) -> Any:
        def RecordDecoder(**values: Any) -> Any:
            return original(**values | {"from_offset": max(0, values["from_offset"] - 1)})

        return RecordDecoder

    return [Patch(fetcher, "RecordDecoder", create)]


def _rows_after_the_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher

    def create(original: Any) -> Any:
        def RecordDecoder(**values: Any) -> Any:
            return original(**values | {"until_offset": values["until_offset"] + 1})

        return RecordDecoder

    return [Patch(fetcher, "RecordDecoder", create)]


def _aborted_records() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import _DecodingHandler

    def feed(original: Any) -> Any:
        return lambda self, records, aborted: original(self, records, [])

    return [Patch(_DecodingHandler, "feed", feed)]


def _first_aborted_transaction_only() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import _DecodingHandler

    def feed(original: Any) -> Any:
        return lambda self, records, aborted: original(self, records, list(aborted)[:1])

    return [Patch(_DecodingHandler, "feed", feed)]


def _fed_twice() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import Fetcher

    def feed(original: Any) -> Any:
        def _feed(self: Any, fetched: Any) -> bool:
            position = self._reader.fetch_offset
            fed = original(self, fetched)
            if fed and self._counts.retries == 1:
                self._counts.retries += 1
                self._handler.skip_to(position)  # after a retry the response is decoded again
                self._handler.feed(fetched.records, [])
            return bool(fed)

        return _feed

    return [Patch(Fetcher, "_feed", feed)]


def _gap_at_once() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher, partition_reader
    from pyspark_kafka_direct.planning.data_loss import GapDecision

    return [
        Patch(partition_reader, "CONFIRMATION_SECONDS", lambda _: 0.0),
        Patch(fetcher, "evaluate_gap", lambda _: lambda *_: GapDecision.GAP),
    ]


def _gap_without_local_start() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher
    from pyspark_kafka_direct.planning.data_loss import evaluate_gap

    return [
        Patch(
            fetcher,
            "evaluate_gap",
            lambda _: lambda position, local, seconds: evaluate_gap(position, 0, seconds),
        )
    ]


def _throttled_responses_prove_a_gap() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.partition_reader import PartitionReader

    def decide(original: Any) -> Any:
        return lambda self, context, fetched: original(self, context, fetched._replace(throttle_ms=0))

    return [Patch(PartitionReader, "decide", decide)]


def _one_broker_confirms_absence() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning import data_loss

    return [Patch(data_loss, "CONFIRMATION_SECONDS", lambda _: 0.0), _only_one_witness()]


def _only_one_witness() -> Patch:
    from pyspark_kafka_direct.client import witnesses

    return Patch(witnesses, "MAX_WITNESSES", lambda _: 1)


def _no_epoch_floor() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.data_loss import EpochFloors

    return [Patch(EpochFloors, "is_stale", lambda _: lambda *_: False)]


def _leader_is_not_checked() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica

    return [
        Patch(ReadReplica, "check_leader", lambda _: lambda *_: None),
        Patch(ReadReplica, "fetch_log_state", _without_floors),
    ]


def _without_floors(original: Any) -> Any:
    def fetch_log_state(self: Any, deadline: Any) -> Any:
        raise_floors = self._cluster.raise_epoch_floors
        self._cluster.raise_epoch_floors = lambda *_, **__: None
        try:
            return original(self, deadline)
        finally:
            self._cluster.raise_epoch_floors = raise_floors

    return fetch_log_state


def _epoch_is_not_sent() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel

    def request(original: Any) -> Any:
        def request(self: Any, partitions: Any, *args: Any, **options: Any) -> None:
            original(self, [each._replace(leader_epoch=-1) for each in partitions], *args, **options)

        return request

    return [Patch(FetchChannel, "request", request)]


def _truncation_is_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel

    def request(original: Any) -> Any:
        def request(self: Any, partitions: Any, *args: Any, **options: Any) -> None:
            original(self, [each._replace(last_fetched_epoch=-1) for each in partitions], *args, **options)

        return request

    return [Patch(FetchChannel, "request", request)]


def _topic_id_is_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica

    def init(original: Any) -> Any:
        def without_id(self: Any, settings: Any, fetch: Any, tp: Any, topic_id: Any, **options: Any) -> None:
            original(self, settings, fetch, tp, None, **options)

        return without_id

    return [Patch(ReadReplica, "__init__", init)]


def _expired_records_are_skipped() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher
    from pyspark_kafka_direct.planning.data_loss import evaluate_loss

    def evaluate(_: Any) -> Any:
        return lambda *args, **options: evaluate_loss(*args, **options | {"fail_on_data_loss": False})

    return [Patch(fetcher, "evaluate_loss", evaluate)]


def _loss_is_not_counted() -> Sequence[Patch]:
    from dataclasses import replace

    from pyspark_kafka_direct.consumer import fetcher
    from pyspark_kafka_direct.planning.data_loss import evaluate_loss

    def evaluate(_: Any) -> Any:
        return lambda *args, **options: replace(evaluate_loss(*args, **options), lost=0)

    return [Patch(fetcher, "evaluate_loss", evaluate)]


def _prefetch_skips_an_offset() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel

    def request(original: Any) -> Any:
        def request(self: Any, partitions: Any, *args: Any, **options: Any) -> None:
            first, self.__dict__["was_used"] = "was_used" not in self.__dict__, True
            later = [each._replace(offset=each.offset + 1) for each in partitions]
            original(self, partitions if first else later, *args, **options)

        return request

    return [Patch(FetchChannel, "request", request)]


def _gap_skips_one_more() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import Fetcher

    def resume(original: Any) -> Any:
        return lambda self, offset: original(self, min(offset + 1, self._task.offsets.until_offset))

    return [Patch(Fetcher, "_resume_at", resume)]


def _metadata_is_not_refreshed() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica

    def refresh(original: Any) -> Any:
        def _refresh_metadata(self: Any, deadline: Any) -> Any:
            if "leader" not in self.__dict__:
                self.leader = (original(self, deadline), self._leader_epoch)
            node, self._leader_epoch = self.leader
            return node

        return _refresh_metadata

    return [Patch(ReadReplica, "_refresh_metadata", refresh)]


def _fenced_epoch_is_dropped() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import Fetcher
    from pyspark_kafka_direct.protocol.error_codes import ErrorCode

    def decide(original: Any) -> Any:
        def _decide(self: Any, context: Any, fetched: Any) -> Any:
            action = original(self, context, fetched)
            if fetched.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                self._replica._leader_epoch = -1  # the next fetch goes to the same broker, without epochs
                self._reader.last_fetched_epoch = -1
                return dataclasses.replace(action, refresh_metadata=False)
            return action

        return _decide

    return [Patch(Fetcher, "_decide", decide)]


def _counted_again_after_a_retry() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import Fetcher
    from pyspark_kafka_direct.consumer.range_counter import RecordCounter

    def feed(original: Any) -> Any:
        def _feed(self: Any, fetched: Any) -> bool:
            before = self._handler.records if isinstance(self._handler, RecordCounter) else 0
            fed = bool(original(self, fetched))
            if isinstance(self._handler, RecordCounter) and self._counts.retries == 1:
                self._handler.records += self._handler.records - before
            return fed

        return _feed

    return [Patch(Fetcher, "_feed", feed)]


def _timeout_of_a_wall_clock() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.deadline import Deadline

    return [Patch(Deadline, "expired", lambda _: property(lambda self: self.system.wall_time() - 1.7e9 > self.at + 30))]


def _losses_ignore_the_range() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer import fetcher
    from pyspark_kafka_direct.planning.data_loss import evaluate_loss

    def evaluate(_: Any) -> Any:
        return lambda *args, **options: evaluate_loss(*args, **options | {"from_earliest": True})

    return [Patch(fetcher, "evaluate_loss", evaluate)]


def _retry_loses_progress_deadline() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.fetcher import FetchRetry

    def back_off(original: Any) -> Any:
        def _back_off(self: Any) -> None:
            self.reset()  # each retry starts the timeout again
            original(self)

        return _back_off

    return [Patch(FetchRetry, "back_off", back_off)]


def _truncated_response_is_accepted() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection import Connection

    def read_into(original: Any) -> Any:
        def _read_into(self: Any, sock: Any, view: Any, limit: Any) -> None:
            try:
                original(self, sock, view, limit)
            except ConnectionResetError:
                if self._response.body_size is None or not self._response.received_size:
                    raise
                self._response.received_size += len(view)  # the rest of the buffer is old bytes

        return _read_into

    return [Patch(Connection, "_read_into", read_into)]


def _aborted_records_are_counted() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.range_counter import RecordCounter

    def feed(original: Any) -> Any:
        return lambda self, records, aborted: original(self, records, [])

    return [Patch(RecordCounter, "feed", feed)]


def _busy_connections_are_reused() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection import Connection

    return [Patch(Connection, "idle", lambda _: property(lambda self: self._socket is not None))]


def _counts_begin_after_a_skip() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.range_counter import RecordCounter

    def feed(original: Any) -> Any:
        def method(self: Any, records: Any, aborted: Any = ()) -> None:
            original(self, records, aborted)
            self.records = self._decoder.counts.records

        return method

    return [Patch(RecordCounter, "feed", feed)]


def _empty_responses_count_as_throttled() -> Sequence[Patch]:
    from pyspark_kafka_direct.consumer.range_task import ReadCounts

    def add(original: Any) -> Any:
        def add_fetch(self: Any, broker: Any, size: int) -> None:
            original(self, broker, size)
            self.throttled += not size

        return add_fetch

    return [Patch(ReadCounts, "add_fetch", add)]


def _lost_remainders() -> Sequence[Patch]:
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.planning import offset_range_calculator

    def split(_: Any) -> Any:
        def _split_evenly(whole: Any, parts: int) -> list[Any]:
            parts = min(parts, whole.count())
            starts = [whole.from_offset + number * (whole.count() // parts) for number in range(parts + 1)]
            return [OffsetRange(whole.topic, whole.partition, *each) for each in pairwise(starts)]

        return _split_evenly

    return [Patch(offset_range_calculator, "_split_evenly", split)]


BUGS: Final = (
    _bug("rows before the start", "A range begins one offset too early.", _rows_before_the_start),
    _bug("rows after the end", "A range ends one offset too late.", _rows_after_the_end),
    _bug("aborted records", "Aborted records are returned with read_committed.", _aborted_records),
    _bug(
        "first aborted only",
        "Only one aborted transaction of a response counts.",
        _first_aborted_transaction_only,
    ),
    _bug("fed twice", "A response is decoded again after a retry, without its aborted transactions.", _fed_twice),
    _bug("gap at once", "One empty response counts as an offset gap.", _gap_at_once, was_real=True),
    _bug(
        "gap without local start",
        "A gap is proven without ListOffsets -4.",
        _gap_without_local_start,
        was_real=True,
    ),
    _bug(
        "throttled gap",
        "Throttled responses prove a gap.",
        _throttled_responses_prove_a_gap,
        was_real=True,
    ),
    _bug("one witness", "One response of one broker deletes a range.", _one_broker_confirms_absence, was_real=True),
    _bug("no epoch floor", "Metadata of lower leader epochs is accepted.", _no_epoch_floor, was_real=True),
    _bug("leader not checked", "The log state of a deposed leader counts.", _leader_is_not_checked, was_real=True),
    _bug("epoch not sent", "Fetches do not name the leader epoch.", _epoch_is_not_sent),
    _bug("truncation ignored", "Fetches do not name the last fetched epoch.", _truncation_is_ignored),
    _bug("topic id ignored", "A recreated topic is read as the planned one.", _topic_id_is_ignored),
    _bug("expired skipped", "Lost offsets are skipped although failOnDataLoss is true.", _expired_records_are_skipped),
    _bug("loss not counted", "Skipped offsets are not counted.", _loss_is_not_counted),
    _bug(
        "late prefetch", "Every fetch of a connection but the first starts one offset late.", _prefetch_skips_an_offset
    ),
    _bug("skip too far", "A skip of lost offsets or of a gap goes one offset too far.", _gap_skips_one_more),
    _bug("stale leader", "A task never looks for the leader again.", _metadata_is_not_refreshed),
    _bug(
        "fence ignored", "After FENCED_LEADER_EPOCH the fetch is sent again without epochs.", _fenced_epoch_is_dropped
    ),
    _bug("counted again", "After a retry a response counts twice.", _counted_again_after_a_retry),
    _bug("late deadline", "Deadlines are checked with a wall clock that differs.", _timeout_of_a_wall_clock),
    _bug("always earliest", "Expired offsets at a range's start are never a loss.", _losses_ignore_the_range),
    _bug("endless retries", "Each retry starts the timeout again.", _retry_loses_progress_deadline),
    _bug("truncated response", "A response that ends early is decoded.", _truncated_response_is_accepted),
    _bug("busy reused", "A connection with an outstanding response is reused.", _busy_connections_are_reused),
    _bug(
        "count after a skip",
        "A count of a range that skips lost offsets (failOnDataLoss=false), a gap or a truncation returns only the "
        "records after the last skip.",
        _counts_begin_after_a_skip,
    ),
    _bug(
        "throttled if empty",
        "Each empty fetch response counts as throttled, although no broker has a quota.",
        _empty_responses_count_as_throttled,
    ),
    _bug("aborted counted", "A count includes aborted records.", _aborted_records_are_counted),
    _bug("remainders", "Ranges that are split into tasks lose their last offsets.", _lost_remainders),
)
