"""The data source ``kafka-direct``: the class that Spark finds, without imports that take time.

Spark sends this class to the executors with the reader, so new Python workers import this module. Spark looks for data
sources in all installed packages whose names start with ``pyspark_``, as ``DefaultSource`` of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.spark.worker_lifecycle import begin_process

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class KafkaSourceProvider(DataSource):
    """The data source ``format("kafka-direct")``, with the options and columns of Spark's Kafka connector.

    docs/options.md lists the options. The columns are ``key``, ``value``, ``topic``, ``partition``, ``offset``,
    ``timestamp``, ``timestampType`` and, with ``includeHeaders``, ``headers``. A schema given with ``.schema(...)`` may
    name any of them in any order; only these are decoded. With ``valueFormat`` (``keyFormat``) ``json``, ``avro``
    or ``protobuf``, ``value`` (``key``) is a struct of the wanted fields, or a VARIANT. A written frame needs ``value``
    and may have ``key``, ``topic``, ``headers``, ``partition`` and ``timestamp``.
    """

    _unpickled = False

    def __init__(self, options: dict[str, str]) -> None:
        import pyspark_kafka_direct.records.native_kernel  # noqa: F401  # an error here, instead of one in each task

        begin_process()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "kafka-direct"

    def schema(self) -> StructType:
        from pyspark_kafka_direct.options.read_options import parse_columns
        from pyspark_kafka_direct.spark.token_file import token_clusters

        include_headers, payloads = parse_columns(dict(self.options), token_clusters())
        columns = kafka_schema(include_headers)
        if not payloads.decodes:
            return columns
        from pyspark_kafka_direct.payloads.spark.payload_schema import typed_schema
        from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas

        return typed_schema(columns, with_reader_schemas(payloads))  # type: ignore[return-value] # Spark accepts DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_kafka_direct.datasource import kafka_batch_reader
        from pyspark_kafka_direct.options.option_messages import warn_once
        from pyspark_kafka_direct.options.read_options import parse_batch_options
        from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas
        from pyspark_kafka_direct.spark.spark_versions import spark_features
        from pyspark_kafka_direct.spark.token_file import token_clusters

        settings = parse_batch_options(dict(self.options), token_clusters())
        for warning in settings.warnings:
            warn_once(warning)
        features = spark_features()
        if settings.source.push_down_filters and not features.has_filter_pushdown:
            warn_once(
                f"pushDownFilters has no effect: PySpark {features.version} does not push filters to Python data "
                "sources, which needs 4.1 or newer. The results are the same, but all selected offsets are read"
            )
        reader_class = (
            kafka_batch_reader.FilterPushdownBatchReader
            if settings.source.push_down_filters
            else kafka_batch_reader.KafkaBatchReader
        )
        return reader_class(settings, read_schema(schema, with_reader_schemas(settings.payloads, schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from pyspark_kafka_direct.options.read_options import parse_stream_options
        from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas
        from pyspark_kafka_direct.spark.spark_versions import spark_features
        from pyspark_kafka_direct.spark.token_file import token_clusters

        settings = parse_stream_options(dict(self.options), token_clusters())
        columns = read_schema(schema, with_reader_schemas(settings.payloads, schema))
        if spark_features().has_read_limits:
            from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream

            return KafkaMicroBatchStream(settings, columns)
        from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream

        return LegacyKafkaMicroBatchStream(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_kafka_direct.datasource.writers import batch_writer
        from pyspark_kafka_direct.errors import OptionError
        from pyspark_kafka_direct.options.option_messages import warn_once
        from pyspark_kafka_direct.options.sink_options import parse_sink_options
        from pyspark_kafka_direct.spark.token_file import token_clusters

        settings = parse_sink_options(dict(self.options), token_clusters(), streaming=False)
        if overwrite:
            raise OptionError(
                "mode overwrite is not supported, because records of a topic cannot be replaced; use mode append"
            )
        for warning in settings.warnings:
            warn_once(warning)
        return batch_writer(settings, schema, self._checkpoint())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Return a writer; Spark calls this per micro-batch in the process that plans it and in one that commits it."""
        from pyspark_kafka_direct.datasource.writers import stream_writer
        from pyspark_kafka_direct.options.option_messages import warn_once
        from pyspark_kafka_direct.options.sink_options import parse_sink_options
        from pyspark_kafka_direct.spark.token_file import token_clusters

        settings = parse_sink_options(dict(self.options), token_clusters(), streaming=True)
        for warning in settings.warnings:
            warn_once(warning)
        return stream_writer(settings, schema, self._checkpoint(), starting=not self._unpickled)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark creates a new object to plan a write, and sends a copy to the process that commits or aborts it.
        begin_process()
        self.__dict__.update(state)
        self._unpickled = True

    def _checkpoint(self) -> str | None:
        return next((value for name, value in self.options.items() if name.lower() == "checkpointlocation"), None)
