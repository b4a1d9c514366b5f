"""Finds the schemas that a query writes with, on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.payloads import written_schemas
from pyspark_kafka_direct.payloads.spark.latest_schemas import APPLICATION_SCHEMAS
from pyspark_kafka_direct.payloads.spark.write_schema import arrow_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pyspark_kafka_direct.options.sink_payloads import SinkPayloads
    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings


def resolve_writer_schemas(
    payloads: SinkPayloads, columns: StructType | None, topic: str | None
) -> Mapping[str, EncoderSettings]:
    """Return how keys and values are encoded, by column; ``columns`` are those of the frame, if known."""
    types = None if columns is None or not payloads.sides else arrow_columns(columns, topic)
    return written_schemas.resolve_writer_schemas(payloads, types, topic, APPLICATION_SCHEMAS)
