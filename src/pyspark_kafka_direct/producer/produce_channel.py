"""Produce requests: record batches of many partitions to the broker that leads them, and their responses.

A request has at most one record batch per partition: brokers reject two. Records are sent without a copy
(``protocol.codec.MessageBuffer``).

With a transactional id, version 12 means that a write adds its partition to the transaction (KIP-890). This requires
the feature transaction.version 2, which the API versions do not show.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.messages import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline

NO_OFFSET: Final = -1  # the broker returns no base offset: an old duplicate, or acks=0
NO_TIMESTAMP: Final = -1  # log append time of a topic whose records have their own timestamps

_FIRST_TRANSACTION_V2_VERSION = 12
_FIRST_ZSTD_VERSION = 7


class PartitionProduceResponse(NamedTuple):
    """A broker's response for one partition's record batch."""

    error_code: int
    base_offset: int = NO_OFFSET  # of the first record
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = -1  # -1 if unknown
    record_errors: tuple[tuple[int, str | None], ...] = ()  # index in the batch, and message, of rejected records
    message: str | None = None  # the broker's own
    leader: int = -1  # broker id, returned by brokers that do not lead the partition (KIP-951); -1 if unknown
    leader_epoch: int = -1


class ProduceChannel:
    """Sends Produce requests over one connection; several may be in flight."""

    def __init__(
        self,
        connection: Connection,  # not used by others
        *,
        acks: int,
        timeout_ms: int,  # for which the broker may wait for replicas
        transactional_id: str | None = None,
        adds_partitions: bool = True,  # whether writes add partitions to the transaction (transaction.version 2)
        uses_zstd: bool = False,  # whether record batches may be compressed with zstd
    ) -> None:
        self.connection = connection
        version = connection.version(PRODUCE)
        if transactional_id is not None and not adds_partitions:
            version = min(version, _FIRST_TRANSACTION_V2_VERSION - 1)
        if uses_zstd and version < _FIRST_ZSTD_VERSION:
            raise UnsupportedBrokerError(
                "The broker does not support zstd, which requires Kafka 2.1: set another kafka.compression.type.",
                broker=connection.broker,
            )
        self.version = version
        self._expects_response = acks != 0
        self._values = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms}
        self._in_flight: deque[list[TopicPartition]] = deque()

    def request(self, batches: Mapping[TopicPartition, bytes | bytearray | memoryview], deadline: Deadline) -> None:
        """Send record batches, at most one per partition, without waiting for the response."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), records in batches.items():
            topics.setdefault(topic, []).append({"index": index, "records": records})
        data = [{"name": topic, "partition_data": partitions} for topic, partitions in topics.items()]
        values = {**self._values, "topic_data": data}
        self.connection.submit(PRODUCE, values, deadline, version=self.version, expects_response=self._expects_response)
        if self._expects_response:
            self._in_flight.append(list(batches))

    def response(self, deadline: Deadline) -> tuple[dict[TopicPartition, PartitionProduceResponse], int]:
        """Wait for the response to the oldest request; return it by partition, and the throttle time in ms."""
        response = self.connection.complete(PRODUCE, deadline, version=self.version)
        requested_partitions = self._in_flight.popleft()
        partition_responses = {
            TopicPartition(topic.name, partition.index): _parse_partition(partition)
            for topic in response.responses
            for partition in topic.partition_responses
        }
        if partition_responses.keys() != set(requested_partitions):
            self.connection.close()
            # To be named by the error: a partition without a response, or any if the response has too many.
            without_response = [tp for tp in requested_partitions if tp not in partition_responses]
            topic, partition_id = (without_response or requested_partitions)[0]
            raise ProtocolError(
                "The response to Produce does not have the partitions of the request.",
                topic=topic,
                partition=partition_id,
                broker=self.connection.broker,
            )
        return partition_responses, response.throttle_time_ms


def _parse_partition(partition_response: Any) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        error_code=partition_response.error_code,
        base_offset=partition_response.base_offset if partition_response.error_code == 0 else NO_OFFSET,
        log_append_time_ms=partition_response.log_append_time_ms,
        log_start_offset=partition_response.log_start_offset,
        record_errors=tuple(
            (error.batch_index, error.batch_index_error_message) for error in partition_response.record_errors
        ),
        message=partition_response.error_message,
        leader=partition_response.current_leader.leader_id,
        leader_epoch=partition_response.current_leader.leader_epoch,
    )


class WrittenRange(NamedTuple):
    """The offsets and size of the batches written to a partition; records of other producers may lie between them."""

    first_offset: int  # -1 if the broker did not return it for every batch
    next_offset: int  # -1 likewise
    records: int
    bytes: int  # as sent, after compression

    def including(self, other: WrittenRange) -> WrittenRange:
        # The broker returns the original offset of a duplicate, which may be lower than offsets returned since.
        is_known = NO_OFFSET not in (self.first_offset, other.first_offset)
        return WrittenRange(
            min(self.first_offset, other.first_offset) if is_known else NO_OFFSET,
            max(self.next_offset, other.next_offset) if is_known else NO_OFFSET,
            self.records + other.records,
            self.bytes + other.bytes,
        )
