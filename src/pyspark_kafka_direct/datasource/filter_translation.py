"""Translation of Spark's pushed filters to those of ``planning.pushed_filters``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as spark

from pyspark_kafka_direct.planning.pushed_filters import (
    Comparison,
    Filter,
    NotNull,
    UnsupportedFilter,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.planning.pushed_filters import Operator

_COMPARISONS: dict[type[spark.Filter], Operator] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
}


def translate_filter(pushed: spark.Filter) -> Filter:
    """Translate one filter; ``UnsupportedFilter`` stays with Spark."""
    path: object = getattr(pushed, "attribute", None)
    if not isinstance(path, tuple) or len(path) != 1:
        return UnsupportedFilter()
    column = str(path[0]).lower()
    if isinstance(pushed, spark.IsNotNull):
        return NotNull(column)
    operator = _COMPARISONS.get(type(pushed))
    if operator is None:
        return UnsupportedFilter()
    return Comparison(column, operator, pushed.value)  # type: ignore[attr-defined]
