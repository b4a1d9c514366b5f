"""Produce: validation as in Kafka's LogValidator, ProducerAppendInfo and ReplicaManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinators import TRANSACTION, Coordinators
from tests.simulation.cluster.produced_batches import (
    ZSTD,
    BatchHeader,
    InvalidBatchError,
    parse_produced,
    read_batch_headers,
)
from tests.simulation.cluster.replies import Delayed
from tests.simulation.cluster.transactions import TransactionCoordinator, verification_code
from tests.simulation.cluster.verifications import Verifications

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Handler, LocalPartition, SimulatedBroker
    from tests.simulation.cluster.cluster import TopicAndIndex
    from tests.simulation.cluster.replies import Reply, Response
    from tests.simulation.cluster.stored_batch import StoredBatch
    from tests.simulation.cluster.verifications import Verification

ASYNCHRONOUS_SHARE: Final = 0.25
"""Of the requests that must be verified: in between, other requests and markers reach the partition."""

_CORRUPT_MESSAGE = 2
_UNKNOWN_TOPIC_OR_PARTITION = 3
_NOT_LEADER_OR_FOLLOWER = 6
_REQUEST_TIMED_OUT = 7
_MESSAGE_TOO_LARGE = 10
_NETWORK_EXCEPTION = 13
_NOT_ENOUGH_REPLICAS = 19
_NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
_INVALID_REQUIRED_ACKS = 21
_OUT_OF_ORDER_SEQUENCE_NUMBER = 45
_INVALID_PRODUCER_EPOCH = 47
_INVALID_TXN_STATE = 48
_INVALID_PRODUCER_ID_MAPPING = 49
_CONCURRENT_TRANSACTIONS = 51
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_UNKNOWN_PRODUCER_ID = 59
_UNSUPPORTED_COMPRESSION_TYPE = 76
_INVALID_RECORD = 87

_RETRY_SECONDS: Final = 0.02  # add.partitions.to.txn.retry.backoff.ms
_MAX_RETRY_SECONDS: Final = 0.1  # add.partitions.to.txn.retry.backoff.max.ms

# Errors of an append whose response has no log start offset.
_WITHOUT_LOG_START: Final = (_CORRUPT_MESSAGE, _UNKNOWN_TOPIC_OR_PARTITION, _NOT_LEADER_OR_FOLLOWER, _MESSAGE_TOO_LARGE)

# Errors of a verification that older clients do not retry become NOT_ENOUGH_REPLICAS.
_UNVERIFIED: Final = {
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    51: "CONCURRENT_TRANSACTIONS",
}

_LAST_SEQUENCE = 2**31 - 1


class _PartitionRequest:
    """A partition in a Produce request, and its response so far."""

    __slots__ = (
        "append_time",
        "base_offset",
        "data",
        "end_offset",
        "error_code",
        "error_message",
        "header",
        "log_start",
        "name",
        "record_errors",
        "verification",
    )

    def __init__(self, name: TopicAndIndex, data: bytes) -> None:
        self.name = name
        self.data = data
        self.header: BatchHeader | None = None
        self.verification: Verification | None = None
        self.error_code = 0
        self.error_message: str | None = None
        self.record_errors: list[dict[str, Any]] = []
        self.base_offset = -1
        self.end_offset = -1  # that the high watermark must reach
        self.append_time = -1
        self.log_start = -1


def produce(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    partitions = [
        _PartitionRequest((topic.name, partition.index), bytes(partition.records or b""))
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    for partition in partitions:
        _read_header(broker, version, partition)
    if not _check_transaction(request, partitions):
        return _respond(broker, version, request, partitions)
    return _verify_and_append(broker, version, request, partitions)


def _verify_and_append(
    broker: SimulatedBroker, version: int, request: Any, partitions: list[_PartitionRequest]
) -> Reply:
    is_verified = _verify(broker, version, request, partitions)
    random = broker.cluster.state("produce requests", lambda: broker.cluster.world.rng("produce requests"))
    is_concurrent = any(each.error_code == _CONCURRENT_TRANSACTIONS for each in partitions)
    if not is_concurrent and not (is_verified and random.random() < ASYNCHRONOUS_SHARE):
        return _append_all(broker, version, request, partitions)
    later = _LaterReply(broker, version, request, partitions)
    if is_concurrent:
        broker.cluster.world.after(_RETRY_SECONDS, later.verify_again)
    else:
        broker.cluster.world.after(random.uniform(0.001, 0.03), later.append)
    return None if request.acks == 0 else Delayed(later.until, later.poll)


class _LaterReply:
    """A request whose records are appended after responses of the transaction coordinator."""

    def __init__(
        self, broker: SimulatedBroker, version: int, request: Any, partitions: list[_PartitionRequest]
    ) -> None:
        self._broker = broker
        self._version = version
        self._request = request
        self._partitions = partitions
        self._world = broker.cluster.world
        self._retries_until = self._world.now + _MAX_RETRY_SECONDS
        self._reply: Reply = None
        self.until = self._retries_until + 0.1 + max(0, request.timeout_ms) / 1000

    def verify_again(self) -> None:
        """Verify again if markers of the last transaction were not written (ReplicaManager)."""
        for partition in self._partitions:
            if partition.error_code == _CONCURRENT_TRANSACTIONS:
                partition.error_code = 0
        _verify(self._broker, self._version, self._request, self._partitions)
        is_concurrent = any(each.error_code == _CONCURRENT_TRANSACTIONS for each in self._partitions)
        if is_concurrent and self._world.now + _RETRY_SECONDS <= self._retries_until:
            self._world.after(_RETRY_SECONDS, self.verify_again)
        else:
            self.append()

    def append(self) -> None:
        if self._broker.is_up:
            self._reply = _append_all(self._broker, self._version, self._request, self._partitions)
            if isinstance(self._reply, Delayed):
                self._world.at(self._reply.until, self._broker.cluster.notify)
            self._broker.cluster.notify()

    def poll(self) -> Response | None:
        response = self._reply.poll() if isinstance(self._reply, Delayed) else self._reply
        if response is None and self._world.now >= self.until:
            return _time_out(self._broker, self._version, self._partitions)
        return response


# Checks before the log.


def _read_header(broker: SimulatedBroker, version: int, partition: _PartitionRequest) -> None:
    """Check what a broker checks before it looks at the partition (ProduceRequest.validateRecords)."""
    until, error_code = broker.cluster.unauthorized.get(partition.name[0], (0.0, 0))
    if until > broker.cluster.world.now:
        partition.error_code = error_code
        return
    if broker.image.partition(*partition.name) is None:
        partition.error_code = _UNKNOWN_TOPIC_OR_PARTITION
        return
    try:
        headers = read_batch_headers(partition.data)
    except ValueError:
        partition.error_code = _CORRUPT_MESSAGE
        return
    if headers:
        partition.header = headers[0]
        partition.data = partition.data[: headers[0].size]
    if len(headers) != 1 or headers[0].magic != 2:
        partition.error_code = _INVALID_RECORD
    elif version < 7 and headers[0].attributes & 7 == ZSTD:
        partition.error_code = _UNSUPPORTED_COMPRESSION_TYPE


def _check_transaction(request: Any, partitions: list[_PartitionRequest]) -> bool:
    """Reject the whole request if it has transactional records without an id, or of several producers."""
    headers = [each.header for each in partitions if each.header is not None and each.header.is_transactional]
    error_code = 0
    if headers and request.transactional_id is None:
        error_code = _TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif len({header.producer_id for header in headers}) > 1:
        error_code = _INVALID_PRODUCER_ID_MAPPING
    if error_code:
        for partition in partitions:
            partition.error_code = error_code
    return not error_code


def _verify(broker: SimulatedBroker, version: int, request: Any, partitions: list[_PartitionRequest]) -> bool:
    """Verify that new partitions belong to the transaction, or add them; return whether there were any."""
    is_any = False
    for partition in partitions:
        header = partition.header
        if partition.error_code or header is None or not header.is_transactional or request.transactional_id is None:
            continue
        local = broker.led_partition(partition.name)
        if local is None:
            partition.error_code = _NOT_LEADER_OR_FOLLOWER
        elif not _has_open_transaction(local, header):
            is_any = True
            producer = (header.producer_id, header.producer_epoch)
            partition.verification = Verifications.of(broker.cluster).start(
                partition.name, producer, header.base_sequence, local, bumps_epoch=version >= 12
            )
            code = _coordinator_code(broker, version, request.transactional_id, producer, partition.name)
            if code in _UNVERIFIED and not (code == _CONCURRENT_TRANSACTIONS and version >= 12):
                partition.error_message = (
                    "Unable to verify the partition has been added to the transaction. Underlying error: "
                    + _UNVERIFIED[code]
                )
                code = _NOT_ENOUGH_REPLICAS
            elif code == _INVALID_TXN_STATE:
                partition.error_message = "Partition was not added to the transaction"
            partition.error_code = code
    return is_any


def _coordinator_code(
    broker: SimulatedBroker, version: int, transactional_id: str, producer: tuple[int, int], partition: TopicAndIndex
) -> int:
    cluster = broker.cluster
    if broker.isolated_until > cluster.world.now:
        return _NETWORK_EXCEPTION
    code = Coordinators.of(cluster).error(TRANSACTION, transactional_id)
    code = code or TransactionCoordinator.of(cluster).verify(transactional_id, producer, partition, adds=version >= 12)
    return verification_code(code, has_abortable_error=version >= 11)


def _has_open_transaction(local: LocalPartition, header: BatchHeader) -> bool:
    entry = local.log.producers.get(header.producer_id)
    return entry is not None and entry.first_open_offset is not None and entry.epoch == header.producer_epoch


# Appends.


def _append_all(broker: SimulatedBroker, version: int, request: Any, partitions: list[_PartitionRequest]) -> Reply:
    for partition in partitions:
        if partition.error_code:
            continue
        if request.acks not in (-1, 0, 1):
            partition.error_code = _INVALID_REQUIRED_ACKS
        else:
            _append(broker, request.acks, partition)
    return _respond(broker, version, request, partitions)


def _append(broker: SimulatedBroker, acks: int, partition: _PartitionRequest) -> None:
    local = broker.led_partition(partition.name)
    header = partition.header
    assert header is not None
    if local is None:
        missing = broker.image.partition(*partition.name) is None
        partition.error_code = _UNKNOWN_TOPIC_OR_PARTITION if missing else _NOT_LEADER_OR_FOLLOWER
        return
    configs = local.partition.topic.configs
    append_time = broker.cluster.timestamp if configs.get("message.timestamp.type") == "LogAppendTime" else None
    if acks == -1 and not _has_enough_replicas(broker, local):
        partition.error_code = _NOT_ENOUGH_REPLICAS
    else:
        try:
            batch = parse_produced(partition.name, configs, header, partition.data, append_time)
        except InvalidBatchError as error:
            partition.error_code, partition.error_message = error.error_code, error.message
            partition.record_errors = list(error.record_errors)
        else:
            _append_or_acknowledge(broker, local, partition, header, batch)
            if append_time is not None and partition.append_time < 0 and not partition.error_code:
                partition.append_time = append_time
    if partition.error_code not in _WITHOUT_LOG_START:
        partition.log_start = local.log.start


def _append_or_acknowledge(
    broker: SimulatedBroker,
    local: LocalPartition,
    partition: _PartitionRequest,
    header: BatchHeader,
    batch: StoredBatch,
) -> None:
    """Append a batch, or acknowledge it again if it is a duplicate."""
    entry = local.log.producers.get(header.producer_id)
    duplicate = None if entry is None else entry.duplicate_of(batch)
    if duplicate is not None:
        partition.base_offset, partition.end_offset = duplicate.first_offset, duplicate.last_offset + 1
        # The broker returns the first batch's timestamp, even if it is not the time of the append.
        timestamps = (each.max_timestamp for each in local.log.batches if each.last_offset == duplicate.last_offset)
        partition.append_time = next(timestamps, -1)
        return
    if header.producer_id >= 0:
        partition.error_code = _validate_producer(broker, local, partition, header)
    stored = None if partition.error_code else broker.cluster.append_batch(broker, partition.name, batch)
    if stored is None:
        return
    partition.base_offset, partition.end_offset = stored.base_offset, stored.last_offset + 1
    if header.is_transactional:
        Verifications.of(broker.cluster).clear(partition.name, header.producer_id)


def _validate_producer(
    broker: SimulatedBroker, local: LocalPartition, partition: _PartitionRequest, header: BatchHeader
) -> int:
    """Check the transaction, the epoch and the sequence number of a batch that is no duplicate."""
    current = Verifications.of(broker.cluster).find(partition.name, header.producer_id, local)
    if header.is_transactional and not _has_open_transaction(local, header):
        is_proven = partition.verification is not None and partition.verification is current
        if not is_proven:
            return _INVALID_TXN_STATE  # the transaction ended since its verification
    entry = local.log.producers.get(header.producer_id)
    if entry is not None and header.producer_epoch < entry.epoch:
        return _INVALID_PRODUCER_EPOCH
    sequence = header.base_sequence
    if current is not None and sequence > current.lowest_sequence:
        return _OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry is None:
        # Nothing is known of the producer, so newer brokers accept any number.
        rejects = broker.cluster.settings.rejects_unknown_producers and sequence and not header.is_transactional
        return _UNKNOWN_PRODUCER_ID if rejects else 0
    last = entry.last_sequence if entry.epoch == header.producer_epoch else -1
    if sequence != last + 1 and not (sequence == 0 and last == _LAST_SEQUENCE):
        return _OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry.first_open_offset is not None and not header.is_transactional:
        return _INVALID_TXN_STATE
    return 0


def _has_enough_replicas(broker: SimulatedBroker, local: LocalPartition) -> bool:
    configured = local.partition.topic.configs.get("min.insync.replicas")
    required = broker.cluster.settings.min_in_sync_replicas if configured is None else int(configured)
    return len(local.image.in_sync_replicas) >= min(required, len(local.image.replicas))


# Responses.


def _respond(broker: SimulatedBroker, version: int, request: Any, partitions: list[_PartitionRequest]) -> Reply:
    if request.acks == 0:
        return None
    if request.acks != -1:
        return _response(broker, version, partitions)

    def poll() -> Response | None:
        if not all(_is_complete(broker, each) for each in partitions):
            return _time_out(broker, version, partitions) if broker.cluster.world.now >= until else None
        return _response(broker, version, partitions)

    until = broker.cluster.world.now + max(0, request.timeout_ms) / 1000
    return poll() or Delayed(until, poll)


def _is_complete(broker: SimulatedBroker, partition: _PartitionRequest) -> bool:
    """Return whether a partition's records are replicated, or cannot be any more; sets the error code then."""
    if partition.error_code or partition.end_offset < 0:
        return True
    local = broker.led_partition(partition.name)
    if local is None:
        missing = broker.image.partition(*partition.name) is None
        partition.error_code = _UNKNOWN_TOPIC_OR_PARTITION if missing else _NOT_LEADER_OR_FOLLOWER
    elif local.log.high_watermark < partition.end_offset:
        return False
    elif not _has_enough_replicas(broker, local):
        partition.error_code = _NOT_ENOUGH_REPLICAS_AFTER_APPEND
    partition.end_offset = -1  # a later truncation does not change the response
    return True


