"""Exactly-once commits on a cluster of three brokers, and with only the documented permissions."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.test_transactions_histories import BatchCommitter, new_query, records_of, rejected
from tests.integration.transactional_batches import batch_of, cluster_of, committed
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import AuthorizationError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt
from pyspark_kafka_direct.producer.exactly_once import (
    CommitResult,
    ExactlyOnceOptions,
    check_exactly_once,
    commit_batch,
)
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.records import EncodedBatch

DEADLINE = 600

Permission: TypeAlias = tuple[ResourceType, str, AclOperation]


@pytest.fixture
def replicated(three_brokers: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> BatchCommitter:
    servers = three_brokers.bootstrap_servers
    # On a busy machine, a broker restarts for minutes.
    settings = ProducerSettings(delivery_timeout_ms=900_000)
    topic = topics_on(servers)(2, replication=3)
    return new_query(servers, topics_on, topic=topic, timeout_ms=900_000, settings=settings)


def leader_of_sink_state(committer: BatchCommitter) -> int:
    cluster = cluster_of(committer.servers)
    return cluster.leader(SinkStateStore(cluster, committer.sink_state_topic).partition).id


def test_the_sink_state_topic_has_three_replicas(replicated: BatchCommitter) -> None:
    cluster = cluster_of(replicated.servers)
    topic = replicated.sink_state_topic

    def is_known() -> bool:  # by all brokers, because each request may go to another one
        return all(topic in cluster_of(server).topics([topic]) for server in replicated.servers.split(","))

    wait_until(is_known, "the metadata of the new topic")
    assert len(cluster.topics([topic])[topic].partitions[0].replicas) == 3
    configs = describe_topic_config(cluster, topic, ["min.insync.replicas", "cleanup.policy"])
    assert configs == {"min.insync.replicas": "2", "cleanup.policy": "compact"}


@pytest.mark.soak
def test_a_leader_that_dies_in_the_transaction(three_brokers: EmbeddedKafka, replicated: BatchCommitter) -> None:
    """It is the leader of the sink state topic. The next leader has all tickets, and rejects a zombie, too."""
    replicated.commit(0)
    zombie = replicated.plan(1)
    leader = leader_of_sink_state(replicated)
    second = replicated.restarted("run-2")

    def batches() -> Iterator[tuple[str, EncodedBatch]]:
        for number, (topic, each) in enumerate(replicated.batches(1)):
            if number == 1 and three_brokers.is_alive(leader):
                three_brokers.kill_broker(leader)
            yield topic, each._replace(uncompressed_bytes=1 << 20)  # sent at once

    try:
        assert second.commit(1, batches).newly_committed
        rejected(replicated, zombie)
        assert second.commit(2).newly_committed
    finally:
        three_brokers.start_broker(leader)
    assert second.commit(3).newly_committed
    assert replicated.committed_values() == records_of(0, 1, 2, 3)


class SecuredQuery:
    """A query of a user with few permissions."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        name = uuid.uuid4().hex[:8]
        user = kafka.users[0]
        params = {
            "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user.username,
            "sasl.password": user.password,
        }
        self.cluster = ClusterClient(parse_client_params(params).connection)
        self.options = ExactlyOnceOptions(f"prefix-{name}")
        self.topic = f"target-{name}"
        self.store = SinkStateStore(self.cluster, f"sink-state-{name}")
        self._servers = kafka.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self._servers})
        self.admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(DEADLINE)
        self._principal = f"User:{user.username}"

    def grant(self, permissions: Iterable[Permission]) -> None:
        for each in permissions:
            acl = AclBinding(*self._pattern(each), AclPermissionType.ALLOW)
            self.admin.create_acls([acl])[acl].result(DEADLINE)
        self._wait_for_permissions()

    def revoke(self, permission: Permission) -> None:
        acl = AclBindingFilter(*self._pattern(permission), AclPermissionType.ALLOW)
        assert self.admin.delete_acls([acl])[acl].result(DEADLINE)
        self._wait_for_permissions()

    def _pattern(self, permission: Permission) -> tuple[Any, ...]:
        resource, name, operation = permission
        is_prefix = resource is ResourceType.TRANSACTIONAL_ID
        pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
        return resource, name, pattern, self._principal, "*", operation

    def _wait_for_permissions(self) -> None:
        # The broker applies changes a moment after the controller, and in order: with the topic it has the ACLs.
        topic = f"after-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE)
        cluster = cluster_of(self._servers)
        wait_until(lambda: topic in cluster.topics([topic]), "the permissions", DEADLINE)

    def needed(self) -> list[Permission]:
        """Return the permissions that docs/sink.md lists."""
        state, prefix = self.store.topic, self.options.query_transactional_id
        return [
            (ResourceType.TOPIC, self.topic, AclOperation.WRITE),
            (ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.WRITE),
            (ResourceType.TOPIC, state, AclOperation.CREATE),
            (ResourceType.TOPIC, state, AclOperation.WRITE),
            (ResourceType.TOPIC, state, AclOperation.READ),
            (ResourceType.TOPIC, state, AclOperation.DESCRIBE_CONFIGS),
        ]

    def commit(
        self,
        attempt: Callable[[SinkStateStore], BatchAttempt],
        value: bytes,
        in_transaction: Callable[[], None] | None = None,
    ) -> CommitResult:
        """Commit a batch of one record; something may happen after the record was sent, before it is sent again."""
        check_exactly_once(self.cluster, self.store, self.options)

        def batches() -> Iterator[tuple[str, EncodedBatch]]:
            yield self.topic, batch_of([value])._replace(uncompressed_bytes=1 << 20)  # sent at once
            if in_transaction is not None:
                in_transaction()
                yield self.topic, batch_of([value])

        return commit_batch(
            self.cluster, ProducerSettings(), self.store, self.options, attempt(self.store), batches=lambda: batches()
        )

    def commit_batch(self, batch: int, in_transaction: Callable[[], None] | None = None) -> CommitResult:
        key = self.options.query_transactional_id
        return self.commit(
            lambda store: BatchAttempt("stream", "query", "run", batch, store.append_ticket(key), "digest"),
            b"%d" % batch,
            in_transaction,
        )


