"""What a task does when records that it was to read are gone.

With ``failOnDataLoss`` it fails. Else it warns, and goes on where a stream of micro-batches would:

    aged out        at the log's start
    cut back        where it was, as each offset is handed out once; where the log ends before that, at its end
    beyond the end  at the log's end
    created anew    at the new topic's start
    gone            nowhere; the topic may come back, or the driver leaves it out
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import (
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyspark_kafka_direct.wire.cluster import Cluster

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_QUESTION = 10.0  # seconds to ask a leader what its log holds; the tail raises its error again if that was too short
_ADVICE = "Set failOnDataLoss=false to go on without them."


class Seeker(Protocol):
    """What is needed of a tail."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at another offset."""


class Losses:
    """Fails at the first loss, or warns of each and seeks on.

    Args:
        tail: What reads.
        cluster: Knows what logs hold.
        fail_on_data_loss: Whether a loss is an error.
    """

    def __init__(self, tail: Seeker, cluster: Cluster, *, fail_on_data_loss: bool) -> None:
        self._tail = tail
        self._cluster = cluster
        self._fail = fail_on_data_loss
        self._gone: set[TopicPartition] = set()
        self._sought: dict[TopicPartition, int] = {}
        self._anew: dict[TopicPartition, UUID] = {}

    def after(self, error: DataLossError | TopicNotFoundError) -> None:
        """Go on after what the tail has raised, if that may be.

        Where the cluster cannot be asked now nothing is done: the tail raises the same again.

        Raises:
            DataLossError: ``failOnDataLoss`` is true.
        """
        if self._fail or error.topic is None or error.partition is None:
            raise DataLossError(
                f"data loss: {error.message} {_ADVICE}",
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
            ) from error
        partition = TopicPartition(error.topic, error.partition)
        if not isinstance(error, DataLossError | TopicRecreatedError):
            self._warn_of_gone(partition, error)
            return
        try:
            start, end = self._log(partition)
        except (TransientBrokerError, TopicNotFoundError):  # it may have been deleted since
            return
        position = self._tail.positions[partition]
        offset = go_on_at(error, position, start, end)
        _log.warning(
            "data loss: %s Reading goes on at offset %d of %s (failOnDataLoss=false)", error.message, offset, partition
        )
        self._tail.seek(partition, offset)
        self._gone.discard(partition)
        if offset < position:
            self._sought[partition] = min(offset, self._sought.get(partition, offset))
        if isinstance(error, TopicRecreatedError) and error.topic_id is not None:
            self._anew[partition] = error.topic_id

    def take_anew(self) -> dict[TopicPartition, UUID]:
        """Return the ids of topics that were created anew, by the partitions of them that are read; and forget it."""
        anew, self._anew = self._anew, {}
        return anew

    def take_sought(self) -> dict[TopicPartition, int]:
        """Return where partitions went back to, and forget it."""
        sought, self._sought = self._sought, {}
        return sought

    def _warn_of_gone(self, partition: TopicPartition, error: TopicNotFoundError) -> None:
        if partition not in self._gone:
            self._gone.add(partition)
            _log.warning("data loss: %s Reading goes on without %s (failOnDataLoss=false)", error.message, partition)

    def _log(self, partition: TopicPartition) -> tuple[int, int]:
        deadline = self._cluster.deadline(_QUESTION)
        start = self._cluster.offsets({partition: EARLIEST}, deadline=deadline)[partition]
        # Uncommitted: an open transaction is no loss.
        return start, self._cluster.offsets({partition: LATEST}, deadline=deadline)[partition]


def go_on_at(error: DataLossError | TopicNotFoundError, position: int, start: int, end: int) -> int:
    """Decide where reading goes on.

    Args:
        error: What was found.
        position: The next offset that was to be handed out.
        start: Where the log begins now.
        end: Where it ends now.
    """
    if isinstance(error, TopicRecreatedError):
        return start
    if isinstance(error, TruncatedError):
        return max(min(position, end), start)
    return start if position < start else min(position, end)
