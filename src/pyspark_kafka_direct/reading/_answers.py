"""What an answer, or the lack of one, means for a range that is being read: pure decisions.

An answer with records needs none. Any other leads to one of these:

    TryAgain      trouble that may pass: ask again after a pause, the leader where the follower could not help, and
                  look for the leader anew where it may have moved
    GoTo          the leader sends us to the replica of our rack
    AskLeader     its log alone can tell whether the records are lost
    Hole          the leader says that no record is left up to an offset
    Cut           the leader's log is not the one that was read so far

Only the leader's word counts for loss: a follower may lag, and so may the cluster's metadata for a moment. A partition
without records up to the range's end is not lost either: compaction can remove the last records of a log, and a fetch
then finds nothing although its offset lies below the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_kafka_direct.errors import BrokerTimeoutError, CorruptRecordError, ProtocolError
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup

if TYPE_CHECKING:
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.fetch import FetchedPartition

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})

# Kafka's "retriable" is not always what helps a reader. So this follows Java's consumer
# (FetchCollector.handleInitializeErrors): it tries again after an unknown error, and not after damage on the leader's
# disk, which does not heal by asking again.
_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, *_GONE})
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that was answered.

    Attributes:
        partition: What is read.
        position: The offset asked for.
        broker: ``host:port`` of the broker asked.
        on_leader: Whether it is the partition's leader.
        read_committed: Whether open transactions hold records back.
        compared: Whether the broker was told what was read last, to compare it with its log.
    """

    partition: TopicPartition
    position: int
    broker: str | None
    on_leader: bool
    read_committed: bool
    compared: bool = False

    @property
    def place(self) -> dict[str, Any]:
        """Where an error happened."""
        topic, partition = self.partition
        return {"topic": topic, "partition": partition, "offset": self.position, "broker": self.broker}


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Ask again.

    Attributes:
        error: What is in the way.
        look_up: Whether the leader may have moved: look for it anew. A follower is left for the leader instead.
        at_once: Without a pause: the leader has to answer now, or the broker itself made us wait.
        throttled: Whether a quota is what is in the way.
    """

    error: KafkaDirectError
    look_up: bool = False
    at_once: bool = False
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class GoTo:
    """Fetch from another replica (KIP-392).

    Attributes:
        broker_id: The replica.
    """

    broker_id: int


@dataclass(frozen=True, slots=True)
class AskLeader:
    """Ask the leader which offsets its log has.

    Attributes:
        error: What to tell if the offset is there after all.
    """

    error: KafkaDirectError


@dataclass(frozen=True, slots=True)
class Hole:
    """The leader's log goes on, but it sends nothing.

    Attributes:
        end: Up to here it says that there is nothing.
        error: What to tell if it turns out to be no hole.
    """

    end: int
    error: KafkaDirectError


@dataclass(frozen=True, slots=True)
class Cut:
    """The leader's log parts from what was read (KIP-320).

    Attributes:
        offset: Where.
    """

    offset: int


Step: TypeAlias = TryAgain | GoTo | AskLeader | Hole | Cut


def after_error(asked: Asked, code: int) -> Step:
    """Decide what follows an answer with an error code.

    Raises:
        KafkaDirectError: The code is one that trying again does not cure.
    """
    error = error_for(code, "fetching records", **asked.place)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskLeader(error) if asked.on_leader else TryAgain(error, look_up=True, at_once=True)
    if code in _NOT_RETRIED or not (code in _RETRIED or lookup(code).retriable):
        raise error
    return TryAgain(error, look_up=True)  # which asks for metadata: if the topic is gone, that says so


def after_nothing(asked: Asked, fetched: FetchedPartition) -> Step:
    """Decide what follows an answer that is good but holds no complete record batch, where there must be records.

    Raises:
        CorruptRecordError: There are bytes, but no whole batch: a broker always sends one (KIP-74).
        ProtocolError: The log is said to differ from what nobody named.
    """
    step = _told(asked, fetched)
    if step is not None:
        return step
    end = _visible_end(asked, fetched)
    if not asked.on_leader:
        return TryAgain(_nothing_came(asked, end), look_up=True, at_once=True)
    if asked.position >= fetched.high_watermark:
        return AskLeader(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "fetching records", **asked.place))
    if asked.position >= end:
        return TryAgain(_nothing_came(asked, end))
    return Hole(end, _nothing_came(asked, end))


def is_quiet(position: int, fetched: FetchedPartition, *, read_committed: bool) -> bool:
    """Tell whether an answer says that the log ends at the position, and nothing else; most answers do."""
    return (
        not fetched.error_code
        and position == fetched.high_watermark
        and (not read_committed or position == fetched.last_stable_offset)
        and not fetched.records
        and fetched.diverging_epoch is None
        and fetched.preferred_read_replica < 0
    )


def after_nothing_yet(asked: Asked, fetched: FetchedPartition) -> Step | None:
    """Decide as ``after_nothing``, but at a log's end, where records are still to come; ``None``: wait for them.

    Raises:
        CorruptRecordError: As there.
        ProtocolError: As there.
    """
    step = _told(asked, fetched)
    if step is not None:
        return step
    end = _visible_end(asked, fetched)
    return Hole(end, _nothing_came(asked, end)) if asked.position < end else None


def _told(asked: Asked, fetched: FetchedPartition) -> Step | None:
    """Return what follows from what the broker says beside its log's end."""
    if fetched.diverging_epoch is not None and asked.on_leader:
        if not asked.compared:  # believed, it would be believed for ever: nothing moves on with it
            raise ProtocolError(
                "The broker says that its log differs from what was read, but was not told what that is.", **asked.place
            )
        return Cut(fetched.diverging_epoch.end_offset)
    if fetched.preferred_read_replica >= 0:
        return GoTo(fetched.preferred_read_replica)
    if len(fetched.records):
        raise CorruptRecordError(
            f"The broker sent {len(fetched.records)} bytes that hold no complete record batch.", **asked.place
        )
    if fetched.high_watermark < 0:
        if fetched.throttle_ms <= 0:
            return TryAgain(BrokerTimeoutError("the broker does not say where its log ends.", **asked.place))
        error = error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "fetching records", **asked.place)
        return TryAgain(error, at_once=True, throttled=True)  # the broker itself makes us wait
    return None


def _visible_end(asked: Asked, fetched: FetchedPartition) -> int:
    if asked.read_committed and fetched.last_stable_offset >= 0:
        return min(fetched.last_stable_offset, fetched.high_watermark)
    return fetched.high_watermark


def _nothing_came(asked: Asked, end: int) -> KafkaDirectError:
    if asked.position >= end:
        why = (
            f"with isolation.level=read_committed the partition can be read up to offset {end} now, because a "
            f"transaction is open there; end the range at {end}, or wait until the transaction is over."
        )
    else:
        why = f"the broker sends no records, although its log goes on to offset {end}."
    return BrokerTimeoutError(why, **asked.place)
