"""Recovers the logs of a stopped exactly-once query from the offsets that its transactions committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import CheckpointFencedError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs
    from pyspark_kafka_direct.continuous.sink_delivery import SinkDelivery
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import WriteSettings

# A fenced driver may still commit two epochs with two files each: the one in flight, and the one reported after it.
_MAX_CONCURRENT_FILES: Final = 4


def recover_checkpoint(
    spark: SparkSession,
    checkpoint: str,
    options: Mapping[str, str],
) -> dict[TopicPartition, int] | None:
    """Recover the checkpoint of a continuous query that has ended, for example by a crash.

    A continuous query does this itself when it restarts. Call this function before a micro-batch query resumes from
    the checkpoint after a crash, or before a continuous query resumes with another ``transactionalIdPrefix`` or
    ``deliveryGuarantee``. Otherwise the records of the last epoch may be written twice.

    Tasks and drivers of the query that are still running can no longer commit.

    Args:
        spark: The session.
        checkpoint: The query's ``checkpointLocation``.
        options: The options of its ``to_kafka``: the connection, and ``transactionalIdPrefix``.

    Returns:
        The next offset to read of each partition, or ``None`` if the query has never read.

    Raises:
        CheckpointFencedError: Another driver has taken control of the query meanwhile.
        TransactionStateError: Another query uses the prefix.
        InvalidOffsetsError: The logs are damaged, or the outcome of a micro-batch is unknown.
        OptionError: The checkpoint does not exist, or the options do not select exactly-once delivery.
        KafkaDirectError: The brokers cannot be reached.
    """
    from pyspark_kafka_direct.client.connection_pool import POOL
    from pyspark_kafka_direct.continuous.checkpoint_log_format import parse_metadata
    from pyspark_kafka_direct.continuous.checkpoint_logs import open_checkpoint_logs
    from pyspark_kafka_direct.options.sink_options import parse_sink_options
    from pyspark_kafka_direct.producer.file_systems import mask_secrets
    from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles
    from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens

    parsed = parse_sink_options(
        {"deliveryGuarantee": "exactly-once", **options}, start_delegation_tokens(spark.sparkContext), streaming=True
    )
    if parsed.delivery_guarantee != "exactly-once":
        raise OptionError(
            f"deliveryGuarantee is {parsed.delivery_guarantee!r}: only exactly-once queries need recover_checkpoint"
        )
    files = CheckpointFiles(spark, checkpoint, "recover_checkpoint")
    metadata = files.read("metadata")
    if metadata is None:
        raise OptionError(f"{mask_secrets(checkpoint, checkpoint)} is not the checkpoint of a query")
    query_id = parse_metadata(metadata, files.path("metadata"))
    return fence_and_recover(open_checkpoint_logs(spark, checkpoint), parsed, query_id, POOL)


def fence_and_recover(
    logs: CheckpointLogs, options: WriteSettings, query_id: str, pool: ConnectionPool
) -> dict[TopicPartition, int] | None:
    """Recover the logs of an exactly-once query, and allow another prefix for its next run."""
    from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery

    # No task runs, so no transaction can exceed its timeout.
    delivery = ExactlyOnceDelivery(options, source=None, logs=logs, max_transaction_seconds=0.0, pool=pool)
    last_epoch = logs.state().committed
    # Offset requests with partitions wait for pending commits; those without partitions omit a pending first commit.
    partitions = () if last_epoch is None else logs.offset_entry(last_epoch).offsets.keys()
    delivery.prepare(query_id, partitions, tasks=0)
    start = recover_logs(logs, delivery, int(pool.system.wall_time() * 1000))
    logs.fencing_log.record_recovery()
    return start


def recover_logs(logs: CheckpointLogs, delivery: SinkDelivery, at_ms: int) -> dict[TopicPartition, int] | None:
    """Recover the logs of a query whose tasks are fenced, and return the offsets at which it resumes.

    A fenced driver can no longer commit transactions, but it may still write the logs of its last epochs. If the
    recovery then finds a file that it wants to write, it starts again from the new state.
    """
    conflicts = 0
    while True:
        state = logs.state()
        try:
            recovery = logs.recover(delivery.offsets_ahead(state), at_ms, state)
        except CheckpointFencedError:
            conflicts += 1
            if conflicts > _MAX_CONCURRENT_FILES:
                raise
        else:
            return None if recovery.start is None else dict(recovery.start)
