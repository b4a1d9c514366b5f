"""``functions.from_avro``: a column of datums with another schema, each mode, and invalid arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.functions import from_avro

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITER = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "number", "type": "long"}, {"name": "b", "type": "string"}],
}
DATUM = b"\4\6abc"


def test_the_function_decodes_a_column_with_another_schema(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(DATUM,), (DATUM[:-1],), (None,)], "data binary")
    fields = [{"name": "number", "type": "double"}, {"name": "new", "type": "int", "default": 7}]
    reader = json.dumps({"type": "record", "name": "R", "fields": fields})
    decoded = frame.select(
        from_avro("data", json.dumps(WRITER), {"mode": "PERMISSIVE", "avroSchema": reader}).alias("flight")
    )
    assert decoded.schema["flight"].dataType.simpleString() == "struct<number:double,new:int>"
    assert [row.flight and tuple(row.flight) for row in decoded.collect()] == [(2.0, 7), (None, None), None]
    with pytest.raises(Exception, match="A value cannot be decoded as Avro: the datum is incomplete"):
        frame.select(from_avro("data", json.dumps(WRITER))).collect()


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("{", {}, "from_avro: an Avro schema is JSON"),
        (json.dumps(WRITER), {"mode": "DROPMALFORMED"}, "mode must be PERMISSIVE or FAILFAST"),
        (json.dumps(WRITER), {"Compression": "x"}, "the option Compression is not supported"),
        ('{"type": "record", "name": "R", "fields": []}', {}, "the record R has no fields"),
    ],
)
def test_an_invalid_argument_is_rejected(
    spark: SparkSession, schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        from_avro("data", schema, options)
