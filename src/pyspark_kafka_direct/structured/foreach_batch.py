"""Writing the batches of a stream by ``foreachBatch``: how output mode ``update`` is written.

Spark refuses that mode for any sink in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.settings.sink import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame


def foreach_batch_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for ``DataStreamWriter.foreachBatch`` that writes each batch to Kafka.

        to_kafka = foreach_batch_writer({"kafka.bootstrap.servers": "broker:9092", "topic": "delays"})
        counts.writeStream.outputMode("update").foreachBatch(to_kafka).start()

    Args:
        options: Those of a batch write; docs/options.md lists them.

    Raises:
        OptionError: An option's value cannot be used.
    """
    given = dict(options)
    parse_sink_options(given, streaming=False)

    def write(frame: DataFrame, batch_id: int) -> None:
        # Tasks find the query and the batch by themselves.
        frame.write.format("kafka-direct").options(**given).mode("append").save()

    return write
