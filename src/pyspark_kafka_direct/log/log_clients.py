"""The cluster client, the producer and the consumer of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.cluster_client import ClusterClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer


class ResumePoint(NamedTuple):
    """The positions from which a consumer reads partitions."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[TopicPartition, UUID]
    last_epochs: Mapping[TopicPartition, int]  # leader epochs of the batches before the offsets, if known


@dataclass(frozen=True, slots=True)
class LogClients:
    """The cluster client of a log, and how to open its producer and consumer."""

    cluster: ClusterClient
    fetch: FetchSettings
    produce: ProducerSettings | None = None  # of a producer to be opened; None: ``producer`` is used
    producer: AsyncProducer | None = None  # an existing producer

    @classmethod
    def from_params(cls, params: Mapping[str, object], *, read_only: bool) -> LogClients:
        """Return the clients for Kafka properties, and log their warnings."""
        from pyspark_kafka_direct.options.kafka_params import parse_log_params
        from pyspark_kafka_direct.options.option_messages import warn_once

        settings = parse_log_params(params)
        for warning in settings.warnings:
            warn_once(warning)
        cluster = ClusterClient(settings.connection)
        return cls(cluster, settings.fetch, produce=None if read_only else settings.produce)

    def import_modules(self) -> None:
        """Import what reading, writing and applying records needs: later, memory may not suffice for an import."""
        import pyarrow.compute  # noqa: F401

        import pyspark_kafka_direct.consumer.partition_consumer  # noqa: F401
        import pyspark_kafka_direct.producer.async_producer  # noqa: F401

    def open_producer(self) -> AsyncProducer | None:
        """Return a new producer, or the existing one; ``None`` for a read-only log."""
        from pyspark_kafka_direct.producer.async_producer import AsyncProducer

        return self.producer if self.produce is None else AsyncProducer(self.cluster, self.produce)

    def open_consumer(self, start: ResumePoint, columns: Sequence[str]) -> PartitionConsumer:
        from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

        return PartitionConsumer(
            self.cluster,
            self.fetch,
            start.offsets,
            columns=columns,
            max_batch_bytes=self.fetch.max_record_batch_bytes,  # the consumer does not use that of `fetch` by itself
            topic_ids=start.topic_ids,
            last_epochs=start.last_epochs,
        )
