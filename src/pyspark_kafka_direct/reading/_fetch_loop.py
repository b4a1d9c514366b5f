"""The loop that fetches one offset range; what becomes of the record batches is its consumer's affair.

For as long as ``position < until``:

1. take the answer to the fetch request for ``position`` (sent earlier, or now);
2. hand its record batches to the consumer, which tells the next position from their headers, and send the next request
   *before* they are decoded, so that the broker works while we do;
3. let the consumer's owner work, go on.

An answer without records is judged in ``_answers``; what that says is done here, with the broker that ``_replica`` has.

What can go wrong is of three kinds. *Trouble* (a broken connection, a moved leader, stale metadata) is retried with
back-off until ``poll_timeout`` has passed without progress. *Loss* (records that are gone) is decided by the leader
only, and follows ``fail_on_data_loss``. Everything else is an error at once, as with Java's consumer. That includes a
wrong checksum: TCP and TLS have checksums of their own, so it is the broker's disk. Spark tries a failed task again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.planning.loss import LogState, judge, judge_cut
from pyspark_kafka_direct.reading._answers import (
    Asked,
    AskLeader,
    Cut,
    GoTo,
    Hole,
    TryAgain,
    after_error,
    after_nothing,
)
from pyspark_kafka_direct.reading._patience import Patience
from pyspark_kafka_direct.records import AbortedTransaction, scan_leader_epoch
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.reading._answers import Step
    from pyspark_kafka_direct.reading._replica import Replica
    from pyspark_kafka_direct.reading.counts import ReadCounts
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.reading")

# The first fetch of a range is smaller than the others: a query may want no more than its first rows (``show``,
# ``limit``), and Spark hands none of them on before it has the whole Arrow batch.
_FIRST_FETCH = 256 << 10

# How often in a row a leader of before Kafka 2.2 must say that its log ends before what was planned. Right after its
# election it says so even of a log that has the records.
_SHORT_ENDS_TO_BELIEVE = 5

# For which share of the patience the leader must send nothing, although its log goes on, before that is taken for a
# hole. Nothing proves a hole there. Apache's brokers answer so only at a hole, but others do while they fetch old
# records from slow storage. Holes at the very end of a log are rare: the segment that is written to is never compacted.
_SILENCE_TO_BELIEVE = 0.5

_UNKNOWN = -1  # a leader epoch

# How often in a row the leader must refuse an offset that its log has, before the epoch of what was read is no longer
# named. A broker that does not know where that epoch ended, as its record of epochs is lost, refuses so for ever.
_REFUSALS_OF_EPOCH = 5


class Consumer(Protocol):
    """Takes the record batches of a range: a decoder, or a counter."""

    @property
    def next_offset(self) -> int:
        """The next offset to fetch."""

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction]) -> None:
        """Take the record bytes of one fetch response; only ``next_offset`` must be up to date after it."""

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset; what lies between holds nothing to read."""


