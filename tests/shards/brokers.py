"""Brokers that all shards share. ``python -m tests.shards`` starts each of them when the first shard requests it.

A shard that ``make shard-plain`` or pytest runs alone starts its own brokers with the same configuration.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.broker import Certificates, Credentials, EmbeddedKafka
from pyspark_kafka_direct.broker.node_config import DEFAULT_USERS

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = "PYSPARK_KAFKA_DIRECT_SHARED_BROKERS"
"""The variable of the environment with ``host:port`` where shards request brokers."""

SESSION = 4.0
"""Seconds that a session over SASL_PLAINTEXT lasts at the broker ``secured``.

It is renewed after 85%: a request sent just before may take up to the remaining time, which a busy machine needs.
"""

CAROL = Credentials("carol", "hush-Xq7/right")  # her password is searched for in all that Spark shows

_SECURED = {
    **{
        f"listener.name.sasl_plaintext.{mechanism}.connections.max.reauth.ms": str(int(SESSION * 1000))
        for mechanism in ("plain", "scram-sha-256", "oauthbearer")
    },
    # So that one mechanism is enabled on one listener only.
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    # A quota applies to the rate of 4 to 8 s.
    "quota.window.num": "2",
    "quota.window.size.seconds": "4",
    "auto.create.topics.enable": "true",
    # Brokers expire a transactional id after a week without use.
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

FEW_THREADS = {"num.network.threads": "1", "num.io.threads": "2"}
"""Properties of a broker with few clients. The threads of a listener take CPU time while they wait for requests."""

_RARE_HEARTBEATS = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "18000"}  # it has no followers
_SHARED = FEW_THREADS | _RARE_HEARTBEATS

# ``make newest`` sets the newest release of Kafka, whose jars have no known checksums.
_NEWEST = os.environ.get("PYSPARK_KAFKA_DIRECT_TEST_KAFKA")
_VERSION: dict[str, Any] = {"version": _NEWEST, "verify_jars": False} if _NEWEST else {}

_START_TIMEOUT = 900.0  # seconds; a start takes five, but on a busy machine it has taken four minutes

KINDS: dict[str, dict[str, Any]] = {
    "plain": {**_VERSION, "properties": _SHARED},
    "3.9": {
        "version": "3.9.2",
        "security": ("MTLS", "SASL_SSL"),
        "properties": {**_SHARED, "default.replication.factor": "3"},  # more than it has brokers
    },
    "secured": {
        **_VERSION,
        "security": ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL"),
        "users": (*DEFAULT_USERS, CAROL),
        "authorizer": True,
        "properties": _SHARED | _SECURED,
    },
}
"""The arguments of ``EmbeddedKafka`` for each shared broker."""

SHARED_SERVERS: set[str] = set()
"""The addresses of the shared brokers that this process uses. No test stops them."""

_HEAP = "1g"
_REQUEST_TIMEOUT = _START_TIMEOUT + 300  # seconds; the first start downloads Kafka


def new_kafka(**arguments: Any) -> EmbeddedKafka:
    """Return an ``EmbeddedKafka`` for a test: it has more time to start."""
    return EmbeddedKafka(**{"start_timeout": _START_TIMEOUT, **arguments})


class SharedBrokers:
    """Starts brokers on request, until it is closed."""

    def __init__(self) -> None:
        self._server = _Server(self)
        host, port = self._server.server_address[:2]
        self.address = f"{host!s}:{port}"
        self._locks = {kind: threading.Lock() for kind in KINDS}
        self._brokers: dict[str, EmbeddedKafka] = {}
        self._closed = False
        self._reported: set[str] = set()
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def describe(self, kind: str) -> dict[str, Any]:
        """Return what ``SharedBroker`` requires. The first call for a kind starts the broker."""
        with self._locks[kind]:
            if self._closed:
                return {"error": "the shards have ended"}
            try:
                if kind not in self._brokers:
                    self._brokers[kind] = new_kafka(**{"heap": _HEAP, **KINDS[kind]}).start()
                return _description(self._brokers[kind], KINDS[kind].get("security", ()))
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}

    def newly_exited(self) -> list[tuple[str, str]]:
        """Return the kind and the last lines of the log of each broker that has exited since the last call."""
        exited = {kind: kafka for kind, kafka in self._brokers.copy().items() if not kafka.is_alive(1)}
        found = [(kind, log_end(kafka)) for kind, kafka in exited.items() if kind not in self._reported]
        self._reported.update(exited)
        return found

    def copy_logs(self, folder: Path) -> None:
        """Copy the brokers' logs, which are removed with the brokers."""
        for kind, kafka in self._brokers.copy().items():
            shutil.copy(kafka.log_file(), folder / f"broker-{kind}.log")

    def close(self) -> None:
        """Stop all brokers, also one that is being started."""
        self._closed = True
        self._server.shutdown()
        self._server.server_close()
        for kind, lock in self._locks.items():
            with lock:
                if kind in self._brokers:
                    self._brokers.pop(kind).close()


