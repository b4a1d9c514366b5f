"""Writing the micro-batches of a stream with ``foreachBatch``, which supports output mode ``update``.

Spark rejects that mode for Python data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.datasource.offset_log_digest import DIGEST_PROPERTY, digest_of
from pyspark_kafka_direct.errors import OptionError, TransactionStateError
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.planning.commit_decision import second_write_reason
from pyspark_kafka_direct.producer.file_systems import masked_repr
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles
from pyspark_kafka_direct.spark.token_file import token_clusters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

# The run and the batch of the last write to each sink state record, by cluster, topic and prefix. If a run crashes
# between two writes of a batch, the sink state record lets the next run skip both, so only the driver sees the second.
_last_writes: dict[tuple[str, str, str], tuple[str | None, int]] = {}


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
    parsed = parse_sink_options(write_options, token_clusters(), streaming=False)
    exactly_once = parsed.delivery_guarantee == "exactly-once"
    sink = (parsed.connection.bootstrap_string, parsed.sink_state_topic, str(parsed.transactional_id_prefix))

    def write(frame: DataFrame, batch_id: int) -> None:
        writer = frame.write.format("kafka-direct").options(**write_options).mode("append")
        if not exactly_once:
            writer.save()
            return
        # Tasks read the query, the batch and the digest from Spark's local properties.
        _check_thread(frame, batch_id)
        context = frame.sparkSession.sparkContext
        run_and_batch = (context.getLocalProperty("spark.jobGroup.id"), batch_id)
        if _last_writes.get(sink) == run_and_batch:
            raise TransactionStateError(f"{second_write_reason(batch_id)} Nothing was sent by this write.")
        context.setLocalProperty(DIGEST_PROPERTY, _offsets_digest(frame.sparkSession, batch_id))
        try:
            writer.save()
        finally:
            unset: Any = None  # removes the property, which PySpark's types do not allow
            context.setLocalProperty(DIGEST_PROPERTY, unset)
        _last_writes[sink] = run_and_batch  # only now: a write that failed may be repeated

    return write


def _offsets_digest(session: Any, batch_id: int) -> str:
    """Return the digest of the batch's entry in the checkpoint of the query that calls the function."""
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    # The session of a batch is a clone, which does not list the query.
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    query = queries.get(session._jvm.java.util.UUID.fromString(query_id))
    if query is None:
        raise TransactionStateError(f"Query {query_id} is not active, so its checkpoint is unknown. Nothing was sent.")
    checkpoint = str(query.resolvedCheckpointRoot())
    entry = CheckpointFiles(session, checkpoint, "foreach_batch_writer").read(f"offsets/{batch_id}")
    if entry is None:
        raise TransactionStateError(
            f"The checkpoint {masked_repr(checkpoint)} has no offsets/{batch_id}. Nothing was sent."
        )
    return digest_of(entry.encode())


def _check_thread(frame: DataFrame, batch_id: int) -> None:
    """Raise unless the tasks of a write in this thread get the batch id: without it, a rerun writes the batch twice."""
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
