"""Metadata of topics from several brokers, because that of one broker is no evidence of data loss.

Brokers are told apart by their ids, never by bootstrap addresses: two addresses may lead to the same broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafka_direct.client.broker_selection import attempt_timeout, no_broker_error, rotate
from pyspark_kafka_direct.client.metadata import (
    complete_metadata,
    submit_metadata,
    topic_report,
)
from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, ProtocolError, TransientBrokerError
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    CONFIRMATION_STEP_SECONDS,
    MAX_WITNESSES,
    AbsenceEvidence,
    Presence,
    TopicReport,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline, LossConfirmation
    from pyspark_kafka_direct.client.metadata import ClusterMetadata, Node, TopicMetadata
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings


class WitnessLookup(Protocol):
    """The part of ``ClusterClient`` that witnesses need."""

    settings: ConnectionSettings
    pool: ConnectionPool

    @property
    def nodes(self) -> Mapping[int, Node]: ...

    @property
    def needs_bootstrap(self) -> bool: ...

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None: ...

    def topics(self, names: Iterable[str], *, deadline: Deadline | None = None) -> Mapping[str, TopicMetadata]: ...

    def raise_reported_epochs(self, name: str, reports: Collection[TopicReport]) -> None: ...

    def known_replicas(self, partitions: Collection[TopicPartition]) -> set[int]: ...

    def check_metadata(self, metadata: ClusterMetadata, broker: str) -> None: ...

    def use_next_broker(self) -> None: ...

    def connect(self, node: Node, deadline: Deadline) -> Connection: ...

    def release(self, connection: Connection) -> None: ...


class WitnessReports(NamedTuple):
    """Reports of brokers about topics."""

    by_topic: dict[str, list[TopicReport]]
    unresolved: dict[int, TransientBrokerError]  # the errors, by node id, of brokers that accept connections


class Witnesses:
    """Requests metadata of topics from several brokers at the same time.

    A broker that accepts a connection has to return metadata, because it may be newer than that of the others: until
    then it is *unresolved*. One that cannot be reached does not count. One that is unresolved for
    ``request.timeout.ms`` no longer counts.
    """

    def __init__(self, cluster: WitnessLookup) -> None:
        self._cluster = cluster
        self._system = cluster.pool.system
        self._unresolved_since: dict[int, float] = {}  # by node id
        self._tries = 1  # failed ones in a row, and the current one: each later one gives brokers more time
        self._rounds = 0  # so that each call begins with other brokers

    @property
    def has_unresolved(self) -> bool:
        """Whether a broker was unresolved after the last requests."""
        return bool(self._unresolved_since)

    def request_reports(self, names: Collection[str], replicas: Collection[int], deadline: Deadline) -> WitnessReports:
        """Return the reports of the replicas' brokers and, until there are three reports, of others.

        Each call begins with other brokers; those that failed recently are last. The reports raise the epoch floors.

        Raises:
            BrokerError: No broker responded.
        """
        cluster = self._cluster
        failure_times = (cluster.pool.last_failure_time((node.host, node.port)) for node in cluster.nodes.values())
        # If all known brokers failed, they may have other addresses now, which bootstrap servers report.
        if cluster.needs_bootstrap or all(failure_times):
            cluster.refresh_brokers(deadline=deadline)
        nodes = sorted(
            rotate(list(cluster.nodes.values()), cluster.pool.rotation, self._rounds),
            key=lambda node: (node.id not in replicas, cluster.pool.last_failure_time((node.host, node.port))),
        )
        self._rounds += 1
        requests = _MetadataRequests(cluster, sorted(names), attempt_timeout(cluster.settings, self._tries))
        # First to the brokers of all replicas, and at least to three; then to others, until there are three responses.
        count = max(MAX_WITNESSES, sum(node.id in replicas for node in nodes))
        while nodes and count > 0:
            requests.send_to(nodes[:count], deadline, are_last=len(nodes) <= count)
            nodes = nodes[count:]
            count = MAX_WITNESSES - len(requests.responses)
        if not requests.responses:
            self._tries += 1
            raise no_broker_error(requests.failures)
        by_topic = {name: [_report(node, metadata, name) for node, metadata in requests.responses] for name in names}
        for name, reports in by_topic.items():
            cluster.raise_reported_epochs(name, reports)
        return WitnessReports(by_topic, requests.unresponsive)

    def track_unresolved(self, unresolved: Mapping[int, TransientBrokerError]) -> TransientBrokerError | None:
        """Record since when brokers are unresolved; return the error of one that still counts, if any."""
        now = self._system.monotonic()
        timeout = self._cluster.settings.request_timeout_ms / 1000
        self._unresolved_since = {node_id: self._unresolved_since.get(node_id, now) for node_id in unresolved}
        still_counting = (node_id for node_id, since in self._unresolved_since.items() if now < since + timeout)
        error = next((unresolved[node_id] for node_id in still_counting), None)
        self._tries = 1 if error is None else self._tries + 1
        if error is not None:
            error.confirmation_seconds = 2 * timeout  # the last request to the broker can take as long as all before it
        return error


class _MetadataRequests:
    """At most one metadata request to each broker, and the responses."""

    def __init__(self, cluster: WitnessLookup, names: Collection[str], timeout: float) -> None:
        self._cluster = cluster
        self._names = names
        self._timeout = timeout  # seconds for one broker: unresponsive ones leave time for the others and the caller
        self.responses: list[tuple[Node, ClusterMetadata]] = []
        self.unresponsive: dict[int, TransientBrokerError] = {}  # by node id
        self.failures: list[KafkaDirectError] = []

    def send_to(
        self,
        nodes: Collection[Node],
        deadline: Deadline,
        *,
        are_last: bool,  # there are no other brokers: the first response may take longer
    ) -> None:
        """Send a request to each of these brokers at the same time, and wait for the responses."""
        longer_deadline = deadline.limited_to(deadline.remaining() / 2)  # all may be slow
        pending = self._connect_and_send(nodes, deadline, longer_deadline, are_last=are_last)
        short_deadline = deadline.limited_to(self._timeout)
        first_deadline = longer_deadline if are_last else short_deadline
        try:
            while pending:
                limit = short_deadline if self.responses else first_deadline
                node, connection = pending.pop(self._first_ready([connection for _, connection in pending], limit))
                try:
                    metadata = complete_metadata(connection, limit)
                    self._cluster.check_metadata(metadata, str(node))
                    self.responses.append((node, metadata))
                except (TransientBrokerError, ProtocolError) as error:
                    self._add_failure(node, error)
                finally:
                    self._cluster.release(connection)
        finally:
            for _, connection in pending:
                self._cluster.release(connection)

    def _connect_and_send(
        self, nodes: Collection[Node], deadline: Deadline, longer_deadline: Deadline, *, are_last: bool
    ) -> list[tuple[Node, Connection]]:
        """Return the connections on which a response is outstanding."""
        pending: list[tuple[Node, Connection]] = []
        for number, node in enumerate(nodes, 1):
            is_last_chance = are_last and number == len(nodes) and not (pending or self.responses)
            share = deadline.remaining() / (
                len(nodes) + 1
            )  # brokers that accept no connection leave time for the others
            limit = longer_deadline if is_last_chance else deadline.limited_to(min(self._timeout, share))
            try:
                connection = self._cluster.connect(node, limit)
            except (TransientBrokerError, ProtocolError) as error:
                self._add_failure(node, error)
                continue
            try:
                submit_metadata(connection, self._names, limit)
            except (TransientBrokerError, ProtocolError) as error:
                self._cluster.release(connection)
                self._add_failure(node, error)
            else:
                pending.append((node, connection))
        return pending

    def _add_failure(self, node: Node, error: TransientBrokerError | ProtocolError) -> None:
        self.failures.append(error)
        # A broker that accepted the connection may have newer metadata than the others, so it may not be ignored yet.
        if error.connected and isinstance(error, TransientBrokerError):
            self.unresponsive[node.id] = error

    def _first_ready(self, connections: list[Connection], deadline: Deadline) -> int:
        """Wait for a response, and return the index of its connection; after the deadline, any."""
        while True:
            for index, connection in enumerate(connections):
                if connection.has_response():
                    return index
            if deadline.expired:
                return 0
            descriptors = [connection.fileno() for connection in connections]
            self._cluster.pool.system.wait_readable([*descriptors, *deadline.wakeup_fds], deadline.remaining())


class AbsenceCheck:
    """Finds out, in steps over at least five seconds, whether partitions that a broker lacks are missing."""

    def __init__(self, cluster: WitnessLookup, suspects: Mapping[TopicPartition, UUID | None]) -> None:
        self._cluster = cluster
        self._witnesses = Witnesses(cluster)
        self._evidence = {tp: AbsenceEvidence(tp, topic_id) for tp, topic_id in suspects.items()}
        self._is_first = True
        # The error of a broker that has to respond before anything is confirmed as missing, as of the last step.
        self._unresolved: TransientBrokerError | None = None

    @property
    def confirmation_seconds(self) -> float:
        """The time until the loss is confirmed: longer while a broker that accepts connections does not respond."""
        unresolved = 0.0 if self._unresolved is None else self._unresolved.confirmation_seconds
        return max(unresolved, *(evidence.confirmation_seconds for evidence in self._evidence.values()))

    def new_topic_id(self, tp: TopicPartition) -> UUID | None:
        """Return the id of the topic that replaced the partition's, after ``Presence.RECREATED``."""
        return self._evidence[tp].new_topic_id

    def step(self, deadline: Deadline) -> dict[TopicPartition, Presence]:
        """Request metadata from several brokers: first from the replicas', in later steps from others, too.

        Raises:
            BrokerError: No broker responded.
            AuthorizationError: No broker reports a topic, and one rejects the request.
        """
        names = {tp.topic for tp in self._evidence}
        replicas = self._cluster.known_replicas(self._evidence) if self._is_first else ()
        reports, unresolved = self._witnesses.request_reports(names, replicas, deadline)
        self._is_first = False
        for topic, topic_reports in reports.items():
            _check_authorization(topic, topic_reports)
        self._cluster.use_next_broker()  # the one that lacks a partition may lag behind
        now = self._cluster.pool.system.monotonic()
        presences = {tp: evidence.add(reports[tp.topic], now) for tp, evidence in self._evidence.items()}
        self._unresolved = self._witnesses.track_unresolved(unresolved)
        if self._unresolved is None:
            return presences
        # Nothing is confirmed as missing before that broker has responded, or no longer counts.
        return {tp: each if each is Presence.PRESENT else Presence.UNCONFIRMED for tp, each in presences.items()}

    def wait(
        self,
        deadline: Deadline,
        confirmation: LossConfirmation | None = None,  # which a shorter deadline does not end
    ) -> dict[TopicPartition, Presence]:
        """Repeat the steps until each partition is known to be present or missing.

        Raises:
            BrokerError: No broker responds, or brokers contradict each other, until the deadline.
        """
        system, user_deadline = self._cluster.pool.system, deadline
        while True:
            if confirmation is not None:
                confirmation.reserve(self.confirmation_seconds, system.monotonic())
                deadline = confirmation.extend(user_deadline)
            failure: TransientBrokerError
            try:
                presences = self.step(deadline)
            except TransientBrokerError as error:  # the only broker may be restarting
                failure = error
            else:
                unconfirmed = sorted(tp for tp, presence in presences.items() if presence is Presence.UNCONFIRMED)
                if not unconfirmed:
                    return presences
                failure = self._unresolved or BrokerTimeoutError(
                    "brokers do not agree whether the partition exists, or have not reported for long enough that it "
                    f"does not. Increase {deadline.setting} (more than {CONFIRMATION_SECONDS:g} s are needed), or try "
                    "again.",
                    topic=unconfirmed[0].topic,
                    partition=unconfirmed[0].partition,
                )
            if deadline.remaining() <= CONFIRMATION_STEP_SECONDS:  # no time for another step
                if confirmation is not None:
                    failure.add_note(confirmation.note)
                raise failure
            system.sleep(CONFIRMATION_STEP_SECONDS)


