"""Asks several brokers about topics, because one broker's metadata is no evidence of data loss.

Brokers are told apart by their ids, never by bootstrap addresses: two addresses may lead to the same broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafka_direct.client.broker_selection import attempt_timeout, no_broker_error, rotate
from pyspark_kafka_direct.client.metadata import (
    complete_metadata,
    fetch_metadata,
    submit_metadata,
    topic_report,
)
from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, ProtocolError, TransientBrokerError
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    MAX_WITNESSES,
    AbsenceEvidence,
    Presence,
    TopicReport,
)
from pyspark_kafka_direct.protocol.error_codes import error_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import ClusterMetadata, Node, TopicMetadata
    from pyspark_kafka_direct.config.client_settings import ConnectionSettings
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition

_STEP_SECONDS = 1.0


class WitnessLookup(Protocol):
    """Knows the brokers and connects to them; implemented by ``ClusterClient``."""

    settings: ConnectionSettings
    pool: ConnectionPool

    @property
    def nodes(self) -> Mapping[int, Node]: ...

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None: ...

    def topics(self, names: Iterable[str], *, deadline: Deadline | None = None) -> Mapping[str, TopicMetadata]: ...

    def raise_reported_epochs(self, name: str, reports: Collection[TopicReport]) -> None: ...

    def known_replicas(self, partitions: Collection[TopicPartition]) -> set[int]: ...

    def use_next_broker(self) -> None: ...

    def connect(self, node: Node, deadline: Deadline) -> Connection: ...

    def release(self, connection: Connection) -> None: ...


def ask_witnesses(
    cluster: WitnessLookup,
    names: Collection[str],
    deadline: Deadline,
    shift: int = 0,
    replicas: Collection[int] = (),
) -> dict[str, list[TopicReport]]:
    """Return what brokers report about topics: each that responds, at most three.

    Replicas are asked first, because the leader is one of them. ``shift`` rotates the brokers, so that a later call
    asks others; brokers that failed recently are last.

    Raises:
        BrokerError: No broker responded.
    """
    if _all_failed(cluster):
        cluster.refresh_brokers(deadline=deadline)
    nodes = sorted(
        rotate(list(cluster.nodes.values()), cluster.pool.rotation, shift),
        key=lambda node: (cluster.pool.last_failure_time((node.host, node.port)), node.id not in replicas),
    )
    reports: dict[str, list[TopicReport]] = {name: [] for name in names}
    failures: list[KafkaDirectError] = []
    responses = 0  # of different brokers
    for index, node in enumerate(nodes):
        if responses == MAX_WITNESSES:
            break
        is_last_chance = not responses and index == len(nodes) - 1
        limit = deadline.limited_to(_witness_timeout(cluster.settings, deadline, is_last_chance=is_last_chance))
        try:
            connection = cluster.connect(node, limit)
            try:
                metadata = fetch_metadata(connection, sorted(names), limit)
            finally:
                cluster.release(connection)
        except (TransientBrokerError, ProtocolError) as error:
            failures.append(error)
            continue
        if metadata.error_code:
            failures.append(error_for(metadata.error_code, "fetching metadata", broker=str(node)))
            continue
        responses += 1
        for name in names:
            reports[name].append(_report(node, metadata, name))
    if not responses:
        raise no_broker_error(failures)
    return reports


def _all_failed(cluster: WitnessLookup) -> bool:
    """Return whether all known brokers failed: they may have other addresses now, which bootstrap servers report."""
    return all(cluster.pool.last_failure_time((node.host, node.port)) for node in cluster.nodes.values())


def _report(node: Node, metadata: ClusterMetadata, name: str) -> TopicReport:
    topic_error = metadata.topic_errors.get(name)
    return topic_report(node.id, metadata.topics.get(name), 0 if topic_error is None else topic_error.code)


def _witness_timeout(settings: ConnectionSettings, deadline: Deadline, *, is_last_chance: bool) -> float:
    """Return the timeout for one broker, in seconds; frozen brokers leave time for the others and for the caller."""
    if is_last_chance:  # all may be slow
        return deadline.remaining() / 2
    return min(attempt_timeout(settings, 1), deadline.remaining() / (MAX_WITNESSES + 1))


def _check_authorization(topic: str, reports: Collection[TopicReport]) -> None:
    # Such a topic may exist, so this is no evidence of its absence, but waiting does not help either.
    if any(report.leader_epochs is not None for report in reports):
        return
    for code in {report.error_code for report in reports}:
        error = error_for(code, "fetching metadata", topic=topic)
        if isinstance(error, AuthorizationError):
            raise error


class AbsenceCheck:
    """Finds out, in steps over at least five seconds, whether partitions that a broker does not know are missing."""

    def __init__(self, cluster: WitnessLookup, suspects: Mapping[TopicPartition, UUID | None]) -> None:
        self._cluster = cluster
        self._evidence = {tp: AbsenceEvidence(tp, topic_id) for tp, topic_id in suspects.items()}
        self._steps = 0

    def new_topic_id(self, tp: TopicPartition) -> UUID | None:
        """Return the id of the topic that replaced the partition's, after ``Presence.RECREATED``."""
        return self._evidence[tp].new_topic_id

    def step(self, deadline: Deadline) -> dict[TopicPartition, Presence]:
        """Ask brokers once: first the replicas, in later steps others, too.

        Raises:
            BrokerError: No broker responded.
            AuthorizationError: No broker reports a topic, and one rejects the request.
        """
        names = {tp.topic for tp in self._evidence}
        replicas = () if self._steps else self._cluster.known_replicas(self._evidence)
        reports = ask_witnesses(self._cluster, names, deadline, self._steps, replicas)
        self._steps += 1
        for topic, topic_reports in reports.items():
            _check_authorization(topic, topic_reports)
        self._cluster.use_next_broker()  # the one that did not know a partition may lag behind
        now = self._cluster.pool.system.monotonic()
        return {tp: evidence.add(reports[tp.topic], now) for tp, evidence in self._evidence.items()}

    def wait(self, deadline: Deadline) -> dict[TopicPartition, Presence]:
        """Take steps until each partition is known to be present or missing.

        Raises:
            BrokerError: No broker responds, or brokers contradict each other, until the deadline.
        """
        while True:
            failure: TransientBrokerError
            try:
                presences = self.step(deadline)
            except TransientBrokerError as error:  # the only broker may be restarting
                failure = error
            else:
                unconfirmed = sorted(tp for tp, presence in presences.items() if presence is Presence.UNCONFIRMED)
                if not unconfirmed:
                    return presences
                failure = BrokerTimeoutError(
                    f"brokers do not agree whether the partition exists. Increase {deadline.setting} (more than "
                    f"{CONFIRMATION_SECONDS:g} s are needed), or try again.",
                    topic=unconfirmed[0].topic,
                    partition=unconfirmed[0].partition,
                )
            if deadline.remaining() <= _STEP_SECONDS:
                raise failure
            self._cluster.pool.system.sleep(_STEP_SECONDS)


