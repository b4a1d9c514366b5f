"""A simulated cluster with the topic of an offset store, and runs of one query in several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.log import kafka_offset_store
from pyspark_kafka_direct.log.offset_store_log import OffsetStoreLog
from pyspark_kafka_direct.log.offset_store_records import StoredOffset, StoreRun, offset_key
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.process import SimulatedProcess

PARTITION, OTHER_TOPIC = TopicPartition("t", 0), TopicPartition("u", 0)
STORE_PARTITION = TopicPartition("offsets", 0)
QUERY = "q"
_TRANSACTIONAL_ID = "offsets:q.store"


class StoreCluster(UnitCluster):
    """Two brokers; runs belong to the process of the test unless they are given another one."""

    def __init__(self) -> None:
        super().__init__({"offsets": 1, "t": 2, "u": 1}, brokers=2)
        self.cluster.topics["offsets"].configs["cleanup.policy"] = "compact"
        self.other = self.environment.process("other")

    def run(self, name: str, process: SimulatedProcess | None = None) -> OffsetStoreLog:
        client = self.environment.client(process or self.process)
        partition = CompactedPartition(client, "offsets", kafka_offset_store._TOPIC_ERROR_TEXT)

        def new_producer() -> TransactionalProducer:
            return TransactionalProducer(client, _TRANSACTIONAL_ID, 30_000, ProducerSettings())

        return OffsetStoreLog(
            client,
            partition,
            new_producer,
            query=QUERY,
            run=StoreRun(name, "host", 1, 1_700_000_000_000),
            transaction_timeout=30.0,
        )

    def in_other_process(self, seconds: float, action: Callable[[], object]) -> None:
        """Call something in the other process in some seconds."""

        def body() -> None:
            self.other.sleep(seconds)
            action()

        self.other.spawn("later", body)

    def expire_transactional_id(self) -> None:
        """Expire the transactional id, as brokers do after a week without use."""
        self.sleep(1)  # the last transaction gets its marker
        TransactionCoordinator.of(self.cluster).expire(_TRANSACTIONAL_ID)

    def append_records(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append records of other writers."""
        self.cluster.append(STORE_PARTITION, [value for _, value in records], keys=[key for key, _ in records])

    def remove_records_of(self, partition: TopicPartition) -> None:
        """Remove the saved offsets of a partition from the log."""
        key = offset_key(QUERY, partition)
        for replica in self.partition(STORE_PARTITION).replicas.values():
            replica.replace_batches(each for each in replica.batches if key not in each.keys)

    def committed_offsets(self) -> list[int]:
        """All committed offsets of the query in log order, after all transactions have ended."""
        log = self.log(STORE_PARTITION)
        while log.last_stable_offset < log.end:
            self.sleep(0.1)
        rows = [
            value
            for batch in log.batches
            if not batch.is_control
            and not any(
                each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
                for each in log.aborted
            )
            for key, value in zip(batch.keys, batch.values, strict=True)
            if key == offset_key(QUERY, PARTITION) and value is not None
        ]
        return [int(value.split(b":")[1].split(b",")[0]) for value in rows]


def save(store: OffsetStoreLog, offset: int) -> None:
    store.write({PARTITION: StoredOffset(offset, None, "run")})


def saved_offset(store: OffsetStoreLog) -> int:
    return store.offsets[PARTITION].offset if PARTITION in store.offsets else 0
