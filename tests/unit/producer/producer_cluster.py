"""A simulated cluster with producers, and what their Produce requests contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.cluster.produced_batches import read_batch_headers
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.oracle import READ_UNCOMMITTED
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.producer.encoded_batches import encoded

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.async_producer import AsyncProducer
from pyspark_kafka_direct.producer.batch_producer import AssignedProducerId, BatchProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.cluster.produced_batches import BatchHeader

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.producer.produce_channel import WrittenRange
    from pyspark_kafka_direct.records import EncodedBatch

PARTITION = TopicPartition("t", 0)
RECORDS = 10


def batch(partition: int = 0) -> EncodedBatch:
    """Return a batch of ten records."""
    return encoded(partition, 0, RECORDS)


SIZE = len(batch().data)


class ProduceRequest(NamedTuple):
    """A Produce request to a topic that a broker has handled; its time counts from the first one."""

    at: float
    broker: int
    batches: dict[int, bytes]  # by partition

    def header(self, partition: int) -> BatchHeader:
        return read_batch_headers(self.batches[partition])[0]


class ProducerCluster(UnitCluster):
    """Two brokers and the topic ``t``, whose partitions are led by broker 1.

    The backoff has no jitter, and brokers leave it to the client to obey a throttle time.
    """

    def __init__(
        self,
        *,
        partitions: int = 8,
        topics: Mapping[str, int] | None = None,
        connection: Mapping[str, Any] | None = None,
        **cluster: Any,
    ) -> None:
        super().__init__({"t": partitions, **(topics or {})}, brokers=2, connection=connection, **cluster)
        vars(self.process)["random"] = lambda: 0.5
        self.network.faults_end = 0.0
        self._at_end: list[Callable[[], object]] = []

    def __exit__(self, error: object, *more: object) -> None:
        if error is None:
            for action in self._at_end:
                action()
        super().__exit__(error, *more)

    def producer(
        self,
        assigned_id: AssignedProducerId | None = None,
        *,
        client: ClusterClient | None = None,
        add_partitions: Any = None,
        **settings: Any,
    ) -> BatchProducer:
        producer = BatchProducer(
            client or self.client(),
            ProducerSettings(**settings),
            assigned_id,
            add_partitions_to_transaction=add_partitions,
        )
        self.at_end(producer.close)
        return producer

    def async_producer(self, linger: float = 0.0, **settings: Any) -> AsyncProducer:
        producer = AsyncProducer(self.client(), ProducerSettings(**settings), linger=linger)
        self.at_end(lambda: producer.close(20))
        return producer

    def at_end(self, action: Callable[[], object]) -> None:
        self._at_end.append(action)

    def write(self, count: int = 1, **settings: Any) -> dict[TopicPartition, WrittenRange]:
        """Write so many batches to the first partition with a new producer."""
        producer = self.producer(**settings)
        for _ in range(count):
            producer.send("t", batch())
        written = producer.flush()
        producer.close()
        return written

    def transactional_id(self) -> AssignedProducerId:
        """Acquire the transactional id ``id``, as another client does."""
        result = TransactionCoordinator.of(self.cluster).init_producer_id("id", 900_000)
        assert result.error_code == 0
        return AssignedProducerId(result.producer_id, result.producer_epoch, "id")

    def delay_responses(self, seconds: float) -> None:
        """Let responses to all Produce requests arrive later."""
        self.every("Produce", "delay_response", seconds=seconds)

    # What was sent and written.

    @property
    def produced(self) -> list[ProduceRequest]:
        found = self.arrivals("Produce")
        return [
            ProduceRequest(
                request.at - found[0].at,
                request.broker,
                {
                    each.index: bytes(each.records)
                    for topic in request.values.topic_data
                    for each in topic.partition_data
                },
            )
            for request in found
        ]

    @property
    def produced_partitions(self) -> list[list[int]]:
        """The partitions of each request."""
        return [sorted(each.batches) for each in self.produced]

    @property
    def produce_times(self) -> list[float]:
        """When brokers handled the requests, rounded to 20 ms."""
        return [round(each.at * 50) / 50 for each in self.produced]

    def producer_states(self, partition: int = 0) -> list[tuple[ProducerIdAndEpoch, int]]:
        """Return the producer id, epoch and sequence number of each batch of a partition, in order."""
        headers = [each.header(partition) for each in self.produced if partition in each.batches]
        return [(ProducerIdAndEpoch(each.producer_id, each.producer_epoch), each.base_sequence) for each in headers]

    def sequences(self, partition: int = 0) -> list[int]:
        return [sequence for _, sequence in self.producer_states(partition)]

    def values(self, partition: int = 0) -> list[int]:
        """Return what is in the log."""
        found = self.environment.oracle.records(("t", partition), 0, 1 << 60, READ_UNCOMMITTED)
        return [int(value or b"") for _, value in found]
