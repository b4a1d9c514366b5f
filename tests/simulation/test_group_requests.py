"""Committed offsets: pending ones, moves of the coordinator, members, deletion."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.coordinator_events import (
    COORDINATOR_EVENT_KINDS,
    delete_group,
    draw_coordinator_event,
    expire_offsets,
    join_group,
    move_group_coordinators,
    move_transaction_coordinators,
)
from tests.simulation.cluster.coordinators import GROUP, Coordinators
from tests.simulation.cluster.events import apply_event
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.direct_calls import DirectCalls
from tests.simulation.scheduler import World

from pyspark_kafka_direct.protocol import messages

GROUP_ID = "group"
ID = "transaction"
TOPIC = "topic"


class Simulation:
    """A cluster with a topic of two partitions; requests go to the group's coordinator."""

    def __init__(self, brokers: int = 3, **settings: Any) -> None:
        self.world = World(1)
        self.cluster = SimulatedCluster(self.world, brokers=brokers, settings=ClusterSettings(**settings))
        self.cluster.create_topic(TOPIC, 2)
        self.groups = GroupCoordinator.of(self.cluster)
        self.transactions = TransactionCoordinator.of(self.cluster)

    @property
    def coordinator_id(self) -> int:
        broker_id = Coordinators.of(self.cluster).leader(GROUP, GROUP_ID)
        assert broker_id is not None
        return broker_id

    def new_producer(self) -> tuple[int, int]:
        code, producer_id, epoch = self.transactions.init_producer_id(ID, 60_000)
        assert code == 0
        return producer_id, epoch

    def end(self, producer: tuple[int, int], *, commit: bool = True) -> None:
        assert self.transactions.end(ID, producer, commit=commit, bumps_epoch=True).error_code == 0

    def commit(self, offset: int, *, broker_id: int | None = None, generation: int = -1) -> int:
        values = {
            "group_id": GROUP_ID,
            "generation_id_or_member_epoch": generation,
            "member_id": "",
            "topics": [_position(offset)],
        }
        response = self._calls(broker_id)(messages.OFFSET_COMMIT, 8, values)
        return int(response.topics[0].partitions[0].error_code)

    def txn_commit(self, producer: tuple[int, int], offset: int, *, version: int = 5) -> int:
        values = {
            "transactional_id": ID,
            "group_id": GROUP_ID,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "member_id": "",
            "topics": [_position(offset)],
        }
        response = self._calls(None)(messages.TXN_OFFSET_COMMIT, version, values)
        return int(response.topics[0].partitions[0].error_code)

    def fetch(self, *, stable: bool = True, broker_id: int | None = None) -> tuple[int, int]:
        """Return the error code and the offset."""
        values = {
            "group_id": GROUP_ID,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            "require_stable": stable,
        }
        response = self._calls(broker_id)(messages.OFFSET_FETCH, 7, values)
        if response.error_code:
            return response.error_code, -1
        (partition,) = response.topics[0].partitions
        return partition.error_code, partition.committed_offset

    def _calls(self, broker_id: int | None) -> DirectCalls:
        return DirectCalls(self.world, self.cluster, broker_id or self.coordinator_id)


def _position(offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 0}
    return {"name": TOPIC, "partitions": [{**partition, "committed_metadata": ""}]}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_wait_for_its_marker(commit: bool) -> None:
    simulation = Simulation()
    assert simulation.commit(3) == 0
    producer = simulation.new_producer()
    assert simulation.txn_commit(producer, 5) == 0
    simulation.end(producer, commit=commit)
    assert simulation.fetch() == (88, -1)
    assert simulation.fetch(stable=False) == (0, 3)
    simulation.world.run_for(1)
    assert simulation.fetch() == (0, 5 if commit else 3)


def test_a_commit_directly_after_the_end_is_concurrent() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    assert simulation.txn_commit(producer, 5) == 0
    simulation.end(producer)
    assert simulation.txn_commit((producer[0], producer[1] + 1), 6) == 51
    assert simulation.txn_commit(producer, 6) == 0  # as with Produce, the end is no fence
    simulation.world.run_for(1)
    assert simulation.fetch() == (0, 6)
    assert simulation.txn_commit(producer, 7) == 47


def test_the_transaction_coordinator_is_unavailable() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    move_transaction_coordinators(simulation.cluster, 0, 1.0, 1.0)
    assert simulation.txn_commit(producer, 5) == 15
    simulation.world.run_for(1.5)
    assert simulation.txn_commit(producer, 5) == 14
    assert simulation.txn_commit(producer, 5, version=1) == 15
    simulation.world.run_for(1)
    assert simulation.txn_commit(producer, 5) == 0


