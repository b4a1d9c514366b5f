"""The Structured data source ``kafka-direct``: the class Spark finds, and nothing that costs time to import.

The source itself travels to the executors beside the reader, where a new Python worker has to import this module.

Spark looks for data sources in every installed package whose name starts with ``pyspark_`` and asks it for
``DefaultSource``; the package's ``__init__`` answers with this class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_kafka_direct.runtime.worker import begin_process
from pyspark_kafka_direct.structured._schema import full_schema, read_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class KafkaDirectSource(DataSource):
    """``format("kafka-direct")``: Kafka records as rows, with the options and columns of Spark's connector.

    Options are listed in docs/options.md. Columns are ``key``, ``value``, ``topic``, ``partition``, ``offset``,
    ``timestamp``, ``timestampType`` and, with ``includeHeaders``, ``headers``. A schema given with ``.schema(...)``
    may name any of them in any order; only those are then decoded. Written are ``value`` and, where a frame has them,
    ``key``, ``topic``, ``headers``, ``partition`` and ``timestamp``.
    """

    _is_copy = False

    def __init__(self, options: dict[str, str]) -> None:
        begin_process()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka-direct"

    def schema(self) -> StructType:
        """Return Spark's columns.

        Raises:
            OptionError: An option's value cannot be used.
        """
        from pyspark_kafka_direct.settings.source import includes_headers

        return full_schema(includes_headers(dict(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the batch reader, for ``spark.read``.

        Raises:
            OptionError: An option's value, or the schema, cannot be used.
        """
        from pyspark_kafka_direct.runtime.spark_versions import spark_features
        from pyspark_kafka_direct.settings.source import parse_options, warn_once
        from pyspark_kafka_direct.structured import batch

        options = parse_options(dict(self.options))
        for warning in options.warnings:
            warn_once(warning)
        features = spark_features()
        if options.push_down_filters and not features.pushed_filters:
            warn_once(
                f"pushDownFilters does nothing here: PySpark {features.version} offers no filters to sources in "
                "Python, which begins with 4.1. The rows are the same; all that the positions name is read"
            )
        kind = batch.FilteringBatchReader if options.push_down_filters else batch.KafkaBatchReader
        return kind(options, read_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Make the stream reader, for ``spark.readStream``.

        Raises:
            OptionError: An option's value, or the schema, cannot be used.
        """
        from pyspark_kafka_direct.runtime.spark_versions import spark_features
        from pyspark_kafka_direct.settings.source import parse_stream_options

        options = parse_stream_options(dict(self.options))
        if spark_features().read_limits:
            from pyspark_kafka_direct.structured.stream import KafkaStreamReader

            return KafkaStreamReader(options, read_schema(schema))
        from pyspark_kafka_direct.structured.older_stream import OlderStreamReader

        return OlderStreamReader(options, read_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the batch writer, for ``df.write``.

        Raises:
            OptionError: An option's value cannot be used, or the mode is ``overwrite``.
            ColumnError: The columns do not fit.
            KafkaDirectError: Exactly-once delivery is not possible.
        """
        from pyspark_kafka_direct.errors import OptionError
        from pyspark_kafka_direct.settings.sink import parse_sink_options, warn_once
        from pyspark_kafka_direct.structured.sink import batch_writer

        options = parse_sink_options(dict(self.options), streaming=False)
        if overwrite:
            raise OptionError(
                "mode overwrite cannot be used: records of a topic are not replaced; write with mode append"
            )
        for warning in options.warnings:
            warn_once(warning)
        return batch_writer(options, schema, self._checkpoint())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Make the stream writer, for ``df.writeStream``.

        Spark calls this for each micro-batch in a process that plans it, and in one that commits or aborts it.

        Args:
            schema: The frame's columns.
            overwrite: Whether the output mode is ``complete``; as in Spark's sink, each result is then written whole.

        Raises:
            OptionError: An option's value cannot be used.
            ColumnError: The columns do not fit.
            KafkaDirectError: Exactly-once delivery is not possible.
        """
        from pyspark_kafka_direct.settings.sink import parse_sink_options, warn_once
        from pyspark_kafka_direct.structured.sink import stream_writer

        options = parse_sink_options(dict(self.options), streaming=True)
        for warning in options.warnings:
            warn_once(warning)
        return stream_writer(options, schema, self._checkpoint(), begins=not self._is_copy)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the state of another process's object.

        Spark makes a new object to plan a write, and sends a copy to where it is committed or aborted.
        """
        begin_process()
        self.__dict__.update(state)
        self._is_copy = True

    def _checkpoint(self) -> str | None:
        return next((value for name, value in self.options.items() if name.lower() == "checkpointlocation"), None)
