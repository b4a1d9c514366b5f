"""Sends the steps of ``log_cases`` over a connection of the package, to a simulated or a real broker."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.coordinator_cases import Caller, producer_batch
from tests.unit.records.batches import CONTROL, TRANSACTIONAL, crc

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.log_cases import Step

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.settings import ConnectionSettings
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

    DeleteRecords = Callable[[str, int, int], None]

_SECONDS = 120.0
_LAST_TIMESTAMP = 1_700_000_900_000  # of records; later ones are a broker's
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_STARTS = 21  # the first byte that the checksum covers


class LogCaller(Caller):
    """Writes down the result of each step; producer ids and times of markers are normalised."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        system: System,
        *,
        kip_890: bool,
        delete_records: DeleteRecords,
    ) -> None:
        super().__init__(name, self._send_over_connection, kip_890=kip_890, pause=system.sleep)
        self._connection = connection
        self._system = system
        self._delete_records = delete_records
        self._returned: list[tuple[int, int]] = []  # producer ids and epochs
        self._sequences: Counter[tuple[tuple[int, int], int]] = Counter()  # by producer and partition

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps; ``producer`` is an index, and names may contain ``{topic}`` and ``{transactional_id}``."""
        for method, arguments in steps:
            result = getattr(self, method)(**{name: self._argument(name, each) for name, each in arguments.items()})
            if isinstance(result, tuple):
                self._returned.append(result)

    def create_topic(self, partitions: int = 2) -> None:
        """Create the topic of the case, and wait until the broker leads its partitions."""
        self.send_create_topics(self.topic, partitions)
        self.transcript.clear()
        for partition in range(partitions):
            while self._offsets(partition, -1, 0).error_code:
                self.pause(0.05)

    def send_create_topics(
        self, topic: str, partitions: int = 2, replication: int = 1, *, version: int = 7, validate_only: bool = False
    ) -> None:
        """Send CreateTopics."""
        values = {
            "topics": [
                {
                    "name": topic,
                    "num_partitions": partitions,
                    "replication_factor": replication,
                    # Otherwise old records and new markers have separate segments, and a fetch reads only one.
                    "configs": [{"name": "segment.ms", "value": str(1 << 50)}],
                }
            ],
            "timeout_ms": 30_000,
            "validate_only": validate_only,
        }
        (created,) = self._send(messages.CREATE_TOPICS, version, values).topics
        has_id = created.topic_id != UUID(int=0)
        self._note("CreateTopics", version, created.error_code, created.num_partitions, created.replication_factor)
        if version >= 7:
            self.transcript[-1] += f" id={has_id}"
        if created.error_code == 0 and not validate_only:
            while self._metadata(topic, 12).error_code:
                self.pause(0.05)

    def metadata(self, topic: str, version: int = 12) -> None:
        """Send Metadata."""
        found = self._metadata(topic, version)
        facts = sorted(
            (
                each.partition_index,
                each.error_code,
                each.leader_epoch,
                *map(len, (each.replica_nodes, each.isr_nodes, each.offline_replicas)),
            )
            for each in found.partitions
        )
        has_id = found.topic_id != UUID(int=0)
        self._note("Metadata", version, found.error_code, found.name, found.is_internal, f"id={has_id}", *facts)

    def write(
        self,
        values: Sequence[bytes],
        *,
        timestamp: int = 1_700_000_000_000,
        partition: int = 0,
        acks: int = -1,
        topic: str | None = None,
    ) -> None:
        """Write a batch without a producer id."""
        records = producer_batch(tuple(values), attributes=0, timestamp=timestamp)
        self.produce(records=records, partition=partition, acks=acks, topic=topic, transactional_id=None)

    def idempotent(
        self,
        producer: tuple[int, int],
        sequence: int,
        values: Sequence[bytes],
        *,
        epoch: int = 0,
        partition: int = 0,
        batches: int = 1,
    ) -> None:
        """Write batches of a producer with idempotence, all of them in one request."""
        records = b"".join(
            producer_batch(tuple(values), producer[0], epoch, sequence + each * len(values), attributes=0)
            for each in range(batches)
        )
        self.produce(records=records, partition=partition, transactional_id=None)

    def transactional(
        self,
        producer: tuple[int, int],
        values: Sequence[bytes],
        *,
        partition: int = 0,
        sequence: int | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Write a batch within a transaction, with the next sequence number, after AddPartitionsToTxn if needed."""
        transactional_id = transactional_id or self.transactional_id
        if not self.kip_890:
            self._add_partition(transactional_id, producer, partition)
        key = (producer, partition)
        if sequence is None:
            sequence = self._sequences[key]
            self._sequences[key] += len(values)
        records = producer_batch(tuple(values), *producer, sequence, attributes=TRANSACTIONAL)
        self.produce(records=records, partition=partition, transactional_id=transactional_id)

    def stabilize(self, partition: int = 0) -> None:
        """Wait until no transaction is open."""
        while self._offsets(partition, -1, 0).offset != self._offsets(partition, -1, 1).offset:
            self.pause(0.02)

    def await_end(self, offset: int, partition: int = 0) -> None:
        """Wait until the partition ends at an offset."""
        while self._offsets(partition, -1, 0).offset < offset:
            self.pause(0.02)

    def delete_records(self, offset: int, partition: int = 0) -> None:
        """Delete the records before an offset, by a client of another kind."""
        self._delete_records(self.topic, partition, offset)

    def list_offsets(
        self,
        timestamp: int,
        *,
        isolation: int = 0,
        partition: int = 0,
        version: int = 11,
        leader_epoch: int = -1,
        topic: str | None = None,
    ) -> None:
        """Send ListOffsets."""
        found = self._offsets(partition, timestamp, isolation, version, leader_epoch, topic)
        self._note(
            "ListOffsets",
            version,
            f"{partition}@{timestamp}/{isolation}:",
            found.error_code,
            "now" if found.timestamp > _LAST_TIMESTAMP else found.timestamp,
            found.offset,
            found.leader_epoch,
        )

    def fetch(
        self,
        offset: int,
        *,
        partition: int = 0,
        isolation: int = 0,
        version: int = 12,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
        last_epoch: int = -1,
        topic: str | None = None,
        unknown_id: bool = False,
    ) -> None:
        """Send Fetch, which does not wait."""
        name = topic or self.topic
        requested = {
            "partition": partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "partition_max_bytes": partition_max_bytes,
        }
        topic_id = UUID(int=77) if unknown_id or version < 13 else self._metadata(name, 12).topic_id
        values = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": max_bytes,
            "isolation_level": isolation,
            "topics": [{"topic": name, "topic_id": topic_id, "partitions": [requested]}],
        }
        response = self._send(messages.FETCH, version, values)
        found = response.responses[0].partitions[0]
        aborted = found.aborted_transactions
        self._note(
            "Fetch",
            version,
            f"{partition}@{offset}/{isolation}:",
            response.error_code or found.error_code,
            f"high_watermark={found.high_watermark} stable={found.last_stable_offset} start={found.log_start_offset}",
            f"aborted={[(self._symbol(each.producer_id), each.first_offset) for each in aborted or ()]}",
            f"diverging={tuple(found.diverging_epoch)} leader={tuple(found.current_leader)}",
            *self._batches(found.records or b""),
        )

    def _send_over_connection(self, api: ApiMessageType, version: int, values: Mapping[str, Any]) -> Any:
        deadline = Deadline.after(_SECONDS, system=self._system)
        self._connection.submit(api, values, deadline, version=version)
        return self._connection.complete(api, deadline, version=version)

    def _argument(self, name: str, value: Any) -> Any:
        if name == "producer" and isinstance(value, int):
            return self._returned[value]
        if isinstance(value, str):
            return value.format(topic=self.topic, transactional_id=self.transactional_id)
        return value

    def _add_partition(self, transactional_id: str, producer: tuple[int, int], partition: int) -> None:
        own, self.transactional_id = self.transactional_id, transactional_id
        self.add(producer, partition)
        self.transactional_id = own

    def _metadata(self, topic: str, version: int) -> Any:
        values = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (found,) = self._send(messages.METADATA, version, values).topics
        return found

    def _offsets(
        self,
        partition: int,
        timestamp: int,
        isolation: int,
        version: int = 11,
        leader_epoch: int = -1,
        topic: str | None = None,
    ) -> Any:
        requested = {"partition_index": partition, "current_leader_epoch": leader_epoch, "timestamp": timestamp}
        values = {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": topic or self.topic, "partitions": [requested]}],
            "timeout_ms": 30_000,
        }
        return self._send(messages.LIST_OFFSETS, version, values).topics[0].partitions[0]

    def _batches(self, records: bytes) -> list[str]:
        """Return the batches as strings, with everything but producer ids, checksums and times of markers."""
        found = []
        position = 0
        while len(records) - position >= _HEADER.size:
            header = _HEADER.unpack_from(records, position)
            end = position + 12 + header[1]
            if end > len(records):
                break
            checksum = header[4] == crc(records[position + _CRC_STARTS : end])
            attributes, last_delta, first_time, max_time, producer_id, epoch, sequence, count = header[5:]
            times = () if attributes & CONTROL else (first_time, max_time)
            producer = (self._symbol(producer_id), epoch, sequence)
            facts = (header[0], header[2], header[3], checksum, attributes, last_delta, times, producer, count)
            found.append(f"{facts} {records[position + _HEADER.size : end].hex()}")
            position = end
        return [*found, f"truncated {len(records) - position}"] if position < len(records) else found


def run_case(
    label: str,
    run: Callable[[LogCaller], None],
    settings: ConnectionSettings,
    system: System,
    *,
    kip_890: bool,
    delete_records: DeleteRecords,
) -> list[str]:
    """Run a case over a new connection to the only broker, and return its transcript."""
    ((host, port),) = settings.bootstrap_servers
    connection = Connection.open(settings, host, port, Deadline.after(_SECONDS, system=system))
    try:
        caller = LogCaller(label, connection, system, kip_890=kip_890, delete_records=delete_records)
        caller.create_topic()
        run(caller)
        return caller.transcript
    finally:
        connection.close()