class SharedBroker(EmbeddedKafka):
    """A broker that ``SharedBrokers`` started in another process. It cannot be stopped here."""

    def __init__(self, kind: str, description: dict[str, Any]) -> None:
        self._listeners: dict[str, str] = description["listeners"]
        self._description = description
        users = {"users": KINDS[kind]["users"]} if "users" in KINDS[kind] else {}
        super().__init__(external=self._listeners["PLAINTEXT"], **users)

    def listener(self, name: str) -> str:
        """Return ``host:port`` of a listener."""
        return self._listeners[name]

    @property
    def certificates(self) -> Certificates:
        """The certificates and keys."""
        return Certificates(Path(self._description["certificates"]))

    def is_alive(self, node: int) -> bool:
        """Return whether the broker's process is running."""
        assert node == 1
        try:
            os.kill(self._description["pid"], 0)
        except ProcessLookupError:
            return False
        return True

    def log_file(self, node: int = 1) -> Path:
        """Return the path of the broker's log file."""
        assert node == 1
        return Path(self._description["log"])


@contextlib.contextmanager
def shared_broker(kind: str) -> Iterator[EmbeddedKafka]:
    """The broker of this kind that all shards share, or one of this process if no other shards run."""
    address = os.environ.get(ADDRESS)
    if address is None:
        with new_kafka(**KINDS[kind]) as kafka:
            SHARED_SERVERS.add(kafka.bootstrap_servers)
            yield kafka
    else:
        shared = SharedBroker(kind, _request(address, kind))
        SHARED_SERVERS.add(shared.bootstrap_servers)
        yield shared


def log_end(kafka: EmbeddedKafka, node: int = 1) -> str:
    """Return the last lines of a broker's log."""
    return "\n".join(kafka.log_file(node).read_text(errors="replace").splitlines()[-60:])


class _Server(socketserver.ThreadingTCPServer):
    """Reads a kind, and responds with the description of the broker as JSON; each in a line."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, brokers: SharedBrokers) -> None:
        self.brokers = brokers
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        kind = self.rfile.readline().decode().strip()
        self.wfile.write(json.dumps(self.server.brokers.describe(kind)).encode())


def _request(address: str, kind: str) -> dict[str, Any]:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), _REQUEST_TIMEOUT) as connection, connection.makefile("rb") as file:
        connection.sendall(f"{kind}\n".encode())
        description: dict[str, Any] = json.loads(file.read())
    if "error" in description:
        raise RuntimeError(f"The broker {kind!r} that all shards share did not start: {description['error']}")
    return description


def _description(kafka: EmbeddedKafka, security: tuple[str, ...]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "listeners": {name: kafka.listener(name) for name in ("PLAINTEXT", *security)},
        "log": str(kafka.log_file()),
        "pid": kafka.pids.get(1, 0),
    }
    if any(name != "SASL_PLAINTEXT" for name in security):
        described["certificates"] = str(kafka.certificates.folder)
    return described
