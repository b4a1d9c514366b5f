"""The checks of one address: DNS, TCP, TLS, API versions, SASL, and what the broker returns about the cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.api_versions import kafka_release, newest_version
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.socket_connect import connect_addresses, format_address, resolve_broker
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    BrokerError,
    BrokerTimeoutError,
    KafkaDirectError,
    OptionError,
    TlsError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.protocol.description_messages import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_QUORUM,
    LIST_GROUPS,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyspark_kafka_direct.cli.doctor.findings import Result
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_FIRST_METADATA_WITH_PERMISSIONS: Final = 8  # Kafka 2.3
_FIRST_GROUPS_WITH_PERMISSIONS: Final = 3  # Kafka 2.3
_FIRST_CLUSTER_WITH_FENCED: Final = 2  # Kafka 4.0
_CONTROLLER_LOG: Final = "__cluster_metadata"

# Settings that limit a connection of a query. Here --timeout does.
_TIMEOUT_SETTINGS: Final = ("kafka.socket.connection.setup.timeout.ms", "kafka.request.timeout.ms")


class Wanted(NamedTuple):
    """The topics and groups to be checked."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    writes: bool = False  # whether the query writes to the topics, and does not read them


class ClockOffset(NamedTuple):
    """The difference of this machine's clock from the active controller's, in seconds; positive if it is ahead."""

    seconds: float
    uncertainty: float
    controller: int


class Broker(NamedTuple):
    """A broker, as another one returns it."""

    id: int
    host: str
    port: int
    is_fenced: bool = False


