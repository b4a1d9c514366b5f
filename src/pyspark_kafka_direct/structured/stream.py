"""The stream reader: Spark's words for ``planning.stream`` on the driver, and the reading of ranges in tasks.

Spark makes a reader in several processes: one beside the driver that plans for as long as the query runs, and one
whose ``read`` is sent to the executors. So making one opens nothing and tells nothing.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_kafka_direct.offsets import EMPTY_BATCH, MAX_OFFSET, partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.planning.stream_start import moves
from pyspark_kafka_direct.runtime.range_task import RangeTask
from pyspark_kafka_direct.structured._range import KafkaReader, RangePartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import InputPartition

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.stream import StreamPlanner
    from pyspark_kafka_direct.runtime.live_view import LiveView
    from pyspark_kafka_direct.settings.source import StreamOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema
    from pyspark_kafka_direct.structured._stream_commits import Commits

_log = logging.getLogger("pyspark_kafka_direct.structured")

_DEFAULT_TRIES = 3


class KafkaStreamReader(KafkaReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the options name, micro-batch by micro-batch.

    Offsets are those of Spark's own Kafka source, ``{"topic":{"0":123}}``, so a checkpoint can move both ways.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    _options: StreamOptions

    def __init__(self, options: StreamOptions, schema: ReadSchema) -> None:
        super().__init__(options, schema)
        self._planning: tuple[StreamPlanner, LiveView, Commits | None] | None = None
        self._asked: tuple[dict[str, Any], dict[TopicPartition, int]] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, so below)
        """Return where a new query starts; the same at every call.

        Spark asks this too when the first batch of an earlier run was not finished, and cannot tell us. So a start that
        does not fit is no error here: ``latestOffset`` refuses it, and ``partitions`` goes by the batch's end.

        Raises:
            KafkaDirectError: The cluster can't be asked.
        """
        return _to_spark(self._planner().initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze the ends.

        Raises:
            KafkaDirectError: The cluster can't be asked.
        """
        self._planner().freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a marker more than a limit: when Spark gives another one, it means Trigger.Once.

        Spark cannot be given two limits, and knows no delay, so ``latestOffset`` takes its limits from the options.
        """
        limits = self._options.limits
        if limits.active or self._options.backpressure is not None or moves(self._options.start):
            return ReadMaxRows(limits.max_offsets or MAX_OFFSET)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; ``start`` itself when there is nothing to read.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
            KafkaDirectError: A new query's starting position does not fit, or the cluster can't be asked.
        """
        unlimited = isinstance(limit, ReadAllAvailable) and not isinstance(self.getDefaultReadLimit(), ReadAllAvailable)
        begin = self._asked_again(start)
        planner, commits = self._planner(), self._commits()
        first = planner.at_first_start(begin)
        # Spark asks for the next end when the batch before it is done, and that one ended here. Its own commit() comes
        # later, and not at all for a query's last batch.
        if commits is not None and not first:
            commits.offer(begin, read_before=begin if planner.resumed else None)
        end = planner.next_end(begin, unlimited=unlimited)
        if commits is not None:
            commits.settle()
        if first and moves(self._options.start):
            return {**_to_spark(end), EMPTY_BATCH: {}}
        # Spark compares offsets as text, so the very same must come back.
        return start if end == begin else _to_spark(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the partitions when a batch was last planned, for the progress report."""
        latest = self._planner().known_latest
        return None if latest is None else _to_spark(latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true; or Trigger.AvailableNow can't go on.
            OptionError: The checkpoint's first batch is another source's, and where it began is not known.
            KafkaDirectError: The cluster can't be asked.
        """
        plan = self._planner().plan(_from_spark(start), _from_spark(end), empty=EMPTY_BATCH in end)
        leaders = self._view().leaders({wanted.topic_partition for wanted in plan.ranges})
        return [
            RangePartition(RangeTask(wanted, plan.topic_ids.get(wanted.topic), leaders.get(wanted.topic_partition)))
            for wanted in plan.ranges
        ]

    def _asked_again(self, start: dict[str, Any]) -> dict[TopicPartition, int]:
        """Read an offset of Spark's: up to 100 times a second the same one, of maybe a thousand partitions."""
        if self._asked is None or self._asked[0] != start:
            self._asked = start, _from_spark(start)
        return self._asked[1]

    def _planner(self) -> StreamPlanner:
        return self._begin()[0]

    def _view(self) -> LiveView:
        return self._begin()[1]

    def _commits(self) -> Commits | None:
        return self._begin()[2]

    def _begin(self) -> tuple[StreamPlanner, LiveView, Commits | None]:
        if self._planning is None:
            from pyspark_kafka_direct.planning.stream import StreamPlanner, StreamTuning
            from pyspark_kafka_direct.runtime.live_view import LiveView
            from pyspark_kafka_direct.structured._feedback import measured_limit
            from pyspark_kafka_direct.structured._stream_commits import commits_of

            options = self._options
            view = LiveView(options, _log)
            for warning in options.warnings:
                view.warn(warning)
            tuning = StreamTuning(
                start=options.start,
                limits=options.limits,
                fail_on_data_loss=options.fail_on_data_loss,
                read_committed=options.fetch.isolation_level == "read_committed",
                min_partitions=options.min_partitions,
                max_records_per_partition=options.max_records_per_partition,
                tries=options.fetch_tries or _DEFAULT_TRIES,
            )
            measured = None if options.backpressure is None else measured_limit(options.backpressure, view.warn).most
            self._planning = (
                StreamPlanner(tuning, view, view.clock, measured_limit=measured),
                view,
                commits_of(options, view.cluster),
            )
        return self._planning


def _to_spark(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return offsets as Spark writes them: in the order of the text, topics sorted and partitions sorted as numbers."""
    topics: dict[str, Any] = json.loads(partition_offsets_to_json(offsets))
    return topics


def _from_spark(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return partition_offsets_from_json(json.dumps(topics))
