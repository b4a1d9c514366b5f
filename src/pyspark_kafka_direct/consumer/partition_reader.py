"""Position and evidence of a read in one partition, and the decision on each fetch response without records.

Two drivers send the requests: ``fetcher`` blocks until a range is read, and ``partition_consumer`` polls partitions
without an end.

Only the leader decides on data loss: a follower may lag, and so may the cluster's metadata. A partition without records
up to the end of the range is no loss either: compaction can remove the last records of a log, and a fetch then returns
nothing although its offset lies below the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH
from pyspark_kafka_direct.errors import BrokerTimeoutError, CorruptRecordError, ProtocolError
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.witnesses import AbsenceCheck
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.data_loss import LeaderLogState

# After so many OFFSET_OUT_OF_RANGE responses in a row for an offset that the log contains, the last fetched epoch is no
# longer sent. A broker that has lost its leader epoch checkpoint rejects such a fetch forever.
_OUT_OF_RANGE_BEFORE_EPOCH_RESET = 5

_UNKNOWN_TOPIC_CODES = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)

# Exceptions to Kafka's "retriable" flag, as in Java's consumer (FetchCollector.handleInitializeErrors): it retries
# after an unknown error, but not after corruption on the leader's disk.
_ALSO_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, *_UNKNOWN_TOPIC_CODES})
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})


class FetchContext(NamedTuple):
    """The circumstances of a fetch, by which its response is judged."""

    broker: str | None  # ``host:port``
    sent_at: float  # monotonic, as the next
    received_at: float
    on_leader: bool = True
    sent_last_epoch: bool = False  # whether the request contains the last fetched epoch (KIP-320)
    had_space: bool = True  # whether the response had space for a batch of this partition


@dataclass(frozen=True, slots=True)
class RetryFetch:
    """Fetch again; ``error`` is the reason."""

    error: KafkaDirectError
    refresh_metadata: bool = False  # the leader may have moved; after a follower, use the leader
    without_backoff: bool = False  # because the next fetch is from the leader, or the broker delays its responses
    throttled: bool = False  # by a quota


@dataclass(frozen=True, slots=True)
class UsePreferredReplica:
    """Fetch from the replica that the leader prefers for the client's rack (KIP-392)."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class CheckLeaderLog:
    """Request the log's start and end from the leader; ``error`` is the reason of a retry if the log has the offset."""

    error: KafkaDirectError


@dataclass(frozen=True, slots=True)
class CheckGap:
    """Request where the leader's local log begins, because the leader has returned no records for long enough."""

    end: int  # of the offsets without records, which the leader's log contains
    no_data_seconds: float
    error: KafkaDirectError  # the reason of a retry


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The leader's log diverges from the records read so far (KIP-320): their common ``epoch`` ends at ``offset``."""

    offset: int
    epoch: int


FetchAction: TypeAlias = RetryFetch | UsePreferredReplica | CheckLeaderLog | CheckGap | LogTruncated


