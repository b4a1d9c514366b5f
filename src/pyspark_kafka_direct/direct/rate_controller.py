"""The number of records in a batch of the direct stream: fixed limits, and Spark's backpressure.

The rules are exactly those of Spark's ``DirectKafkaInputDStream.maxMessagesPerPartition``, ``PerPartitionConfig`` and
``RateController``. The arithmetic is in ``planning/backpressure.py``. The settings are those of the Spark
configuration, ``spark.streaming.kafka.*PerPartition`` and ``spark.streaming.backpressure.*``.
"""

from __future__ import annotations

import copy
import logging
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.streaming.listener import StreamingListener

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.options.spark_conf import partition_rates, stream_backpressure
from pyspark_kafka_direct.planning.backpressure import PartitionRateLimits, PIDRateEstimator, records_per_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkConf
    from pyspark.streaming import StreamingContext

    from pyspark_kafka_direct.offsets import TopicPartition

__all__ = [
    "PerPartitionConfig",
    "RateController",
    "create_rate_controller",
    "default_per_partition_config",
    "max_messages_per_partition",
]

_log = logging.getLogger("pyspark_kafka_direct.direct")

_NO_RATE = -1


class PerPartitionConfig(ABC):
    """The rate limits of partitions; subclass it to treat partitions differently.

    It is pickled with the stream into Spark's checkpoint, so all of its attributes must be picklable.
    """

    @abstractmethod
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N802, N803 (Spark's spelling)
        """Return the maximum number of records per second of a partition.

        0 or less means no limit only if it applies to all partitions. If another partition has a limit, a partition
        with 0 gets only ``minRatePerPartition`` records in a batch, as in Spark (without backpressure). ``math.inf``
        always means no limit.

        Args:
            topicPartition: The partition.
        """

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N802, N803 (Spark's spelling)
        """Return the minimum number of records of a partition in a limited batch; per batch, not per second.

        Args:
            topicPartition: The partition.
        """
        return 1


def default_per_partition_config(conf: SparkConf) -> PerPartitionConfig:
    """Return the limits of ``spark.streaming.kafka.maxRatePerPartition`` (0) and ``minRatePerPartition`` (1)."""
    return _DefaultPerPartitionConfig(*partition_rates(conf))


def max_messages_per_partition(
    current: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    rate: float | None,  # records per second of all partitions together; None without backpressure
    initial_rate: float = 0,  # used while rate is not positive
    batch_seconds: float,
    config: PerPartitionConfig,
) -> dict[TopicPartition, int] | None:
    """Return the record limit of each partition in the next batch, which may exceed its lag; ``None`` for no limit."""
    limits = PartitionRateLimits(
        max_rate_by_partition={
            tp: _checked_rate(config.maxRatePerPartition(tp), "maxRatePerPartition", tp) for tp in latest
        },
        min_records_by_partition={
            tp: int(_checked_rate(config.minRatePerPartition(tp), "minRatePerPartition", tp)) for tp in latest
        },
    )
    total_rate = initial_rate if rate is not None and rate <= 0 else rate
    return records_per_partition(total_rate, batch_seconds, current, latest, limits)


def create_rate_controller(conf: SparkConf, batch_interval_ms: float) -> RateController | None:
    """Create the controller if ``spark.streaming.backpressure.enabled`` is set in Spark's configuration."""
    settings = stream_backpressure(conf)
    if settings is None:
        return None
    return RateController(PIDRateEstimator(batch_interval_ms, settings.gains), settings.initial_rate or 0)


class RateController:
    """Estimates the processing rate of one stream from Spark's batch events."""

    # The controller is pickled with the stream, and keeps its rate after a restart. (Spark's controller keeps the state
    # of the estimator but loses the rate, so the first batch after a restart has the initial rate, or no limit.)

    _attached: tuple[StreamingContext, int] | None  # the context and stream of the listener; not pickled

    def __init__(self, estimator: PIDRateEstimator, initial_rate: float = 0) -> None:
        self.initial_rate = initial_rate  # records per second until the first estimate; 0 for no limit
        self._estimator = estimator
        self._rate = _NO_RATE
        self._init_transient()

    def latest_rate(self) -> int:
        """Return the estimated records per second of all partitions together; -1 before the first estimate."""
        return self._rate

    def listen_to(self, ssc: StreamingContext, stream_id: int) -> None:
        """Register a listener for the stream's batches; a second call for the same context does nothing."""
        with self._lock:
            if self._attached == (ssc, stream_id):
                return
            self._attached = ssc, stream_id
        ssc.addStreamingListener(_RateListener(self, stream_id))

    def batch_completed(
        self, ended_ms: float, records: int, processing_delay_ms: float, scheduling_delay_ms: float
    ) -> None:
        """Update the rate from a completed batch; times are in milliseconds."""
        with self._lock:
            rate = self._estimator.compute(ended_ms, records, processing_delay_ms, scheduling_delay_ms)
            if rate is not None:
                self._rate = int(rate)

    def __getstate__(self) -> dict[str, Any]:
        # Spark writes its checkpoint while batches complete.
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
        self._init_transient()

    def _init_transient(self) -> None:
        """Initialize the attributes that are not pickled."""
        self._lock = SYSTEM.lock()
        self._attached = None


class _RateListener(StreamingListener):
    """Passes completed batches to the controller; called on a thread of the JVM."""

    def __init__(self, controller: RateController, stream_id: int) -> None:
        super().__init__()
        self._controller = controller
        self._stream_id = stream_id

    def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N802, N803 (Spark's spelling)
        try:
            batch = batchCompleted.batchInfo()
            input_info = batch.streamIdToInputInfo().get(self._stream_id)
            processing_delay_ms, scheduling_delay_ms = batch.processingDelay(), batch.schedulingDelay()
            has_run = processing_delay_ms >= 0 and scheduling_delay_ms >= 0  # negative: no job of the batch has started
            if input_info is not None and has_run:  # None: the batch has no input of this stream
                self._controller.batch_completed(
                    batch.processingEndTime(), input_info.numRecords(), processing_delay_ms, scheduling_delay_ms
                )
        except Exception as error:
            _log.warning("backpressure ignores a batch: %s", error)


class _DefaultPerPartitionConfig(PerPartitionConfig):
    def __init__(self, max_rate: int, min_rate: int) -> None:
        self._max_rate = max_rate
        self._min_rate = min_rate

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N802, N803
        return self._max_rate

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N802, N803
        return self._min_rate


def _checked_rate(rate: object, method: str, partition: TopicPartition) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or math.isnan(rate):
        raise OptionError(
            f"{method} of the PerPartitionConfig must return a number, got {rate!r}",
            topic=partition.topic,
            partition=partition.partition,
        )
    return min(max(rate, 0), MAX_OFFSET)  # infinity can't be converted to a number of records
