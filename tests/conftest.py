"""Fixtures for every test: one real broker, topics on it, and a schema registry."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from tests import open_sockets
from tests.fake_registry import FakeRegistry
from tests.shards.assignment import (
    COLLECTED,
    SHARDS,
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

    from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata


# Examples have no time limit, because a busy machine is slow.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", settings.get_profile("thorough"), max_examples=40)
settings.load_profile("tests")

_UNIT_PART = pytest.StashKey["set[Path]"]()  # the modules of ``--part`` without ``--shard``
_TO_IMPORT = pytest.StashKey["set[Path]"]()  # the modules that a run of all tests of a shard imports
_PREFIX = "test"  # of topics
_PARTITIONS_AHEAD = 16  # of the topics that one request creates, at most
_INTEGRATION = ROOT / "tests" / "integration"

_shared_topics: dict[str, list[str]] = {}  # of the current module on the broker ``kafka``, by its address

open_sockets.watch()

gc.set_threshold(50_000, 20, 20)  # by default, garbage collections take a tenth of the time of unit tests


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
    modules = config.stash.get(_UNIT_PART, config.stash.get(_TO_IMPORT, None))
    return True if modules is not None and collection_path not in modules else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected = config.stash[COLLECTED] = items.copy()
    if _TO_IMPORT in config.stash and (missing := missing_records(collected, all_durations())):
        pairs = ", ".join(f"{module} for the shard {shard}" for module, shard in missing)
        raise pytest.UsageError(f"Add to tests/shards/durations.json, or no shard runs these tests: {pairs}")
    if _UNIT_PART in config.stash:
        return
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
def make_topic(kafka: EmbeddedKafka) -> Iterator[MakeTopic]:
    """Creates topics on the shared broker. They are deleted after the module."""
    servers = kafka.bootstrap_servers
    topics = NewTopics(servers, _shared_topics.setdefault(servers, []))
    yield topics
    _delete(servers, topics.unused())


@pytest.fixture(scope="module", autouse=True)
def _delete_topics() -> Iterator[None]:
    """Delete the topics of the module from the shared broker: clients with a pattern fetch those of all shards."""
    yield
    for servers, topics in _shared_topics.items():
        _delete(servers, topics)
        topics.clear()


def _delete(servers: str, topics: list[str]) -> None:
    if not topics:
        return
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    for deletion in admin.delete_topics(topics, operation_timeout=600).values():
        with contextlib.suppress(KafkaException):  # the test has deleted it
            deletion.result(600)


@pytest.fixture(scope="session")
def topics_on() -> Callable[[str], MakeTopic]:
    """Creates topics on another cluster: ``topics_on(cluster.bootstrap_servers)(partitions=3, replication=3)``."""
    return NewTopics


class NewTopics:
    """Creates topics, and adds their names to a list.

    On one broker, one request creates several topics of a kind that was requested before. A later call returns the next
    of them: a topic takes a broker less than half of the CPU time if it is one of many in a request.
    """

    def __init__(self, bootstrap_servers: str, made: list[str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._servers = bootstrap_servers.split(",")
        self._numbers = itertools.count(1)
        self._run = uuid.uuid4().hex[:6]
        self._made = made
        self._unused: dict[tuple[object, ...], list[str]] = {}
        self._calls: Counter[tuple[object, ...]] = Counter()

    def __call__(self, partitions: int = 1, *, replication: int = 1, prefix: str = _PREFIX, **configs: object) -> str:
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        kind = (partitions, replication, prefix, *config.items())
        unused = self._unused.setdefault(kind, [])
        if not unused:
            # Tests that subscribe to a pattern have their own prefix; their pattern must not match an unused topic.
            ahead = prefix == _PREFIX and len(self._servers) == 1
            count = min(self._calls[kind], _PARTITIONS_AHEAD // partitions) if ahead else 1
            # With numbers of one length, no name is the beginning of another.
            names = [f"{prefix}-{self._run}-{next(self._numbers):04}" for _ in range(max(count, 1))]
            self._create(names, partitions, replication, config)
            unused.extend(reversed(names))
        self._calls[kind] += 1
        name = unused.pop()
        if self._made is not None:
            self._made.append(name)
        return name

    def unused(self) -> list[str]:
        """Return the topics that were created and not returned."""
        return [name for names in self._unused.values() for name in names]

    def _create(self, names: list[str], partitions: int, replication: int, config: dict[str, str]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        _create(self._admin, [NewTopic(name, partitions, replication, config=config) for name in names])
        # The controller has created the topics; each broker learns of them a moment later. A new client sends its
        # request to the one bootstrap broker; a client with metadata may send it to any broker.
        one = len(self._servers) == 1
        for admin in [self._admin] if one else [AdminClient({"bootstrap.servers": each}) for each in self._servers]:
            _wait_until_described(admin, names, partitions)
        _wait_until_leaders_respond(self._admin, names, partitions)


def _create(admin: AdminClient, topics: list[NewTopic]) -> None:
    """Create topics. A broker that was stopped or suspended is fenced for a moment, and has no replica meanwhile."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + 600
    while topics:
        rejected = []
        futures = admin.create_topics(topics, operation_timeout=600)
        for topic in topics:
            try:
                futures[topic.topic].result(timeout=600)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                    raise
                rejected.append(topic)
        topics = rejected
        if topics:
            time.sleep(0.1)


def _wait_until_leaders_respond(admin: AdminClient, topics: list[str], partitions: int) -> None:
    """Wait until the leaders respond: for a moment after metadata names them, they discard records with ``acks=0``."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    wanted = dict.fromkeys(places, OffsetSpec.earliest())
    deadline = time.monotonic() + 600
    while True:
        try:
            for listed in admin.list_offsets(wanted, request_timeout=600).values():
                listed.result(timeout=600)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _wait_until_described(admin: AdminClient, topics: list[str], partitions: int) -> None:
    deadline = time.monotonic() + 600
    while topics:
        found = admin.list_topics(timeout=600).topics
        topics = [topic for topic in topics if not _has_leaders(found.get(topic), partitions)]
        assert time.monotonic() < deadline, f"topics {topics} have no leaders after 60 s"
        if topics:
            time.sleep(0.02)


def _has_leaders(topic: TopicMetadata | None, partitions: int) -> bool:
    leaders = [partition.leader for partition in topic.partitions.values()] if topic is not None else []
    return len(leaders) == partitions and min(leaders) >= 0
