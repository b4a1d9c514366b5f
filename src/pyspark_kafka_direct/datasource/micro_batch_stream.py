"""The stream reader for Spark 4.2 and later, which pass starts, limits and ``Trigger.AvailableNow``."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_kafka_direct.datasource.micro_batch_stream_base import KafkaMicroBatchStreamBase, to_spark_offset
from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.planning.offset_resolution import start_may_change


class KafkaMicroBatchStream(KafkaMicroBatchStreamBase, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names, also below)
        self._planner().fix_end_offsets()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # The limit only marks the default: if Spark passes another one, the trigger is Trigger.Once. ``latestOffset``
        # takes its limits from the options, because Spark supports neither two limits nor a delay.
        source = self._settings.source
        limits = source.limits
        if limits.active or source.backpressure is not None or start_may_change(source.start):
            return ReadMaxRows(limits.max_offsets or MAX_OFFSET)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        unlimited = isinstance(limit, ReadAllAvailable) and not isinstance(self.getDefaultReadLimit(), ReadAllAvailable)
        return self._next_end_offset(start, unlimited=unlimited)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end offsets that planning fetched last, for the progress report."""
        latest = self._planner().known_latest
        return None if latest is None else to_spark_offset(latest)
