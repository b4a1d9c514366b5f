"""Fixtures for every test: one real broker, topics on it, and a schema registry."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
import uuid
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from tests import open_sockets
from tests.fake_registry import FakeRegistry
from tests.shards.assignment import (
    COLLECTED,
    SHARDS,
    compares_ids,
    missing_records,
    modules_of_unit_part,
    modules_to_import,
    of_part,
    of_shard,
)
from tests.shards.brokers import log_end, shared_broker
from tests.shards.durations import ROOT, all_durations, durations_of

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from confluent_kafka.admin import AdminClient, NewTopic


# Examples have no time limit, because a busy machine is slow.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", settings.get_profile("thorough"), max_examples=40)
settings.load_profile("tests")

_UNIT_PART = pytest.StashKey["set[Path]"]()  # the modules of ``--part`` without ``--shard``
_TO_IMPORT = pytest.StashKey["set[Path]"]()  # the modules that a run of all tests of a shard imports
_INTEGRATION = ROOT / "tests" / "integration"

_shared_topics: dict[str, list[str]] = {}  # of the current module on the broker ``kafka``, by its address

open_sockets.watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last lines of the log of each broker that has exited to the report of a failed test."""
    report = yield
    if report.failed:
        for cluster in getattr(item, "funcargs", {}).values():
            if isinstance(cluster, EmbeddedKafka):
                report.sections.extend(_logs_of_exited_brokers(cluster))
    return report


def _logs_of_exited_brokers(cluster: EmbeddedKafka) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(BrokerError):  # the cluster is external or closed
        for node in range(1, cluster.bootstrap_servers.count(",") + 2):
            if not cluster.is_alive(node):
                yield f"broker {node} has exited", log_end(cluster, node)


class MakeTopic(Protocol):
    """Creates a topic for one test and returns its name.

    Configs are topic configs, with underscores instead of dots: ``make_topic(3, cleanup_policy="compact")``.
    """

    def __call__(
        self, partitions: int = 1, *, replication: int = 1, prefix: str = "test", **configs: object
    ) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", choices=SHARDS, help="run the tests of one shard only; see tests/shards/assignment.py")
    parser.addoption("--part", metavar="1/2", help="run the tests of a part of the modules only; see there")
    parser.addoption("--thorough", action="store_true", help="run all histories of which tests otherwise sample some")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--thorough"):
        settings.load_profile("thorough")
    part, shard = config.getoption("--part"), config.getoption("--shard")
    if part is not None and shard is None:
        folders = [config.invocation_params.dir / argument for argument in config.args]
        modules = {module for folder in folders for module in folder.rglob("test_*.py")}
        durations = durations_of(None, without_slow=bool(config.getoption("markexpr")))
        config.stash[_UNIT_PART] = modules_of_unit_part(modules, part, durations)
    elif shard is not None and [config.invocation_params.dir / argument for argument in config.args] == [_INTEGRATION]:
        files = set(_INTEGRATION.rglob("test_*.py"))
        config.stash[_TO_IMPORT] = modules_to_import(files, shard, all_durations())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.match("test_*.py"):
        return None
    modules = config.stash.get(_UNIT_PART, None)
    if modules is not None and compares_ids(modules) and not config.getoption("markexpr"):
        return None
    if modules is None:
        modules = config.stash.get(_TO_IMPORT, None)
    return True if modules is not None and collection_path not in modules else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected = config.stash[COLLECTED] = items.copy()
    if _TO_IMPORT in config.stash and (missing := missing_records(collected, all_durations())):
        pairs = ", ".join(f"{module} for the shard {shard}" for module, shard in missing)
        raise pytest.UsageError(f"Add to tests/shards/durations.json, or no shard runs these tests: {pairs}")
    if (modules := config.stash.get(_UNIT_PART, None)) is not None:
        items[:] = [item for item in collected if item.path in modules]
    else:
        shard = config.getoption("--shard")
        items[:] = of_part(of_shard(collected, shard), config.getoption("--part"), durations_of(shard))
    if others := set(collected).difference(items):
        config.hook.pytest_deselected(items=list(others))


