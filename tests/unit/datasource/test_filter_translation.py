"""Translation of Spark's filters to those of the planner."""

from __future__ import annotations

import pytest
from pyspark.sql import datasource as spark

from pyspark_kafka_direct.datasource.filter_translation import translate_filter
from pyspark_kafka_direct.planning.pushed_filters import (
    Comparison,
    Filter,
    NotNull,
    UnsupportedFilter,
)


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (spark.EqualTo(("partition",), 1), Comparison("partition", "=", 1)),
        (spark.EqualNullSafe(("offset",), None), Comparison("offset", "<=>", None)),
        (spark.LessThan(("Offset",), 5), Comparison("offset", "<", 5)),
        (spark.LessThanOrEqual(("offset",), 5), Comparison("offset", "<=", 5)),
        (spark.GreaterThan(("timestamp",), 5), Comparison("timestamp", ">", 5)),
        (spark.GreaterThanOrEqual(("offset",), 5), Comparison("offset", ">=", 5)),
        (spark.In(("partition",), (1, 2)), Comparison("partition", "in", (1, 2))),
        (spark.IsNotNull(("partition",)), NotNull("partition")),
        (spark.IsNull(("partition",)), UnsupportedFilter()),
        (spark.Not(spark.EqualTo(("partition",), 1)), UnsupportedFilter()),
        (spark.StringStartsWith(("topic",), "a"), UnsupportedFilter()),
        (spark.EqualTo(("headers", "partition"), 1), UnsupportedFilter()),
    ],
)
def test_translation(pushed: spark.Filter, expected: Filter) -> None:
    assert translate_filter(pushed) == expected
