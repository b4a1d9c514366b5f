"""Spark's pushed filters in the words of ``planning.pushdown``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as spark

from pyspark_kafka_direct.planning.pushdown import Comparison, Filter, NotNull, Other

if TYPE_CHECKING:
    from pyspark_kafka_direct.planning.pushdown import Operator

_COMPARISONS: dict[type[spark.Filter], Operator] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
}


def translate(pushed: spark.Filter) -> Filter:
    """Translate one filter; what cannot narrow a range becomes ``Other`` and stays with Spark."""
    path: object = getattr(pushed, "attribute", None)
    if not isinstance(path, tuple) or len(path) != 1:
        return Other()
    column = str(path[0]).lower()
    if isinstance(pushed, spark.IsNotNull):
        return NotNull(column)
    operator = _COMPARISONS.get(type(pushed))
    if operator is None:
        return Other()
    return Comparison(column, operator, pushed.value)  # type: ignore[attr-defined]