class ReplicaReports(NamedTuple):
    """What the brokers of the replicas of topics report about them."""

    by_topic: dict[str, list[TopicReport]]
    unsettled: TransientBrokerError | None  # why the reports do not suffice yet: a broker is unresponsive, or disagrees


class ReplicaWitnesses:
    """Asks the brokers of all replicas of topics at the same time whether a later leader is known.

    A leader that was deposed while it was paused does not know that. Its successor is a replica, and reports its epoch
    before it acknowledges records. So each replica's broker that accepts a connection has to respond. A broker that
    cannot be reached does not count. One that does not respond, or that knows another topic of this name, no longer
    counts after ``request.timeout.ms``.
    """

    def __init__(self, cluster: WitnessLookup) -> None:
        self._cluster = cluster
        self._system = cluster.pool.system
        self._unsettled_since: dict[int, float] = {}  # by node id
        self._tries = 1

    def ask(
        self,
        topic_ids: Mapping[str, UUID | None],  # of the topics to ask about, if known
        partitions: Collection[TopicPartition],  # whose replicas are asked
        deadline: Deadline,
    ) -> ReplicaReports:
        """Return the reports, and raise the epoch floors; with fewer than three replicas, other brokers are asked, too.

        Raises:
            BrokerError: No broker responded.
        """
        # The cluster may have fenced an unsettled broker, or moved its replica.
        if self._unsettled_since or _all_failed(self._cluster):
            self._cluster.topics(topic_ids, deadline=deadline)
        reports, unsettled, failures = self._ask(self._witnesses(partitions), sorted(topic_ids), deadline)
        if not all(reports.values()):
            self._tries += 1
            raise no_broker_error(failures)
        for topic, topic_id in topic_ids.items():
            self._cluster.raise_reported_epochs(topic, reports[topic])
            for report in reports[topic]:
                if topic_id is not None and report.topic_id not in (None, topic_id):
                    unsettled[report.node_id] = TransientBrokerError(
                        f"Broker {report.node_id} knows another topic of this name: its id is {report.topic_id}, not "
                        f"{topic_id}.",
                        topic=topic,
                    )
        counting = self._first_that_counts(unsettled)
        self._tries = 1 if counting is None else self._tries + 1
        return ReplicaReports(reports, counting)

    def _witnesses(self, partitions: Collection[TopicPartition]) -> list[Node]:
        cluster = self._cluster
        replicas = cluster.known_replicas(partitions)
        nodes = rotate(list(cluster.nodes.values()), cluster.pool.rotation, self._tries - 1)
        nodes.sort(key=lambda node: node.id not in replicas)
        nodes = nodes[: max(MAX_WITNESSES, sum(node.id in replicas for node in nodes))]
        return sorted(nodes, key=lambda node: cluster.pool.last_failure_time((node.host, node.port)))

    def _ask(
        self, nodes: Collection[Node], names: Collection[str], deadline: Deadline
    ) -> tuple[dict[str, list[TopicReport]], dict[int, TransientBrokerError], list[KafkaDirectError]]:
        """Return the reports by topic, the errors of unresponsive brokers by id, and all errors."""
        reports: dict[str, list[TopicReport]] = {name: [] for name in names}
        unresponsive: dict[int, TransientBrokerError] = {}
        failures: list[KafkaDirectError] = []
        pending: list[tuple[Node, Connection]] = []

        def on_failure(node: Node, error: TransientBrokerError | ProtocolError) -> None:
            failures.append(error)
            if error.connected and isinstance(error, TransientBrokerError):
                unresponsive[node.id] = error

        timeout = attempt_timeout(self._cluster.settings, self._tries)
        for node in nodes:
            limit = deadline.limited_to(min(timeout, deadline.remaining() / (len(nodes) + 1)))
            try:
                connection = self._cluster.connect(node, limit)
            except (TransientBrokerError, ProtocolError) as error:
                on_failure(node, error)
                continue
            try:
                submit_metadata(connection, names, limit)
            except (TransientBrokerError, ProtocolError) as error:
                self._cluster.release(connection)
                on_failure(node, error)
            else:
                pending.append((node, connection))
        first_deadline = deadline.limited_to(deadline.remaining() / 2)  # all may be slow
        others_deadline = deadline.limited_to(timeout)
        try:
            while pending:
                limit = others_deadline if all(reports.values()) else first_deadline
                index = self._first_ready([connection for _, connection in pending], limit)
                node, connection = pending.pop(index)
                try:
                    metadata = complete_metadata(connection, limit)
                    if metadata.error_code:
                        raise error_for(metadata.error_code, "fetching metadata", broker=str(node))
                    for name in names:
                        report = _report(node, metadata, name)
                        if report.error_code:
                            raise error_for(report.error_code, "fetching metadata", topic=name, broker=str(node))
                        reports[name].append(report)
                except (TransientBrokerError, ProtocolError) as error:
                    on_failure(node, error)
                finally:
                    self._cluster.release(connection)
        finally:
            for _, connection in pending:
                self._cluster.release(connection)
        return reports, unresponsive, failures

    def _first_ready(self, connections: list[Connection], deadline: Deadline) -> int:
        """Wait for a response, and return the index of its connection; after the deadline, any."""
        while True:
            for index, connection in enumerate(connections):
                if connection.has_response():
                    return index
            if deadline.expired:
                return 0
            descriptors = [connection.fileno() for connection in connections]
            self._system.wait_readable([*descriptors, *deadline.wakeup_fds], deadline.remaining())

    def _first_that_counts(self, unsettled: Mapping[int, TransientBrokerError]) -> TransientBrokerError | None:
        now = self._system.monotonic()
        counts_for = self._cluster.settings.request_timeout_ms / 1000
        self._unsettled_since = {node_id: self._unsettled_since.get(node_id, now) for node_id in unsettled}
        counting = (node_id for node_id, since in self._unsettled_since.items() if now < since + counts_for)
        return next((unsettled[node_id] for node_id in counting), None)
