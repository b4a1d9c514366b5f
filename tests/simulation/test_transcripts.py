"""The simulated coordinators respond to the sequences of ``coordinator_sequences`` as Kafka 4.3.0 does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.coordinator_cases import Caller
from tests.simulation.coordinator_sequences import CASES, LAST_EPOCH
from tests.simulation.direct_calls import DirectCalls
from tests.simulation.scheduler import World

# Recorded with a broker of Kafka 4.3.0; its transaction.version was 2, then 0.
_TRANSCRIPTS = json.loads((Path(__file__).parent / "data" / "coordinator_transcripts.json").read_text())


@pytest.mark.parametrize("transaction_version", [2, 0])
@pytest.mark.parametrize("name", CASES)
def test_responses_equal_those_of_a_real_broker(name: str, transaction_version: int) -> None:
    world = World(f"{name} {transaction_version}")
    cluster = SimulatedCluster(world, brokers=1, settings=ClusterSettings(transaction_version=transaction_version))
    label = f"{name}-v{transaction_version}"
    calls = DirectCalls(world, cluster)
    caller = Caller(label, calls, kip_890=transaction_version == 2, pause=world.run_for)
    cluster.create_topic(caller.topic, 2)

    def exhaust_epochs(transactional_id: str) -> None:
        metadata = TransactionCoordinator.of(cluster).transaction(transactional_id)
        assert metadata is not None
        metadata.epoch, metadata.last_epoch = LAST_EPOCH, LAST_EPOCH - 1

    caller.exhaust_epochs = exhaust_epochs
    CASES[name](caller)
    assert caller.transcript == _TRANSCRIPTS[label]
