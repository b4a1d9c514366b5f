"""Writing the batches of a stream by ``foreachBatch``: how output mode ``update`` is written.

Spark refuses that mode for any sink in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
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
        OptionError: An option's value cannot be used. The function raises it, too, where ``delivery=exactly-once`` is
            not possible: over Spark Connect, and in another thread than the one that Spark calls it in.
    """
    given = dict(options)
    exactly_once = parse_sink_options(given, streaming=False).delivery == "exactly-once"

    def write(frame: DataFrame, batch_id: int) -> None:
        # Tasks find the query and the batch by themselves.
        if exactly_once:
            _check_thread(frame, batch_id)
        frame.write.format("kafka-direct").options(**given).mode("append").save()

    return write


def _check_thread(frame: DataFrame, batch_id: int) -> None:
    """Refuse a write whose tasks would not learn which batch it is: run again, it would be taken for another write."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:
        raise OptionError(
            "delivery=exactly-once cannot be used in foreachBatch over Spark Connect: nothing there tells which batch "
            "a write belongs to. Write the stream with writeStream, or leave delivery out."
        )
    found = context.getLocalProperty("streaming.sql.batchId")
    if found != str(batch_id):
        raise OptionError(
            f"delivery=exactly-once in foreachBatch: batch {batch_id} is written in a thread that belongs to "
            f"{'no batch' if found is None else f'batch {found}'}. Call the function in the thread that Spark calls "
            "yours in, not in a pool's."
        )
