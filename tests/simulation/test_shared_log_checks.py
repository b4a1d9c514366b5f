"""What a shared log must have delivered when a read to its end completes."""

from __future__ import annotations

import pytest
from tests.simulation.cluster.events import apply_event
from tests.simulation.environment import Environment
from tests.simulation.history import Plan
from tests.simulation.scenarios.shared_log_checks import TopicTruth
from tests.simulation.scheduler import World

_TOPIC = "settings"
_FAILURE_DETECTION = 1.0  # seconds after which the controller elects another leader


def demands(*, leader_epochs: bool, deposes_leader: bool) -> tuple[set[int], set[int]]:
    """Append a record and one of an open transaction; return which offsets a read then must know and must decide."""
    world = World(1)
    settings = {"replication_factor": 2, "failure_detection": _FAILURE_DETECTION, "leader_epochs": leader_epochs}
    environment = Environment(world, Plan("shared_log", {"brokers": 2, "cluster": settings}, (), quiet_after=2_000.0))
    environment.cluster.create_topic(_TOPIC, 1)
    if deposes_leader:
        partition = environment.cluster.partition((_TOPIC, 0))
        assert partition is not None
        number = sorted(environment.cluster.brokers).index(partition.leader)
        apply_event(environment.cluster, "isolate_broker", {"broker": number, "seconds": 1_000.0})
    world.run_for(2 * _FAILURE_DETECTION)
    for number, transaction in enumerate((None, "open")):
        batch = {"partition": 0, "records": 1, "keys": 0, "producer": 1, "transaction": transaction}
        environment.write_log(_TOPIC, 1, [batch], first_number=number)
    world.run_for(_FAILURE_DETECTION)
    truth = TopicTruth(environment, _TOPIC, "read_committed")
    visible = truth.visible_ends()
    return (
        {entry.offset for _, entry in truth.required(visible)},
        {offset for _, offset in truth.undecided(visible)},
    )


@pytest.mark.parametrize("leader_epochs", [True, False])
def test_a_read_to_the_end_knows_records_and_the_outcome_of_transactions(leader_epochs: bool) -> None:
    assert demands(leader_epochs=leader_epochs, deposes_leader=False) == ({0}, {1})


def test_without_leader_epochs_nothing_is_demanded_while_a_deposed_leader_responds() -> None:
    assert demands(leader_epochs=False, deposes_leader=True) == (set(), set())
