"""Fetch, ListOffsets and DescribeProducers, after Kafka's KafkaApis, ReplicaManager, Partition and UnifiedLog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.cluster.partition_log import NO_EPOCH, NO_OFFSET
from tests.simulation.cluster.replies import Delayed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.broker import Handler, LocalPartition, SimulatedBroker
    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.replies import Reply, Response

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
UNSUPPORTED_VERSION = 35
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
UNKNOWN_TOPIC_ID = 100

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_READ_COMMITTED = 1
_FIRST_FETCH_WITH_TOPIC_IDS = 13
_FIRST_FETCH_WITH_LEADERS = 16
_FIRST_FETCH_FROM_FOLLOWERS = 11


class _Found(NamedTuple):
    """The result of ListOffsets for a partition."""

    error_code: int
    timestamp: int = -1
    offset: int = -1
    epoch: int = -1


def find_partition(
    broker: SimulatedBroker, topic: str, index: int, current_leader_epoch: int, *, only_leader: bool
) -> LocalPartition | int:
    """Return the replica that serves a request, or the error code (ReplicaManager.getPartitionOrError)."""
    local = broker.local_partition((topic, index))
    if local is None:
        exists = broker.image.partition(topic, index) is not None
        return NOT_LEADER_OR_FOLLOWER if exists else UNKNOWN_TOPIC_OR_PARTITION
    if current_leader_epoch != NO_EPOCH and current_leader_epoch != local.image.epoch:
        return FENCED_LEADER_EPOCH if current_leader_epoch < local.image.epoch else UNKNOWN_LEADER_EPOCH
    if only_leader and local.image.leader != broker.id:
        return NOT_LEADER_OR_FOLLOWER
    return local


# ListOffsets.


def list_offsets(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    topics = []
    for topic in request.topics:
        denied = broker.cluster.authorization_error(topic.name)
        partitions = []
        for each in topic.partitions:
            found = _Found(denied) if denied else _find_offset(broker, version, request.isolation_level, topic, each)
            if version >= 4 or not found.error_code:
                broker.world.trace("offset", topic.name, each.partition_index, each.timestamp, *found)
            partitions.append(
                {
                    "partition_index": each.partition_index,
                    "error_code": found.error_code,
                    "timestamp": found.timestamp,
                    "offset": found.offset,
                    "leader_epoch": found.epoch if version >= 4 else NO_EPOCH,
                }
            )
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time_ms": 0, "topics": topics}


def _find_offset(broker: SimulatedBroker, version: int, isolation: int, topic: Any, requested: Any) -> _Found:
    timestamp = requested.timestamp
    if version < _FIRST_VERSIONS.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        return _Found(UNSUPPORTED_VERSION)
    local = find_partition(
        broker, topic.name, requested.partition_index, requested.current_leader_epoch, only_leader=True
    )
    if isinstance(local, int):
        return _Found(local)
    log = local.log
    end = log.last_stable_offset if isolation == _READ_COMMITTED else log.high_watermark
    lagging = 0
    if log.epoch_starts and log.epoch_starts[-1][1] > log.high_watermark:
        # After an election, until the followers have reached the new leader.
        lagging = OFFSET_NOT_AVAILABLE if version >= 5 else LEADER_NOT_AVAILABLE
    match timestamp:
        case -1:
            return _Found(lagging) if lagging else _Found(0, -1, end, local.image.epoch)
        case -2:
            return _Found(0, -1, log.start, _epoch_of_start(log))
        case -4:
            return _Found(0, -1, log.local_start, log.epoch_at(log.local_start))
        case -5:
            tiered = log.local_start - 1 if log.local_start > log.start else NO_OFFSET
            return _Found(0, -1, tiered, log.epoch_at(tiered))
        case -6:
            return _Found(0)  # no upload is pending
        case -3:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found[1] >= end:
        return _Found(lagging)
    return _Found(0, found[0], found[1], log.epoch_at(found[1]))


# DescribeProducers.


def describe_producers(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    topics = []
    for topic in request.topics:
        denied = broker.cluster.authorization_error(topic.name)
        partitions = []
        for index in topic.partition_indexes:
            local = find_partition(broker, topic.name, index, NO_EPOCH, only_leader=False)
            error_code = denied or (local if isinstance(local, int) else 0)
            producers = [] if error_code or isinstance(local, int) else _producer_states(local.log)
            partitions.append(
                {
                    "partition_index": index,
                    "error_code": error_code,
                    "error_message": None,
                    "active_producers": producers,
                }
            )
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time_ms": 0, "topics": topics}


def _producer_states(log: ReplicaLog) -> list[dict[str, int]]:
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": -1,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1 if entry.first_open_offset is None else entry.first_open_offset,
        }
        for producer_id, entry in log.producers.items()
    ]


def _epoch_of_start(log: ReplicaLog) -> int:
    earliest = log.epoch_starts[0] if log.epoch_starts else None
    return earliest[0] if earliest is not None and earliest[1] <= log.start else NO_EPOCH


# Fetch.


class _Read:
    """The results of reading all partitions of a request once."""

    __slots__ = ("is_final", "is_remote", "responses", "size")

    def __init__(self) -> None:
        self.responses: list[dict[str, Any]] = []
        self.size = 0
        self.is_final = False  # an error, a diverging epoch or a preferred replica: no reason to wait
        self.is_remote = False  # some offset is in tiered storage


def fetch(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    world = broker.cluster.world
    if broker.throttled_until > world.now:
        responses: list[dict[str, Any]] = []
        if broker.throttled_with_partitions:
            responses = _read_all(broker, version, request, with_remote=False).responses
            for each in responses:
                for partition in each["partitions"]:
                    partition["records"] = b""
        return {**_fetch_response(responses), "throttle_time_ms": broker.throttle_ms}  # KIP-219
    until = world.now + request.max_wait_ms / 1000
    read = _read_all(broker, version, request, with_remote=False)
    if read.is_remote and not read.is_final:
        return _read_remote(broker, version, request, until)
    if _is_complete(read, request) or until <= world.now:
        return _fetch_response(read.responses)

    def poll() -> Response | None:
        again = _read_all(broker, version, request, with_remote=False)
        if _is_complete(again, request) or again.is_remote or world.now >= until:
            return _fetch_response(again.responses)
        return None

    return Delayed(until, poll)


def _is_complete(read: _Read, request: Any) -> bool:
    return read.is_final or read.size >= request.min_bytes or not read.responses


def _read_remote(broker: SimulatedBroker, version: int, request: Any, until: float) -> Delayed:
    """Wait for tiered storage: it returns records after a delay, or nothing within the request's time."""
    world = broker.cluster.world
    done = world.now + broker.cluster.settings.remote_read_delay

    def poll() -> Response | None:
        if world.now < min(done, until):
            return None
        return _fetch_response(_read_all(broker, version, request, with_remote=done <= until).responses)

    return Delayed(min(done, until), poll)


