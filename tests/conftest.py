"""Fixtures for every test: one real broker, and topics on it."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from tests import open_sockets
from tests.lanes.assignment import COLLECTED, LANES, of_lane, of_part

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.broker.embedded import RUNNING_BROKER_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka.admin import AdminClient


# A busy machine is slow, not wrong: examples have no time limit.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

open_sockets.watch()


class MakeTopic(Protocol):
    """Creates a topic of its own for a test and returns its name.

    Configs are the topic's, with underscores for dots: ``make_topic(3, cleanup_policy="compact")``.
    """

    def __call__(
        self, partitions: int = 1, *, replication: int = 1, prefix: str = "test", **configs: object
    ) -> str: ...


# Only the shared broker may be one that is there; taken out of the environment, so that tests of restarts, security or
# other versions start their own.
_RUNNING = os.environ.pop(RUNNING_BROKER_VARIABLE, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="run the tests of one lane only; see tests/lanes/assignment.py")
    parser.addoption("--part", metavar="1/2", help="run the tests of every other module only; see there")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected = config.stash[COLLECTED] = items.copy()
    items[:] = of_part(of_lane(collected, config.getoption("--lane")), config.getoption("--part"))
    if others := set(collected).difference(items):
        config.hook.pytest_deselected(items=list(others))


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One broker for the whole run. Tests must not stop it or change it: those start one of their own."""
    with pytest.MonkeyPatch.context() as environment:
        if _RUNNING:
            environment.setenv(RUNNING_BROKER_VARIABLE, _RUNNING)
        cluster = EmbeddedKafka()
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def make_topic(kafka: EmbeddedKafka) -> MakeTopic:
    """Topics on the shared broker."""
    return topic_maker(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def topics_on() -> Callable[[str], MakeTopic]:
    """Topics on another cluster: ``topics_on(cluster.bootstrap_servers)(partitions=3, replication=3)``."""
    return topic_maker


def topic_maker(bootstrap_servers: str) -> MakeTopic:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    servers = bootstrap_servers.split(",")
    numbers = itertools.count(1)
    run = uuid.uuid4().hex[:6]

    def make(partitions: int = 1, *, replication: int = 1, prefix: str = "test", **configs: object) -> str:
        name = f"{prefix}-{run}-{next(numbers)}"
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        created = admin.create_topics([NewTopic(name, partitions, replication, config=config)], operation_timeout=60)
        created[name].result(timeout=60)
        # The controller has created the topic; each broker hears of it a moment later. A new client asks the one broker
        # that it was given; one that knows them all asks any.
        for each in [admin] if len(servers) == 1 else [AdminClient({"bootstrap.servers": one}) for one in servers]:
            _wait_for_leaders(each, name, partitions)
        return name

    return make


def _wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        described = admin.list_topics(timeout=30).topics.get(topic)
        leaders = [partition.leader for partition in described.partitions.values()] if described is not None else []
        if len(leaders) == partitions and min(leaders) >= 0:
            return
        assert time.monotonic() < deadline, f"topic {topic} has no leaders after 60 s"
        time.sleep(0.02)
