"""Bring the logs of a query that delivers exactly once up to where its transactions have got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import CheckpointTakenError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._logs import Logs
    from pyspark_kafka_direct.continuous._seams import Delivery
    from pyspark_kafka_direct.offsets import TopicPartition

# An epoch has two files, and its driver is fenced while it writes one epoch, and has reports of the next.
_MOST_LATE_FILES: Final = 4


def settle(
    spark: SparkSession,
    checkpoint: str,
    options: Mapping[str, str],
) -> dict[TopicPartition, int] | None:
    """Settle the checkpoint of a continuous query that is not running any more, however it has ended.

    A continuous query that is started again does so by itself. Call this before a micro-batch query goes on from the
    checkpoint after a crash, or before a continuous one does under another ``transactionalIdPrefix`` or with another
    delivery: else the records of the epoch in which it crashed may be published again.

    Tasks and drivers of the query that are still alive somewhere publish nothing any more.

    Args:
        spark: The session.
        checkpoint: The query's checkpoint.
        options: Those of its ``to_kafka``: how to reach the cluster, and ``transactionalIdPrefix``.

    Returns:
        Where the next query goes on: the next offset to read of each partition. ``None``: it never began.

    Raises:
        CheckpointTakenError: Another driver has taken the query over meanwhile.
        DeliveryRefusedError: The prefix is another query's.
        OffsetPlanError: The logs are damaged, or whether records were published is not known.
        OptionError: There is no such checkpoint, or the options are not those of an exactly-once delivery.
        KafkaDirectError: The cluster could not be asked.
    """
    from pyspark_kafka_direct.continuous._log_format import parse_metadata
    from pyspark_kafka_direct.continuous._logs import open_logs
    from pyspark_kafka_direct.continuous._transactions import TransactionalDelivery
    from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles
    from pyspark_kafka_direct.settings.sink import parse_sink_options
    from pyspark_kafka_direct.wire.system import SYSTEM

    parsed = parse_sink_options({"delivery": "exactly-once", **options}, streaming=True)
    if parsed.delivery != "exactly-once":
        raise OptionError(f"delivery is {parsed.delivery!r}: only a query that delivers exactly-once has to be settled")
    files = CheckpointFiles(spark, checkpoint, "settle")
    metadata = files.text("metadata")
    if metadata is None:
        raise OptionError(f"there is no query in {checkpoint}")
    delivery = TransactionalDelivery(parsed, None, files, longest_epoch=0.0)
    logs = open_logs(spark, checkpoint)
    last = logs.state().committed
    # By name: offsets that a group is just getting for the first time are waited for then.
    partitions = () if last is None else logs.entry(last).offsets.keys()
    delivery.prepare(parse_metadata(metadata, files.place("metadata")), partitions, 0)
    begin = settle_logs(logs, delivery, int(SYSTEM.wall_time() * 1000))
    delivery.settled()
    return begin


def settle_logs(logs: Logs, delivery: Delivery, at_ms: int) -> dict[TopicPartition, int] | None:
    """Make the logs whole once the query is fenced, and return where the next one goes on.

    A driver that is still alive publishes nothing more, but it may be writing down what it has published just before.
    So where a file has come meanwhile, all is looked up anew.

    Args:
        logs: The query's.
        delivery: One that has taken the query over.
        at_ms: Milliseconds since 1970.

    Raises:
        CheckpointTakenError: Files go on coming: somebody else writes to the checkpoint.
        KafkaDirectError: As ``settle``.
    """
    late = 0
    while True:
        state = logs.state()
        try:
            settlement = logs.settle(delivery.reached(state), at_ms, state)
        except CheckpointTakenError:
            late += 1
            if late > _MOST_LATE_FILES:
                raise
        else:
            return None if settlement.begin is None else dict(settlement.begin)
