"""Requests of transactions as short tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.produced_batches import read_batch_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.wire import ReceivedRequest

TransactionRequest = tuple[Any, ...]


def transaction_requests(requests: Iterable[ReceivedRequest]) -> list[TransactionRequest]:
    """Return the name and the relevant fields of requests; those that belong to no transaction are left out."""
    return [described for request in requests for described in _described(request.api, request.values)]


def _described(api: str, values: Any) -> Iterator[TransactionRequest]:
    match api:
        case "InitProducerId" if values.transactional_id is not None:
            current = () if values.producer_id < 0 else (values.producer_id, values.producer_epoch)
            yield api, values.transactional_id, values.transaction_timeout_ms, *current
        case "AddPartitionsToTxn":
            writer = (
                values.v3_and_below_transactional_id,
                values.v3_and_below_producer_id,
                values.v3_and_below_producer_epoch,
            )
            yield api, writer, [(topic.name, list(topic.partitions)) for topic in values.v3_and_below_topics]
        case "AddOffsetsToTxn" | "TxnOffsetCommit":
            yield api, _writer(values), values.group_id
        case "OffsetFetch":
            partitions = None if values.topics is None else _partitions(values.topics)
            yield api, values.group_id, partitions, values.require_stable
        case "DescribeConfigs":
            yield api, values.resources[0].resource_name
        case "EndTxn":
            yield api, _writer(values), "commit" if values.committed else "abort"
        case "Produce":
            for partition in sorted(values.topic_data[0].partition_data):
                header = read_batch_headers(bytes(partition.records))[0]
                writer = (values.transactional_id, header.producer_id, header.producer_epoch)
                yield api, writer, partition.index, header.base_sequence


def _writer(values: Any) -> tuple[str, int, int]:
    return values.transactional_id, values.producer_id, values.producer_epoch


def _partitions(topics: Any) -> list[tuple[str, int]]:
    return sorted((topic.name, number) for topic in topics for number in topic.partition_indexes)
