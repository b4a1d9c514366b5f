"""Sequences of requests about transactions, producers and groups, with a transcript that a real broker can give too.

Each case has its own topic, transactional id and group. Producer ids are written as p0, p1, ... by first appearance.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
from tests.unit.records.batches import TRANSACTIONAL, Rec, encode_record

from pyspark_kafka_direct.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.protocol.messages import ApiMessageType

    Send = Callable[[ApiMessageType, int, Mapping[str, Any]], Any]

SAME: Final = "the case's transactional id"
_TRANSIENT = {14, 15, 16, 51}


def producer_batch(
    values: tuple[bytes, ...] = (b"v",),
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    *,
    attributes: int = TRANSACTIONAL,
    timestamp: int = 1_700_000_000_000,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    count: int | None = None,
    keys: tuple[bytes | None, ...] | None = None,
    records: bytes | None = None,
) -> bytes:
    """Encode a batch as a producer sends it."""
    if records is None:
        records = b"".join(
            encode_record(Rec(value, None if keys is None else keys[delta]), delta)
            for delta, value in enumerate(values)
        )
    last = len(values) - 1 if last_offset_delta is None else last_offset_delta
    count = len(values) if count is None else count
    covered = (
        struct.pack(">hiqqqhii", attributes, last, timestamp, timestamp, producer_id, epoch, sequence, count) + records
    )
    crc = google_crc32c.value(covered)
    return struct.pack(">qiibI", base_offset, len(covered) + 9, -1, 2, crc) + covered


class Caller:
    """Sends the requests of one case and writes down the responses."""

    def __init__(self, name: str, send: Send, *, kip_890: bool, pause: Callable[[float], None] = time.sleep) -> None:
        self.name = name
        self.kip_890 = kip_890
        self.topic, self.transactional_id, self.group = f"topic-{name}", f"transaction-{name}", f"group-{name}"
        self.transcript: list[str] = []
        # Raises the epoch of a transactional id to the last one, if that needs no 32,766 requests.
        self.exhaust_epochs: Callable[[str], None] | None = None
        self._send = send
        self._pause = pause
        self._producer_ids: list[int] = []

    def pause(self, seconds: float) -> None:
        self._pause(seconds)

    def init(
        self,
        *,
        producer: tuple[int, int] = (-1, -1),
        version: int = 5,
        timeout: int = 60_000,
        transactional_id: str | None = SAME,
    ) -> tuple[int, int]:
        """Send InitProducerId."""
        values = {
            "transactional_id": self.transactional_id if transactional_id is SAME else transactional_id,
            "transaction_timeout_ms": timeout,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }
        response = self._call(messages.INIT_PRODUCER_ID, version, values, lambda response: [response.error_code])
        self._note("InitProducerId", version, response.error_code, response.producer_id, response.producer_epoch)
        return response.producer_id, response.producer_epoch

    def end(
        self,
        producer: tuple[int, int],
        commit: bool,
        *,
        version: int | None = None,
        transactional_id: str = SAME,
    ) -> tuple[int, int]:
        """Send EndTxn; return the producer id and epoch to continue with."""
        version = (5 if self.kip_890 else 4) if version is None else version
        values = {
            "transactional_id": self.transactional_id if transactional_id is SAME else transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }
        response = self._call(messages.END_TXN, version, values, lambda response: [response.error_code])
        self._note(
            "EndTxn", version, response.error_code, response.producer_id, response.producer_epoch, f"commit={commit}"
        )
        return (response.producer_id, response.producer_epoch) if response.producer_id >= 0 else producer

    def add(self, producer: tuple[int, int], *partitions: int, version: int = 3, topic: str | None = None) -> None:
        """Send AddPartitionsToTxn."""
        values = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [{"name": topic or self.topic, "partitions": list(partitions)}],
        }
        self._partitions(messages.ADD_PARTITIONS_TO_TXN, version, values, _added)

    def add_offsets(self, producer: tuple[int, int], *, version: int = 3) -> None:
        """Send AddOffsetsToTxn."""
        values = {
            "transactional_id": self.transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "group_id": self.group,
        }
        response = self._call(messages.ADD_OFFSETS_TO_TXN, version, values, lambda response: [response.error_code])
        self._note("AddOffsetsToTxn", version, response.error_code)

    def produce(
        self,
        producer: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        *,
        partition: int = 0,
        values: tuple[bytes, ...] = (b"v",),
        version: int | None = None,
        transactional_id: str | None = SAME,
        attributes: int = TRANSACTIONAL,
        records: bytes | None = None,
        acks: int = -1,
        topic: str | None = None,
    ) -> None:
        """Send Produce, above version 11 only with KIP-890 unless ``version`` is given."""
        version = (12 if self.kip_890 else 11) if version is None else version
        if records is None:
            records = producer_batch(values, *producer, sequence, attributes=attributes)
        request = {
            "transactional_id": self.transactional_id if transactional_id is SAME else transactional_id,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic or self.topic, "partition_data": [{"index": partition, "records": records}]}],
        }
        response = self._call(messages.PRODUCE, version, request, _produced)
        self._note("Produce", version, _describe(response.responses[0].partition_responses[0]))

    def produce_many(
        self, *partitions: tuple[int, bytes], transactional_id: str | None = SAME, version: int | None = None
    ) -> None:
        """Send Produce with batches for several partitions."""
        version = (12 if self.kip_890 else 11) if version is None else version
        data = [{"index": index, "records": records} for index, records in partitions]
        request = {
            "transactional_id": self.transactional_id if transactional_id is SAME else transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": self.topic, "partition_data": data}],
        }
        response = self._call(messages.PRODUCE, version, request, _produced)
        found = response.responses[0].partition_responses
        self._note("Produce", version, *sorted(f"{each.index}: {_describe(each)}" for each in found))

    def create(self, suffix: str, **configs: str) -> str:
        """Create a topic with one partition and settings; return its name."""
        name = f"{self.topic}-{suffix}"
        topic = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        self._send(messages.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 30_000})
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        request = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": name, "partitions": [partition]}]}
        while self._send(messages.LIST_OFFSETS, 7, request).topics[0].partitions[0].error_code:
            self._pause(0.05)  # the broker does not lead the partition yet
        return name

    def txn_commit(
        self,
        producer: tuple[int, int],
        offset: int,
        *,
        partition: int = 0,
        version: int | None = None,
        generation: int = -1,
        member: str = "",
        metadata: str | None = "",
        topic: str | None = None,
    ) -> None:
        """Send TxnOffsetCommit."""
        version = (5 if self.kip_890 else 4) if version is None else version
        position = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": metadata,
        }
        values = {
            "transactional_id": self.transactional_id,
            "group_id": self.group,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "generation_id": generation,
            "member_id": member,
            "topics": [{"name": topic or self.topic, "partitions": [position]}],
        }
        self._partitions(messages.TXN_OFFSET_COMMIT, version, values, _committed)

    def commit(
        self,
        offset: int,
        *,
        partition: int = 0,
        version: int = 9,
        generation: int = -1,
        member: str = "",
        metadata: str | None = "",
        topic: str | None = None,
        group: str | None = None,
    ) -> None:
        """Send OffsetCommit."""
        position = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 0 if version >= 6 else -1,
            "committed_metadata": metadata,
        }
        values = {
            "group_id": self.group if group is None else group,
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "topics": [{"name": topic or self.topic, "partitions": [position]}],
        }
        self._partitions(messages.OFFSET_COMMIT, version, values, _committed)

    def fetch_offsets(
        self,
        *partitions: int,
        version: int = 7,
        stable: bool = False,
        group: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Send OffsetFetch, for all partitions of the group if none is given."""
        topics = [{"name": topic or self.topic, "partition_indexes": list(partitions)}] if partitions else None
        values = {"group_id": self.group if group is None else group, "topics": topics, "require_stable": stable}
        response = self._call(messages.OFFSET_FETCH, version, values, lambda response: [response.error_code])
        found = sorted(
            f"{topic.name}-{partition.partition_index}={partition.committed_offset}"
            f"@{partition.committed_leader_epoch}{partition.metadata!r}/{partition.error_code}"
            for topic in response.topics
            for partition in topic.partitions
        )
        self._note("OffsetFetch", version, response.error_code, *found)

    def find(self, key: str, key_type: int, version: int = 3) -> None:
        """Send FindCoordinator."""
        values = {"key": key, "key_type": key_type}
        response = self._call(messages.FIND_COORDINATOR, version, values, lambda response: [response.error_code])
        self._note("FindCoordinator", version, response.error_code, "node" if response.node_id >= 0 else "no node")

    def _partitions(
        self, api: ApiMessageType, version: int, values: Mapping[str, Any], read: Callable[[Any], list[tuple[str, int]]]
    ) -> None:
        response = self._call(api, version, values, lambda response: [code for _, code in read(response)])
        self._note(api.name, version, *sorted(f"{name}:{code}" for name, code in read(response)))

    def _call(
        self, api: ApiMessageType, version: int, values: Mapping[str, Any], codes: Callable[[Any], list[int]]
    ) -> Any:
        """Send a request again while its response is transient."""
        for _ in range(200):
            response = self._send(api, version, values)
            if not _TRANSIENT.intersection(codes(response)):
                return response
            self._pause(0.02)
        return response

    def _note(self, *facts: object) -> None:
        name, version, *more = facts
        if name in ("InitProducerId", "EndTxn") and isinstance(more[1], int):
            more[1] = self._symbol(more[1])
        self.transcript.append(" ".join(str(fact) for fact in (f"{name}{version}", *more)).strip())

    def _symbol(self, producer_id: int) -> str:
        if producer_id < 0:
            return str(producer_id)
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return f"p{self._producer_ids.index(producer_id)}"


def _describe(found: Any) -> str:
    described = f"{found.error_code} offset={found.base_offset} start={found.log_start_offset}"
    if found.log_append_time_ms >= 0:
        described += " log append time"
    for each in found.record_errors:
        described += f" [{each.batch_index}: {each.batch_index_error_message}]"
    return described + (f" {found.error_message}" if found.error_message else "")


def _added(response: Any) -> list[tuple[str, int]]:
    return [
        (f"{topic.name}-{partition.partition_index}", partition.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def _committed(response: Any) -> list[tuple[str, int]]:
    return [
        (f"{topic.name}-{partition.partition_index}", partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    ]


def _produced(response: Any) -> list[int]:
    """Return the error codes; 19 is transient if the broker could not verify the partition."""
    found = [partition for topic in response.responses for partition in topic.partition_responses]
    return [
        51
        if partition.error_code == 19 and "nable to verify" in (partition.error_message or "")
        else partition.error_code
        for partition in found
    ]
