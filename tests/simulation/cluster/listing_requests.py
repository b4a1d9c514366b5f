"""ListGroups, ListTransactions and DescribeTransactions, after KafkaApis: each broker lists what it coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinators import GROUP, TRANSACTION, Coordinators
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator, TransactionState

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Handler, SimulatedBroker
    from tests.simulation.cluster.coordinators import Kind
    from tests.simulation.cluster.replies import Reply
    from tests.simulation.cluster.transactions import TransactionMetadata

_COORDINATOR_LOAD_IN_PROGRESS = 14
_TRANSACTIONAL_ID_NOT_FOUND = 105


def list_groups(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    error_code, group_ids = _coordinated(broker, GROUP, GroupCoordinator.of(broker.cluster).group_ids)
    kind = {"protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    return {
        "throttle_time_ms": 0,
        "error_code": error_code,
        "groups": [{"group_id": group_id, **kind} for group_id in group_ids],
    }


def list_transactions(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    transactions = TransactionCoordinator.of(broker.cluster).transactions
    error_code, ids = _coordinated(broker, TRANSACTION, [*transactions])
    return {
        "throttle_time_ms": 0,
        "error_code": error_code,
        "unknown_state_filters": [],
        "transaction_states": [
            {
                "transactional_id": each,
                "producer_id": transactions[each].producer_id,
                "transaction_state": transactions[each].state.value,
            }
            for each in ids
        ],
    }


def describe_transactions(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    states = []
    for transactional_id in request.transactional_ids:
        error_code = Coordinators.of(broker.cluster).error(TRANSACTION, transactional_id, broker.id)
        metadata = TransactionCoordinator.of(broker.cluster).transaction(transactional_id)
        if not error_code and metadata is None:
            error_code = _TRANSACTIONAL_ID_NOT_FOUND
        states.append(
            {
                "error_code": error_code,
                "transactional_id": transactional_id,
                **_described(broker, None if error_code else metadata),
            }
        )
    return {"throttle_time_ms": 0, "transaction_states": states}


def _described(broker: SimulatedBroker, metadata: TransactionMetadata | None) -> dict[str, Any]:
    if metadata is None:
        return {
            "transaction_state": "",
            "transaction_timeout_ms": 0,
            "transaction_start_time_ms": -1,
            "producer_id": -1,
            "producer_epoch": -1,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for name, index in metadata.partitions:
        topics.setdefault(name, []).append(index)
    age_ms = int((broker.world.now - metadata.started) * 1000)
    return {
        "transaction_state": metadata.state.value,
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_start_time_ms": -1
        if metadata.state is TransactionState.EMPTY
        else broker.cluster.timestamp - age_ms,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.epoch,
        "topics": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _coordinated(broker: SimulatedBroker, kind: Kind, keys: list[str]) -> tuple[int, list[str]]:
    """Return those of the keys that a broker coordinates, or an error if it loads some of them."""
    errors = {key: Coordinators.of(broker.cluster).error(kind, key, broker.id) for key in keys}
    if _COORDINATOR_LOAD_IN_PROGRESS in errors.values():
        return _COORDINATOR_LOAD_IN_PROGRESS, []
    return 0, [key for key, error_code in errors.items() if not error_code]


HANDLERS: dict[str, Handler] = {
    "DescribeTransactions": describe_transactions,
    "ListGroups": list_groups,
    "ListTransactions": list_transactions,
}
