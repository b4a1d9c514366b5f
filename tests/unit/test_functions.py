"""Functions on columns: what they reject before a query starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import DayTimeIntervalType, IntegerType, LongType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError, SparkVersionError
from pyspark_kafka_direct.functions import from_avro, from_json, from_protobuf, infer_schema, to_avro, to_protobuf
from pyspark_kafka_direct.spark import spark_versions

if TYPE_CHECKING:
    from collections.abc import Callable

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


REGISTRY = "http://localhost:1"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda options: from_json("a", FIELDS, options),
            "from_json: the options valueFraming, timeZone are not supported; use mode and",
        ),
        (
            lambda options: from_avro("a", '"int"', options),
            "from_avro: the options valueFraming, timeZone are not supported without schemaRegistryAddress; use mode "
            "and avroSchema",
        ),
        (
            lambda options: from_avro("a", '"int"', options, schemaRegistryAddress=REGISTRY),
            "from_avro: the options valueFraming, timeZone are not supported; use mode, avroSchema, schema.registry.*",
        ),
        (
            lambda options: to_avro("a", '"int"', options),
            "to_avro: the options valueFraming, timeZone are not supported without schemaRegistryAddress",
        ),
        (
            lambda options: to_avro("a", '"int"', options, "s", REGISTRY),
            "to_avro: the options valueFraming, timeZone are not supported; use schema.registry.*, auto.regis",
        ),
        (
            lambda options: from_protobuf("a", "M", None, options, b""),
            "from_protobuf: the options valueFraming, timeZone are not supported; use mode, emit.default.values",
        ),
        (
            lambda options: to_protobuf("a", "M", None, options, b""),
            "to_protobuf: the options valueFraming, timeZone are not supported; there are no options",
        ),
    ],
)
def test_all_options_that_a_function_does_not_have_are_named(
    call: Callable[[dict[str, str]], object], message: str
) -> None:
    with pytest.raises(OptionError) as raised:
        call({"valueFraming": "header", "timeZone": "UTC"})
    assert message in raised.value.message


def test_a_decoded_column_registers_no_schema() -> None:
    with pytest.raises(OptionError, match=r"from_avro: the option auto\.register\.schemas is not supported"):
        from_avro("a", '"int"', {"auto.register.schemas": "true"}, schemaRegistryAddress=REGISTRY)


def test_a_schema_is_inferred_with_the_options_of_a_query_with_a_registry() -> None:
    """The sample is read as bytes, so these options are not passed on."""
    given: list[tuple[str, str]] = []

    class Reader:
        def format(self, _: str) -> Reader:
            return self

        schema = format

        def option(self, name: str, value: str) -> Reader:
            given.append((name, value))
            return self

        def load(self) -> Reader:
            return self

        limit = format

        def collect(self) -> list[tuple[bytes]]:
            return [(b'{"a":1}',)]

    spark = SimpleNamespace(read=Reader(), conf=SimpleNamespace(get=lambda _: "false"))
    options = {
        "subscribe": "t",
        "keyFormat": "avro",
        "keySchemaId": "7",
        "KEYSUBJECT": "s",
        "schema.registry.url": REGISTRY,
        "basic.auth.user.info": "a:b",
        "schemaEvolutionMode": "restart",
    }
    assert infer_schema(spark, options).simpleString() == "struct<a:bigint>"  # type: ignore[arg-type]
    assert given == [("subscribe", "t")]
