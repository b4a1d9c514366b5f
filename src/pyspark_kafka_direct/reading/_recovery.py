"""What to do when an answer brings no records: try again, go on elsewhere, or say that records are lost.

Only the leader's word counts for loss: a follower may lag, and so may the cluster's metadata for a moment. A partition
without records up to the range's end is not lost either: compaction can remove the last records of a log, and a fetch
then finds nothing although its offset lies below the high watermark.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    CorruptRecordError,
    KafkaDirectError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.planning.loss import LogState, judge
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading._replica import Replica
    from pyspark_kafka_direct.reading.counts import ReadCounts
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.settings import ConnectionSettings

_log = logging.getLogger("pyspark_kafka_direct.reading")

_PATIENCE = "kafkaConsumer.pollTimeoutMs"

# How often in a row the cluster must deny a topic that the plan has seen: a broker's metadata may lag behind. With the
# default back-off that takes about 1.5 s.
_DENIALS_TO_BELIEVE = 5

# How often in a row the leader must say that nothing is left, although its log goes on. Each takes fetch.max.wait.ms.
_EMPTIES_TO_BELIEVE = 2

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})

# Where Kafka's "retriable" is not what helps a reader, Java's consumer decides (FetchCollector.handleInitializeErrors):
# it tries again after an unknown error, but damage on the leader's disk does not heal by asking again.
_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, *_GONE})
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})


class Recovery:
    """Decides, for one range, what follows an answer without records.

    The ``after_`` methods return the offset to go on from; all may raise ``DataLossError`` and, from their questions to
    the cluster, ``TransientBrokerError`` and ``TopicNotFoundError``. Patience ends in ``check_time`` only.

    Args:
        settings: How to reach the cluster.
        request: The range and how to read it.
        replica: Where it is read from; told to look for the leader again where that helps.
        counts: Retries, holes and losses are counted here.
    """

    def __init__(
        self, settings: ConnectionSettings, request: RangeRequest, replica: Replica, counts: ReadCounts
    ) -> None:
        self._settings = settings
        self._request = request
        self._replica = replica
        self._counts = counts
        self.progressed()

    @property
    def deadline(self) -> Deadline:
        """When the read fails, unless something arrives before."""
        return self._deadline

    def progressed(self) -> None:
        """Records arrived, or were handed out: patience starts anew."""
        self._deadline = Deadline.after(self._request.poll_timeout, _PATIENCE)
        self._pause = self._settings.retry_backoff_ms / 1000
        self._denials = 0
        self._empties = 0
        self._last: KafkaDirectError | None = None

    def check_time(self) -> None:
        """Gives up when nothing has come for too long.

        Raises:
            BrokerTimeoutError: With the last trouble as its cause.
        """
        if not self._deadline.expired:
            return
        last = self._last
        raise BrokerTimeoutError(
            f"No record came for {self._request.poll_timeout:g} s (option {_PATIENCE})"
            + ("." if last is None else f"; the last try: {last.message}"),
            topic=self._request.offsets.topic,
            partition=self._request.offsets.partition,
            offset=None if last is None else last.offset,
            broker=self._replica.broker if last is None else last.broker or self._replica.broker,
        ) from last

    def ask_ahead(self, position: int) -> None:
        """Sends the next request, if there is one, so that the broker works while records are decoded.

        Trouble has to wait: the records at hand come first. The loop asks again, and then it counts.
        """
        if position >= self._request.offsets.until_offset:
            return
        try:
            self._replica.ask(position, self._settings.max_partition_fetch_bytes, self._deadline)
        except (TopicNotFoundError, TransientBrokerError):
            self._replica.drop()

    def after_trouble(self, error: KafkaDirectError) -> None:
        """The connection failed, or the leader moved: look for the leader again after a pause."""
        if self._replica.on_leader:
            self._replica.drop()
        else:
            self._replica.return_to_leader()
        self._denials = 0
        self._wait(error)

    def after_missing(self, position: int, error: KafkaDirectError) -> int:
        """The cluster says that there is no such topic or partition, or that it has another id."""
        self._replica.drop()
        self._denials += 1
        if self._denials < _DENIALS_TO_BELIEVE:
            self._wait(error)
            return position
        topic_id = self._replica.recreated_as
        return self._judge(position, None if topic_id is None else LogState(0, 0, topic_id))

    def after_code(self, position: int, fetched: FetchedPartition) -> int:
        """The answer carries an error code.

        Raises:
            KafkaDirectError: The code is one that trying again does not cure.
        """
        code = fetched.error_code
        error = self._error(code, position)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._replica.on_leader:
                return self._judge(position, self._replica.log_state(self._deadline))
            self._replica.return_to_leader()
            return position
        if code in _NOT_RETRIED or not (code in _RETRIED or lookup(code).retriable):
            raise error
        self.after_trouble(error)  # which asks for metadata: if the topic is gone, that says so
        return position

    def after_empty(self, position: int, fetched: FetchedPartition) -> int:
        """The answer is good but holds no complete record batch.

        Raises:
            CorruptRecordError: There are bytes, but no whole batch: a broker always sends one (KIP-74).
        """
        if fetched.preferred_read_replica >= 0:
            self._replica.prefer(fetched.preferred_read_replica)
            return position
        if len(fetched.records):
            raise CorruptRecordError(
                f"The broker sent {len(fetched.records)} bytes that hold no complete record batch.",
                **self._place(position),
            )
        if fetched.high_watermark < 0:  # throttled: the broker itself makes us wait
            self._counts.throttled += 1
            self._last = self._error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, position)
            return position
        if not self._replica.on_leader:
            self._replica.return_to_leader()
            return position
        if position >= fetched.high_watermark:
            return self._judge(position, self._replica.log_state(self._deadline))
        end = self._visible_end(fetched)
        self._empties += 1
        if position < end and self._empties >= _EMPTIES_TO_BELIEVE:
            self._empties = 0
            if position >= self._replica.local_start(self._deadline):
                next_offset = min(end, self._request.offsets.until_offset)
                self._counts.holes += next_offset - position
                return next_offset
        self._wait(self._nothing_came(position, fetched))
        return position

    def _judge(self, position: int, log: LogState | None) -> int:
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
            self._wait(self._error(ErrorCode.OFFSET_OUT_OF_RANGE, position))
        return verdict.next_offset

    def _visible_end(self, fetched: FetchedPartition) -> int:
        if self._settings.isolation_level == "read_committed" and fetched.last_stable_offset >= 0:
            return min(fetched.last_stable_offset, fetched.high_watermark)
        return fetched.high_watermark

    def _wait(self, error: KafkaDirectError) -> None:
        self._counts.retries += 1
        if self._last is None or not self._deadline.expired:  # that our time is up explains nothing
            self._last = error
        time.sleep(min(self._pause * random.uniform(0.8, 1.2), self._deadline.remaining()))  # noqa: S311
        self._pause = min(self._pause * 2, self._settings.retry_backoff_max_ms / 1000)

    def _nothing_came(self, position: int, fetched: FetchedPartition) -> KafkaDirectError:
        end = self._visible_end(fetched)
        if position >= end:
            why = (
                f"with isolation.level=read_committed the partition can be read up to offset {end} now, because a "
                f"transaction is open there; end the range at {end}, or wait until the transaction is over."
            )
        else:
            why = f"the broker sends no records, although its log goes on to offset {end}."
        return BrokerTimeoutError(why, **self._place(position))

    def _error(self, code: int, position: int) -> KafkaDirectError:
        return error_for(code, "fetching records", **self._place(position))

    def _place(self, position: int) -> dict[str, Any]:
        offsets = self._request.offsets
        return {
            "topic": offsets.topic,
            "partition": offsets.partition,
            "offset": position,
            "broker": self._replica.broker,
        }
