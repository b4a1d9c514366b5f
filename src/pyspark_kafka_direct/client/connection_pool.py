"""Connections and producer ids that outlive a task: one pool per process, the only global state of this package.

A direct stream has a pool of its own on the driver, which is closed when the stream stops.

Spark reuses its Python workers, so a connection made for one micro-batch serves the next. So does a producer id, which
brokers retain for a day.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from pyspark_kafka_direct.client.connection import ANY_BROKER, Connection
from pyspark_kafka_direct.client.deadline import Backoff
from pyspark_kafka_direct.client.producer_state import IdleProducerPool
from pyspark_kafka_direct.client.system import SYSTEM, after_fork
from pyspark_kafka_direct.errors import BrokerTimeoutError, TransientBrokerError

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.connection import BrokerIdentity
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.settings import ConnectionSettings

# Limits of idle connections. A worker runs one task at a time, so one per broker is usual; a driver plans several
# queries in threads. Acquired connections are not limited: a task must not wait for another task's connection.
_MAX_IDLE_PER_BROKER = 4
_MAX_IDLE = 64

_MAX_FAILED_BROKERS = 1000  # replaced brokers never respond again


class _PoolKey(NamedTuple):
    settings: ConnectionSettings
    host: str
    port: int


class _IdleConnection(NamedTuple):
    key: _PoolKey
    connection: Connection
    idle_since: float  # monotonic time of its release

    def is_expired(self, now: float) -> bool:
        limit_ms = self.key.settings.connections_max_idle_ms
        return limit_ms >= 0 and now - self.idle_since > limit_ms / 1000


class _BrokerFailures(NamedTuple):
    failed_connects: int  # in a row; 0 if only a request timed out
    last_at: float  # monotonic time of the last failure
    timed_out_at: float  # monotonic time of the last timeout; 0 if there was none


_NO_FAILURES = _BrokerFailures(failed_connects=0, last_at=0.0, timed_out_at=0.0)


_pools: WeakSet[ConnectionPool] = WeakSet()


class ConnectionPool:
    """Idle connections by settings and broker, most recently used first, and failures by address; thread-safe."""

    def __init__(self, system: System = SYSTEM) -> None:
        self.system = system
        # Which known broker this process calls first, as a fraction of them: different processes spread the load, and
        # one process reuses its connection.
        self.rotation = system.random()
        self.idle_producers = IdleProducerPool(system)
        self._lock = system.lock()
        self._idle: OrderedDict[int, _IdleConnection] = OrderedDict()  # by id(connection), longest idle first
        self._failures: dict[tuple[str, int], _BrokerFailures] = {}  # by address, the earliest failure first
        self._closed = False
        _pools.add(self)

    def acquire(
        self,
        settings: ConnectionSettings,
        host: str,
        port: int,
        deadline: Deadline,
        identity: BrokerIdentity = ANY_BROKER,
    ) -> Connection:
        """Return an idle connection that is still open, or a new one, to the broker of this identity."""
        connection = self._acquire(_PoolKey(settings, host, port), deadline)
        try:
            connection.expect(identity, deadline)
        except BaseException:
            self.release(connection)
            raise
        return connection

    def _acquire(self, key: _PoolKey, deadline: Deadline) -> Connection:
        while (connection := self._take_idle(key)) is not None:
            if self._is_alive(connection) and not connection.certificates_changed:
                return connection
            connection.close()
        return self._open(key, deadline)

    def release(self, connection: Connection) -> None:
        """Retain a connection for reuse; close it if it is broken or has an outstanding response."""
        address = (connection.host, connection.port)
        # Close all idle connections to the broker: they look open, but would fail one by one.
        if connection.timed_out or connection.is_foreign:
            failed_connects = self._failures_of(address).failed_connects  # connecting did not fail
            self._add_failure(address, failed_connects, is_timeout=True)
            self._close_idle(address)
        failures = self._failures_of(address)
        # A connection that was in use during a timeout is closed as idle ones are, unless the broker has responded.
        was_in_use_at_timeout = connection.last_response_at < failures.timed_out_at
        if not connection.idle or was_in_use_at_timeout or connection.certificates_changed:
            connection.close()
            return
        # If the broker has responded since its last failure, it works again.
        if connection.last_response_at > failures.last_at:
            self._forget_failures(address)
        key = _PoolKey(connection.settings, *address)
        connection.release_buffer()
        idle = _IdleConnection(key, connection, self.system.monotonic())
        with self._lock:
            surplus = [connection] if self._closed else self._add_idle(idle)
        for surplus_connection in surplus:
            surplus_connection.close()

    def last_failure_time(self, address: tuple[str, int]) -> float:
        """Return when a connection or request to a broker last failed (monotonic); 0 if it responded since."""
        return self._failures_of(address).last_at

    def close(self) -> None:
        """Clear the pool permanently: connections that are released later are closed."""
        with self._lock:
            self._closed = True
        self.clear()

    def clear(self) -> None:
        """Close all idle connections, and drop the failures and the producer ids."""
        self.idle_producers = IdleProducerPool(self.system)
        with self._lock:
            connections = [idle.connection for idle in self._idle.values()]
            self._idle.clear()
            self._failures.clear()
        for connection in connections:
            connection.close()

    def after_fork(self) -> None:
        """Reset the pool in a forked child: the sockets are the parent's, and the lock may be held."""
        inherited = self._idle
        self.__init__(self.system)  # type: ignore[misc]
        for idle in inherited.values():
            idle.connection.close()  # closes the child's descriptor only

    def _take_idle(self, key: _PoolKey) -> Connection | None:
        with self._lock:
            expired = self._take_expired()
            newest_id = next((idle_id for idle_id, idle in reversed(self._idle.items()) if idle.key == key), None)
            connection = None if newest_id is None else self._idle.pop(newest_id).connection
        for expired_connection in expired:
            expired_connection.close()
        return connection

    def _add_idle(self, newest: _IdleConnection) -> list[Connection]:
        """Add the newest idle connection, and return the surplus connections, to be closed."""
        self._idle[id(newest.connection)] = newest
        ids_of_key = [idle_id for idle_id, idle in self._idle.items() if idle.key == newest.key]
        surplus = [self._idle.pop(idle_id).connection for idle_id in ids_of_key[:-_MAX_IDLE_PER_BROKER]]
        while len(self._idle) > _MAX_IDLE:
            _, longest_idle = self._idle.popitem(last=False)
            surplus.append(longest_idle.connection)
        return surplus + self._take_expired()

    def _failures_of(self, address: tuple[str, int]) -> _BrokerFailures:
        return self._failures.get(address, _NO_FAILURES)

    def _add_failure(self, address: tuple[str, int], failed_connects: int, *, is_timeout: bool) -> None:
        now = self.system.monotonic()
        with self._lock:
            earlier = self._failures.pop(address, _NO_FAILURES)  # removed, so that this address becomes the latest
            timed_out_at = now if is_timeout else earlier.timed_out_at
            self._failures[address] = _BrokerFailures(failed_connects, now, timed_out_at)
            if len(self._failures) > _MAX_FAILED_BROKERS:
                del self._failures[next(iter(self._failures))]  # the earliest

    def _forget_failures(self, address: tuple[str, int]) -> None:
        with self._lock:
            failures = self._failures.pop(address, _NO_FAILURES)
            if failures.timed_out_at:  # `release` still needs the time for the connections that were in use then
                self._failures[address] = _NO_FAILURES._replace(timed_out_at=failures.timed_out_at)

    def _close_idle(self, address: tuple[str, int]) -> None:
        """Close the idle connections to a broker that has timed out, or that belongs to another cluster."""
        with self._lock:
            idle_ids = [idle_id for idle_id, idle in self._idle.items() if (idle.key.host, idle.key.port) == address]
            connections = [self._idle.pop(idle_id).connection for idle_id in idle_ids]
        for connection in connections:
            connection.close()

    def _take_expired(self) -> list[Connection]:
        now = self.system.monotonic()
        expired_ids = [idle_id for idle_id, idle in self._idle.items() if idle.is_expired(now)]
        return [self._idle.pop(idle_id).connection for idle_id in expired_ids]

    def _open(self, key: _PoolKey, deadline: Deadline) -> Connection:
        settings = key.settings
        address = (key.host, key.port)
        failures = self._failures_of(address)
        timeout_ms: float = settings.connect_timeout_ms
        if failures.failed_connects:
            self._wait_before_reconnecting(settings, failures, deadline)
            # As in Java's client, the timeout doubles with each failed connect (KIP-601).
            maximum_ms = max(timeout_ms, settings.connect_timeout_max_ms)
            timeout_ms = Backoff(timeout_ms, maximum_ms).without_jitter(failures.failed_connects)
        try:
            connection = Connection.open(settings, *address, deadline.limited_to(timeout_ms / 1000))
        except TransientBrokerError as error:
            if deadline.cancelled:  # the broker had no time to respond
                raise
            is_timeout = isinstance(error, BrokerTimeoutError) and not error.before_login
            self._add_failure(address, failures.failed_connects + 1, is_timeout=is_timeout)
            if is_timeout:
                self._close_idle(address)  # they would time out too
            raise
        self._forget_failures(address)
        return connection

    def _is_alive(self, connection: Connection) -> bool:
        # No response is outstanding, so a readable socket means that the broker closed the connection.
        descriptor = connection.fileno()
        return descriptor >= 0 and not self.system.readable(descriptor)

    def _wait_before_reconnecting(
        self, settings: ConnectionSettings, failures: _BrokerFailures, deadline: Deadline
    ) -> None:
        # Jitter prevents all tasks of a cluster from connecting to a restarted broker at once (KIP-144).
        backoff = Backoff(settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000)
        pause = backoff.pause(failures.failed_connects - 1, self.system)
        remaining = failures.last_at + pause - self.system.monotonic()
        if remaining > 0:
            # Half of the time remains: a connect without time would fail, and prolong the backoff of a healthy broker.
            self.system.sleep(min(remaining, deadline.remaining() / 2))


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


POOL = ConnectionPool()
after_fork(_after_fork)
