"""Single writers that were idle until brokers deleted their transactional id, as after a week without a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.scenarios.shared_log_writers import TRANSACTIONAL_ID, without_open_transactions

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.simulation.environment import Environment

IDLE_SECONDS = 8.0
"""The length of such a history."""


def draw_idle_writers(rng: random.Random, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of tables that claim the id one after the other, and write before and after it has expired."""
    members = []
    first, last = 0.5, IDLE_SECONDS - 3.0
    count = rng.choice((1, 2, 2, 2, 3))
    for number in range(count):
        claimed_at = round(number * (last - first) / count, 3)
        before = rng.choice((0, 1, 1, 2))
        times = [claimed_at + 0.5 + 0.2 * each for each in range(before)]
        times += [last + 0.1 + (rng.random() if rng.random() < 0.8 else 0.0) for _ in range(rng.choice((0, 1, 1, 2)))]
        members.append(
            {
                **parameters["members"][0],
                "at": claimed_at,
                "transactional": number == 0 or rng.random() < 0.8,
                "table": True,
                "committed": True,
                "stop_at": None,
                "fails_at": None,
                "start_timeout": 300.0,
                "threads": [_draw_writes(rng, sorted(times), claimed_at)],
            }
        )
    cluster = dict(parameters["cluster"])
    if not cluster.get("topic_ids", True):
        cluster["transaction_version"] = 0
    return {
        **parameters,
        "cluster": cluster,
        **{name: without_open_transactions(parameters[name]) for name in ("log", "append_list")},
        "members": members,
        "kills": [],
        "steps": 4,
        "expires_at": [last - 0.5],
        "restart_seconds": 0.0,
    }


def expire_writers(environment: Environment) -> None:
    """Delete the transactional id, unless it has a transaction, and what the logs remember of its producer."""
    coordinator = TransactionCoordinator.of(environment.cluster)
    metadata = coordinator.transaction(TRANSACTIONAL_ID)
    if metadata is None or TRANSACTIONAL_ID in coordinator.ongoing:
        return
    environment.world.trace("transactional id expired", TRANSACTIONAL_ID)
    coordinator.expire(TRANSACTIONAL_ID)
    for target in environment.cluster.all_partitions():
        for log in target.replicas.values():
            log.producers.pop(metadata.producer_id, None)


def _draw_writes(rng: random.Random, times: list[float], began_at: float) -> list[dict[str, Any]]:
    """Draw the steps that write at some times; the member sleeps until it begins."""
    step = {"kind": "send", "tombstones": False, "timeout": 10.0, "again": False, "of_others": False}
    pauses = [at - before for before, at in zip((began_at, *times), times, strict=False)]
    return [
        {
            **step,
            "pause": round(pause, 3),
            "records": rng.choice((1, 3)),
            "keys": rng.choice((1, 3)),
            "as_future": rng.random() < 0.5,
        }
        for pause in pauses
    ] or [{**step, "kind": "read_to_end", "pause": 0.0, "records": 1, "keys": 1, "as_future": False}]
