"""The transaction coordinator, after Kafka's TransactionCoordinator and TransactionMetadata.

One object has the state of all brokers' coordinators, because it is replicated: nothing that was acknowledged is lost
when a coordinator moves. Which broker may serve a transactional id is decided by ``coordinators``.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.coordinators import TRANSACTION, Coordinators, coordinator_partition
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.verifications import Verifications

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.simulation.cluster.broker import Handler, SimulatedBroker
    from tests.simulation.cluster.cluster import SimulatedCluster, TopicAndIndex

OFFSETS_TOPIC: Final = "__consumer_offsets"
EXHAUSTED_EPOCH: Final = 32_766
"""The highest epoch of a client; 32,767 is only used to fence a producer with it."""

_NONE = 0
_UNKNOWN_TOPIC_OR_PARTITION = 3
_UNSUPPORTED_VERSION = 35
_INVALID_REQUEST = 42
_INVALID_PRODUCER_EPOCH = 47
_INVALID_TXN_STATE = 48
_INVALID_PRODUCER_ID_MAPPING = 49
_INVALID_TRANSACTION_TIMEOUT = 50
_CONCURRENT_TRANSACTIONS = 51
_OPERATION_NOT_ATTEMPTED = 55
_PRODUCER_FENCED = 90
_TRANSACTION_ABORTABLE = 120

_NO_PRODUCER: Final = (-1, -1)
_TIMEOUT_CHECK_SECONDS = 10.0  # transaction.abort.timed.out.transaction.cleanup.interval.ms


class TransactionState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TransactionMetadata:
    """The coordinator's state of one transactional id."""

    __slots__ = (
        "epoch",
        "last_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_id",
        "started",
        "state",
        "stuck_at",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = -1
        self.next_producer_id = -1
        self.epoch = -1
        self.last_epoch = -1
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.partitions: dict[TopicAndIndex, None] = {}  # in the order in which they were added
        self.started = 0.0
        self.stuck_at = -1  # number of the coordinator's election in which no transition is possible

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= EXHAUSTED_EPOCH


class EndResult(NamedTuple):
    """The error code of EndTxn, and the producer id and epoch of the next transaction."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """The transactions of a cluster."""

    max_timeout_ms = 900_000  # transaction.max.timeout.ms
    marker_seconds = (0.0005, 0.02)
    """Between which a marker's delay is drawn. Partitions get their markers one after the other."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators.of(cluster)
        self._random = cluster.world.rng("transaction coordinator")
        self._transactions: dict[str, TransactionMetadata] = {}
        self._next_producer_id = 0
        # Times between these are within one check of the timeouts.
        self._first_check = cluster.world.now + self._random.uniform(0, _TIMEOUT_CHECK_SECONDS)

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> TransactionCoordinator:
        found: TransactionCoordinator = cluster.state("transaction coordinator", lambda: cls(cluster))
        return found

    def transaction(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, which must not be changed."""
        return self._transactions.get(transactional_id)

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        """The states of all transactional ids, which must not be changed."""
        return self._transactions

    @property
    def ongoing(self) -> tuple[str, ...]:
        """The transactional ids with an open transaction or with markers to write."""
        return tuple(
            name
            for name, metadata in self._transactions.items()
            if metadata.state is TransactionState.ONGOING or metadata.state in _PREPARED
        )

    def expire(self, transactional_id: str) -> None:
        """Remove a transactional id without a transaction, as after ``transactional.id.expiration.ms``."""
        assert transactional_id not in self.ongoing
        self._transactions.pop(transactional_id, None)

    # Requests.

    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] = _NO_PRODUCER
    ) -> EndResult:
        """Return a new epoch or producer id; an ongoing transaction is aborted first, and the client has to retry."""
        if (expected[0] == -1) != (expected[1] == -1):
            return EndResult(_INVALID_REQUEST)
        if transactional_id is None:
            return EndResult(_NONE, self._new_producer_id(), 0)
        if not transactional_id:
            return EndResult(_INVALID_REQUEST)
        if not 0 < timeout_ms <= self.max_timeout_ms:
            return EndResult(_INVALID_TRANSACTION_TIMEOUT)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(transactional_id, self._new_producer_id(), timeout_ms)
            metadata.epoch = self._cluster.settings.first_epoch - 1
            self._transactions[transactional_id] = metadata
        if self._is_in_transition(metadata):
            return EndResult(_CONCURRENT_TRANSACTIONS)
        is_given = expected != _NO_PRODUCER
        if is_given and not _may_continue(metadata, expected):
            return EndResult(_PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            self._fence(metadata)
            return EndResult(_CONCURRENT_TRANSACTIONS)
        if metadata.is_epoch_exhausted and (not is_given or expected[1] == metadata.epoch):
            metadata.last_epoch = metadata.epoch if is_given else -1
            self._change_producer_id(metadata, self._new_producer_id())
        elif not is_given:
            metadata.epoch, metadata.last_epoch = metadata.epoch + 1, -1
        elif metadata.epoch in (-1, expected[1]):
            metadata.epoch, metadata.last_epoch = metadata.epoch + 1, metadata.epoch
        elif expected[1] != metadata.last_epoch:
            return EndResult(_PRODUCER_FENCED)
        metadata.timeout_ms = timeout_ms
        self._change_state(metadata, TransactionState.EMPTY)
        return EndResult(_NONE, metadata.producer_id, metadata.epoch)

    def add_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicAndIndex]
    ) -> int:
        """Add partitions to the transaction, which starts one; return an error code."""
        error_code = self._check_addition(transactional_id, producer)
        if error_code:
            return error_code
        metadata = self._transactions[transactional_id]
        if metadata.state is not TransactionState.ONGOING:
            metadata.started = self._cluster.world.now
            self._change_state(metadata, TransactionState.ONGOING)
            self._schedule_timeout(metadata)
        metadata.partitions.update(dict.fromkeys(partitions))
        return _NONE

    def verify(self, transactional_id: str, producer: tuple[int, int], partition: TopicAndIndex, *, adds: bool) -> int:
        """Return an error code unless a partition belongs to the transaction; with KIP-890 the leader may add it."""
        if adds and self._cluster.settings.transaction_version >= 2:
            return self.add_partitions(transactional_id, producer, (partition,))
        if adds:
            error_code = self._check_addition(transactional_id, producer)
            if error_code:
                return error_code
            # Seen with Kafka 4.3: the transaction stays in transition until its coordinator loads it again.
            self._transactions[transactional_id].stuck_at = self._move_number(transactional_id)
            return _UNSUPPORTED_VERSION
        if not transactional_id:
            return _INVALID_REQUEST
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.producer_id != producer[0]:
            return _INVALID_PRODUCER_ID_MAPPING
        if metadata.epoch != producer[1]:
            return _PRODUCER_FENCED
        if metadata.state in _PREPARED:
            return _CONCURRENT_TRANSACTIONS
        return _NONE if partition in metadata.partitions else _TRANSACTION_ABORTABLE

    def end(self, transactional_id: str, producer: tuple[int, int], *, commit: bool, bumps_epoch: bool) -> EndResult:
        """End the transaction; ``bumps_epoch`` is transaction.version 2, by the request's version."""
        if not transactional_id:
            return EndResult(_INVALID_REQUEST)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            return EndResult(_INVALID_PRODUCER_ID_MAPPING)
        if bumps_epoch:
            return self._end_and_bump(metadata, producer, commit=commit)
        return self._end_without_bump(metadata, producer, commit=commit)

    # The state machine.

    def _check_addition(self, transactional_id: str, producer: tuple[int, int]) -> int:
        if not transactional_id:
            return _INVALID_REQUEST
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            return _INVALID_PRODUCER_ID_MAPPING
        if self._is_in_transition(metadata):
            return _CONCURRENT_TRANSACTIONS
        if metadata.producer_id != producer[0]:
            return _INVALID_PRODUCER_ID_MAPPING
        return _NONE if metadata.epoch == producer[1] else _PRODUCER_FENCED

    def _end_without_bump(self, metadata: TransactionMetadata, producer: tuple[int, int], *, commit: bool) -> EndResult:
        if metadata.producer_id != producer[0]:
            return EndResult(_INVALID_PRODUCER_ID_MAPPING)
        if metadata.epoch != producer[1]:
            return EndResult(_PRODUCER_FENCED)
        if self._is_in_transition(metadata):
            return EndResult(_CONCURRENT_TRANSACTIONS)
        if metadata.state is TransactionState.ONGOING:
            self._prepare(metadata, commit=commit)
            return EndResult(_NONE)
        expected = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return EndResult(_NONE if metadata.state is expected else _INVALID_TXN_STATE)

    def _end_and_bump(self, metadata: TransactionMetadata, producer: tuple[int, int], *, commit: bool) -> EndResult:
        producer_id, epoch = producer
        state = metadata.state
        is_overflow_retry = (
            metadata.previous_producer_id == producer_id and epoch == EXHAUSTED_EPOCH and metadata.epoch == 0
        )
        is_retry = is_overflow_retry or metadata.epoch == epoch + 1
        if self._is_in_transition(metadata):
            return EndResult(_CONCURRENT_TRANSACTIONS)
        if metadata.producer_id != producer_id and not is_overflow_retry:
            return EndResult(_INVALID_PRODUCER_ID_MAPPING)
        if metadata.epoch != epoch and not (is_retry and state in _COMPLETE):
            return EndResult(_PRODUCER_FENCED)
        if state is TransactionState.ONGOING or not (commit or is_retry):
            # An empty transaction can be aborted but not committed.
            next_producer_id = self._new_producer_id() if metadata.is_epoch_exhausted else -1
            if state is not TransactionState.ONGOING:
                metadata.started = self._cluster.world.now
            metadata.last_epoch, metadata.epoch = metadata.epoch, metadata.epoch + 1
            metadata.next_producer_id = next_producer_id
            result = (producer_id, metadata.epoch) if next_producer_id < 0 else (next_producer_id, 0)
            self._prepare(metadata, commit=commit)
            return EndResult(_NONE, *result)
        expected = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        if is_retry and state is expected:
            return EndResult(_NONE, metadata.producer_id, metadata.epoch)
        return EndResult(_INVALID_TXN_STATE)

    def _is_in_transition(self, metadata: TransactionMetadata) -> bool:
        """Whether markers are to be written, which is a pending transition to CompleteCommit or CompleteAbort."""
        if metadata.stuck_at >= 0 and metadata.stuck_at == self._move_number(metadata.transactional_id):
            return True
        return metadata.state in _PREPARED

    def _move_number(self, transactional_id: str) -> int:
        return self._coordinators.moves.get((TRANSACTION, coordinator_partition(transactional_id)), 0)

    def _fence(self, metadata: TransactionMetadata) -> None:
        """Abort an ongoing transaction with a higher epoch, which no client has (PrepareEpochFence)."""
        metadata.last_epoch = -1
        if self._cluster.settings.transaction_version >= 2:
            metadata.last_epoch = metadata.epoch
            metadata.next_producer_id = self._new_producer_id() if metadata.is_epoch_exhausted else -1
        metadata.epoch += 1
        self._prepare(metadata, commit=False)

    def _prepare(self, metadata: TransactionMetadata, *, commit: bool) -> None:
        self._change_state(metadata, TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
        self._write_next_marker_later(metadata)

    def _change_state(self, metadata: TransactionMetadata, state: TransactionState) -> None:
        metadata.state = state
        self._cluster.world.trace("transaction", metadata.transactional_id, state.value, metadata.epoch)

    def _change_producer_id(self, metadata: TransactionMetadata, producer_id: int) -> None:
        metadata.previous_producer_id, metadata.producer_id = metadata.producer_id, producer_id
        metadata.epoch = 0

    def _new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Markers.

    def _write_next_marker_later(self, metadata: TransactionMetadata) -> None:
        self._cluster.world.after(self._random.uniform(*self.marker_seconds), self._write_next_marker, metadata)

    def _write_next_marker(self, metadata: TransactionMetadata) -> None:
        """Write the marker to one partition; complete the transaction if none is left."""
        partition = next(iter(metadata.partitions), None)
        if partition is None:
            self._complete(metadata)
        elif self._coordinators.error(TRANSACTION, metadata.transactional_id) or not self._append_marker(
            metadata, partition
        ):
            self._cluster.world.after(0.1, self._write_next_marker, metadata)  # its leader is unavailable
        else:
            target = self._cluster.partition(partition)
            log = None if target is None else target.leader_log
            self._await_replicas(metadata, partition, target.epoch if target else 0, log.end if log else 0)

    def _await_replicas(self, metadata: TransactionMetadata, partition: TopicAndIndex, epoch: int, end: int) -> None:
        """Wait until all in-sync replicas have a marker, as WriteTxnMarkers does; write it again to a new leader."""
        target = self._cluster.partition(partition)
        log = None if target is None else target.leader_log
        if target is not None and target.epoch != epoch:
            self._write_next_marker_later(metadata)
        elif log is not None and log.high_watermark < end:
            self._cluster.world.after(0.01, self._await_replicas, metadata, partition, epoch, end)
        else:
            del metadata.partitions[partition]
            proceed = self._write_next_marker_later if metadata.partitions else self._complete
            proceed(metadata)

    def _append_marker(self, metadata: TransactionMetadata, partition: TopicAndIndex) -> bool:
        commit = metadata.state is TransactionState.PREPARE_COMMIT
        if partition[0] == OFFSETS_TOPIC:
            groups = GroupCoordinator.of(self._cluster)
            groups.complete(partition[1], (metadata.producer_id, metadata.epoch), commit)
            return True
        if self._cluster.partition(partition) is None:
            return True  # its topic was deleted
        offset = self._cluster.append_marker(partition, metadata.producer_id, metadata.epoch, commit=commit)
        if offset is not None:
            Verifications.of(self._cluster).clear(partition, metadata.producer_id)
        return offset is not None

    def _complete(self, metadata: TransactionMetadata) -> None:
        if metadata.next_producer_id >= 0:
            self._change_producer_id(metadata, metadata.next_producer_id)
            metadata.next_producer_id = -1
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        self._change_state(metadata, TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)

    # Timeouts.

    def _schedule_timeout(self, metadata: TransactionMetadata) -> None:
        due = metadata.started + metadata.timeout_ms / 1000
        checks = math.floor((due - self._first_check) / _TIMEOUT_CHECK_SECONDS) + 1
        self._cluster.world.at(
            self._first_check + max(0, checks) * _TIMEOUT_CHECK_SECONDS, self._time_out, metadata, metadata.started
        )

    def _time_out(self, metadata: TransactionMetadata, started: float) -> None:
        if metadata.state is not TransactionState.ONGOING or metadata.started != started:
            return
        if self._is_in_transition(metadata):
            return
        if self._coordinators.error(TRANSACTION, metadata.transactional_id):
            self._cluster.world.after(_TIMEOUT_CHECK_SECONDS, self._time_out, metadata, started)
            return
        self._cluster.world.trace("transaction timeout", metadata.transactional_id)
        self._fence(metadata)


def _may_continue(metadata: TransactionMetadata, expected: tuple[int, int]) -> bool:
    """Return whether a client with this producer id may continue (KIP-360); its epoch is checked later."""
    return (
        metadata.epoch == -1
        or expected[0] == metadata.producer_id
        or (expected[0] == metadata.previous_producer_id and expected[1] >= EXHAUSTED_EPOCH)
    )


def verification_code(error_code: int, *, has_abortable_error: bool) -> int:
    """Return the error code of a verification for a request to a partition's leader (AddPartitionsToTxnManager)."""
    if error_code == _PRODUCER_FENCED:
        return _INVALID_PRODUCER_EPOCH
    if error_code == _TRANSACTION_ABORTABLE and not has_abortable_error:
        return _INVALID_TXN_STATE
    return error_code


# Handlers: (broker, version, request) -> response.


def init_producer_id(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    error_code = 0
    if request.transactional_id is not None:
        error_code = _coordinator_code(broker, request.transactional_id)
    result = (
        EndResult(error_code)
        if error_code
        else TransactionCoordinator.of(broker.cluster).init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, (request.producer_id, request.producer_epoch)
        )
    )
    return {
        "throttle_time_ms": 0,
        "error_code": _fenced_code(result.error_code, version, 4),
        "producer_id": result.producer_id,
        "producer_epoch": result.producer_epoch,
    }


def end_txn(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    error_code = _coordinator_code(broker, request.transactional_id)
    result = (
        EndResult(error_code)
        if error_code
        else TransactionCoordinator.of(broker.cluster).end(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=version >= 5,
        )
    )
    return {
        "throttle_time_ms": 0,
        "error_code": _fenced_code(result.error_code, version, 2),
        "producer_id": result.producer_id,
        "producer_epoch": result.producer_epoch,
    }


def add_partitions_to_txn(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    partitions = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    unknown = [partition for partition in partitions if broker.image.partition(*partition) is None]
    if unknown:
        codes = {
            partition: _UNKNOWN_TOPIC_OR_PARTITION if partition in unknown else _OPERATION_NOT_ATTEMPTED
            for partition in partitions
        }
    else:
        transactional_id = request.v3_and_below_transactional_id
        error_code = _coordinator_code(broker, transactional_id)
        if not error_code:
            producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            error_code = TransactionCoordinator.of(broker.cluster).add_partitions(
                transactional_id, producer, partitions
            )
        codes = dict.fromkeys(partitions, _fenced_code(error_code, version, 2))
    return {
        "throttle_time_ms": 0,
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                    for index in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        ],
    }


def add_offsets_to_txn(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    error_code = _coordinator_code(broker, request.transactional_id)
    if not error_code:
        error_code = TransactionCoordinator.of(broker.cluster).add_partitions(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            ((OFFSETS_TOPIC, coordinator_partition(request.group_id)),),
        )
    return {"throttle_time_ms": 0, "error_code": _fenced_code(error_code, version, 2)}


def _coordinator_code(broker: SimulatedBroker, transactional_id: str) -> int:
    return Coordinators.of(broker.cluster).error(TRANSACTION, transactional_id, broker.id)


def _fenced_code(error_code: int, version: int, since: int) -> int:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED in versions that do not have it."""
    return _INVALID_PRODUCER_EPOCH if error_code == _PRODUCER_FENCED and version < since else error_code


HANDLERS: dict[str, Handler] = {
    "AddOffsetsToTxn": add_offsets_to_txn,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "EndTxn": end_txn,
    "InitProducerId": init_producer_id,
}
