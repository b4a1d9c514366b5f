"""The stream reader for Spark 4.2 and later: it is told starts, limits and Trigger.AvailableNow."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.planning.stream_start import moves
from pyspark_kafka_direct.structured._stream_reader import StreamReader, to_spark


class KafkaStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """The reader, as Spark 4.2 asks it."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names, so below)
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
        return self._next_end(start, unlimited=unlimited)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the partitions when a batch was last planned, for the progress report."""
        latest = self._planner().known_latest
        return None if latest is None else to_spark(latest)
