"""Writing the micro-batches of a stream with ``foreachBatch``, which supports output mode ``update``.

Spark rejects that mode for Python data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.config.sink_options import parse_sink_options
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame


def foreach_batch_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for ``DataStreamWriter.foreachBatch`` that writes each batch to Kafka.

        to_kafka = foreach_batch_writer({"kafka.bootstrap.servers": "broker:9092", "topic": "delays"})
        counts.writeStream.outputMode("update").foreachBatch(to_kafka).start()

    Args:
        options: The options of a batch write; docs/options.md lists them.

    Raises:
        OptionError: An option is invalid. The returned function raises it, too, if ``deliveryGuarantee=exactly-once``
            is not possible: over Spark Connect, and in another thread than the one in which Spark calls it.
    """
    write_options = dict(options)
    exactly_once = parse_sink_options(write_options, streaming=False).delivery_guarantee == "exactly-once"

    def write(frame: DataFrame, batch_id: int) -> None:
        # Tasks read the query and the batch from Spark's local properties.
        if exactly_once:
            _check_thread(frame, batch_id)
        frame.write.format("kafka-direct").options(**write_options).mode("append").save()

    return write


def _check_thread(frame: DataFrame, batch_id: int) -> None:
    """Raise unless the tasks of a write in this thread can see the batch id; a rerun would write again."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:
        raise OptionError(
            "deliveryGuarantee=exactly-once is not supported in foreachBatch over Spark Connect, where a write "
            "cannot be assigned to its batch. Use writeStream, or remove deliveryGuarantee."
        )
    batch_of_thread = context.getLocalProperty("streaming.sql.batchId")
    if batch_of_thread != str(batch_id):
        raise OptionError(
            f"deliveryGuarantee=exactly-once in foreachBatch: batch {batch_id} is written in a thread of "
            f"{'no batch' if batch_of_thread is None else f'batch {batch_of_thread}'}. Call the function in the "
            "thread in which Spark calls your function, not in a thread pool."
        )
