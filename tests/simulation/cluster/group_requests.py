"""Requests about groups: FindCoordinator, OffsetCommit, OffsetFetch and TxnOffsetCommit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinators import (
    GROUP,
    TRANSACTION,
    Coordinators,
    coordinator_partition,
    find_coordinator,
)
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import OFFSETS_TOPIC, TransactionCoordinator, verification_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.broker import Handler, SimulatedBroker
    from tests.simulation.cluster.cluster import TopicAndIndex

MAX_METADATA_CHARACTERS: Final = 4096  # offset.metadata.max.bytes, which the broker compares with the characters

_UNKNOWN_TOPIC_OR_PARTITION = 3
_OFFSET_METADATA_TOO_LARGE = 12
_COORDINATOR_LOAD_IN_PROGRESS = 14
_COORDINATOR_NOT_AVAILABLE = 15
_NETWORK_EXCEPTION = 13
_ILLEGAL_GENERATION = 22
_INVALID_PRODUCER_EPOCH = 47
_GROUP_ID_NOT_FOUND = 69


def offset_commit(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    groups = GroupCoordinator.of(broker.cluster)
    codes = _unknown_partitions(broker, request)

    def commit() -> int:
        error_code = Coordinators.of(broker.cluster).error(GROUP, request.group_id, broker.id)
        error_code = error_code or groups.validate(
            request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        )
        return _ILLEGAL_GENERATION if error_code == _GROUP_ID_NOT_FOUND and version < 9 else error_code

    error_code = commit() if _has_known(request, codes) else 0
    for partition, requested in _positions(request):
        if partition not in codes:
            codes[partition] = error_code or _metadata_code(requested)
            if not codes[partition]:
                groups.commit(request.group_id, partition, groups.new_offset(broker, partition[0], requested))
    return {"throttle_time_ms": 0, "topics": _topics_with_codes(request, codes)}


def txn_offset_commit(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    groups = GroupCoordinator.of(broker.cluster)
    producer = (request.producer_id, request.producer_epoch)
    codes = _unknown_partitions(broker, request)
    if _has_known(request, codes):
        error_code = _transaction_code(broker, version, request) or groups.validate(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
        if error_code == _GROUP_ID_NOT_FOUND:
            error_code = _ILLEGAL_GENERATION
        if error_code == _COORDINATOR_LOAD_IN_PROGRESS and version < 2:
            error_code = _COORDINATOR_NOT_AVAILABLE
        offsets = {}
        for partition, requested in _positions(request):
            if partition not in codes:
                codes[partition] = error_code or _metadata_code(requested)
                if not codes[partition]:
                    offsets[partition] = groups.new_offset(broker, partition[0], requested)
        groups.commit_in_transaction(request.group_id, producer, offsets)
    return {"throttle_time_ms": 0, "topics": _topics_with_codes(request, codes)}


def offset_fetch(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    group_id = request.group_id
    groups = GroupCoordinator.of(broker.cluster)
    error_code = Coordinators.of(broker.cluster).error(GROUP, group_id, broker.id)
    outdated_at = broker.id if error_code and groups.is_outdated_coordinator(group_id, broker) else None
    if error_code and outdated_at is None:
        return {"throttle_time_ms": 0, "topics": [], "error_code": error_code}
    if not error_code:
        groups.remove_deleted_topics(group_id, broker)
    partitions = None
    if request.topics is not None:
        partitions = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    by_topic: dict[str, list[dict[str, Any]]] = {}
    found_offsets = groups.fetch(group_id, partitions, require_stable=request.require_stable, outdated_at=outdated_at)
    for (topic, index), values in found_offsets.items():
        by_topic.setdefault(topic, []).append({"partition_index": index, **values})
    topics = [{"name": topic, "partitions": found} for topic, found in by_topic.items()]
    return {"throttle_time_ms": 0, "topics": topics, "error_code": 0}


def _transaction_code(broker: SimulatedBroker, version: int, request: Any) -> int:
    """Verify that the group's partition belongs to the transaction; from version 5 on, add it."""
    cluster = broker.cluster
    groups = GroupCoordinator.of(cluster)
    producer = (request.producer_id, request.producer_epoch)
    error_code = Coordinators.of(cluster).error(GROUP, request.group_id, broker.id)
    if error_code:
        return error_code
    if not groups.has_open_transaction(request.group_id, producer):
        error_code = Coordinators.of(cluster).error(TRANSACTION, request.transactional_id)
        if not error_code:
            partition = (OFFSETS_TOPIC, coordinator_partition(request.group_id))
            error_code = TransactionCoordinator.of(cluster).verify(
                request.transactional_id, producer, partition, adds=version >= 5
            )
        if error_code:
            error_code = verification_code(error_code, has_abortable_error=version >= 4)
            return _COORDINATOR_LOAD_IN_PROGRESS if error_code == _NETWORK_EXCEPTION else error_code
    return _INVALID_PRODUCER_EPOCH if groups.is_fenced(request.group_id, producer) else 0


def _positions(request: Any) -> list[tuple[TopicAndIndex, Any]]:
    return [
        ((topic.name, partition.partition_index), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _unknown_partitions(broker: SimulatedBroker, request: Any) -> dict[TopicAndIndex, int]:
    return {
        partition: _UNKNOWN_TOPIC_OR_PARTITION
        for partition, _ in _positions(request)
        if broker.image.partition(*partition) is None
    }


def _has_known(request: Any, unknown: Mapping[TopicAndIndex, int]) -> bool:
    return any(partition not in unknown for partition, _ in _positions(request))


def _metadata_code(requested: Any) -> int:
    too_large = len(requested.committed_metadata or "") > MAX_METADATA_CHARACTERS
    return _OFFSET_METADATA_TOO_LARGE if too_large else 0


def _topics_with_codes(request: Any, codes: Mapping[TopicAndIndex, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": partition.partition_index,
                    "error_code": codes[topic.name, partition.partition_index],
                }
                for partition in topic.partitions
            ],
        }
        for topic in request.topics
    ]


HANDLERS: dict[str, Handler] = {
    "FindCoordinator": find_coordinator,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "TxnOffsetCommit": txn_offset_commit,
}
