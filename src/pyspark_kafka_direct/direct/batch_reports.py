"""Reports the batches of a direct stream to the monitors of ``enable(spark)``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.streaming.listener import StreamingListener

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.direct.stream_client import high_watermarks
from pyspark_kafka_direct.spark.query_reports import BatchReport

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.spark.query_reports import QueryReporter

_log = logging.getLogger("pyspark_kafka_direct.direct")


class BatchReportListener(StreamingListener):
    """Reports each completed batch of one stream, except failed ones; called on a thread of the JVM."""

    def __init__(self, stream: CheckpointedStream, input_id: int, name: str, reporter: QueryReporter) -> None:
        super().__init__()
        self._stream = stream
        self._input_id = input_id
        self._name = name
        self._reporter = reporter

    def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N802, N803 (Spark's spelling)
        """Report the batch."""
        try:
            batch = batchCompleted.batchInfo()
            # None if no output needed the stream in this batch, for example between two slides of a window.
            input_info = batch.streamIdToInputInfo().get(self._input_id)
            # A failed batch is not reported, because its records would count as processed. A restart runs it again.
            has_failed = any(output.failureReason() for output in batch.outputOperationInfos().values())
            if input_info is not None and not has_failed:
                self._reporter.batch_ended(self._report(batch, input_info.numRecords()))
        except Exception as error:  # must not reach Spark's listener bus
            _log.warning("the monitor misses a batch: %s", error)

    def _report(self, batch: Any, records: int) -> BatchReport:
        time_ms = batch.batchTime().milliseconds()
        parameters = self._stream.client.parameters
        ranges = self._stream.planned_ranges(time_ms)

        def fetch_end_offsets(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            # The client of the stream is used by the thread that plans, and is closed when the stream stops.
            cluster = ClusterClient(parameters.connection)
            return high_watermarks(cluster, partitions)

        return BatchReport(
            batch_id=time_ms,
            source=self._name,
            group=parameters.group_id,
            began_ms=batch.processingStartTime(),
            ended_ms=batch.processingEndTime(),
            rows=records,
            start={each.topic_partition: each.fromOffset for each in ranges},
            end={each.topic_partition: each.untilOffset for each in ranges},
            fetch_end_offsets=fetch_end_offsets,
        )
