"""Decides what a fetch response without records means.

Only the leader decides on data loss: a follower may lag, and so may the cluster's metadata. A partition without records
up to the end of the range is no loss either: compaction can remove the last records of a log, and a fetch then returns
nothing although its offset lies below the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    CorruptRecordError,
    ProtocolError,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

if TYPE_CHECKING:
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition

_UNKNOWN_TOPIC_CODES = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)

# Exceptions to Kafka's "retriable" flag, as in Java's consumer (FetchCollector.handleInitializeErrors): it retries
# after an unknown error, but not after corruption on the leader's disk.
_ALSO_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, *_UNKNOWN_TOPIC_CODES})
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The request that the response belongs to."""

    partition: TopicPartition
    position: int
    broker: str | None  # ``host:port``
    on_leader: bool
    read_committed: bool
    sent_last_epoch: bool = False  # whether the request contains the last fetched epoch (KIP-320)

    @property
    def error_context(self) -> dict[str, Any]:
        topic, partition = self.partition
        return {"topic": topic, "partition": partition, "offset": self.position, "broker": self.broker}


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
class OffsetGap:
    """The leader returned no records up to ``end``, which its log contains; ``error`` is the reason of a retry."""

    end: int
    error: KafkaDirectError


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The leader's log diverges from the records read so far (KIP-320): their common ``epoch`` ends at ``offset``."""

    offset: int
    epoch: int


FetchAction: TypeAlias = RetryFetch | UsePreferredReplica | CheckLeaderLog | OffsetGap | LogTruncated


def decide_after_error(context: FetchContext, code: int) -> FetchAction:
    """Decide what follows a response with an error code; raise the error if a retry cannot help."""
    error = error_for(code, "fetching records", **context.error_context)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return (
            CheckLeaderLog(error)
            if context.on_leader
            else RetryFetch(error, refresh_metadata=True, without_backoff=True)
        )
    if code in _NOT_RETRIED or not (code in _ALSO_RETRIED or error_code_info(code).retriable):
        raise error
    return RetryFetch(error, refresh_metadata=True)  # new metadata has the leader, or the topic was deleted


def decide_after_empty(context: FetchContext, fetched: FetchResponsePartition) -> FetchAction:
    """Decide what follows a response without a complete record batch; the planned range must have records."""
    action = _action_unless_empty(context, fetched)
    if action is not None:
        return action
    end = _readable_end(context, fetched)
    if not context.on_leader:  # it may lag behind, so fetch from the leader
        return RetryFetch(_no_records_error(context, end), refresh_metadata=True, without_backoff=True)
    if context.position >= fetched.high_watermark:  # the log ends before the planned range
        return CheckLeaderLog(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "fetching records", **context.error_context))
    if context.position >= end:  # an open transaction hides the records until it ends
        return RetryFetch(_no_records_error(context, end))
    return OffsetGap(end, _no_records_error(context, end))


def is_empty_at_end(position: int, fetched: FetchResponsePartition, *, read_committed: bool) -> bool:
    """Return whether a response only reports that the log ends at the position, as most responses do."""
    return (
        not fetched.error_code
        and position == fetched.high_watermark
        and (not read_committed or position == fetched.last_stable_offset)
        and not fetched.records
        and fetched.diverging_epoch is None
        and fetched.preferred_read_replica < 0
    )


def decide_after_empty_at_end(context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
    """Decide what follows a response without a complete record batch at the end of a log; None: fetch again."""
    action = _action_unless_empty(context, fetched)
    if action is not None:
        return action
    end = _readable_end(context, fetched)
    return OffsetGap(end, _no_records_error(context, end)) if context.position < end else None


def _action_unless_empty(context: FetchContext, fetched: FetchResponsePartition) -> FetchAction | None:
    """Return what follows from other parts of the response; None if it only says that the log has no records there."""
    if fetched.diverging_epoch is not None and context.on_leader:
        if not context.sent_last_epoch:  # handling it as a truncation would repeat forever
            raise ProtocolError(
                "The broker reports that its log diverges, but the fetch request named no epoch to compare.",
                **context.error_context,
            )
        return LogTruncated(fetched.diverging_epoch.end_offset, fetched.diverging_epoch.epoch)
    if fetched.preferred_read_replica >= 0:
        if context.on_leader:
            return UsePreferredReplica(fetched.preferred_read_replica)
        # Only leaders choose replicas. A follower that names another one could send the client in circles.
        error = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetching records", **context.error_context)
        return RetryFetch(error, refresh_metadata=True)
    if len(fetched.records):
        raise CorruptRecordError(  # a broker always returns at least one complete batch (KIP-74)
            f"The broker returned {len(fetched.records)} bytes without a complete record batch.",
            **context.error_context,
        )
    # Empty because of a quota, although the log has records or does not report its end.
    if fetched.throttle_ms > 0 and (fetched.high_watermark < 0 or context.position < fetched.high_watermark):
        error = error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "fetching records", **context.error_context)
        return RetryFetch(error, without_backoff=True, throttled=True)  # the broker itself delays its responses
    if fetched.high_watermark < 0:  # then an empty response says nothing about the log
        return RetryFetch(BrokerTimeoutError("the broker does not report the end of its log.", **context.error_context))
    return None


def _readable_end(context: FetchContext, fetched: FetchResponsePartition) -> int:
    """Return the end of the records that a fetch may return; with ``read_committed``, open transactions limit it."""
    if context.read_committed and fetched.last_stable_offset >= 0:
        return min(fetched.last_stable_offset, fetched.high_watermark)
    return fetched.high_watermark


def _no_records_error(context: FetchContext, end: int) -> KafkaDirectError:
    """Return the error to raise if the broker returns no records until the deadline; it can read up to ``end``."""
    if context.position < end:
        reason = f"the broker returns no records, although its log ends at offset {end}."
    elif not context.read_committed:
        reason = f"the follower's log ends at offset {end}, before the next offset to read."
    else:
        reason = (
            f"with isolation.level=read_committed the partition can be read only up to offset {end}, because a "
            f"transaction is open there; end the range at {end}, or wait until the transaction has ended."
        )
    return BrokerTimeoutError(reason, **context.error_context)


def concerns_partition(error: KafkaDirectError, tp: TopicPartition) -> bool:
    """Return whether an error concerns the partition; an error without a topic concerns all partitions."""
    return error.topic in (None, tp.topic) and error.partition in (None, tp.partition)
