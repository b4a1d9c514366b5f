"""A direct stream without Spark, whose batches the test generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct import LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig

if TYPE_CHECKING:
    from pyspark_kafka_direct.direct import ConsumerStrategy, TopicPartition
    from pyspark_kafka_direct.offsets import OffsetRange


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class GeneratedBatches:
    """Generates the batches of a stream instead of Spark."""

    def __init__(self, strategy: ConsumerStrategy) -> None:
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
        self.stream = CheckpointedStream("generated", spec, None)
        try:
            self.stream.start()
        finally:
            self.stream.close()  # connections that it opens later close when their requests end

    def generate(self, time_ms: int) -> tuple[OffsetRange, ...]:
        self.stream.begin_generation(time_ms)
        ranges = self.stream.batch_ranges(time_ms)
        self.stream.end_generation()
        return ranges
