"""What to do when an answer brings no records: try again, go on elsewhere, or say that records are lost.

Only the leader's word counts for loss: a follower may lag, and so may the cluster's metadata for a moment. A partition
without records up to the range's end is not lost either: compaction can remove the last records of a log, and a fetch
then finds nothing although its offset lies below the high watermark.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.planning.loss import LogState, judge
from pyspark_kafka_direct.wire._codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire._deadline import Deadline
from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading._replica import Replica
    from pyspark_kafka_direct.reading.counts import ReadCounts
    from pyspark_kafka_direct.reading.range_reader import RangeRequest
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.settings import ConnectionSettings

_log = logging.getLogger("pyspark_kafka_direct.reading")

TROUBLE = (BrokerUnreachableError, BrokerTimeoutError)
"""Errors that another try may cure."""

# How often something must be seen in a row before it is believed: right after an election or a restart, a broker's
# metadata and high watermark may lag for a moment.
_TIMES_TO_BELIEVE = 3

_EARLIEST_LOCAL = -4  # ListOffsets: first offset on the broker's own disk, not in tiered storage (KIP-405)

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Recovery:
    """Decides, for one range, what follows an answer without records.

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
        """Records arrived: patience starts anew."""
        self._deadline = Deadline.after(self._request.poll_timeout)
        self._pause = self._settings.retry_backoff_ms / 1000
        self._missing = 0
        self._empty = 0

    def after_trouble(self, error: KafkaDirectError) -> None:
        """The connection failed: look for the leader again after a pause.

        Raises:
            BrokerTimeoutError: The time without progress is used up.
        """
        self._replica.drop()
        self._wait(error)

    def after_missing(self, position: int, error: KafkaDirectError) -> int:
        """The topic or partition is unknown: believe it when it is seen repeatedly.

        Returns:
            The offset to go on from.

        Raises:
            DataLossError: It was deleted, or deleted and created again.
            BrokerTimeoutError: The time without progress is used up.
        """
        self._replica.drop()
        topic = self._replica.topic()
        if topic is not None and self._request.topic_id not in (None, topic.topic_id):
            return self._judge(position, LogState(0, 0, topic.topic_id))
        if topic is not None and self._request.offsets.partition in topic.partitions:
            self._missing = 0
        else:
            self._missing += 1
            if self._missing >= _TIMES_TO_BELIEVE:
                return self._judge(position, None)
        self._wait(error)
        return position

    def after_code(self, position: int, fetched: FetchedPartition) -> int:
        """The answer carries an error code.

        Returns:
            The offset to go on from.

        Raises:
            DataLossError: Records are gone.
            BrokerTimeoutError: The time without progress is used up.
            KafkaDirectError: The code is one that trying again does not cure.
        """
        code = fetched.error_code
        error = self._error(code, position)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self._replica.on_leader:
                self._replica.return_to_leader()
                return position
            return self._judge(position, self._log_state())
        if code in _GONE:
            return self.after_missing(position, error)
        if not lookup(code).retriable:
            raise error
        self.after_trouble(error)
        return position

    def after_empty(self, position: int, fetched: FetchedPartition) -> int:
        """The answer is good but holds no complete record batch.

        Returns:
            The offset to go on from.

        Raises:
            CorruptRecordError: There are bytes, but no whole batch: a broker always sends one (KIP-74).
            DataLossError: The leader's log ends before the range does.
            BrokerTimeoutError: The time without progress is used up.
        """
        if fetched.preferred_read_replica >= 0:
            self._replica.prefer(fetched.preferred_read_replica)
            return position
        if len(fetched.records):
            raise CorruptRecordError(
                f"The broker sent {len(fetched.records)} bytes that hold no complete record batch.",
                **self._place(position),
            )
        if fetched.throttle_ms or fetched.high_watermark < 0:
            self._check_time(self._error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, position))
            return position
        self._empty += 1
        self._check_time(self._nothing_came(position, fetched))
        if self._empty < _TIMES_TO_BELIEVE:
            return position
        self._empty = 0
        if not self._replica.on_leader:
            self._replica.return_to_leader()
            return position
        if position >= fetched.high_watermark:
            return self._judge(position, self._log_state())
        end = self._visible_end(fetched)
        if position < end and position >= self._ask_offset(_EARLIEST_LOCAL):
            next_offset = min(end, self._request.offsets.until_offset)
            self._counts.holes += next_offset - position
            return next_offset
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

    def _log_state(self) -> LogState | None:
        try:
            topic = self._replica.topic()
            topic_id = None if topic is None else topic.topic_id
            return LogState(self._ask_offset(EARLIEST), self._ask_offset(LATEST), topic_id)
        except TopicNotFoundError:
            return None

    def _ask_offset(self, position: int) -> int:
        # The high watermark is wanted, also under read_committed: an open transaction is no loss.
        cluster = Cluster(dataclasses.replace(self._settings, isolation_level="read_uncommitted"))
        partition = self._request.offsets.topic_partition
        return cluster.offsets({partition: position})[partition].offset

    def _visible_end(self, fetched: FetchedPartition) -> int:
        if self._settings.isolation_level == "read_committed" and fetched.last_stable_offset >= 0:
            return min(fetched.last_stable_offset, fetched.high_watermark)
        return fetched.high_watermark

    def _wait(self, error: KafkaDirectError) -> None:
        self._counts.retries += 1
        self._check_time(error)
        time.sleep(min(self._pause * random.uniform(0.8, 1.2), self._deadline.remaining()))  # noqa: S311
        self._pause = min(self._pause * 2, self._settings.retry_backoff_max_ms / 1000)

    def _check_time(self, error: KafkaDirectError) -> None:
        if self._deadline.expired:
            raise BrokerTimeoutError(
                f"No record came for {self._request.poll_timeout:g} s (option kafkaConsumer.pollTimeoutMs). "
                f"The last try: {error.message}",
                topic=self._request.offsets.topic,
                partition=self._request.offsets.partition,
                offset=error.offset,
                broker=error.broker,
            ) from error

    def _nothing_came(self, position: int, fetched: FetchedPartition) -> KafkaDirectError:
        end = self._visible_end(fetched)
        if position >= end and end < fetched.high_watermark:
            why = f"a transaction is open: read_committed may read up to {end}, the range ends later"
        else:
            why = "the broker sends no records at this offset"
        return TopicNotFoundError(why, **self._place(position))

    def _error(self, code: int, position: int) -> KafkaDirectError:
        place = self._place(position)
        error = error_for(code, "fetching records", topic=place["topic"], partition=place["partition"])
        error.offset, error.broker = position, self._replica.broker
        return error

    def _place(self, position: int) -> dict[str, Any]:
        offsets = self._request.offsets
        return {
            "topic": offsets.topic,
            "partition": offsets.partition,
            "offset": position,
            "broker": self._replica.broker,
        }
