"""Connections, and producer ids, that outlive a task: one pool per process.

Spark re-uses its Python workers, so a connection made for one micro-batch serves the next, and so does a producer id:
brokers remember each for a day. The pool is the only thing
in this room that is global.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import BrokerTimeoutError, TransientBrokerError
from pyspark_kafka_direct.wire._idle_producers import IdleProducers
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.system import SYSTEM, jittered

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import System

# Idle connections kept. A worker runs one task at a time, so one per broker is usual; a driver plans several queries in
# threads. Lent connections are not limited: a task that needs one must not wait for another task.
_IDLE_PER_BROKER = 4
_IDLE = 64


class _Key(NamedTuple):
    settings: ConnectionSettings
    host: str
    port: int


class _Failures(NamedTuple):
    connects: int  # failed ones in a row; none where only a request went unanswered
    last: float


_NO_FAILURES = _Failures(0, 0.0)


class ConnectionPool:
    """Idle connections by settings and broker, newest used first. Safe to use from several threads.

    It also knows which addresses failed, and when: so one task learns from another which broker to ask last.

    Attributes:
        system: Where the brokers are; connections are made there.
        rotation: Which of the known brokers a process asks first, as a part of them. Another one in each process
            spreads the load, and always the same one in a process lets its connection be used again.
        producers: Producer ids that nobody uses now.
    """

    def __init__(self, system: System = SYSTEM) -> None:
        self.system = system
        self.rotation = system.random()
        self.producers = IdleProducers()
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, tuple[_Key, Connection]] = OrderedDict()  # oldest use first
        self._failures: dict[tuple[str, int], _Failures] = {}
        self._closed = False

    def borrow(self, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> Connection:
        """Return a connection that was alive a moment ago, or a new one.

        Raises:
            BrokerError: As ``Connection.open``.
        """
        key = _Key(settings, host, port)
        while (connection := self._take(key)) is not None:
            if self._is_alive(connection):
                return connection
            connection.close()
        return self._open(key, deadline)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next one who needs it; one that is broken, or awaits an answer, is closed.

        So is any, once the pool is closed: who borrowed it may be a thread that was left behind.

        If an answer did not come in time, all idle connections to that broker go: they look alive, and nobody should
        wait on each of them in turn.
        """
        address = (connection.host, connection.port)
        if connection.timed_out:
            self._failures[address] = _Failures(self._failures_of(address).connects, self.system.monotonic())
            self._close_idle(address)
        if not connection.idle:
            connection.close()
            return
        if self._failures_of(address).last < connection.last_used:
            self._failures.pop(address, None)
        key = _Key(connection.settings, *address)
        connection.last_used = self.system.monotonic()
        with self._lock:
            dropped = [connection] if self._closed else self._keep(key, connection)
        for old in dropped:
            old.close()

    def failed_at(self, address: tuple[str, int]) -> float:
        """Return when a connection or request to a broker failed last (monotonic time); 0 if it answered since."""
        return self._failures_of(address).last

    def close(self) -> None:
        """Clear the pool for good: it keeps no connection any more, those that are lent now included."""
        with self._lock:
            self._closed = True
        self.clear()

    def clear(self) -> None:
        """Close all idle connections, and forget the failures and the producer ids."""
        self.producers = IdleProducers()
        with self._lock:
            idle = [connection for _, connection in self._idle.values()]
            self._idle.clear()
            self._failures.clear()
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """Start over in a forked child: the sockets are the parent's connections, and the lock may be held."""
        inherited = self._idle
        self.__init__(self.system)  # type: ignore[misc]
        for _, connection in inherited.values():
            connection.close()  # closes the child's descriptor; the parent's connection lives on

    def _take(self, key: _Key) -> Connection | None:
        with self._lock:
            expired = self._take_expired()
            found = next((number for number, (other, _) in reversed(self._idle.items()) if other == key), None)
            connection = None if found is None else self._idle.pop(found)[1]
        for old in expired:
            old.close()
        return connection

    def _keep(self, key: _Key, connection: Connection) -> list[Connection]:
        """Make a connection the newest idle one, and return those that are to be closed for it."""
        self._idle[id(connection)] = (key, connection)
        same = [number for number, (other, _) in self._idle.items() if other == key]
        surplus = same[: max(0, len(same) - _IDLE_PER_BROKER)]
        dropped = [self._idle.pop(number)[1] for number in surplus]
        while len(self._idle) > _IDLE:
            dropped.append(self._idle.popitem(last=False)[1][1])
        return dropped + self._take_expired()

    def _failures_of(self, address: tuple[str, int]) -> _Failures:
        return self._failures.get(address, _NO_FAILURES)

    def _close_idle(self, address: tuple[str, int]) -> None:
        with self._lock:
            numbers = [number for number, (key, _) in self._idle.items() if (key.host, key.port) == address]
            silent = [self._idle.pop(number)[1] for number in numbers]
        for connection in silent:
            connection.close()

    def _take_expired(self) -> list[Connection]:
        now = self.system.monotonic()
        expired = [number for number, (key, connection) in self._idle.items() if _is_expired(key, connection, now)]
        return [self._idle.pop(number)[1] for number in expired]

    def _open(self, key: _Key, deadline: Deadline) -> Connection:
        settings, address = key.settings, (key.host, key.port)
        failures = self._failures_of(address)
        allowed = settings.connect_timeout_ms
        if failures.connects:
            self._wait_before_reconnecting(settings, failures, deadline)
            growing = settings.connect_timeout_ms << min(failures.connects, 16)
            allowed = max(allowed, min(growing, settings.connect_timeout_max_ms))
        try:
            connection = Connection.open(settings, *address, deadline.sooner(allowed / 1000))
        except TransientBrokerError as error:
            self._failures[address] = _Failures(failures.connects + 1, self.system.monotonic())
            if isinstance(error, BrokerTimeoutError):
                self._close_idle(address)  # as after a request: see give_back
            raise
        self._failures.pop(address, None)
        return connection

    def _is_alive(self, connection: Connection) -> bool:
        # Nothing is due on an idle connection, so a readable socket means the broker closed it (or is out of step).
        descriptor = connection.fileno()
        return descriptor >= 0 and not self.system.readable(descriptor)

    def _wait_before_reconnecting(self, settings: ConnectionSettings, failures: _Failures, deadline: Deadline) -> None:
        backoff = settings.reconnect_backoff_ms << min(failures.connects - 1, 16)
        # Jitter keeps the tasks of a cluster from knocking at a restarted broker all at once (KIP-144).
        pause = jittered(min(backoff, settings.reconnect_backoff_max_ms) / 1000, self.system)
        left = failures.last + pause - self.system.monotonic()
        if left > 0:
            self.system.sleep(min(left, deadline.remaining()))


POOL = ConnectionPool()
os.register_at_fork(after_in_child=POOL.after_fork)


def _is_expired(key: _Key, connection: Connection, now: float) -> bool:
    limit = key.settings.connections_max_idle_ms
    return limit >= 0 and now - connection.last_used > limit / 1000
