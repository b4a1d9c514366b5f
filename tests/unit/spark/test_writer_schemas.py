"""The schemas that a sink derives from the types of its columns."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, MapType, StructType

from pyspark_kafka_direct.config.sink_options import parse_sink_options
from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.spark.writer_schemas import resolve_writer_schemas

REGISTRY = {"schema.registry.url": "http://localhost:1", "schema.registry.api.timeout.ms": "1"}


@pytest.mark.parametrize(
    ("data_type", "message"),
    [
        (
            StructType().add("unit price", DoubleType()),
            "value attribute cannot be written as Avro: not an Avro schema: this is no name of a field: unit price: "
            "rename or cast it in the query",
        ),
        (
            StructType().add("v", MapType(IntegerType(), IntegerType())),
            "value attribute cannot be written as Avro: topLevelRecord has the type map<int32, int32>",
        ),
    ],
)
def test_a_column_whose_type_has_no_schema(data_type: DataType, message: str) -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "avro", "use.latest.version": "false"}
    payloads = parse_sink_options({**options, **REGISTRY}, streaming=False).payloads
    with pytest.raises(ColumnError) as raised:
        resolve_writer_schemas(payloads, StructType().add("value", data_type), "t")
    assert message in str(raised.value)
