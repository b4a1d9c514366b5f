"""Topics are created while the controller has fenced brokers that the client's metadata still contains."""

from __future__ import annotations

import pytest
from tests.simulation.cluster.events import apply_event
from tests.simulation.environment import Environment
from tests.simulation.history import Plan
from tests.simulation.scheduler import World

from pyspark_kafka_direct.client.admin import create_topic
from pyspark_kafka_direct.errors import BrokerError, TransientBrokerError


def create(brokers: int, seconds: float, replicas: int | None = None) -> float:
    """Create a topic while broker 1 is cut off from the controller for some seconds; return how long it took.

    Clients still reach that broker, and its metadata contains it.
    """
    world = World(1)
    cluster = {"replication_factor": brokers, "failure_detection": 1.0, "metadata_lag": 0.0}
    environment = Environment(
        world, Plan("connections", {"brokers": brokers, "cluster": cluster}, (), quiet_after=2_000.0)
    )
    process = environment.process("driver")

    durations: list[float] = []

    def body() -> None:
        apply_event(environment.cluster, "isolate_broker", {"broker": 1, "seconds": seconds})
        process.sleep(2.0)
        start = process.monotonic()
        create_topic(environment.client(process), "created", 1, {}, replicas=replicas)
        durations.append(process.monotonic() - start)

    world.run([process.spawn("creator", body)])
    environment.raise_errors()
    assert "created" in environment.cluster.topics
    return durations[0]


def test_a_topic_is_created_as_soon_as_the_only_broker_is_unfenced() -> None:
    assert 7.0 < create(1, seconds=10.0) < 12.0


def test_a_topic_is_not_created_while_the_only_broker_is_fenced() -> None:
    with pytest.raises(TransientBrokerError, match="INVALID_REPLICATION_FACTOR while creating the topic"):
        create(1, seconds=1_000.0)


def test_a_topic_gets_as_many_replicas_as_there_are_usable_brokers() -> None:
    assert create(3, seconds=1_000.0) < 10.0


def test_a_requested_replication_factor_is_not_lowered() -> None:
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR while creating the topic"):
        create(3, seconds=1_000.0, replicas=3)
