"""Spark's filters in the words of the planner."""

from __future__ import annotations

import pytest
from pyspark.sql import datasource as spark

from pyspark_kafka_direct.planning.pushdown import Comparison, Filter, NotNull, Other
from pyspark_kafka_direct.structured._pushdown import translate


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
        (spark.IsNull(("partition",)), Other()),
        (spark.Not(spark.EqualTo(("partition",), 1)), Other()),
        (spark.StringStartsWith(("topic",), "a"), Other()),
        (spark.EqualTo(("headers", "partition"), 1), Other()),
    ],
)
def test_translation(pushed: spark.Filter, expected: Filter) -> None:
    assert translate(pushed) == expected
