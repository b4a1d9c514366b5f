"""What happens to coordinators and groups; as in ``events``, arguments are plain data and any draw is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinators import GROUP, PARTITION_COUNT, TRANSACTION, Coordinators
from tests.simulation.cluster.groups import GroupCoordinator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.cluster.cluster import SimulatedCluster


def move_group_coordinators(
    cluster: SimulatedCluster, broker: int, unavailable_seconds: float, loading_seconds: float, partition: int = -1
) -> None:
    """Move the coordinator of groups to another broker; all partitions of the offsets topic if none is given."""
    for each in _partitions(partition):
        Coordinators.of(cluster).move(
            GROUP,
            each,
            _broker_id(cluster, broker),
            unavailable_seconds=unavailable_seconds,
            loading_seconds=loading_seconds,
        )


def move_transaction_coordinators(
    cluster: SimulatedCluster, broker: int, unavailable_seconds: float, loading_seconds: float, partition: int = -1
) -> None:
    """Move the coordinator of transactional ids to another broker; all of them if no partition is given."""
    for each in _partitions(partition):
        Coordinators.of(cluster).move(
            TRANSACTION,
            each,
            _broker_id(cluster, broker),
            unavailable_seconds=unavailable_seconds,
            loading_seconds=loading_seconds,
        )


def delete_group(cluster: SimulatedCluster, group: str) -> None:
    GroupCoordinator.of(cluster).delete_group(group)


def expire_offsets(cluster: SimulatedCluster, group: str) -> None:
    """Delete a group's offsets as after ``offsets.retention.minutes``."""
    GroupCoordinator.of(cluster).expire_offsets(group)


def join_group(cluster: SimulatedCluster, group: str, seconds: float) -> None:
    """Let a consumer of another application be a member of the group for a while."""
    groups = GroupCoordinator.of(cluster)
    groups.set_members(group, True)
    cluster.world.after(seconds, groups.set_members, group, False)


def heal_coordinators(cluster: SimulatedCluster) -> None:
    """End all faults: coordinators are available and known to every broker, and members leave their groups."""
    Coordinators.of(cluster).heal()
    GroupCoordinator.of(cluster).remove_members()


def draw_coordinator_event(rng: random.Random, kind: str, group: str, seconds: float) -> dict[str, Any]:
    """Draw the arguments of an event; ``seconds`` is the history's length."""
    duration = round(rng.choice((0.02, 0.6, 4.0, seconds)) * (0.5 + rng.random()), 3)
    match kind:
        case "move_group_coordinators" | "move_transaction_coordinators":
            return {
                "broker": rng.randrange(3),
                "unavailable_seconds": rng.choice((0.0, duration)),
                "loading_seconds": rng.choice((0.0, 0.05, 1.0)),
                "partition": rng.choice((-1, rng.randrange(PARTITION_COUNT))),
            }
        case "delete_group" | "expire_offsets":
            return {"group": group}
        case "join_group":
            return {"group": group, "seconds": duration}
    raise ValueError(f"no arguments are drawn for {kind}")


def _partitions(partition: int) -> range:
    if partition < 0:
        return range(PARTITION_COUNT)
    return range(partition % PARTITION_COUNT, partition % PARTITION_COUNT + 1)


def _broker_id(cluster: SimulatedCluster, number: int) -> int:
    broker_ids = list(cluster.brokers)
    return broker_ids[number % len(broker_ids)]


COORDINATOR_EVENT_KINDS: dict[str, Callable[..., None]] = {
    "move_group_coordinators": move_group_coordinators,
    "move_transaction_coordinators": move_transaction_coordinators,
    "delete_group": delete_group,
    "expire_offsets": expire_offsets,
    "join_group": join_group,
}