def _time_out(broker: SimulatedBroker, version: int, partitions: list[_PartitionRequest]) -> Response:
    for partition in partitions:
        if not _is_complete(broker, partition):
            partition.error_code = _REQUEST_TIMED_OUT
    return _response(broker, version, partitions)


def _response(broker: SimulatedBroker, version: int, partitions: list[_PartitionRequest]) -> Response:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    endpoints: dict[int, dict[str, Any]] = {}
    for partition in partitions:
        values: dict[str, Any] = {
            "index": partition.name[1],
            "error_code": partition.error_code,
            "base_offset": partition.base_offset,
            "log_append_time_ms": partition.append_time,
            "log_start_offset": partition.log_start,
        }
        if version >= 8:
            values |= {"record_errors": partition.record_errors, "error_message": partition.error_message}
        if version >= 10 and partition.error_code == _NOT_LEADER_OR_FOLLOWER:
            values["current_leader"] = _current_leader(broker, partition.name, endpoints)
        by_topic.setdefault(partition.name[0], []).append(values)
    response: dict[str, Any] = {
        "responses": [{"name": name, "partition_responses": found} for name, found in by_topic.items()],
        "throttle_time_ms": 0,
    }
    if endpoints:
        response["node_endpoints"] = list(endpoints.values())
    return response


def _current_leader(
    broker: SimulatedBroker, partition: TopicAndIndex, endpoints: dict[int, dict[str, Any]]
) -> dict[str, int]:
    """Return the leader in the broker's image (KIP-951), and add its address."""
    image = broker.image.partition(*partition)
    if image is None:
        return {"leader_id": -1, "leader_epoch": -1}
    leader = broker.cluster.brokers.get(image.leader)
    if leader is not None:
        endpoints[leader.id] = {"node_id": leader.id, "host": leader.host, "port": leader.port, "rack": leader.rack}
    return {"leader_id": image.leader, "leader_epoch": image.epoch}


HANDLERS: dict[str, Handler] = {"Produce": produce}
