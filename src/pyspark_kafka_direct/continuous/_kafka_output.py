"""How the output of a query is delivered to Kafka, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.continuous._delivery import AtLeastOnce
from pyspark_kafka_direct.continuous._kafka_sink import kafka_sink
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous._seams import Delivery
    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.settings.source import ContinuousOptions


def kafka_delivery(reading: ContinuousOptions, writing: SinkOptions) -> Delivery:
    """Return how the output is delivered.

    Args:
        reading: What is read.
        writing: The options of the output.

    Raises:
        OptionError: It cannot be delivered in this way.
    """
    if writing.delivery == "exactly-once":
        raise OptionError("delivery=exactly-once is not there yet for continuous queries")
    return AtLeastOnce(kafka_sink(writing))