def _read_all(broker: SimulatedBroker, version: int, request: Any, *, with_remote: bool) -> _Read:
    read = _Read()
    limit = request.max_bytes
    at_least_one = True
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        error = 0
        if version >= _FIRST_FETCH_WITH_TOPIC_IDS:
            image = broker.image.ids.get(topic_id)
            name = "" if image is None else image.topic.name
            error = UNKNOWN_TOPIC_ID if image is None else 0
        error = error or broker.cluster.authorization_error(name)
        partitions = []
        for each in topic.partitions:
            if error:
                response: dict[str, Any] = _error(each.partition, error)
            else:
                max_bytes = min(each.partition_max_bytes, limit)
                response = _read_partition(
                    broker, version, request, name, each, max_bytes, at_least_one, with_remote, read
                )
            size = len(response["records"])
            if size:
                at_least_one = False
                limit = max(0, limit - size)
                read.size += size
            read.is_final = read.is_final or response["error_code"] != 0
            partitions.append(response)
        read.responses.append({"topic": name, "topic_id": topic_id, "partitions": partitions})
    return read


def _read_partition(
    broker: SimulatedBroker,
    version: int,
    request: Any,
    topic: str,
    requested: Any,
    max_bytes: int,
    at_least_one: bool,
    with_remote: bool,
    read: _Read,
) -> dict[str, Any]:
    index, offset = requested.partition, requested.fetch_offset
    # Followers serve consumers too, from the version on that has a rack (KIP-392).
    only_leader = version < _FIRST_FETCH_FROM_FOLLOWERS
    local = find_partition(broker, topic, index, requested.current_leader_epoch, only_leader=only_leader)
    if isinstance(local, int):
        return _error(index, local, _current_leader(broker, version, topic, index, local))
    log = local.log
    is_committed = request.isolation_level == _READ_COMMITTED
    response = {
        "partition_index": index,
        "error_code": 0,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "log_start_offset": log.start,
        "aborted_transactions": [] if is_committed else None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    preferred = _preferred_replica(broker, version, request.rack_id, local, offset)
    if preferred >= 0:
        read.is_final = True
        response["preferred_read_replica"] = preferred
        return response
    if requested.last_fetched_epoch != NO_EPOCH:
        epoch, end = log.end_offset_for_epoch(requested.last_fetched_epoch)
        if epoch == NO_EPOCH or end == NO_OFFSET or offset < log.start:
            return _error(index, OFFSET_OUT_OF_RANGE)
        if epoch < requested.last_fetched_epoch or end < offset:
            read.is_final = True
            response["diverging_epoch"] = {"epoch": epoch, "end_offset": end}
            return response
    if offset > log.end or offset < log.start:
        return _error(index, OFFSET_OUT_OF_RANGE)
    if offset < log.local_start:
        read.is_remote = True
        if not with_remote or log.remote_until > broker.cluster.world.now:
            return response
    if log.withheld_until > broker.cluster.world.now:
        return response
    limit = log.last_stable_offset if is_committed else log.high_watermark
    if broker.cluster.settings.rolls_segments and offset > limit:
        read.is_final = True
    batches = log.read(offset, limit, max_bytes, at_least_one=at_least_one)
    if batches:
        if is_committed:
            aborted = log.aborted_between(offset, batches[-1].last_offset + 1)
            response["aborted_transactions"] = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted
            ]
        records = batches[0].data if len(batches) == 1 else b"".join([batch.data for batch in batches])
        # The last batch may be incomplete, but not the first one.
        response["records"] = records[: max(max_bytes, len(batches[0].data))]
    return response