class ReplicaReports(NamedTuple):
    """Reports about topics from the brokers of their replicas."""

    by_topic: dict[str, list[TopicReport]]
    unresolved_error: TransientBrokerError | None  # why they do not suffice: a broker is unresponsive, or disagrees


class ReplicaWitnesses:
    """Requests metadata from the brokers of all replicas of topics, to find out whether there is a later leader.

    A leader that was deposed while it was paused still reports itself. Its successor is a replica, and reports its
    epoch before it acknowledges records. A broker that has another topic of this name is unresolved, too.
    """

    def __init__(self, cluster: WitnessLookup) -> None:
        self._cluster = cluster
        self._witnesses = Witnesses(cluster)

    def request_reports(
        self,
        topic_ids: Mapping[str, UUID | None],  # by topic, as far as known
        partitions: Collection[TopicPartition],  # with the replicas
        deadline: Deadline,
    ) -> ReplicaReports:
        """Return the reports, and raise the epoch floors.

        Raises:
            BrokerError: No broker responded.
        """
        if self._witnesses.has_unresolved:  # the cluster may have fenced that broker, or moved its replica
            self._cluster.topics(topic_ids, deadline=deadline)
        replicas = self._cluster.known_replicas(partitions)
        reports, unresolved = self._witnesses.request_reports(topic_ids, replicas, deadline)
        for topic, topic_id in topic_ids.items():
            for report in reports[topic]:
                error = _report_error(topic, topic_id, report)
                if error is not None:
                    unresolved[report.node_id] = error
        without_errors = {
            name: [each for each in topic_reports if not each.error_code] for name, topic_reports in reports.items()
        }
        unresolved_error = self._witnesses.track_unresolved(unresolved)
        if not all(without_errors.values()):  # of a topic, all brokers that responded have returned an error
            raise unresolved_error or next(iter(unresolved.values()))
        return ReplicaReports(without_errors, unresolved_error)


