"""``EmbeddedKafka``: a real Apache Kafka cluster for demos and tests, for the duration of a ``with`` block."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.broker.jar_checksums import check_version
from pyspark_kafka_direct.broker.kafka_cluster import ClusterConfig, KafkaCluster
from pyspark_kafka_direct.broker.node_config import (
    DEFAULT_USERS,
    PLAINTEXT,
    Credentials,
    authorizer_properties,
    build_listeners,
    check_listener_names,
    needs_certificates,
    scram_users,
)
from pyspark_kafka_direct.errors import BrokerError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from pyspark_kafka_direct.broker.certificate_authority import Certificates

DEFAULT_VERSION = "4.4.0"

_LAST_PORT = 65_535

_logger = logging.getLogger("pyspark_kafka_direct.broker")


class EmbeddedKafka:
    """A local Kafka cluster: KRaft, temporary data, free ports on the loopback interface.

    The first use of a version downloads it from Maven Central into the user's cache folder. The cluster is killed when
    this process exits for any reason.

        with EmbeddedKafka() as kafka:
            spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)

    Args:
        brokers: The number of brokers, 1 or 3; each broker is also a controller.
        version: The version of Apache Kafka: 4.4.0, 3.9.2, or, without ``verify_jars``, another one in Maven Central.
        security: Listeners in addition to PLAINTEXT: ``SSL``, ``MTLS`` (SSL that requires a client certificate),
            ``SASL_PLAINTEXT``, ``SASL_SSL``. The SASL mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and
            OAUTHBEARER (unsigned tokens). For KIP-368 set the property ``connections.max.reauth.ms``.
        users: Users that may log in.
        hosts: Names and addresses that the broker's certificate is for.
        authorizer: Whether ACLs are enforced. Clients of the PLAINTEXT listener are super users.
        properties: Further broker properties, which override the defaults.
        port: PLAINTEXT port of the first broker; the others use the next ports. By default free ports are chosen.
        heap: Maximum Java heap of each broker.
        start_timeout: Seconds until the cluster must be ready, without the time of the first download.
        external: ``host:port,...`` of a running cluster to use instead; no broker is started then. Arguments that need
            a new cluster are rejected, and so is stopping or starting brokers.
        verify_jars: Whether the jars must have the checksums that this package contains for 4.4.0 and 3.9.2.
        progress: Called with lines about the progress of the download; prints to standard error by default.

    Raises:
        OptionError: An argument is invalid, or cannot be combined with ``external``.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str | None = None,
        security: Iterable[str] = (),
        users: Sequence[Credentials] = DEFAULT_USERS,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        authorizer: bool = False,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        heap: str = "512m",
        start_timeout: float = 240.0,
        external: str | None = None,
        verify_jars: bool = True,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise OptionError(f"brokers is {brokers}: an embedded Kafka has 1 broker or 3")
        if port is not None and not 1 <= port <= _LAST_PORT + 1 - brokers:
            raise OptionError(f"port is {port}: it must be from 1 to {_LAST_PORT + 1 - brokers}")
        if verify_jars:
            check_version(version or DEFAULT_VERSION)
        self._external = external or None
        self._security = check_listener_names(security)
        if self._external:
            _reject_given(
                self._external,
                brokers=brokers != 1,
                version=version,
                security=self._security,
                authorizer=authorizer,
                properties=properties,
                port=port,
            )
        self.users = tuple(users)
        self._hosts = tuple(hosts)
        self._certificates: Certificates | None = None  # created at the start, if a listener needs them
        self._config = ClusterConfig(
            brokers=brokers,
            version=version or DEFAULT_VERSION,
            listeners=build_listeners((), None, ()),  # the others need the certificates
            properties={**(authorizer_properties() if authorizer else {}), **(properties or {})},
            scram=scram_users(self._security, self.users),
            port=port,
            heap=heap,
            start_timeout=start_timeout,
            verify_jars=verify_jars,
        )
        self._progress = progress
        self._cluster: KafkaCluster | None = None

    def start(self) -> Self:
        """Start the cluster and wait until it is ready. An error that names a broker's log keeps the log.

        Raises:
            BrokerError: The jars are missing, or a broker exited immediately.
            ExternalToolError: Java is missing or too old; or one of Java's tools failed.
            BrokerTimeoutError: The cluster was not ready in time.
        """
        if self._external is None and self._cluster is None:
            folder = Path(tempfile.mkdtemp(prefix="kafka-direct-"))
            try:
                self._cluster = self._start_in(folder)
            except BaseException as error:
                names_log = isinstance(error, BrokerError) and any(folder.glob("*.log"))
                if not names_log:  # else the log is kept for the user
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            _logger.info("Kafka %s is running on %s", self._config.version, self.bootstrap_servers)
        return self

    def close(self) -> None:
        """Stop the cluster and remove its data. A cluster that this object did not start keeps running."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,...`` of the PLAINTEXT listener."""
        return self._external or self._owned_cluster("bootstrap_servers").address(PLAINTEXT)

    def listener(self, name: str) -> str:
        """Return ``host:port,...`` of a listener: PLAINTEXT, or one in ``security``.

        Raises:
            OptionError: There is no such listener.
            BrokerError: The cluster is not running, or it is ``external`` and the listener is not PLAINTEXT.
        """
        if name == PLAINTEXT:
            return self.bootstrap_servers
        cluster = self._owned_cluster("listener")
        if name not in self._security:
            raise OptionError(f"This embedded Kafka has no listener {name!r}: add it to security")
        return cluster.address(name)

    @property
    def certificates(self) -> Certificates:
        """The certificates and keys, if ``security`` contains a listener with TLS.

        Raises:
            OptionError: ``security`` contains no listener with TLS.
        """
        self._owned_cluster("certificates")
        if self._certificates is None:
            raise OptionError("This embedded Kafka has no certificates: add SSL, MTLS or SASL_SSL to security")
        return self._certificates

    def stop_broker(self, node: int) -> None:
        """Shut a broker (1, 2, 3) down cleanly: it moves its partition leaders first."""
        self._owned_cluster("stop_broker", node).stop(node)

    def kill_broker(self, node: int) -> None:
        """Kill a broker (1, 2, 3) as a crash would."""
        self._owned_cluster("kill_broker", node).kill(node)

    def start_broker(self, node: int) -> None:
        """Restart a stopped or killed broker with its ports and data, and wait until it is ready."""
        self._owned_cluster("start_broker", node).start(node)

    def is_alive(self, node: int) -> bool:
        """Return whether a broker's process is running."""
        return self._owned_cluster("is_alive", node).is_alive(node)

    def log_file(self, node: int = 1) -> Path:
        """Return the path of a broker's log file; it is deleted when the cluster is closed."""
        return self._owned_cluster("log_file", node).log(node)

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each running broker, by broker number (1, 2, 3)."""
        return self._owned_cluster("pids").pids()

    def _start_in(self, folder: Path) -> KafkaCluster:
        if needs_certificates(self._security):
            from pyspark_kafka_direct.broker.certificate_authority import make_certificates

            self._certificates = make_certificates(folder / "certificates", self._hosts)
        all_listeners = build_listeners(self._security, self._certificates, self.users)
        return KafkaCluster(replace(self._config, listeners=all_listeners), folder, self._progress)

    def _owned_cluster(self, operation: str, node: int = 1) -> KafkaCluster:
        """Return the cluster that this object started; raises if there is none, or if it has no such node."""
        if self._external is not None:
            raise BrokerError(
                f"{operation} needs an embedded cluster, but external is {self._external!r}: remove that argument"
            )
        if self._cluster is None:
            raise BrokerError(
                f"{operation}: the embedded Kafka is not running; use it in a with block, or call start()"
            )
        if not 1 <= node <= self._config.brokers:
            raise OptionError(
                f"{operation}: there is no broker {node}; brokers are numbered from 1 to {self._config.brokers}"
            )
        return self._cluster


def _reject_given(external: str, **new_cluster_arguments: object) -> None:
    """Raise an error if an argument that only a new cluster can have is given for an external one."""
    given_names = [name for name, value in new_cluster_arguments.items() if value]
    if given_names:
        raise OptionError(
            f"{', '.join(given_names)} cannot be set for the external cluster {external!r}: remove external to start a "
            "new one"
        )
