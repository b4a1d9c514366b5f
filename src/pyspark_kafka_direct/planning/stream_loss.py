"""Data loss as the planners of streams see it: by comparing what a batch should start from with what there is.

The cases are those of Spark's planner (``KafkaOffsetReader.getOffsetRangesFromResolvedOffsets``), and one more, which
topic ids tell (KIP-516). Spark's condition is named in every message:

    gone            PARTITIONS_DELETED                              read before, not there any more
    not selected    PARTITIONS_DELETED                              read before and still there, but left out since
    added, gone     INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS         found a moment ago, not there any more
    added late      ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO retention was faster than the planner
    went back       PARTITION_OFFSET_CHANGED                        its end lies before what was read already
    aged out        (Spark's tasks find it)                         its log begins after what was read already
    recreated                                                       the topic's id changed

What happens to records after planning is decided where they are read (``loss.judge``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

_ADVICE = "set failOnDataLoss=false to go on without them"


class LossView(Protocol):
    """What a report of losses needs of a ``ClusterView``."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions that exist, but are left out by the selection."""

    def warn(self, message: str) -> None:
        """Tell the user a message, each message once."""


class LossReport:
    """Fails at the first loss, or warns of each.

    Args:
        fail_on_data_loss: Whether a loss is an error, and not only a warning.
        view: Tells why partitions are gone, and takes the warnings.
        advice: What a user can do about it.
    """

    def __init__(self, fail_on_data_loss: bool, view: LossView, *, advice: str = _ADVICE) -> None:
        self._fail = fail_on_data_loss
        self._view = view
        self._advice = advice

    def gone(self, partitions: Collection[TopicPartition]) -> None:
        """Report partitions that were read before, and do not exist or are not selected any more.

        Raises:
            DataLossError: ``failOnDataLoss`` is true; so of all methods.
        """
        left_out = set(self._view.not_selected(partitions)) if partitions else set()
        deleted = set(partitions) - left_out
        self._lose(
            deleted,
            f"data loss: {listed(sorted(deleted))} are gone, the topic or its partitions were deleted "
            "(KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )
        self._lose(
            left_out,
            f"data loss: {listed(sorted(left_out))} are not selected any more: they exist, but assign, subscribe or "
            "subscribePattern leaves them out. Name them again, to read on where the query was; if it goes on without "
            "them, and they are named later, they are read from their start (KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )

    def start_not_found(self, partitions: Collection[TopicPartition]) -> None:
        """Report that partitions that were just found have no log start offset any more."""
        self._lose(
            partitions,
            f"data loss: the earliest offsets of {listed(sorted(partitions))} cannot be found, they were deleted again "
            "(KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)",
        )

    def added_late(self, starts: Mapping[TopicPartition, int]) -> None:
        """Report that partitions found while the stream runs do not begin with offset 0."""
        for tp in sorted(starts):
            if starts[tp] > 0:
                self._lose(
                    [tp],
                    f"data loss: the added partition {tp} starts from offset {starts[tp]} instead of 0, records were "
                    "removed before they were read (KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO)",
                )

    def went_back(self, tp: TopicPartition, known: int, end: int) -> None:
        """Report an end before an offset that was read already, or that the user gave to start from."""
        self._lose(
            [tp],
            f"data loss: {tp}'s offset was changed from {known} to {end}. Either the given start lies beyond the end, "
            "or the topic was deleted and created again, or its log was cut by an unclean leader election "
            "(KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED)",
        )

    def aged_out(self, tp: TopicPartition, begin: int, log_start: int) -> None:
        """Report that the log begins after the offset to go on from."""
        self._lose(
            [tp],
            f"data loss (aged out): offsets [{begin}, {log_start}) of {tp} were removed by retention before they were "
            "read; they are skipped",
        )

    def recreated(self, partitions: Collection[TopicPartition], before: UUID, now: UUID) -> None:
        """Report that a topic was deleted and created again."""
        self._lose(
            partitions,
            f"data loss: the topic was deleted and created again, its id was {before} and is {now} now; what was not "
            f"read of {listed(sorted(partitions))} is gone, the new topic is read from its start",
        )

    def _lose(self, partitions: Collection[TopicPartition], text: str) -> None:
        if not partitions:
            return
        if not self._fail:
            self._view.warn(f"{text}; reading goes on (failOnDataLoss=false)")
            return
        first = min(partitions)
        only = len(partitions) == 1
        raise DataLossError(f"{text}; {self._advice}", topic=first.topic, partition=first.partition if only else None)