def _report_error(topic: str, topic_id: UUID | None, report: TopicReport) -> TransientBrokerError | None:
    """Return why a report does not count yet, if so; raise an error that a retry cannot resolve."""
    if report.error_code:
        error = error_for(report.error_code, "fetching metadata", topic=topic)
        if not isinstance(error, TransientBrokerError):
            raise error
        return error
    if topic_id is not None and report.topic_id not in (None, topic_id):
        return TransientBrokerError(
            f"Broker {report.node_id} has another topic of this name: its id is {report.topic_id}, not {topic_id}.",
            topic=topic,
        )
    return None


def _report(node: Node, metadata: ClusterMetadata, name: str) -> TopicReport:
    topic_error = metadata.topic_errors.get(name)
    code = ErrorCode.NONE if topic_error is None else topic_error.code
    return topic_report(metadata.topics.get(name), node_id=node.id, error_code=code)


def _check_authorization(topic: str, reports: Collection[TopicReport]) -> None:
    """Raise if no broker reports the topic and one rejects the request: the topic may exist, but waiting is no use."""
    if any(report.leader_epochs is not None for report in reports):
        return
    for code in {report.error_code for report in reports}:
        error = error_for(code, "fetching metadata", topic=topic)
        if isinstance(error, AuthorizationError):
            raise error
