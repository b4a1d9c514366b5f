"""The batch reader: plans offset ranges on the driver, reads one of them in each task."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from pyspark_kafka_direct.planning.pushdown import Pushdown, push_down
from pyspark_kafka_direct.runtime.range_task import RangeTask
from pyspark_kafka_direct.runtime.worker import end_task
from pyspark_kafka_direct.structured import _batch_plan
from pyspark_kafka_direct.structured._range import KafkaReader, RangePartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter, InputPartition

    from pyspark_kafka_direct.settings.source import BatchOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema

_log = logging.getLogger("pyspark_kafka_direct.structured")


class KafkaBatchReader(KafkaReader, DataSourceReader):
    """Reads what the options name, once.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    _options: BatchOptions

    def __init__(self, options: BatchOptions, schema: ReadSchema) -> None:
        super().__init__(options, schema)
        self._pushed: Pushdown | None = None

    def partitions(self) -> list[InputPartition]:
        """Plan the batch.

        Raises:
            KafkaDirectError: The cluster can't be asked, or the options do not fit what it has.
        """
        plan, topics, leaders = _batch_plan.plan_batch(self._options, self._pushed)
        for warning in plan.warnings:
            _log.warning("%s", warning)
        end_task()  # the process that plans is a worker of the daemon, too
        return [
            RangePartition(
                RangeTask(
                    wanted,
                    topics[wanted.topic].topic_id,
                    leaders.get(wanted.topic_partition),
                    wanted in plan.from_earliest,
                )
            )
            for wanted in plan.ranges
        ]


class FilteringBatchReader(KafkaBatchReader):
    """The same with filters pushed down.

    Spark refuses any reader that defines ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is set, and
    Python can't see that setting; so this class is used only when the option ``pushDownFilters`` asks for it.

    Trap: Spark (up to 4.3.0) keeps one plan per ``load()``, and each push of filters replaces it. Another use of the
    same frame, filtered otherwise or not at all, then gets the rows of these filters. Nothing calls us in that case, so
    all we can do is to warn.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrow the plan by filters on ``partition``, ``offset`` and ``timestamp``.

        Returns:
            The filters that Spark has to evaluate all the same.
        """
        from pyspark_kafka_direct.structured import _pushdown  # its words are those of Spark 4.1 and later

        _warn_of_one_plan_per_load()
        self._pushed = push_down([_pushdown.translate(pushed) for pushed in filters])
        return [pushed for pushed, exact in zip(filters, self._pushed.handled, strict=True) if not exact]


@functools.cache
def _warn_of_one_plan_per_load() -> None:
    _log.warning(
        "pushDownFilters: Spark keeps one plan per load(). Use each loaded DataFrame with one set of filters in one "
        "query; for another use call load() again, or its rows may silently be those of this one."
    )
