"""Starts of runs of a continuous query: at its starting offsets, or at the end of the last completed epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.planning.data_loss import (
    find_lost_partitions,
    lower_end_offsets,
)
from pyspark_kafka_direct.planning.loss_errors import READ_FROM_START
from pyspark_kafka_direct.planning.loss_report import LossReport
from pyspark_kafka_direct.planning.offset_reader import (
    MAX_METADATA_RESPONSES,
    OffsetHistory,
    OffsetMetadata,
    SnapshotReader,
    are_topic_ids_current,
    contradicting_metadata_error,
    topic_ids_by_partition,
)
from pyspark_kafka_direct.planning.offset_resolution import resolve_start_offsets, unused_start_warning

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions, OffsetReader


class ContinuousStartPlanner:
    """Decides where the runs of one query start; not thread-safe."""

    def __init__(
        self,
        settings: ReadSettings,
        offset_reader: OffsetReader,
        reselected_start: str = READ_FROM_START,  # where partitions are read that are selected again, as a sentence
    ) -> None:
        self._source = settings.source
        self._offset_reader = offset_reader
        self._losses = LossReport(settings.fetch.fail_on_data_loss, offset_reader, reselected_start=reselected_start)
        self._history = OffsetHistory()
        self._snapshots = SnapshotReader(
            offset_reader,
            self._history,
            max_attempts=settings.source.confirmations,
            read_committed=settings.fetch.read_committed,
        )
        self._was_planned = False  # by this process
        self._known_topic_ids: Mapping[TopicPartition, UUID] = {}  # of committed offsets
        self.current_topic_ids: Mapping[TopicPartition, UUID] = {}  # of the offsets that were returned last
        self.latest: Mapping[TopicPartition, int] = {}  # the end offsets at that time

    def initial_offsets(self) -> dict[TopicPartition, int]:
        """Return where a new query starts."""
        self._was_planned = True
        remaining_attempts = self._source.confirmations
        while True:
            try:
                assigned, offsets = self._resolve_initial_offsets()
            except TopicNotFoundError:
                # A broker may not have the metadata of a new topic yet.
                remaining_attempts -= 1
                if remaining_attempts <= 0:
                    raise
                self._offset_reader.wait()
            else:
                self.current_topic_ids = topic_ids_by_partition(offsets, assigned.topic_ids)
                return offsets

    def resume_offsets(self, end_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where a query resumes, for all partitions that exist now; new ones start at their log start offset.

        Report losses, and set ``current_topic_ids`` and ``latest``. Until ``retain_topic_ids`` is called after a
        commit, another call compares with the same topic ids.
        """
        if not self._was_planned and (warning := unused_start_warning(self._source.start)):
            self._offset_reader.warn(warning)
        self._was_planned = True
        self._losses.begin_batch(end_offsets)
        known_ids = {tp: self._known_topic_ids[tp] for tp in end_offsets if tp in self._known_topic_ids}
        # `fetch_latest` finds these ids there, and returns other ids only if several brokers confirm them.
        self._history.put(end_offsets, OffsetMetadata({tp.topic: topic_id for tp, topic_id in known_ids.items()}))
        snapshot = self._snapshots.fetch_latest(end_offsets)

        lost = find_lost_partitions(end_offsets, known_ids, snapshot.latest, snapshot.topic_ids)
        self._losses.report_lost(lost, known_ids)
        start_offsets = {tp: offset for tp, offset in end_offsets.items() if tp not in lost.partitions}

        lower_ends = lower_end_offsets(start_offsets, snapshot.latest)  # the logs were truncated
        self._losses.report_offsets_changed(start_offsets, lower_ends)
        start_offsets.update(lower_ends)

        start_offsets.update(self._starts_of_new_partitions(snapshot.latest, end_offsets, start_offsets))
        self.current_topic_ids = {**known_ids, **topic_ids_by_partition(start_offsets, snapshot.topic_ids)}
        self.latest = snapshot.latest
        return dict(sorted(start_offsets.items()))

    def retain_topic_ids(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Remember the topic ids of committed offsets; other partitions keep theirs.

        Call this after the commit: an offset of the deleted topic must not be used with the id of the recreated one.
        """
        self._known_topic_ids = {**self._known_topic_ids, **topic_ids}
        self._losses.end_batch()

    def replace_topic_ids(self, topic_ids: Mapping[TopicPartition, UUID | None]) -> None:
        """Replace the topic ids of partitions whose offsets were committed elsewhere; ``None`` if they are unknown."""
        replaced = {**self._known_topic_ids, **topic_ids}
        self._known_topic_ids = {tp: topic_id for tp, topic_id in replaced.items() if topic_id is not None}

    def _resolve_initial_offsets(self) -> tuple[AssignedPartitions, dict[TopicPartition, int]]:
        for _ in range(MAX_METADATA_RESPONSES):
            assigned = self._offset_reader.assigned(strict=True)
            offsets = resolve_start_offsets(self._source.start, assigned.partitions, self._offset_reader)
            # Otherwise ids and offsets may be those of different topics of the same name.
            if are_topic_ids_current(assigned.topic_ids, self._offset_reader.known_topic_ids):
                return assigned, offsets
            self._offset_reader.wait()
        raise contradicting_metadata_error(assigned.partitions)

    def _starts_of_new_partitions(
        self,
        latest: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int],
        start_offsets: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        """Return the log starts of new partitions, including those of recreated topics."""
        new_partitions = latest.keys() - start_offsets.keys()
        if not new_partitions:
            return {}
        starts = self._snapshots.fetch_log_starts(new_partitions)
        self._losses.report_start_not_found(new_partitions - starts.keys())
        self._losses.report_added_late({tp: offset for tp, offset in starts.items() if tp not in end_offsets})
        return starts
