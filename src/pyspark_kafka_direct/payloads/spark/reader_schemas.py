"""Finds the schemas that a query reads with in a schema registry, on the driver.

Several processes plan a query. The comment of a column contains the id of its schema, so that ``latest`` has the same
meaning in all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings


def with_reader_schemas(settings: PayloadSettings, schema: StructType | None = None) -> PayloadSettings:
    """Return the settings with the schemas of a registry; ``schema`` are the columns, once Spark has them."""
    if settings.registry is None:  # the imports below are slow
        return settings
    from pyspark_kafka_direct.payloads import reader_schemas
    from pyspark_kafka_direct.payloads.spark.latest_schemas import APPLICATION_SCHEMAS

    comments = (
        None if schema is None else {field.name.lower(): field.metadata.get("comment") or "" for field in schema.fields}
    )
    return reader_schemas.with_reader_schemas(settings, comments, APPLICATION_SCHEMAS)