def pytest_collection_finish() -> None:
    """Let later garbage collections skip what collection has created, which remains until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One broker for all shards. Tests that stop or change a broker must start their own.

    It may be an existing one, whose topics the tests may write to: ``PYSPARK_KAFKA_DIRECT_TEST_BROKER=host:port``.
    """
    external = os.environ.get("PYSPARK_KAFKA_DIRECT_TEST_BROKER")
    with EmbeddedKafka(external=external) if external else shared_broker("plain") as cluster:
        yield cluster


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A schema registry in this process."""
    monkeypatch.setenv("no_proxy", "localhost")
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture(scope="session")
def make_topic(kafka: EmbeddedKafka) -> MakeTopic:
    """Creates topics on the shared broker. They are deleted after the module."""
    return topic_maker(kafka.bootstrap_servers, _shared_topics.setdefault(kafka.bootstrap_servers, []))


@pytest.fixture(scope="module", autouse=True)
def _delete_topics() -> Iterator[None]:
    """Delete the topics of the module from the shared broker: clients with a pattern fetch those of all shards."""
    yield
    for servers, topics in _shared_topics.items():
        if not topics:
            continue
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": servers})
        for deletion in admin.delete_topics(topics, operation_timeout=30).values():
            with contextlib.suppress(KafkaException):  # the test has deleted it
                deletion.result(60)
        topics.clear()


@pytest.fixture(scope="session")
def topics_on() -> Callable[[str], MakeTopic]:
    """Creates topics on another cluster: ``topics_on(cluster.bootstrap_servers)(partitions=3, replication=3)``."""
    return topic_maker


def topic_maker(bootstrap_servers: str, made: list[str] | None = None) -> MakeTopic:
    """Return a function that creates topics, and adds their names to a list."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    servers = bootstrap_servers.split(",")
    numbers = itertools.count(1)
    run = uuid.uuid4().hex[:6]

    def make(partitions: int = 1, *, replication: int = 1, prefix: str = "test", **configs: object) -> str:
        name = f"{prefix}-{run}-{next(numbers)}"
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        _create(admin, NewTopic(name, partitions, replication, config=config))
        if made is not None:
            made.append(name)
        # The controller has created the topic; each broker learns of it a moment later. A new client sends its request
        # to the one bootstrap broker; a client with metadata may send it to any broker.
        for each in [admin] if len(servers) == 1 else [AdminClient({"bootstrap.servers": one}) for one in servers]:
            _wait_until_described(each, name, partitions)
        _wait_until_leaders_respond(admin, name, partitions)
        return name

    return make


def _create(admin: AdminClient, topic: NewTopic) -> None:
    """Create a topic. A broker that was stopped or suspended is fenced for a moment, and has no replica meanwhile."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + 60
    while True:
        try:
            admin.create_topics([topic], operation_timeout=60)[topic.topic].result(timeout=60)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _wait_until_leaders_respond(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until the leaders respond: for a moment after metadata names them, they discard records with ``acks=0``."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    wanted = {TopicPartition(topic, number): OffsetSpec.earliest() for number in range(partitions)}
    deadline = time.monotonic() + 60
    while True:
        try:
            for listed in admin.list_offsets(wanted, request_timeout=30).values():
                listed.result(timeout=60)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _wait_until_described(admin: AdminClient, topic: str, partitions: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        described = admin.list_topics(timeout=30).topics.get(topic)
        leaders = [partition.leader for partition in described.partitions.values()] if described is not None else []
        if len(leaders) == partitions and min(leaders) >= 0:
            return
        assert time.monotonic() < deadline, f"topic {topic} has no leaders after 60 s"
        time.sleep(0.02)
