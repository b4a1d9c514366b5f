"""``EmbeddedKafka``: a real Apache Kafka cluster for demos and tests, for as long as a ``with`` block lasts."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.broker._cluster import Cluster, ClusterPlan
from pyspark_kafka_direct.broker._properties import PLAINTEXT
from pyspark_kafka_direct.broker._security import (
    DEFAULT_USERS,
    Credentials,
    authorizer_properties,
    check_security,
    listeners,
    scram_users,
    wants_certificates,
)
from pyspark_kafka_direct.errors import BrokerError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from pyspark_kafka_direct.broker._certificates import Certificates

DEFAULT_VERSION = "4.3.0"
RUNNING_BROKER_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

_LAST_PORT = 65_535

_logger = logging.getLogger("pyspark_kafka_direct.broker")


class EmbeddedKafka:
    """A Kafka cluster of its own: KRaft, temporary data, free ports on the loopback interface.

    Where the environment variable ``KAFKA_BOOTSTRAP_SERVERS`` names a cluster that is there, that one is used and
    nothing is started. Then whatever needs a cluster of our own is refused: several brokers, another version,
    properties, stopping and starting. With ``reuse_running=False`` a cluster is started in any case.

    The first use of a version fetches it from Maven Central into the user's cache folder. The cluster dies with this
    process, however that ends.

        with EmbeddedKafka() as kafka:
            spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)

    Args:
        brokers: 1 or 3; each is a controller as well.
        version: Of Apache Kafka: 4.3.0, 3.9.2, or another one that Maven Central has.
        security: Listeners beside PLAINTEXT: ``SSL``, ``MTLS`` (SSL that wants the client's certificate),
            ``SASL_PLAINTEXT``, ``SASL_SSL``. SASL knows PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (unsigned
            tokens). For KIP-368 give the property ``connections.max.reauth.ms``.
        users: Who may log in.
        hosts: Names and addresses that the broker's certificate is for.
        authorizer: Whether ACLs count. The PLAINTEXT listener may do everything all the same.
        properties: Further broker properties, winning over ours.
        port: PLAINTEXT port of the first broker, the next ones following; free ports otherwise.
        heap: Largest Java heap of each broker.
        start_timeout: Seconds until the cluster must serve (the first fetching aside).
        reuse_running: Whether ``KAFKA_BOOTSTRAP_SERVERS`` counts.
        progress: Told, a line at a time, how the fetching goes; standard error by default.

    Raises:
        OptionError: A value that cannot be, or one that a running cluster cannot honour.
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
        reuse_running: bool = True,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise OptionError(f"brokers is {brokers}: an embedded Kafka has 1 broker or 3")
        if port is not None and not 1 <= port <= _LAST_PORT + 1 - brokers:
            raise OptionError(f"port is {port}: it must be from 1 to {_LAST_PORT + 1 - brokers}")
        self._running = os.environ.get(RUNNING_BROKER_VARIABLE, "").strip() if reuse_running else ""
        self._security = check_security(security)
        asked = {
            "brokers": brokers != 1,
            "version": version,
            "security": self._security,
            "authorizer": authorizer,
            "properties": properties,
            "port": port,
        }
        unfit = [name for name, given in asked.items() if given]
        if self._running and unfit:
            raise OptionError(
                f"{', '.join(unfit)} cannot be chosen for the running cluster that {RUNNING_BROKER_VARIABLE} names "
                f"({self._running}): unset the variable, or pass reuse_running=False"
            )
        self.users = tuple(users)
        self._hosts = tuple(hosts)
        self._certificates: Certificates | None = None
        self._plan = ClusterPlan(
            brokers=brokers,
            version=version or DEFAULT_VERSION,
            listeners=listeners((), None, ()),
            properties={**(authorizer_properties() if authorizer else {}), **(properties or {})},
            scram=scram_users(self._security, self.users),
            port=port,
            heap=heap,
            start_timeout=start_timeout,
        )
        self._progress = progress
        self._cluster: Cluster | None = None

    def start(self) -> Self:
        """Start the cluster and wait until it serves.

        Raises:
            BrokerError: No jars, or a broker that ended at once; its log is kept and named.
            ToolError: No Java, or one that is too old; or one of Java's tools failed.
            BrokerTimeoutError: It did not serve in time.
        """
        if not self._running and self._cluster is None:
            folder = Path(tempfile.mkdtemp(prefix="kafka-direct-"))
            try:
                self._cluster = self._start_in(folder)
            except BaseException as error:
                if not isinstance(error, BrokerError) or not any(folder.glob("*.log")):
                    shutil.rmtree(folder, ignore_errors=True)  # no log in it that would tell more
                raise
            _logger.info("Kafka %s serves on %s", self._plan.version, self.bootstrap_servers)
        return self

    def close(self) -> None:
        """Stop the cluster and remove its data; a running cluster that was only used is left alone."""
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
        return self._running or self._own("bootstrap_servers").address(PLAINTEXT)

    def listener(self, name: str) -> str:
        """Return ``host:port,...`` of a listener: PLAINTEXT, or one that ``security`` named.

        Raises:
            OptionError: There is no such listener.
        """
        if name == PLAINTEXT:
            return self.bootstrap_servers
        cluster = self._own("listener")
        if name not in self._security:
            raise OptionError(f"This embedded Kafka has no listener {name!r}: name it in security")
        return cluster.address(name)

    @property
    def certificates(self) -> Certificates:
        """The files for TLS; there where ``security`` names a listener with TLS.

        Raises:
            OptionError: None does.
        """
        self._own("certificates")
        if self._certificates is None:
            raise OptionError("This embedded Kafka has no certificates: name SSL, MTLS or SASL_SSL in security")
        return self._certificates

    def stop_broker(self, node: int) -> None:
        """Shut a broker (1, 2, 3) down properly: it hands over its partitions first."""
        self._own("stop_broker", node).stop(node)

    def kill_broker(self, node: int) -> None:
        """Kill a broker (1, 2, 3) as a crash would."""
        self._own("kill_broker", node).kill(node)

    def start_broker(self, node: int) -> None:
        """Start a broker that was stopped or killed, with the ports and data it had, and wait until it serves."""
        self._own("start_broker", node).start(node)

    def is_alive(self, node: int) -> bool:
        """Tell whether a broker's process runs."""
        return self._own("is_alive", node).alive(node)

    def log_file(self, node: int = 1) -> Path:
        """Return the file that holds a broker's log; it goes when the cluster is closed."""
        return self._own("log_file", node).log(node)

    @property
    def pids(self) -> dict[int, int]:
        """Process id of each broker that runs."""
        return self._own("pids").pids()

    def _start_in(self, folder: Path) -> Cluster:
        if wants_certificates(self._security):
            from pyspark_kafka_direct.broker._certificates import make_certificates

            self._certificates = make_certificates(folder / "certificates", self._hosts)
        ways_in = listeners(self._security, self._certificates, self.users)
        return Cluster(replace(self._plan, listeners=ways_in), folder, self._progress)

    def _own(self, asked: str, node: int = 1) -> Cluster:
        if self._running:
            raise BrokerError(
                f"{asked} needs a cluster of our own, but {RUNNING_BROKER_VARIABLE} names a running one "
                f"({self._running}): unset it, or pass reuse_running=False"
            )
        if self._cluster is None:
            raise BrokerError(f"{asked}: the embedded Kafka is not running; use it in a with block, or call start()")
        if not 1 <= node <= self._plan.brokers:
            raise OptionError(f"{asked}: there is no broker {node}; they count from 1 to {self._plan.brokers}")
        return self._cluster
