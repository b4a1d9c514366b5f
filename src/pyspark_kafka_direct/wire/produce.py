"""Produce requests: record batches of many partitions to the broker that leads them, and what it says of each.

    request   [9+] TAG_BUFFER of the request header
              nullable STRING transactional id
              INT16 acks (-1 all replicas in sync, 1 the leader, 0: there is no answer), INT32 timeout ms
              ARRAY of topic:
                STRING name
                ARRAY of partition:
                  INT32 partition, RECORDS: one record batch of message format 2
                  [9+] TAG_BUFFER
                [9+] TAG_BUFFER
              [9+] TAG_BUFFER

    response  [9+] TAG_BUFFER of the response header
              ARRAY of topic:
                STRING name
                ARRAY of partition:
                  INT32 partition, INT16 error code, INT64 base offset, INT64 log append time ms
                  [5+] INT64 log start offset
                  [8+] ARRAY of record error: INT32 index in the batch, nullable STRING message, [9+] TAG_BUFFER
                  [8+] nullable STRING message
                  [9+] TAG_BUFFER: 0 [10+] current leader: INT32 leader id, INT32 leader epoch, TAG_BUFFER
                [9+] TAG_BUFFER
              INT32 throttle time ms
              [9+] TAG_BUFFER: 0 [10+] node endpoints: the next metadata request tells the same

A partition comes once in a request, with one record batch: brokers refuse two. Records go from where they are to the
socket, without a copy (``messages._writing.Parts``).

With a transactional id, version 12 means that a write adds its partition to the transaction (KIP-890). The cluster must
have the feature transaction.version 2 for that, which the versions of its requests do not tell.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.messages import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

NO_OFFSET: Final = -1
"""Base offset where the broker does not tell: a duplicate that it knows no more of, or acks 0."""

NO_TIME: Final = -1
"""Log append time where records keep their own timestamps."""

_ADDS_PARTITIONS_FROM = 12
_ZSTD_FROM = 7


class ProducedPartition(NamedTuple):
    """What a broker says of one partition's record batch.

    Attributes:
        error_code: See ``codes``; 0 is success.
        base_offset: Offset of the first record, or ``NO_OFFSET``.
        log_append_time_ms: The timestamp that the broker gave the records, where the topic is so; else -1.
        log_start_offset: First offset that exists; -1 if unknown.
        record_errors: Index in the batch, and message, of records for which the broker refuses it.
        message: The broker's own words, where it has any.
        leader: Broker id of the leader, told with an error by one that does not lead (KIP-951); -1 if unknown.
        leader_epoch: The leader's epoch; -1 if unknown.
    """

    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIME
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    message: str | None = None
    leader: int = -1
    leader_epoch: int = -1


class ProduceChannel:
    """Sends Produce requests over one connection; several may be under way.

    Args:
        connection: Used by nobody else meanwhile.
        acks: Whose acknowledgement counts: -1 all replicas in sync, 1 the leader, 0 nobody's.
        timeout_ms: How long the broker may wait for the replicas.
        transactional_id: Of the transaction that the record batches belong to, if they do.
        adds_partitions: Whether the broker shall add partitions to the transaction by itself (transaction.version 2).
        zstd: Whether record batches may be compressed with zstd.

    Raises:
        UnsupportedBrokerError: No version of the request suits both sides.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
        adds_partitions: bool = True,
        zstd: bool = False,
    ) -> None:
        self.connection = connection
        version = connection.version(PRODUCE)
        if transactional_id is not None and not adds_partitions:
            version = min(version, _ADDS_PARTITIONS_FROM - 1)
        if zstd and version < _ZSTD_FROM:
            raise UnsupportedBrokerError(
                "The broker takes no zstd (Kafka does from 2.1 on): choose another kafka.compression.type.",
                broker=connection.broker,
            )
        self.version = version
        self._answered = acks != 0
        self._values = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms}
        self._under_way: deque[list[TopicPartition]] = deque()

    @property
    def under_way(self) -> int:
        """How many requests wait for their answers."""
        return len(self._under_way)

    def request(self, batches: Mapping[TopicPartition, bytes | bytearray], deadline: Deadline) -> None:
        """Send record batches, at most one of each partition; does not wait for the answer.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: The socket did not take the bytes in time.
        """
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), records in batches.items():
            topics.setdefault(topic, []).append({"index": number, "records": records})
        data = [{"name": topic, "partition_data": partitions} for topic, partitions in topics.items()]
        values = {**self._values, "topic_data": data}
        self.connection.submit(PRODUCE, values, deadline, version=self.version, answered=self._answered)
        if self._answered:
            self._under_way.append(list(batches))

    def response(self, deadline: Deadline) -> tuple[dict[TopicPartition, ProducedPartition], int]:
        """Wait for the answer to the oldest request without one.

        Returns:
            What the broker says of each partition, and for how many milliseconds it will not read the next request.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
            ProtocolError: The answer cannot be understood; the connection is closed.
        """
        response = self.connection.complete(PRODUCE, deadline, version=self.version)
        asked = self._under_way.popleft()
        answers = {
            TopicPartition(topic.name, each.index): _read(each)
            for topic in response.responses
            for each in topic.partition_responses
        }
        if answers.keys() != set(asked):
            self.connection.close()
            lacking = next((each for each in asked if each not in answers), asked[0])
            raise ProtocolError(
                "The answer to Produce is not about the partitions of the request.",
                topic=lacking.topic,
                partition=lacking.partition,
                broker=self.connection.broker,
            )
        return answers, response.throttle_time_ms


def _read(answer: Any) -> ProducedPartition:
    return ProducedPartition(
        answer.error_code,
        answer.base_offset if answer.error_code == 0 else NO_OFFSET,
        answer.log_append_time_ms,
        answer.log_start_offset,
        tuple((each.batch_index, each.batch_index_error_message) for each in answer.record_errors),
        answer.error_message,
        *answer.current_leader,
    )
