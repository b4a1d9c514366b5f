"""Obtains the delegation tokens of an application, in the process that has its ``SparkContext``.

All queries of the application use the same token for a cluster of ``spark.kafka.clusters.*``. A thread for each cluster
creates it with the login of the configuration, renews it, and replaces it by a new one in time
(``planning/token_renewal.py``). Each change goes into the file of ``spark/token_file.py``. The threads end when Spark
deletes its folder with the application. The last tokens expire later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.delegation_tokens import create_delegation_token, renew_delegation_token
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import BrokerError, KafkaDirectError, TransientBrokerError
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.security_settings import DelegationToken, TokenState
from pyspark_kafka_direct.options.token_cluster_parser import parse_token_clusters
from pyspark_kafka_direct.planning.token_renewal import TokenLifetime, TokenStep, next_step
from pyspark_kafka_direct.spark.listener_files import create_application_folder
from pyspark_kafka_direct.spark.token_file import token_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark import SparkContext

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.token_cluster_parser import TokenClusterConfig
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

_log = logging.getLogger("pyspark_kafka_direct.spark")

# Between two looks at the clock: waits do not advance while a laptop sleeps, but tokens expire.
_CHECK_SECONDS: Final = 2.0
_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 60.0

_started: set[Path] = set()  # folders of the applications whose tokens this process obtains


def start_delegation_tokens(context: SparkContext) -> tuple[TokenCluster, ...]:
    """Obtain the tokens that the Spark configuration asks for; return their clusters. Further calls only return them.

    Raises:
        OptionError: A property ``spark.kafka.clusters.*`` is invalid.
    """
    properties = dict(context.getConf().getAll())
    warnings: list[str] = []
    configs = parse_token_clusters(properties, SYSTEM.nonce(), warnings)
    if not configs:
        return ()
    folder = create_application_folder()
    if folder not in _started:
        for warning in warnings:
            warn_once(warning)
        ApplicationTokens(folder, configs, SYSTEM).start()
        _started.add(folder)
    return token_file(folder).clusters()


def session_token_clusters(spark: object) -> tuple[TokenCluster, ...]:
    """Obtain the tokens of a session's application; return their clusters."""
    from pyspark import SparkContext

    context = getattr(spark, "sparkContext", None)
    return start_delegation_tokens(context) if isinstance(context, SparkContext) else ()


class ApplicationTokens:
    """The tokens of an application: a thread for each cluster, so that none waits for the brokers of another one."""

    def __init__(
        self,
        folder: Path,
        configs: tuple[TokenClusterConfig, ...],
        system: System,
        connect: Callable[[TokenClusterConfig], ClusterClient] | None = None,
    ) -> None:
        self._folder = folder
        self._file = token_file(folder)
        self._lock = system.lock()
        self._states = {config.cluster: TokenState() for config in configs}
        self._clusters = [ClusterToken(config, self._publish, system, connect or _new_client) for config in configs]
        self._system = system

    def start(self) -> None:
        """Write the file, so that planners find the clusters, and start the threads."""
        self._file.write(self._states)
        for number, cluster in enumerate(self._clusters):
            self._system.start_thread(
                lambda cluster=cluster: self._run(cluster),  # type: ignore[misc]
                f"pyspark-kafka-direct-delegation-token-{number}",
            )

    def _run(self, cluster: ClusterToken) -> None:
        while self._folder.exists():
            try:
                seconds = cluster.run_once()
            except Exception:  # otherwise the thread would end, and the token expire
                _log.exception("cannot obtain the delegation token of spark.kafka.clusters.%s", cluster.name)
                seconds = _MAX_RETRY_SECONDS
            self._system.sleep(min(seconds, _CHECK_SECONDS))

    def _publish(self, cluster: TokenCluster, state: TokenState) -> None:
        with self._lock:
            self._states[cluster] = state
            self._write(self._states)

    def _write(self, states: Mapping[TokenCluster, TokenState]) -> None:
        try:
            self._file.write(states)
        except OSError as error:
            if self._folder.exists():  # else Spark has ended
                _log.warning("cannot write the delegation tokens of the application: %s", error)