def test_the_documented_permissions_are_enough(stoppable_kafka: EmbeddedKafka) -> None:
    query = SecuredQuery(stoppable_kafka)
    query.grant(query.needed())
    assert query.commit_batch(0).newly_committed
    assert query.commit_batch(1).newly_committed
    key = query.options.query_transactional_id
    job = query.commit(lambda store: BatchAttempt.of_job("monday", store.append_ticket(key)), b"monday")
    assert job.newly_committed
    values = committed(stoppable_kafka.bootstrap_servers, query.topic)
    assert values == [b"0", b"1", b"monday"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (AclOperation.WRITE, "TOPIC_AUTHORIZATION_FAILED"),
        (AclOperation.READ, "TOPIC_AUTHORIZATION_FAILED"),
        (AclOperation.CREATE, "Grant the principal CREATE"),
    ],
)
def test_without_a_permission_on_the_sink_state_topic_nothing_is_written(
    stoppable_kafka: EmbeddedKafka, missing: AclOperation, words: str
) -> None:
    query = SecuredQuery(stoppable_kafka)
    query.grant([each for each in query.needed() if each[1] != query.store.topic or each[2] is not missing])
    with pytest.raises(AuthorizationError) as caught:
        query.commit_batch(0)
    assert words in str(caught.value)
    assert query.store.topic in str(caught.value)
    assert committed(stoppable_kafka.bootstrap_servers, query.topic) == []


@pytest.mark.parametrize("in_transaction", [False, True], ids=["between batches", "in a transaction"])
@pytest.mark.parametrize(
    ("resource", "operation", "error"),
    [
        ("target", AclOperation.WRITE, "TOPIC_AUTHORIZATION_FAILED"),
        ("sink-state", AclOperation.WRITE, "TOPIC_AUTHORIZATION_FAILED"),
        ("prefix", AclOperation.WRITE, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_a_permission_that_is_lost_fails_the_batch_and_its_return_repeats_it(
    stoppable_kafka: EmbeddedKafka, resource: str, operation: AclOperation, error: str, in_transaction: bool
) -> None:
    query = SecuredQuery(stoppable_kafka)
    query.grant(query.needed())
    assert query.commit_batch(0).newly_committed
    (lost,) = (each for each in query.needed() if each[1].startswith(resource) and each[2] is operation)
    if not in_transaction:
        query.revoke(lost)
    with pytest.raises(AuthorizationError, match=error) as caught:
        query.commit_batch(1, (lambda: query.revoke(lost)) if in_transaction else None)
    assert lost[1] in str(caught.value)
    query.grant([lost])
    assert query.commit_batch(1).newly_committed
    assert query.commit_batch(2).newly_committed
    assert committed(stoppable_kafka.bootstrap_servers, query.topic) == [b"0", b"1", b"2"]


def test_a_permission_to_read_the_sink_state_that_is_lost_fails_the_batch(stoppable_kafka: EmbeddedKafka) -> None:
    query = SecuredQuery(stoppable_kafka)
    query.grant(query.needed())
    assert query.commit_batch(0).newly_committed
    lost = (ResourceType.TOPIC, query.store.topic, AclOperation.READ)
    query.revoke(lost)
    with pytest.raises(AuthorizationError, match=query.store.topic):
        query.commit_batch(1)
    query.grant([lost])
    assert query.commit_batch(1).newly_committed
    assert committed(stoppable_kafka.bootstrap_servers, query.topic) == [b"0", b"1"]
