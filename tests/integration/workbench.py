"""A workbench for the tests of one range: writes records, reads ranges, asks and changes the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests import kafka_python
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params, task_settings

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.settings import TaskSettings

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader, TopicMetadata

Row = dict[str, Any]

# What a broker answers that has just started.
_NOT_YET = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


@dataclass
class Read:
    """What one read gave: its rows, batch by batch, and its counts."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    counts: ReadCounts = field(default_factory=ReadCounts)

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    @property
    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows]

    @property
    def values(self) -> list[bytes]:
        return [row["value"] for row in self.rows]


@dataclass(frozen=True)
class RangeRequest:
    """A read that a test asks for: of which range, how, and what it returns."""

    task: RangeTask
    config: Mapping[str, Any]  # fields of ``TaskSettings``
    output: Mapping[str, Any]  # arguments of ``read_range``


class Workbench:
    """One cluster, and what a test does with it."""

    def __init__(self, bootstrap_servers: str, make_topic: MakeTopic) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.make_topic = make_topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def producer(self, **config: Any) -> Producer:
        """A producer that makes one batch of the records between two calls of ``flush``."""
        settings = {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 30_000}  # which flush() does not wait for
        return Producer(settings | {name.replace("_", "."): value for name, value in config.items()})

    def write(self, topic: str, *batches: Iterable[bytes | None], partition: int = 0, **config: Any) -> None:
        """Writes values: every argument becomes a batch, if its values fit into one."""
        producer = self.producer(**config)
        for values in batches:
            for value in values:
                while True:
                    try:
                        producer.produce(topic, value, partition=partition)
                        break
                    except BufferError:
                        producer.poll(1)
            assert producer.flush(300) == 0

    def settings(self, **kafka: object) -> TaskSettings:
        """Settings under Java's names, with underscores for dots."""
        names = {name.replace("_", "."): str(value) for name, value in kafka.items()}
        return parse_client_params({"bootstrap.servers": self.bootstrap_servers} | names)

    def ask(self, request_class: Any, **fields: Any) -> Any:
        """Sends a request that the admin client does not know, one of kafka-python's classes, to any broker."""
        host, _, port = self.bootstrap_servers.split(",")[0].rpartition(":")
        deadline = Deadline.after(600)
        connection = Connection.open(self.settings().connection, host, int(port), deadline)
        try:
            return kafka_python.ask(connection, request_class(**fields), deadline)
        finally:
            connection.close()

    def topic_id(self, topic: str) -> UUID:
        topic_id = self._metadata(topic).topic_id
        assert topic_id is not None
        return topic_id

    def request(self, topic: str, from_offset: int, until_offset: int, **fields: Any) -> RangeRequest:
        partition: int = fields.pop("partition", 0)
        offsets = OffsetRange(topic, partition, from_offset, until_offset)
        task = RangeTask(
            offsets,
            fields.pop("topic_id") if "topic_id" in fields else self.topic_id(topic),
            fields.pop("leader", None),
            fields.pop("from_earliest", False),
        )
        output = {"columns": ("offset", "value")}
        output |= {name: fields.pop(name) for name in ("columns", "max_rows", "max_bytes") if name in fields}
        return RangeRequest(task, fields, output)

    def config(self, request: RangeRequest, **kafka: object) -> TaskSettings:
        return task_settings(*self.settings(**kafka), **request.config)

    def read(
        self,
        topic: str,
        from_offset: int,
        until_offset: int,
        *,
        kafka: Mapping[str, object] | None = None,
        **fields: Any,
    ) -> Read:
        """Reads a range to its end."""
        return self.run(self.request(topic, from_offset, until_offset, **fields), **(kafka or {}))

    def run(self, request: RangeRequest, **kafka: object) -> Read:
        """Reads what is requested to its end."""
        read = Read()
        read.batches.extend(self.open(request, read.counts, **kafka))
        return read

    def open(self, request: RangeRequest, counts: ReadCounts | None = None, **kafka: Any) -> Iterator[pa.RecordBatch]:
        """Starts a read that the test takes batch by batch."""
        return read_range(*self.config(request, **kafka), request.task, counts=counts, **request.output)

    def count(
        self, request: RangeRequest, counts: ReadCounts | None = None, *, limit: int | None = None, **kafka: object
    ) -> int:
        return count_range(*self.config(request, **kafka), request.task, limit=limit, counts=counts)

    def end(self, topic: str, partition: int = 0) -> int:
        return self._offset(topic, partition, OffsetSpec.latest())

    def start(self, topic: str, partition: int = 0) -> int:
        return self._offset(topic, partition, OffsetSpec.earliest())

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Moves the log start offset, as retention does."""
        place = ClientPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(600)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; returns when the brokers no longer know it."""
        self.admin.delete_topics([topic], operation_timeout=600)[topic].result(600)
        self.wait_until(lambda: topic not in ClusterClient(self.settings().connection).topics([topic]), "topic deleted")

    def alter_topic(self, topic: str, **config: object) -> None:
        """Set configs of a topic, and wait for the broker; their names have underscores instead of dots."""
        named = {name.replace("_", "."): str(value) for name, value in config.items()}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in named.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(600)

        def is_applied() -> bool:
            found = self.admin.describe_configs([resource])[resource].result(600)
            return all(found[name].value == value for name, value in named.items())

        self.wait_until(is_applied, f"configs of {topic}")

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Raises the number of partitions of a topic."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(600)

    def recreate_topic(self, topic: str, **config: object) -> None:
        """Deletes a topic and creates it again under the same name."""
        named = {name.replace("_", "."): str(value) for name, value in config.items()}
        before = self.topic_id(topic)
        self.delete_topic(topic)
        self.admin.create_topics([NewTopic(topic, 1, 1, config=named)], operation_timeout=600)[topic].result(600)
        cluster = ClusterClient(self.settings().connection)

        def is_there() -> bool:
            metadata = cluster.topics([topic]).get(topic)
            return metadata is not None and metadata.topic_id != before and metadata.partitions[0].leader is not None

        self.wait_until(is_there, "topic created again")

    def leader(self, topic: str, partition: int = 0) -> int:
        leader = self._metadata(topic).partitions[partition].leader
        return -1 if leader is None else leader

    def move_leader(self, topic: str, partition: int = 0) -> None:
        """Makes another replica the leader."""
        before = self.leader(topic, partition)
        self.reassign(topic, [*(node for node in self.replicas(topic, partition) if node != before), before], partition)

    def reassign(self, topic: str, replicas: list[int], partition: int = 0) -> None:
        """Reassigns a partition to these replicas; the first one becomes the leader."""
        from kafka.protocol.admin.topics import AlterPartitionReassignmentsRequest as Reassignment
        from kafka.protocol.admin.topics import ElectionType
        from kafka.protocol.admin.topics import ElectLeadersRequest as Election

        moved = Reassignment.ReassignableTopic.ReassignablePartition(partition_index=partition, replicas=replicas)
        topics = [Reassignment.ReassignableTopic(name=topic, partitions=[moved])]
        response = self.ask(Reassignment, timeout_ms=600_000, topics=topics)
        assert response.error_code == 0
        assert [each.error_code for found in response.responses for each in found.partitions] == [0]
        self.wait_until(lambda: set(self.replicas(topic, partition)) == set(replicas), "the replicas have moved")
        partitions = [Election.TopicPartitions(topic=topic, partitions=[partition])]

        def leads() -> bool:
            if self.leader(topic, partition) == replicas[0]:
                return True
            self.ask(Election, election_type=ElectionType.PREFERRED, topic_partitions=partitions, timeout_ms=600_000)
            return False

        self.wait_until(leads, "the leader has moved")

    def known_leader(self, topic: str, partition: int = 0) -> PartitionLeader:
        """The leader as a plan holds it."""
        place = TopicPartition(topic, partition)
        cluster = ClusterClient(self.settings().connection)
        self.wait_until(lambda: cluster.topics([topic])[topic].partitions[partition].leader is not None, "a leader")
        return cluster.known_leaders([place])[place]

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        return self._metadata(topic).partitions[partition].replicas

    wait_until = staticmethod(wait_until)

    def _metadata(self, topic: str) -> TopicMetadata:
        """Waits for the topic: the broker that is asked may hear of a new one a moment later than another."""
        found: dict[str, TopicMetadata] = {}
        cluster = ClusterClient(self.settings().connection)

        def is_known() -> bool:
            found.update(cluster.topics([topic]))
            return topic in found

        self.wait_until(is_known, f"topic {topic} known")
        return found[topic]

    def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        place = ClientPartition(topic, partition)
        found: list[int] = []

        def is_told() -> bool:
            try:
                found.append(int(self.admin.list_offsets({place: spec})[place].result(600).offset))
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET:
                    raise
            return bool(found)

        self.wait_until(is_told, f"offset of {topic}")
        return found[0]
