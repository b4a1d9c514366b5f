"""Obtains the delegation tokens of an application, in the process that has its ``SparkContext``.

All queries of the application use the same token for a cluster of ``spark.kafka.clusters.*``. A thread for each cluster
creates it with the login of the configuration, renews it, and replaces it by a new one in time
(``planning/token_renewal.py``). Each change goes into the file of ``spark/token_file.py``. The threads end when Spark
deletes its folder with the application. The last tokens expire later.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.delegation_tokens import (
    LostTokenError,
    create_delegation_token,
    renew_delegation_token,
)
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import KafkaDirectError, TransientBrokerError
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.security_settings import DelegationToken, TokenState
from pyspark_kafka_direct.options.token_cluster_parser import parse_token_clusters
from pyspark_kafka_direct.planning.token_renewal import TokenLifetime
from pyspark_kafka_direct.spark.listener_files import application_folder
from pyspark_kafka_direct.spark.token_file import TOKEN_FOLDER_NAME, token_file

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
_MIN_PAUSE_SECONDS: Final = 0.1
_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 60.0

_lock = SYSTEM.lock()
_known_folders: set[Path] = set()  # of applications whose configuration was read; they exist if there are tokens


def start_delegation_tokens(context: object) -> tuple[TokenCluster, ...]:
    """Obtain the tokens that the Spark configuration asks for; return their clusters. Further calls only return them.

    Args:
        context: The ``SparkContext``; for others, there are no tokens.

    Raises:
        OptionError: A property ``spark.kafka.clusters.*`` is invalid.
    """
    import pyspark

    if not isinstance(context, pyspark.SparkContext):
        return ()
    folder = application_folder(TOKEN_FOLDER_NAME)
    with _lock:
        if folder not in _known_folders:
            _read_configuration(context, folder)
            _known_folders.add(folder)
    return token_file(folder).clusters()


def _read_configuration(context: SparkContext, folder: Path) -> None:
    """Start to obtain the tokens of an application, if its configuration asks for some."""
    warnings: list[str] = []
    configs = parse_token_clusters(dict(context.getConf().getAll()), SYSTEM.nonce(), warnings)
    for warning in warnings:
        warn_once(warning)
    if configs:
        folder.mkdir(mode=0o700, exist_ok=True)
        ApplicationTokens(folder, configs, SYSTEM).start()


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
        self._clusters = [
            ClusterToken(config, self._publish, system, connect or _new_client, self._last_serial(config.cluster))
            for config in configs
        ]
        self._system = system

    def _last_serial(self, cluster: TokenCluster) -> int:
        """Return the serial of another process that had the SparkContext before, such as that of a notebook."""
        token = self._file.state(cluster.login.cluster).token
        return 0 if token is None else token.serial

    def start(self) -> None:
        """Write the file, so that planners find the clusters, and start the threads."""
        with self._lock:
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
                self._system.sleep(_MAX_RETRY_SECONDS)
            else:
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
    """The tokens of one cluster, in their thread."""

    def __init__(
        self,
        config: TokenClusterConfig,
        publish: Callable[[TokenCluster, TokenState], None],
        system: System,
        connect: Callable[[TokenClusterConfig], ClusterClient],
        last_serial: int = 0,
    ) -> None:
        self.name = config.cluster.login.cluster
        self._config = config
        self._publish = publish
        self._system = system
        self._connect = connect
        self._serial = last_serial
        self._tokens: dict[DelegationToken, TokenLifetime] = {}  # that are valid; the newest one comes last
        self._failures = 0  # in a row
        self._retry_at = 0.0  # seconds since 1970

    def run_once(self) -> float:
        """Create and renew tokens if that is due; return the seconds until the next step."""
        now = self._system.wall_time()
        if any(now >= lifetime.expires_at for lifetime in self._tokens.values()):
            self._tokens = {token: lifetime for token, lifetime in self._tokens.items() if now < lifetime.expires_at}
        if now >= self._next_step_at():
            client = self._connect(self._config)
            try:
                self._perform_steps(client, client.deadline())
            except KafkaDirectError as error:
                self._failed(error)
            else:
                self._failures, self._retry_at = 0, 0.0
                self._publish(self._config.cluster, TokenState(self._newest))
            finally:
                client.pool.close()
        return max(self._next_step_at() - self._system.wall_time(), _MIN_PAUSE_SECONDS)

    @property
    def _newest(self) -> DelegationToken | None:
        return next(reversed(self._tokens), None)

    def _next_step_at(self) -> float:
        lifetimes = list(self._tokens.values())  # without a lookup by token, whose hash takes longer than all the rest
        steps = [lifetime.renew_at for lifetime in lifetimes]
        steps.append(lifetimes[-1].replace_at if lifetimes else 0.0)
        is_retry_soon = self._retry_at <= self._system.wall_time() + _MAX_RETRY_SECONDS  # else the clock was set back
        return max(min(steps), self._retry_at if is_retry_soon else 0.0)

    def _perform_steps(self, client: ClusterClient, deadline: Deadline) -> None:
        """Perform what is due now; if some of it fails, raise the first error at the end."""
        now = self._system.wall_time()
        newest = self._newest
        steps: list[Callable[[ClusterClient, Deadline], None]] = []
        # First the new token: queries may need it, and only tasks that run already need the others.
        if newest is None or now >= self._tokens[newest].replace_at:
            steps.append(self._create)
        due = [token for token, lifetime in self._tokens.items() if now >= lifetime.renew_at]
        steps += [functools.partial(self._renew, token) for token in due]
        errors: list[KafkaDirectError] = []
        for step in steps:
            try:
                step(client, deadline)
            except KafkaDirectError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _create(self, client: ClusterClient, deadline: Deadline) -> None:
        now = self._system.wall_time()  # before the broker's, so that the token is renewed rather too early
        created = create_delegation_token(client, deadline)
        lifetime = TokenLifetime.created(created.issued_ms, created.expires_ms, created.ends_ms, now)
        self._serial += 1
        self._tokens[DelegationToken(self._serial, created.id, created.hmac, lifetime.expires_at)] = lifetime
        _log.info("created the delegation token %d of spark.kafka.clusters.%s", self._serial, self.name)

    def _renew(self, token: DelegationToken, client: ClusterClient, deadline: Deadline) -> None:
        """Renew a token, or replace it if it is lost. After other errors it stays valid, and the driver tries again."""
        try:
            expires_ms = renew_delegation_token(client, token.hmac, deadline)
        except LostTokenError as error:
            _log.warning("cannot renew the delegation token of spark.kafka.clusters.%s: %s", self.name, error)
            del self._tokens[token]
            if not self._tokens:
                self._create(client, deadline)
            return
        lifetime = self._tokens[token].renewed(expires_ms, self._system.wall_time())
        renewed = dataclasses.replace(token, expires_at=lifetime.expires_at)
        self._tokens = {
            renewed if each == token else each: lifetime if each == token else other
            for each, other in self._tokens.items()
        }
        _log.info("renewed the delegation token %d of spark.kafka.clusters.%s", token.serial, self.name)

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
        self._publish(self._config.cluster, TokenState(self._newest, str(error), is_final))


def _new_client(config: TokenClusterConfig) -> ClusterClient:
    # With separate connections: each attempt logs in again, and nothing else uses them.
    return ClusterClient(config.connection, pool=ConnectionPool(SYSTEM))