class BrokerCheck:
    """Checks one address in a thread; its results are complete when ``run`` has returned."""

    def __init__(
        self,
        settings: ConnectionSettings,
        host: str,
        port: int,
        wanted: Wanted,
        deadline: Deadline,
        *,
        found_brokers: Callable[[BrokerCheck], None],  # called in the thread, before the slower requests
    ) -> None:
        self.host = host
        self.port = port
        self.step = "dns"  # the check that runs, or the last one
        self.findings: list[tuple[str, Result, str]] = []  # check, result, text
        self.ips: list[str] = []
        self.cluster_id: str | None = None
        self.brokers: list[Broker] = []
        self.topics: dict[str, Any] = {}  # of the response to Metadata, by name
        self.topic_names: list[str] | None = None  # of all topics; only requested if a topic is missing
        self.groups: dict[str, Any] = {}  # of the response to DescribeGroups, by id
        self.group_ids: list[str] = []
        self.clock: ClockOffset | None = None
        self.clock_error = ""
        self.timed_out = False  # whether the broker has accepted a connection and then not responded
        self._found_brokers = found_brokers
        self._settings = settings
        self._wanted = wanted
        self._deadline = deadline

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def has_responded(self) -> bool:
        """Whether the broker has returned metadata."""
        return bool(self.brokers)

    @property
    def has_failed(self) -> bool:
        return any(result == "problem" for _, result, _ in self.findings)

    def run(self) -> None:
        """Check the address, up to the first step that fails."""
        try:
            connection = self._connect()
            try:
                self._request_metadata(connection)
                self._found_brokers(self)
                self._request_details(connection)
            finally:
                connection.close()
        except Exception as error:  # also what a hostile broker causes, such as a port that does not exist
            self._fail(error)

    def _connect(self) -> Connection:
        settings, deadline = self._settings, self._deadline
        addresses = resolve_broker(settings, self.host, self.port, deadline)
        self.ips = list(dict.fromkeys(str(each.address[0]) for each in addresses))
        self._add("ok", listed(self.ips))
        self.step = "tcp"
        try:
            sock = connect_addresses(settings, addresses, self.address, deadline)
        except BrokerError as error:
            error.connected = False
            raise
        try:
            self._add("ok", f"connected to {sock.getpeername()[0]}")
            if settings.security.tls is not None:
                self.step = "tls"
                sock = self._start_tls(sock)
            connection = Connection(settings, sock, self.host, self.port, deadline.system)
            self.step = "api versions"
            connection.negotiate_versions(deadline)
            self._add("ok", f"Kafka {kafka_release(connection.api_versions)}")
            if settings.security.sasl is not None:
                self.step = "sasl"
                connection.authenticate(deadline)
                self._add_login()
            else:
                connection.authenticate(deadline)
        except BaseException:
            sock.close()
            raise
        return connection

    def _start_tls(self, sock: socket.socket) -> socket.socket:
        from pyspark_kafka_direct.cli.doctor.certificates import invalid_chain_texts, valid_chain_finding

        try:
            tls_socket: Any = Connection.start_tls(sock, self._settings, self.host, self.port, self._deadline)
        except TlsError as error:
            with contextlib.suppress(Exception):  # nothing in these certificates is verified, nor need they be valid
                first, *others = invalid_chain_texts(error, self._settings, self.host, self.port, self._deadline)
                for text in others:
                    self._add("problem", text)
                error.message = first
            raise
        text, expires_soon = valid_chain_finding(tls_socket)
        self._add("warning" if expires_soon else "ok", text)
        tls = self._settings.security.tls
        if tls is not None and not tls.check_hostname:
            self._add(
                "warning",
                "The name in the certificate is not checked: remove the empty "
                "kafka.ssl.endpoint.identification.algorithm.",
            )
        return tls_socket  # type: ignore[no-any-return]

    def _add_login(self) -> None:
        security = self._settings.security
        sasl = security.sasl
        assert sasl is not None
        user = f" as {sasl.username!r}" if sasl.username and sasl.token_login is None else ""
        self._add("ok", f"{sasl.mechanism}{user}")
        if security.tls is None and sasl.mechanism in ("PLAIN", "OAUTHBEARER"):
            secret = "password" if sasl.mechanism == "PLAIN" else "token"
            self._add("warning", f"The {secret} crosses the network readably: use a listener with SASL_SSL.")

    def _request_metadata(self, connection: Connection) -> None:
        self.step = "metadata"
        request: dict[str, Any] = {
            "topics": [{"name": name} for name in self._wanted.topics],
            "allow_auto_topic_creation": False,
        }
        if connection.version(METADATA) >= _FIRST_METADATA_WITH_PERMISSIONS:
            request["include_topic_authorized_operations"] = True
        response = connection.call(METADATA, request, self._deadline)
        self.cluster_id = response.cluster_id
        self.topics = {topic.name: topic for topic in response.topics}
        self.brokers = [Broker(node.node_id, node.host, node.port) for node in response.brokers]
        if any(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in response.topics):
            every = connection.call(METADATA, {"topics": None, "allow_auto_topic_creation": False}, self._deadline)
            self.topic_names = [topic.name for topic in every.topics if topic.name is not None]

    def _request_details(self, connection: Connection) -> None:
        """Request what may fail, without an effect on the other checks."""
        if newest_version(connection.api_versions, DESCRIBE_CLUSTER.key) >= _FIRST_CLUSTER_WITH_FENCED:
            self.step = "brokers"
            response = connection.call(DESCRIBE_CLUSTER, {"include_fenced_brokers": True}, self._deadline)
            fenced = [each for each in response.brokers if each.is_fenced]
            self.brokers += [Broker(each.broker_id, each.host, each.port, is_fenced=True) for each in fenced]
            self._found_brokers(self)
        if self._wanted.groups:
            self.step = "groups"
            self._request_groups(connection)
        self.step = "clock"
        self._request_clock(connection)

    def _request_groups(self, connection: Connection) -> None:
        request: dict[str, Any] = {"groups": list(self._wanted.groups)}
        if connection.version(DESCRIBE_GROUPS) >= _FIRST_GROUPS_WITH_PERMISSIONS:
            request["include_authorized_operations"] = True
        described = connection.call(DESCRIBE_GROUPS, request, self._deadline)
        self.groups = {group.group_id: group for group in described.groups}
        self.group_ids = [group.group_id for group in connection.call(LIST_GROUPS, {}, self._deadline).groups]

    def _request_clock(self, connection: Connection) -> None:
        partitions = [{"partition_index": 0}]
        request = {"topics": [{"topic_name": _CONTROLLER_LOG, "partitions": partitions}]}
        system = self._deadline.system
        before = system.wall_time()
        started = system.monotonic()
        try:
            response = connection.call(DESCRIBE_QUORUM, request, self._deadline)
        except UnsupportedBrokerError:
            self.clock_error = "The cluster does not return the time (Kafka before 3.3, or with ZooKeeper)"
            return
        except BrokerError as error:
            self.clock_error = f"The active controller has not responded ({_message(error)})"
            return
        elapsed = system.monotonic() - started
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self.clock_error = "The principal lacks Describe on the cluster, so it cannot request the controller's time"
            return
        self.clock = _controller_clock(response, before + elapsed / 2, elapsed / 2)
        self.clock_error = "" if self.clock else "The active controller has not returned its time"

    def _add(self, result: Result, text: str) -> None:
        self.findings.append((self.step, result, text))

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TlsError):
            self.step = "tls"  # with TLS 1.3, a broker may reject a certificate after the handshake
        elif isinstance(error, AuthenticationError):
            self.step = "sasl"
        elif isinstance(error, OptionError):
            self.step = "settings"
        self.timed_out = isinstance(error, BrokerTimeoutError) and error.connected and not error.before_login
        self._add("problem", _message(error))


def _message(error: Exception) -> str:
    text = error.message if isinstance(error, KafkaDirectError) else f"{type(error).__name__}: {error}"
    for setting in _TIMEOUT_SETTINGS:
        text = text.replace(setting, "--timeout")
    return text


def _controller_clock(response: Any, at: float, uncertainty: float) -> ClockOffset | None:
    """Compare the time that the controller has returned for itself with the wall time in the middle of the request."""
    for topic in response.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0:
                    seconds = at - voter.last_caught_up_timestamp / 1000
                    return ClockOffset(seconds, uncertainty, partition.leader_id)
    return None
