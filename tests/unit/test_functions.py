"""Functions on columns: what they reject before a query starts."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DayTimeIntervalType, IntegerType, LongType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError, SparkVersionError
from pyspark_kafka_direct.functions import from_json
from pyspark_kafka_direct.spark import spark_versions

FIELDS = StructType([StructField("id", LongType())])


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (FIELDS, {"mode": "DROPMALFORMED"}, "mode must be PERMISSIVE or FAILFAST, got 'DROPMALFORMED'"),
        (FIELDS, {"mode": "quickly"}, "from_json: mode must be PERMISSIVE or FAILFAST, got 'quickly'"),
        (FIELDS, {"mode": "FAILFAST", "MODE": "PERMISSIVE"}, "from_json: mode is given twice with different values"),
        (FIELDS, {"columnNameOfCorruptRecord": ""}, "columnNameOfCorruptRecord must be the name of a field"),
        (FIELDS, {"valueFormat": "json"}, "option valueFormat is not supported"),
        (FIELDS, {"Mode": "FAILFAST", "primitivesAsString": "true"}, "option primitivesAsString is not supported"),
        (IntegerType(), {}, "the schema must be a struct of the wanted fields, such as .* not int"),
        (
            StructType([StructField("d", DayTimeIntervalType())]),
            {},
            "field 'd' has the type duration.* as string, and cast it",
        ),
        (FIELDS, {"columnNameOfCorruptRecord": "id"}, "'id' .* must be a string"),
    ],
)
def test_invalid_arguments_are_rejected(schema: StructType, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_json("value", schema, options)


def test_spark_4_0_has_no_such_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyspark.sql.functions.arrow_udf")
    with pytest.raises(
        SparkVersionError, match=rf"need PySpark 4.1 or newer, and this is {spark_versions.spark_features().version}"
    ):
        from_json("value", FIELDS)
