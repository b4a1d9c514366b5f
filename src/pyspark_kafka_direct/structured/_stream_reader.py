"""What the stream readers of all versions of Spark share: Spark's words for ``planning.stream`` on the driver.

Spark makes a reader in several processes: one beside the driver that plans for as long as the query runs, and one
whose ``read`` is sent to the executors. So making one opens nothing and tells nothing.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_kafka_direct.offsets import EMPTY_BATCH, partition_offsets_from_json, partition_offsets_to_json
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


class StreamReader(KafkaReader, DataSourceStreamReader):
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
        return to_spark(self._planner().initial())

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

    def _next_end(self, start: dict[str, Any], *, unlimited: bool = False) -> dict[str, Any]:
        """Return the end of the batch that begins at ``start``; ``start`` itself when there is nothing to read.

        Args:
            start: The end of the batch before, or the initial offset.
            unlimited: Ignore the limits.
        """
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
            return {**to_spark(end), EMPTY_BATCH: {}}
        # Spark compares offsets as text, so the very same must come back.
        return start if end == begin else to_spark(end)

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


def to_spark(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return offsets as Spark writes them: in the order of the text, topics sorted and partitions sorted as numbers."""
    topics: dict[str, Any] = json.loads(partition_offsets_to_json(offsets))
    return topics


def _from_spark(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return partition_offsets_from_json(json.dumps(topics))
