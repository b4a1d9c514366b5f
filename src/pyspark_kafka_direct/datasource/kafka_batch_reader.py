"""The batch reader of ``kafka-direct``: it plans offset ranges on the driver, and each task reads one."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.datasource.kept_plan import KeptPlan
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition, KafkaReader
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.offset_specs import AT_LATEST
from pyspark_kafka_direct.options.subscription import SubscribePatternStrategy
from pyspark_kafka_direct.planning.offset_resolution import start_may_change
from pyspark_kafka_direct.planning.pushed_filters import PushedFilters, push_filters
from pyspark_kafka_direct.spark.worker_lifecycle import end_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import Filter, InputPartition

    from pyspark_kafka_direct.datasource.partition_reader import KafkaPartitionReader
    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss

_log = logging.getLogger("pyspark_kafka_direct.datasource")


class KafkaBatchReader(KafkaReader, DataSourceReader):
    _pushed_filters: PushedFilters | None = None

    def _partition_reader(self) -> KafkaPartitionReader:
        reader, source = super()._partition_reader(), self._settings.source
        if source.offset_ranges is not None or not start_may_change(source.end or AT_LATEST):
            return reader  # the end is fixed
        selection = source.selection
        names = selection.pattern.text if isinstance(selection, SubscribePatternStrategy) else listed(selection.topics)
        return reader._replace(kept_plan=KeptPlan(POOL.system.nonce(), names))

    def partitions(self) -> list[InputPartition]:
        planned = plan_batch_query(self._settings, pushed=self._pushed_filters)
        for warning in planned.plan.warnings:
            _log.warning("%s", warning)
        if planned.plan.losses:
            self._report_losses(planned.plan.losses)
        end_task()  # the planning process is a worker of the daemon, too
        login = self._settings.connection.security.token_login
        return [KafkaInputPartition(task, login) for task in planned.tasks()]

    def _report_losses(self, losses: Sequence[SkippedLoss]) -> None:
        from pyspark_kafka_direct.client.system import SYSTEM
        from pyspark_kafka_direct.spark.loss_counts import LossCounter

        counter = LossCounter(SYSTEM)
        for loss in losses:
            _log.warning("%s", loss.message)
            counter.add(loss.cause, loss.offsets)


class FilterPushdownBatchReader(KafkaBatchReader):
    """A batch reader with filter pushdown."""

    # Spark rejects a reader that defines ``pushFilters`` unless spark.sql.python.filterPushdown.enabled is set, and
    # Python cannot see that setting. So this class is used only if the option ``pushDownFilters`` is set.
    #
    # Spark (up to 4.3.0) keeps one plan per ``load()``, and each push of filters replaces it. If the
    # same frame is used again with other filters, it returns the rows that match the filters pushed last. The reader is
    # not called in that case, so it can only warn in advance.

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrow the plan by pushed filters, and return those that Spark has to evaluate."""
        from pyspark_kafka_direct.datasource import filter_translation  # needs Spark 4.1

        _warn_of_one_plan_per_load()
        self._pushed_filters = push_filters([filter_translation.translate_filter(pushed) for pushed in filters])
        return [
            pushed
            for pushed, is_enforced in zip(filters, self._pushed_filters.enforced, strict=True)
            if not is_enforced
        ]


@functools.cache
def _warn_of_one_plan_per_load() -> None:
    _log.warning(
        "pushDownFilters: Spark keeps one plan per load(). Use each loaded DataFrame in one query with one set of "
        "filters, and call load() again for another query. Otherwise it may silently return the rows of this one."
    )
