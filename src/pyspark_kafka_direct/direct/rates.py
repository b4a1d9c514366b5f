"""How much a batch of the direct stream may hold: fixed limits, and Spark's backpressure.

Spark's rules to the letter, ``DirectKafkaInputDStream.maxMessagesPerPartition``, ``PerPartitionConfig`` and
``RateController``; the arithmetic is in ``planning/backpressure.py``. Settings are those of the Spark configuration,
``spark.streaming.kafka.*PerPartition`` and ``spark.streaming.backpressure.*``.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.streaming.listener import StreamingListener

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator, RateLimits, records_per_partition
from pyspark_kafka_direct.settings.spark_conf import partition_rates, stream_backpressure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkConf
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.offsets import TopicPartition

__all__ = [
    "PerPartitionConfig",
    "RateController",
    "max_messages_per_partition",
    "per_partition_config",
    "rate_controller",
]

_log = logging.getLogger("pyspark_kafka_direct.direct")

_NO_RATE = -1


class PerPartitionConfig(ABC):
    """How much of each partition a batch may hold; make a subclass of your own to treat partitions differently.

    It is pickled with the stream into Spark's checkpoint, so it must not hold what cannot be pickled.
    """

    @abstractmethod
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N802, N803 (Spark's spelling)
        """Return the most records per second of this partition.

        0 or less is no limit only where it is so for all partitions: beside one that has a limit, as in Spark, such a
        partition has ``minRatePerPartition`` records in a batch (backpressure apart). ``math.inf`` is no limit in any
        case.
        """

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N802, N803 (Spark's spelling)
        """Return the least number of records of this partition in a limited batch; per batch, not per second."""
        return 1


def per_partition_config(conf: SparkConf) -> PerPartitionConfig:
    """Read ``spark.streaming.kafka.maxRatePerPartition`` (0) and ``minRatePerPartition`` (1) for all partitions.

    Raises:
        OptionError: One of them is not a whole number.
    """
    rates = partition_rates(conf)
    return _SameForAll(rates.most, rates.least)


def max_messages_per_partition(
    current: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    rate: float | None,
    initial_rate: float = 0,
    batch_seconds: float,
    config: PerPartitionConfig,
) -> dict[TopicPartition, int] | None:
    """Decide how many records each partition may have in the next batch.

    Args:
        current: Where it begins; every partition of ``latest``.
        latest: What there is to read.
        rate: Records per second of all partitions together, ``RateController.latest_rate()``; ``None``: no
            backpressure.
        initial_rate: In place of ``rate`` as long as that is not above 0.
        batch_seconds: The batch interval.
        config: Limits of the partitions.

    Returns:
        Records by partition, which may be more than there are; ``None``: no limit.

    Raises:
        OptionError: ``config`` gives something that is not a number.
    """
    limits = RateLimits(
        by_partition={tp: _number(config.maxRatePerPartition(tp), "maxRatePerPartition", tp) for tp in latest},
        least_by_partition={
            tp: int(_number(config.minRatePerPartition(tp), "minRatePerPartition", tp)) for tp in latest
        },
    )
    shared = initial_rate if rate is not None and rate <= 0 else rate
    return records_per_partition(shared, batch_seconds, current, latest, limits)


def rate_controller(conf: SparkConf, batch_interval_ms: float) -> RateController | None:
    """Make the controller, if ``spark.streaming.backpressure.enabled`` asks for one in Spark's configuration.

    Args:
        conf: The Spark configuration.
        batch_interval_ms: Time between two batches.

    Raises:
        OptionError: A setting of backpressure that cannot be used; the message names it.
    """
    settings = stream_backpressure(conf)
    if settings is None:
        return None
    return RateController(PIDRateEstimator(batch_interval_ms, settings.gains), settings.initial_rate)


class RateController:
    """Follows how fast the batches of one stream are processed, told by Spark when each ends.

    It is pickled with the stream into the checkpoint, and after a restart goes on with the rate it had. (Spark's keeps
    what it learnt but forgets the rate, so that its first batch after a restart has the initial rate, or no limit.)

    Args:
        estimator: Makes rates of durations.
        initial_rate: Records per second as long as there is no other; 0: no limit until then.
    """

    _attached: tuple[StreamingContext, int] | None

    def __init__(self, estimator: PIDRateEstimator, initial_rate: float = 0) -> None:
        self.initial_rate = initial_rate
        self._estimator = estimator
        self._rate = _NO_RATE
        self._live()

    def latest_rate(self) -> int:
        """Return records per second for all partitions together, whole as in Spark; -1 before there is a rate."""
        return self._rate

    def attach(self, ssc: StreamingContext, stream_id: int) -> None:
        """Listen to the batches of this context; once is enough, and again does nothing.

        Args:
            ssc: The context of the stream, after a restart the new one.
            stream_id: The number under which the stream reports how many records its batches have.
        """
        with self._lock:
            if self._attached == (ssc, stream_id):
                return
            self._attached = ssc, stream_id
        ssc.addStreamingListener(_BatchListener(self, stream_id))

    def batch_completed(
        self, ended_ms: float, records: int, processing_delay_ms: float, scheduling_delay_ms: float
    ) -> None:
        """Learn from a batch.

        Args:
            ended_ms: When it ended, milliseconds since 1970.
            records: How many it had.
            processing_delay_ms: How long they took.
            scheduling_delay_ms: How long it waited before it began.
        """
        with self._lock:
            rate = self._estimator.compute(ended_ms, records, processing_delay_ms, scheduling_delay_ms)
            if rate is not None:
                self._rate = int(rate)

    def __getstate__(self) -> dict[str, Any]:
        # Spark writes its checkpoint while batches end.
        with self._lock:
            return {
                "initial_rate": self.initial_rate,
                "estimator": copy.copy(self._estimator),
                "rate": self._rate,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.initial_rate = state["initial_rate"]
        self._estimator = state["estimator"]
        self._rate = state["rate"]
        self._live()

    def _live(self) -> None:
        """Set up what is of this process only."""
        self._lock = threading.Lock()
        self._attached = None


class _BatchListener(StreamingListener):
    """Tells the controller of each batch that ends. Called from a thread of the JVM's."""

    def __init__(self, controller: RateController, stream_id: int) -> None:
        super().__init__()
        self._controller = controller
        self._stream_id = stream_id

    def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N802, N803 (Spark's spelling)
        try:
            batch = batchCompleted.batchInfo()
            reported = batch.streamIdToInputInfo().get(self._stream_id)
            delays = batch.processingDelay(), batch.schedulingDelay()
            if reported is None or min(delays) < 0:  # the stream had no part in it, or it never began
                return
            self._controller.batch_completed(batch.processingEndTime(), reported.numRecords(), *delays)
        except Exception as error:
            _log.warning("backpressure learnt nothing from a batch: %s", error)


class _SameForAll(PerPartitionConfig):
    def __init__(self, most: int, least: int) -> None:
        self._most = most
        self._least = least

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N802, N803
        return self._most

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N802, N803
        return self._least


def _number(given: object, name: str, partition: TopicPartition) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise OptionError(
            f"{name} of the PerPartitionConfig must give a number, got {given!r}",
            topic=partition.topic,
            partition=partition.partition,
        )
    return min(max(given, 0), MAX_OFFSET)  # infinity would be no whole number of records