def test_a_coordinator_moves_with_committed_and_pending_offsets() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    assert simulation.commit(3) == 0
    assert simulation.txn_commit(producer, 5) == 0
    former = simulation.coordinator_id
    move_group_coordinators(simulation.cluster, former, 1.0, 1.0)
    current = former % 3 + 1
    assert simulation.fetch(broker_id=former) == (16, -1)
    assert simulation.commit(4, broker_id=former) == 16
    simulation.world.run_for(1.5)
    assert simulation.coordinator_id == current
    assert simulation.fetch() == (14, -1)
    simulation.world.run_for(1)
    assert simulation.fetch(stable=False) == (0, 3)
    simulation.end(producer)
    simulation.world.run_for(1)
    assert simulation.fetch() == (0, 5)


def test_a_coordinator_is_found_with_outdated_metadata() -> None:
    simulation = Simulation(metadata_lag=10.0)
    simulation.world.run_for(20)
    former = simulation.coordinator_id
    move_group_coordinators(simulation.cluster, former, 0.0, 0.0)
    other = next(each for each in simulation.cluster.brokers if each not in (former, simulation.coordinator_id))

    def found() -> int:
        calls = DirectCalls(simulation.world, simulation.cluster, other)
        return int(calls(messages.FIND_COORDINATOR, 3, {"key": GROUP_ID, "key_type": 0}).node_id)

    assert found() == former
    simulation.world.run_for(10)
    assert found() == simulation.coordinator_id


def test_an_isolated_coordinator_returns_old_offsets_and_commits_nothing() -> None:
    simulation = Simulation()
    assert simulation.commit(3) == 0
    former = simulation.coordinator_id
    apply_event(simulation.cluster, "isolate_broker", {"broker": former - 1, "seconds": 10.0})
    if not simulation.cluster.brokers[former].isolated_until:
        pytest.fail("the event counts brokers in another way")
    assert simulation.commit(4, broker_id=former) == 15
    simulation.world.run_for(2)
    assert simulation.coordinator_id != former
    simulation.world.run_for(1)
    assert simulation.commit(5) == 0
    assert simulation.fetch() == (0, 5)
    assert simulation.fetch(broker_id=former) == (0, 3)
    assert simulation.commit(6, broker_id=former) == 15
    simulation.world.run_for(10)
    assert simulation.fetch(broker_id=former) == (16, -1)
    assert simulation.fetch() == (0, 5)


def test_groups_with_members_accept_no_other_commits() -> None:
    simulation = Simulation()
    assert simulation.commit(3) == 0
    join_group(simulation.cluster, GROUP_ID, 5.0)
    assert simulation.commit(4) == 25
    assert simulation.commit(4, generation=1) == 25
    assert simulation.fetch() == (0, 3)
    simulation.world.run_for(6)
    assert simulation.commit(4) == 0


def test_offsets_expire_or_are_deleted() -> None:
    simulation = Simulation()
    assert simulation.commit(3) == 0
    producer = simulation.new_producer()
    assert simulation.txn_commit(producer, 5) == 0
    expire_offsets(simulation.cluster, GROUP_ID)
    assert simulation.fetch(stable=False) == (0, 3)  # kept because of the pending offset
    simulation.end(producer)
    simulation.world.run_for(1)
    expire_offsets(simulation.cluster, GROUP_ID)
    assert simulation.fetch() == (0, -1)
    assert simulation.commit(7) == 0
    delete_group(simulation.cluster, GROUP_ID)
    assert simulation.fetch() == (0, -1)
    assert dict(simulation.groups.committed(GROUP_ID)) == {}


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    simulation = Simulation()
    assert simulation.commit(3) == 0
    simulation.cluster.delete_topic(TOPIC)
    assert simulation.fetch() == (0, -1)
    assert simulation.commit(3) == 3
    simulation.cluster.create_topic(TOPIC, 2)
    assert simulation.fetch() == (0, -1)
    assert simulation.commit(1) == 0
    assert simulation.fetch() == (0, 1)


def test_any_drawn_event_can_be_applied() -> None:
    simulation = Simulation()
    for kind in COORDINATOR_EVENT_KINDS:
        for _ in range(20):
            args = draw_coordinator_event(simulation.world.random, kind, GROUP_ID, 10.0)
            apply_event(simulation.cluster, kind, args)
    simulation.world.run_for(100)
    assert simulation.fetch() == (0, -1)
