"""Requests to leaders about the open transactions of partitions: DescribeProducers (KIP-664) and WriteTxnMarkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.leader_requests import LeaderRequestEntry, LeaderResponse
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.open_transactions import OpenTransaction
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info
from pyspark_kafka_direct.protocol.messages import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline


class DescribeProducersRequest:
    """Fetches open transactions; a partition whose producers the principal may not describe has none."""

    operation = "describing producers"

    def is_slow(self, values: Iterable[None]) -> bool:
        return False

    def submit(self, connection: Connection, entries: Sequence[LeaderRequestEntry[None]], deadline: Deadline) -> None:
        topics: dict[str, list[int]] = {}
        for entry in entries:
            topics.setdefault(entry.partition.topic, []).append(entry.partition.partition)
        request = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]}
        connection.submit(DESCRIBE_PRODUCERS, request, deadline)

    def complete(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[None]], deadline: Deadline
    ) -> LeaderResponse[tuple[OpenTransaction, ...]]:
        response = connection.complete(DESCRIBE_PRODUCERS, deadline)
        results: dict[TopicPartition, tuple[OpenTransaction, ...]] = {entry.partition: () for entry in entries}
        error_codes: dict[TopicPartition, int] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if partition not in results:  # not requested
                    continue
                if each.error_code != ErrorCode.NONE and error_code_info(each.error_code).retriable:
                    error_codes[partition] = each.error_code
                    continue
                # After any other error, such as a missing permission, there are no active producers.
                results[partition] = tuple(
                    OpenTransaction(
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                        producer.coordinator_epoch,
                    )
                    for producer in each.active_producers
                    if producer.current_txn_start_offset >= 0  # -1: no transaction is open
                )
        return LeaderResponse({tp: found for tp, found in results.items() if tp not in error_codes}, error_codes)


class AbortMarkerRequest:
    """Writes the markers that abort a transaction into partitions, as its coordinator does."""

    operation = "writing the marker that aborts the transaction"

    def is_slow(self, values: Iterable[OpenTransaction]) -> bool:
        return False

    def submit(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[OpenTransaction]], deadline: Deadline
    ) -> None:
        markers = [
            {
                "producer_id": entry.value.producer_id,
                "producer_epoch": entry.value.producer_epoch,
                "transaction_result": False,
                "topics": [{"name": entry.partition.topic, "partition_indexes": [entry.partition.partition]}],
                "coordinator_epoch": max(entry.value.coordinator_epoch, 0),  # as kafka-transactions.sh
            }
            for entry in entries
        ]
        connection.submit(WRITE_TXN_MARKERS, {"markers": markers}, deadline)

    def complete(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[OpenTransaction]], deadline: Deadline
    ) -> LeaderResponse[None]:
        response = connection.complete(WRITE_TXN_MARKERS, deadline)
        codes = {
            (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
            for marker in response.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        missing = [each for each in entries if (each.value.producer_id, each.partition) not in codes]
        if missing:
            connection.close()
            raise ProtocolError("The response to WriteTxnMarkers lacks a partition.", broker=connection.broker)
        results = {each.partition: codes[each.value.producer_id, each.partition] for each in entries}
        return LeaderResponse(
            {tp: None for tp, code in results.items() if code == ErrorCode.NONE},
            {tp: code for tp, code in results.items() if code != ErrorCode.NONE},
        )