class PartitionReader:
    """The next offset to fetch of one partition, and what responses have shown about the log there."""

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        read_committed: bool,
        in_planned_range: bool,  # then the log has a record at the offset, or had one
    ) -> None:
        self._tp = tp
        self._read_committed = read_committed
        self._in_planned_range = in_planned_range
        self.resume_at(offset)  # sets the offset and the evidence

    def resume_at(self, offset: int, last_fetched_epoch: int = UNKNOWN_EPOCH) -> None:
        """Continue after the records that were fetched, or at an offset about which nothing is known yet."""
        self.fetch_offset = offset  # after the last fetched record
        self.last_fetched_epoch = last_fetched_epoch  # of the last batch before the offset
        self.reset_evidence()

    def reset_evidence(self) -> None:
        """Forget the evidence, because the leader served the partition, or because it concerned another offset."""
        self.absence_check: AbsenceCheck | None = None  # while metadata or the leader lacks the partition
        self._no_data_since: float | None = None  # since when responses below the log end are empty: perhaps a gap
        self._out_of_range_responses = 0  # in a row, although the log contains the offset
        self._stale_end_responses = 0  # in a row: a leader before Kafka 2.2 returned an end before the offset

    def forget_empty_responses(self) -> None:
        """Restart the time without data: another leader may respond from now on, or nothing was fetched meanwhile."""
        self._no_data_since = None

    def decide(self, context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
        """Decide what follows a response without a complete record batch; raise the error if a retry cannot help.

        None: the leader served the partition, whose next records are not written yet.
        """
        if fetched.error_code:
            return self._decide_after_error(context, fetched.error_code)
        action = self._action_unless_empty(context, fetched)
        if action is None:
            return self._decide_after_empty(context, fetched)
        if isinstance(action, RetryFetch) and action.throttled and self._no_data_since is not None:
            self._no_data_since += context.received_at - context.sent_at  # a throttled response is no evidence of a gap
        return action

    def should_fetch_again(self, log: LeaderLogState, *, end_may_be_stale: bool) -> bool:
        """Return whether the leader's log has the offset that its leader rejected, or has to report its end again."""
        needed_end = self.fetch_offset + self._in_planned_range  # a range contains the record at the offset
        if log.is_end_unconfirmed(needed_end, end_may_be_stale=end_may_be_stale, responses=self._stale_end_responses):
            self._stale_end_responses += 1
            return True
        if not log.start <= self.fetch_offset <= needed_end <= log.end:
            return False
        self.forget_empty_responses()
        self._out_of_range_responses += 1
        if self._out_of_range_responses >= _OUT_OF_RANGE_BEFORE_EPOCH_RESET:
            self.last_fetched_epoch = UNKNOWN_EPOCH
        return True

    def _decide_after_error(self, context: FetchContext, code: int) -> FetchAction:
        error = self._error(context, code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if context.on_leader:
                return CheckLeaderLog(error)
            return RetryFetch(error, refresh_metadata=True, without_backoff=True)
        if code in _NOT_RETRIED or not (code in _ALSO_RETRIED or error_code_info(code).retriable):
            raise error
        return RetryFetch(error, refresh_metadata=True)  # new metadata has the leader, or the topic was deleted

    def _action_unless_empty(self, context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
        """Return what follows from other parts of the response; None if it only says that the log has no records."""
        if fetched.diverging_epoch is not None and context.on_leader:
            if not context.sent_last_epoch:  # handling it as a truncation would repeat forever
                raise ProtocolError(
                    "The broker reports that its log diverges, but the fetch request named no epoch to compare.",
                    **self._error_context(context),
                )
            return LogTruncated(fetched.diverging_epoch.end_offset, fetched.diverging_epoch.epoch)
        if fetched.preferred_read_replica >= 0:
            if context.on_leader and self._in_planned_range:
                return UsePreferredReplica(fetched.preferred_read_replica)
            # Only leaders choose replicas. A follower that names another one could send the client in circles. Fetches
            # of other reads have no rack, so leaders choose none for them.
            return RetryFetch(self._error(context, ErrorCode.NOT_LEADER_OR_FOLLOWER), refresh_metadata=True)
        if len(fetched.records):
            raise CorruptRecordError(  # a broker always returns at least one complete batch (KIP-74)
                f"The broker returned {len(fetched.records)} bytes without a complete record batch.",
                **self._error_context(context),
            )
        # Empty because of a quota, although the log has records or does not report its end.
        if fetched.throttle_ms > 0 and (fetched.high_watermark < 0 or self.fetch_offset < fetched.high_watermark):
            error = self._error(context, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return RetryFetch(error, without_backoff=True, throttled=True)  # the broker itself delays its responses
        if fetched.high_watermark < 0:  # then an empty response says nothing about the log
            reason = "the broker does not report the end of its log."
            return RetryFetch(BrokerTimeoutError(reason, **self._error_context(context)))
        return None

    def _decide_after_empty(self, context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
        end = fetched.high_watermark  # of the records that a fetch may return
        if self._read_committed and fetched.last_stable_offset >= 0:  # open transactions limit it
            end = min(fetched.last_stable_offset, end)
        if not context.on_leader:  # it may lag behind, so fetch from the leader
            return RetryFetch(self._no_records_error(context, end), refresh_metadata=True, without_backoff=True)
        if self.fetch_offset < end:  # without space, records of other partitions filled the response
            return self._decide_on_gap(context, end) if context.had_space else None
        if not self._in_planned_range:
            return None
        if self.fetch_offset >= fetched.high_watermark:  # the log ends before the planned range
            return CheckLeaderLog(self._error(context, ErrorCode.OFFSET_OUT_OF_RANGE))
        # An open transaction hides the records until it ends.
        return RetryFetch(self._no_records_error(context, end))

    def _decide_on_gap(self, context: FetchContext, end: int) -> RetryFetch | CheckGap:
        """Fetch again until the leader has returned no records up to an end of its log for long enough."""
        if self._no_data_since is None:
            self._no_data_since = context.received_at
        # Only until the last request was sent, because its response may have taken long.
        no_data_seconds = context.sent_at - self._no_data_since
        error = self._no_records_error(context, end)
        if no_data_seconds >= CONFIRMATION_SECONDS:
            return CheckGap(end, no_data_seconds, error)
        error.confirmation_seconds = CONFIRMATION_SECONDS  # too early, wherever the local log begins
        return RetryFetch(error)

    def _no_records_error(self, context: FetchContext, end: int) -> KafkaDirectError:
        """Return the error to raise if the broker returns no records until the deadline; it can read up to ``end``."""
        if self.fetch_offset < end:
            reason = f"the broker returns no records, although its log ends at offset {end}."
        elif not self._read_committed:
            reason = f"the follower's log ends at offset {end}, before the next offset to read."
        else:
            reason = (
                f"with isolation.level=read_committed the partition can be read only up to offset {end}, because a "
                f"transaction is open there; end the range at {end}, or wait until the transaction has ended."
            )
        return BrokerTimeoutError(reason, **self._error_context(context))

    def _error(self, context: FetchContext, code: int) -> KafkaDirectError:
        return error_for(code, "fetching records", **self._error_context(context))

    def _error_context(self, context: FetchContext) -> dict[str, Any]:
        topic, partition = self._tp
        return {"topic": topic, "partition": partition, "offset": self.fetch_offset, "broker": context.broker}