def _preferred_replica(broker: SimulatedBroker, version: int, rack: str, local: LocalPartition, offset: int) -> int:
    """Return the replica in the client's rack with the most records, or -1 (RackAwareReplicaSelector)."""
    cluster = broker.cluster
    if not cluster.settings.read_from_followers or version < _FIRST_FETCH_FROM_FOLLOWERS or not rack:
        return -1
    if local.image.leader != broker.id or broker.rack == rack:
        return -1
    candidates = [
        (log.end, -broker_id)
        for broker_id in local.image.in_sync_replicas
        if cluster.brokers[broker_id].rack == rack
        and (log := local.partition.replicas[broker_id]).start <= offset <= log.end
    ]
    return -max(candidates)[1] if candidates else -1


def _current_leader(
    broker: SimulatedBroker, version: int, topic: str, index: int, error: int
) -> Mapping[str, int] | None:
    """Return the leader in the broker's image, in errors that a change of the leader causes (KIP-951)."""
    if version < _FIRST_FETCH_WITH_LEADERS or error not in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
        return None
    image = broker.image.partition(topic, index)
    return None if image is None else {"leader_id": image.leader, "leader_epoch": image.epoch}


def _fetch_response(responses: list[dict[str, Any]]) -> dict[str, Any]:
    return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": responses}


def _error(index: int, error_code: int, current_leader: Mapping[str, int] | None = None) -> dict[str, Any]:
    response: dict[str, Any] = {
        "partition_index": index,
        "error_code": error_code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    if current_leader is not None:
        response["current_leader"] = current_leader
    return response


HANDLERS: dict[str, Handler] = {
    "ListOffsets": list_offsets,
    "Fetch": fetch,
    "DescribeProducers": describe_producers,
}
