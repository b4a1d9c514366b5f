"""Data loss that planners find by comparing a batch's start offsets with the cluster.

The cases and the condition names in the messages are those of Spark's
``KafkaOffsetReader.getOffsetRangesFromResolvedOffsets``. Recreated topics are recognized by their id (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.planning.loss_errors import (
    OTHER_CLUSTER,
    READ_FROM_START,
    SKIP_ADVICE,
    DataLossCause,
    SkippedLoss,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.data_loss import LostPartitions


class LossContext(Protocol):
    """The part of ``OffsetReader`` that a loss report needs."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions that exist but that the subscription does not select."""

    def report_loss(self, loss: SkippedLoss) -> None:
        """Log and count a loss that is skipped."""


class LossReport:
    """Raises ``DataLossError`` at the first loss, or reports each as skipped, once for each batch."""

    def __init__(
        self,
        fail_on_data_loss: bool,
        context: LossContext,
        *,
        advice: str = SKIP_ADVICE,
        reselected_start: str = READ_FROM_START,  # where partitions are read that are selected again, as a sentence
    ) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._context = context
        self._advice = advice
        self._reselected_start = reselected_start
        self._start: Mapping[TopicPartition, int] | None = None  # of the current batch
        self._reported: set[tuple[str, frozenset[tuple[TopicPartition, int]]]] = set()  # in this batch

    def begin_batch(self, start: Mapping[TopicPartition, int]) -> None:
        """Report equal losses again if this is another batch: a log may be truncated twice between the same offsets.

        A batch that is planned repeatedly from the same start has the same losses.
        """
        if start != self._start:
            self._start = dict(start)
            self._reported.clear()

    def end_batch(self) -> None:
        """Report equal losses again, even if the next batch has the same start."""
        self._reported.clear()

    def report_lost(self, lost: LostPartitions, known_ids: Mapping[TopicPartition, UUID]) -> None:
        """Report partitions that were read before, and are missing or recreated now."""
        for topic in sorted({tp.topic for tp in lost.recreated}):
            partitions = sorted(tp for tp in lost.recreated if tp.topic == topic)
            self._report_recreated(partitions, known_ids[partitions[0]], lost.recreated[partitions[0]])
        self.report_missing(lost.missing)

    def report_missing(self, partitions: Collection[TopicPartition]) -> None:
        """Report partitions that were read before, and now do not exist or are not selected."""
        # How many records are lost is not known, so each counts as 0 offsets.
        unselected = set(self._context.not_selected(partitions)) if partitions else set()
        deleted = set(partitions) - unselected
        self._report(
            DataLossCause.DELETED,
            dict.fromkeys(deleted, 0),
            f"data loss: {listed(sorted(deleted))} do not exist any more, the topic or its partitions were deleted, "
            f"{OTHER_CLUSTER} (KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )
        self._report(
            DataLossCause.NOT_SELECTED,
            dict.fromkeys(unselected, 0),
            f"data loss: {listed(sorted(unselected))} are not selected any more: they exist, but assign, subscribe or "
            "subscribePattern does not include them. Include them again to resume where the query stopped. If the "
            f"query continues without them and they are included later, {self._reselected_start} "
            "(KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )

    def report_left_out(self, partitions: Collection[TopicPartition]) -> None:
        """Report partitions that exist and are selected, but that were not when this batch was planned."""
        self._report(
            DataLossCause.NOT_SELECTED,
            dict.fromkeys(partitions, 0),
            f"data loss: {listed(sorted(partitions))} are not part of this batch: they did not exist or were not "
            "selected when an earlier run planned it. Now they exist and are selected. If the query continues, the "
            "next batch reads them from their start (KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )

    def report_start_not_found(self, partitions: Collection[TopicPartition]) -> None:
        """Report new partitions that were deleted before their log start offset was fetched."""
        self._report(
            DataLossCause.DELETED,
            dict.fromkeys(partitions, 0),
            f"data loss: the earliest offsets of {listed(sorted(partitions))} cannot be found, the partitions were "
            "deleted (KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)",
        )

    def report_added_late(self, starts: Mapping[TopicPartition, int]) -> None:
        """Report a loss for each partition that was added to a running stream and starts after offset 0."""
        for tp, start in sorted(starts.items()):
            if start > 0:
                self._report(
                    DataLossCause.AGED_OUT,
                    {tp: start},
                    f"data loss: the added partition {tp} starts from offset {start} instead of 0, records were "
                    "removed before they were read "
                    "(KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO)",
                )

    def report_offsets_changed(self, known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Report end offsets below those that were already read or that the user requested as the start."""
        for tp in sorted(ends):
            self._report(
                DataLossCause.BEYOND_END,
                {tp: 0},
                f"data loss: {tp}'s offset was changed from {known[tp]} to {ends[tp]}. Either the requested start lies "
                "beyond the end, or the topic was deleted and recreated, or an unclean leader election truncated its "
                f"log, {OTHER_CLUSTER} (KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED)",
            )

    def report_aged_out(self, tp: TopicPartition, from_offset: int, log_start: int) -> None:
        """Report a log start offset after the offset to resume from."""
        self._report(
            DataLossCause.AGED_OUT,
            {tp: log_start - from_offset},
            f"data loss (aged out): offsets [{from_offset}, {log_start}) of {tp} were removed by retention before "
            "they were read; they are skipped",
        )

    def _report_recreated(self, partitions: Collection[TopicPartition], old_id: UUID, new_id: UUID) -> None:
        self._report(
            DataLossCause.RECREATED,
            dict.fromkeys(partitions, 0),
            f"data loss: the topic was deleted and recreated, its id was {old_id} and is {new_id} now; unread records "
            f"of {listed(sorted(partitions))} are lost, the new topic is read from its start",
        )

    def _report(self, cause: DataLossCause, offsets: Mapping[TopicPartition, int], message: str) -> None:
        if not offsets:
            return
        if not self._fail_on_data_loss:
            key = (message, frozenset(offsets.items()))  # the message may not name all partitions
            if key not in self._reported:
                self._reported.add(key)
                warning = f"{message}; reading continues (failOnDataLoss=false)"
                self._context.report_loss(SkippedLoss(warning, cause, offsets))
            return
        first = min(offsets)
        partition = first.partition if len(offsets) == 1 else None  # an error has one location
        raise DataLossError(f"{message}; {self._advice}", topic=first.topic, partition=partition)
