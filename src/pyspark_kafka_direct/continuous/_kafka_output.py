"""How the output of a query is delivered to Kafka, by its options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.continuous._delivery import AtLeastOnce
from pyspark_kafka_direct.continuous._kafka_sink import kafka_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._seams import Delivery
    from pyspark_kafka_direct.settings.continuous import RunSettings
    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.settings.source import ContinuousOptions

_SECONDS_MORE: Final = 30.0


def kafka_delivery(
    reading: ContinuousOptions, writing: SinkOptions, spark: SparkSession, settings: RunSettings, *, timeout_given: bool
) -> Delivery:
    """Return how the output is delivered.

    Args:
        reading: What is read.
        writing: The options of the output.
        spark: The session.
        settings: How the query runs.
        timeout_given: Whether the user has said how long a transaction may be open. If not, as long as an epoch, and
            some seconds more.

    Raises:
        OptionError: It cannot be delivered in this way.
    """
    if writing.delivery != "exactly-once":
        return AtLeastOnce(kafka_sink(writing))
    from pyspark_kafka_direct.continuous._transactions import TransactionalDelivery
    from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles

    files = CheckpointFiles(spark, settings.checkpoint, "a continuous query")
    longest = longest_transaction(settings)
    if not timeout_given:
        writing = replace(writing, transaction_timeout_ms=int((longest + _SECONDS_MORE) * 1000))
    return TransactionalDelivery(writing, reading.connection, files, longest)


def longest_transaction(settings: RunSettings) -> float:
    """Return for how many seconds a transaction of a task may be open.

    A task that has reported an epoch early begins the next transaction while another may still need all of its time.
    """
    return settings.epoch_interval + 2 * settings.epoch_timeout