class ClusterToken:
    """The token of one cluster, in its thread."""

    def __init__(
        self,
        config: TokenClusterConfig,
        publish: Callable[[TokenCluster, TokenState], None],
        system: System,
        connect: Callable[[TokenClusterConfig], ClusterClient],
    ) -> None:
        self.name = config.cluster.login.cluster
        self._config = config
        self._publish = publish
        self._system = system
        self._connect = connect
        self._token: DelegationToken | None = None
        self._lifetime: TokenLifetime | None = None
        self._failures = 0  # in a row
        self._retry_at = 0.0  # seconds since 1970

    def run_once(self) -> float:
        """Create or renew the token if that is due; return the seconds until the next step."""
        now = self._system.wall_time()
        step = next_step(self._lifetime, now)
        if step is not TokenStep.WAIT and now >= self._retry_at:
            self._perform(step)
        now = self._system.wall_time()
        due_at = self._lifetime.due_at if self._lifetime is not None else now
        return max(due_at, self._retry_at) - now if max(due_at, self._retry_at) > now else 0.0

    def _perform(self, step: TokenStep) -> None:
        client = self._connect(self._config)
        try:
            deadline = client.deadline()
            if step is not TokenStep.RENEW or not self._renew(client, deadline):
                self._create(client, deadline)
        except KafkaDirectError as error:
            self._failed(error)
        else:
            self._failures, self._retry_at = 0, 0.0
            self._publish(self._config.cluster, TokenState(self._token))
        finally:
            client.pool.close()

    def _create(self, client: ClusterClient, deadline: Deadline) -> None:
        now = self._system.wall_time()  # before the broker's, so that the token is renewed rather too early
        created = create_delegation_token(client, deadline)
        self._lifetime = TokenLifetime.created(created.issued_ms, created.expires_ms, created.ends_ms, now)
        serial = 1 if self._token is None else self._token.serial + 1
        self._token = DelegationToken(serial, created.id, created.hmac, self._lifetime.expires_at)
        _log.info("created a delegation token for spark.kafka.clusters.%s", self.name)

    def _renew(self, client: ClusterClient, deadline: Deadline) -> bool:
        """Renew the token; return False if the brokers do not have it any more."""
        assert self._token is not None
        assert self._lifetime is not None
        try:
            expires_ms = renew_delegation_token(client, self._token.hmac, deadline)
        except TransientBrokerError:
            raise
        except BrokerError as error:
            _log.info("a new delegation token replaces that of spark.kafka.clusters.%s: %s", self.name, error)
            return False
        self._lifetime = self._lifetime.renewed(expires_ms, self._system.wall_time())
        token = self._token
        self._token = DelegationToken(token.serial, token.id, token.hmac, self._lifetime.expires_at)
        _log.info("renewed the delegation token of spark.kafka.clusters.%s", self.name)
        return True

    def _failed(self, error: KafkaDirectError) -> None:
        pause = min(_FIRST_RETRY_SECONDS * 2.0 ** min(self._failures, 16), _MAX_RETRY_SECONDS)
        self._retry_at = self._system.wall_time() + pause
        _log.log(
            logging.INFO if self._failures else logging.WARNING,
            "cannot obtain a delegation token for spark.kafka.clusters.%s; the driver retries: %s",
            self.name,
            error,
        )
        self._failures += 1
        is_final = not isinstance(error, TransientBrokerError)
        self._publish(self._config.cluster, TokenState(self._token, str(error), is_final))


def _new_client(config: TokenClusterConfig) -> ClusterClient:
    # With connections of its own: each attempt logs in again, and nothing else uses them.
    return ClusterClient(config.connection, pool=ConnectionPool(SYSTEM))