class FetchLoop:
    """Feeds a consumer with one range.

    Args:
        settings: Has the pauses between tries.
        fetch: How to fetch.
        request: The range and how to read it.
        replica: Where it is read from.
        consumer: Takes the record batches.
        counts: Fetches, waits, retries, holes and losses are counted here.
        ahead: Whether to ask for what follows before it is needed.
        system: Has the clock.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        fetch: FetchSettings,
        request: RangeRequest,
        replica: Replica,
        consumer: Consumer,
        counts: ReadCounts,
        *,
        ahead: bool = True,
        system: System = SYSTEM,
    ) -> None:
        self._system = system
        self._settings = fetch
        self._max_bytes = min(fetch.max_partition_fetch_bytes, max(_FIRST_FETCH, fetch.fetch_min_bytes))
        self._request = request
        self._replica = replica
        self._consumer = consumer
        self._counts = counts
        self._ahead = ahead
        self._patience = Patience(settings, request, system)
        self._denials = 0
        self._refusals = 0
        self._short_ends = 0
        self._silent_since: float | None = None
        self._epoch = _UNKNOWN  # of the last batch before the position

    def run(self) -> Iterator[None]:
        """Yield each time the consumer was fed, with the next request under way, until the range's end.

        Raises:
            DataLossError: Records of the range are gone, and ``fail_on_data_loss`` is true.
            BrokerTimeoutError: No progress for ``poll_timeout`` seconds.
            BrokerError: The cluster refuses (authentication, authorization, protocol).
            RecordError: Bytes that are not valid records.
        """
        while (position := self._consumer.next_offset) < self._request.offsets.until_offset:
            self._patience.check(self._replica.broker)
            try:
                fetched = self._fetch(position)
                fed = self._feed(position, fetched)
                if not fed:
                    self._act(position, self._judge(position, fetched))
            except TransientBrokerError as error:
                self._try_again(TryAgain(error, look_up=True))
                continue
            except TopicNotFoundError as error:
                self._after_denial(position, error)
                continue
            if fed:
                yield
                self._patience.renew()  # whoever takes the records may be slow: that is not the brokers' time

    def _fetch(self, position: int) -> FetchedPartition:
        deadline = self._patience.deadline
        started = self._system.monotonic()
        try:
            self._replica.ask(position, self._max_bytes, deadline, last_epoch=self._epoch)
            fetched = self._replica.answer(deadline)
        finally:
            self._counts.wait_seconds += self._system.monotonic() - started
        self._counts.fetched(self._replica.broker, len(fetched.records))
        return fetched

    def _feed(self, position: int, fetched: FetchedPartition) -> bool:
        """Feed the consumer if the answer brought records, with the next request under way; return whether it did."""
        if fetched.error_code:
            return False
        self._consumer.feed(fetched.records, [AbortedTransaction(*entry) for entry in fetched.aborted])
        next_offset = self._consumer.next_offset
        if next_offset <= position:
            return False
        self._progressed()
        self._max_bytes = self._settings.max_partition_fetch_bytes
        if self._ahead and next_offset < self._request.offsets.until_offset:
            # Without the last batch's epoch: a broker refuses a request that names another epoch of the leader, and no
            # log is cut within one.
            try:
                self._replica.ask(next_offset, self._max_bytes, self._patience.deadline)
            except (TopicNotFoundError, TransientBrokerError):
                self._replica.drop()  # the records at hand come first: the loop asks again, and then it counts
        self._epoch = scan_leader_epoch(fetched.records)
        return True

    def _judge(self, position: int, fetched: FetchedPartition) -> Step:
        asked = Asked(
            self._request.offsets.topic_partition,
            position,
            self._replica.broker,
            self._replica.on_leader,
            self._settings.isolation_level == "read_committed",
            self._epoch != _UNKNOWN,
        )
        return after_error(asked, fetched.error_code) if fetched.error_code else after_nothing(asked, fetched)

    def _act(self, position: int, step: Step) -> None:
        match step:
            case GoTo(broker_id):
                self._replica.prefer(broker_id)
            case TryAgain():
                self._try_again(step)
            case AskLeader(error):
                log = self._replica.log_state(self._patience.deadline)
                if position >= log.end and self._replica.end_may_lag and self._short_ends < _SHORT_ENDS_TO_BELIEVE:
                    self._short_ends += 1
                    self._wait(error)
                else:
                    self._follow_log(position, log, error)
            case Hole():
                self._wait_or_believe(position, step)
            case Cut(offset):
                self._go_on_in_cut_log(position, offset)

    def _try_again(self, step: TryAgain) -> None:
        if step.throttled:
            self._counts.throttled += 1
        if step.look_up:
            self._denials = 0
            self._silent_since = None
            if self._replica.on_leader:
                self._replica.drop()
            else:
                self._replica.return_to_leader()
        if step.at_once:
            self._patience.note(step.error)
        else:
            self._wait(step.error)

    def _after_denial(self, position: int, error: KafkaDirectError) -> None:
        """Decide what to do when there is no such topic or partition, or the topic has another id."""
        self._replica.drop()
        self._silent_since = None
        self._denials += 1
        if self._denials < DENIALS_TO_BELIEVE:
            self._wait(error)
            return
        topic_id = self._replica.recreated_as
        self._follow_log(position, None if topic_id is None else LogState(0, 0, topic_id), error)

    def _wait_or_believe(self, position: int, hole: Hole) -> None:
        if self._silent_since is None:
            self._silent_since = self._system.monotonic()
        silence = self._system.monotonic() - self._silent_since
        # What lies in tiered storage (KIP-405) comes when it comes.
        if silence < self._request.poll_timeout * _SILENCE_TO_BELIEVE or position < self._replica.local_start(
            self._patience.deadline
        ):
            self._wait(hole.error)
            return
        offsets = self._request.offsets
        next_offset = min(hole.end, offsets.until_offset)
        _log.warning(
            "offsets [%d, %d) of %s are taken for a hole of compaction at the log's end: for %.1f s its leader "
            "%s sent no records, although the log goes on to offset %d",
            *(position, next_offset, offsets.topic_partition, silence, self._replica.broker, hole.end),
        )
        self._counts.holes += next_offset - position
        self._counts.unproven += next_offset - position
        self._go_on_from(next_offset)

    def _go_on_in_cut_log(self, position: int, cut_at: int) -> None:
        verdict = judge_cut(self._request.offsets, position, cut_at, fail_on_data_loss=self._request.fail_on_data_loss)
        _log.warning("%s", verdict.message)
        self._counts.lost += verdict.lost
        self._go_on_from(position)  # the batch that is there now may begin before the position

    def _follow_log(self, position: int, log: LogState | None, error: KafkaDirectError) -> None:
        """Go on where the leader's log allows it, which may be at the same offset."""
        request = self._request
        verdict = judge(
            request.offsets,
            position,
            log,
            planned_topic_id=request.topic_id,
            from_earliest=request.from_earliest,
            fail_on_data_loss=request.fail_on_data_loss,
        )
        if verdict.message is not None:
            _log.warning("%s", verdict.message)
        self._counts.lost += verdict.lost
        if verdict.next_offset == position:
            self._silent_since = None  # it may be another leader's log that was asked for
            self._refusals += 1
            if self._refusals >= _REFUSALS_OF_EPOCH:
                self._epoch = _UNKNOWN
            self._wait(error)
        else:
            self._go_on_from(verdict.next_offset)

    def _go_on_from(self, offset: int) -> None:
        self._consumer.skip_to(offset)
        self._epoch = _UNKNOWN
        self._progressed()

    def _wait(self, error: KafkaDirectError) -> None:
        self._counts.retries += 1
        self._patience.note(error)
        self._patience.pause()

    def _progressed(self) -> None:
        self._patience.renew()
        self._denials = 0
        self._refusals = 0
        self._short_ends = 0
        self._silent_since = None
