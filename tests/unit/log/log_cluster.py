"""A simulated cluster with the topic of a log, and logs whose callbacks append to lists."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.simulation.process import SimulatedProcess

    from pyspark_kafka_direct.options.settings import IsolationLevel

TOPIC = "settings"


def tp(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


class LogCluster(UnitCluster):
    """Two brokers, which both have each partition of a compacted topic; broker 1 leads all.

    Attributes:
        delivered: Partition and offset of each record that was delivered.
        errors: What ``on_error`` was called with.
        resets: What ``on_reset`` was called with.
    """

    def __init__(self, partitions: int = 2, *, cleanup_policy: str = "compact", **cluster: Any) -> None:
        super().__init__({TOPIC: partitions}, brokers=2, **cluster)
        self.cluster.topics[TOPIC].configs["cleanup.policy"] = cleanup_policy
        self.delivered: list[tuple[int, int]] = []
        self.errors: list[Any] = []
        self.resets: list[Any] = []

    def clients(
        self,
        isolation_level: IsolationLevel = "read_uncommitted",
        *,
        process: SimulatedProcess | None = None,
        **fetch: Any,
    ) -> LogClients:
        """Return clients of the test's process, or of another one."""
        client = self.environment.client(process or self.process)
        return LogClients(client, FetchSettings(isolation_level, **fetch), produce=ProducerSettings())

    def log_of(self, clients: LogClients | None = None, **options: Any) -> KafkaBasedLog:
        """Return a log that is not started."""
        callbacks = {
            "on_record": lambda record: self.delivered.append((record.partition, record.offset)),
            "on_error": self.errors.append,
            "on_reset": self.resets.append,
        }
        return KafkaBasedLog(TOPIC, clients or self.clients(), **{**callbacks, **options})

    def table_of(self, clients: LogClients | None = None, **options: Any) -> KafkaTable[Any, Any]:
        """Return a table that is not started."""
        return KafkaTable(TOPIC, clients or self.clients("read_committed"), **options)

    def put(self, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """Append a record of another program."""
        self.cluster.append(tp(partition), [value], keys=[key])

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the offsets that were delivered, and forget them."""
        found = [offset for number, offset in self.delivered if number == partition]
        self.delivered = [each for each in self.delivered if each[0] != partition]
        return found

    def starts_requested(self) -> int:
        """Return how many ListOffsets requests for log starts brokers have handled."""
        return self._requests_of(EARLIEST)

    def ends_requested(self) -> int:
        return self._requests_of(LATEST)

    def hide_topic(self, seconds: float) -> None:
        """Let brokers respond for a while as if the topic did not exist."""
        self.event("deny_topic", topic=TOPIC, seconds=seconds, error_code=3)

    def deny_topic(self, seconds: float) -> None:
        """Let brokers respond with an authorization error for a while."""
        self.event("deny_topic", topic=TOPIC, seconds=seconds)

    def withhold(self, partition: int, seconds: float) -> None:
        """Return no records of a partition for a while."""
        self.event("withhold_records", topic=TOPIC, partition=partition, seconds=seconds)
        replicas = self.partition(tp(partition)).replicas.values()
        assert {each.withheld_until for each in replicas} == {self.now + seconds}, "the previous pause was too recent"

    @contextmanager
    def outdated(self, *brokers: int) -> Iterator[None]:
        """Let brokers have, at the end of the block, the metadata of its beginning, until faults are healed."""
        images = {broker: self.cluster.brokers[broker].image for broker in brokers}
        yield
        for broker, image in images.items():
            self.cluster.brokers[broker].image = image

    def depose(self, leader: int = 1) -> None:
        """Isolate a leader, which does not notice that the controller elects another one."""
        self.event("isolate_broker", broker=leader - 1, seconds=10_000)
        self.sleep(1)

    def _requests_of(self, timestamp: int) -> int:
        requests = self.received("ListOffsets")
        return sum(each.topics[0].partitions[0].timestamp == timestamp for each in requests)


def outcome(read: Future[None], seconds: float = 120.0) -> BaseException | None:
    """Wait for a read, and return its error."""
    return read.exception(seconds)
