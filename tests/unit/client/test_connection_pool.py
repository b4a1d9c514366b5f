"""The connection pool: reuse, closing, limits, and forks."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.pooled_connections import pooled_connection
from tests.unit.client.fake_systems import FakeTimeSystem, NoSleepSystem

from pyspark_kafka_direct.client import connection_pool as pool_module
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = ConnectionSettings((("broker", 9092),))


class Brokers:
    """Opens connections to socket pairs, whose other ends it retains."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []
        self.timeouts: list[float] = []
        self.connections: list[Connection] = []  # retained, so that no two connections share an id
        self.broker_sockets: dict[int, socket.socket] = {}
        self.down = False
        self.unresponsive = False

    def open(self, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> Connection:
        self.opened.append((host, port))
        self.timeouts.append(deadline.remaining())
        if self.down:
            raise BrokerUnreachableError("down", broker=f"{host}:{port}")
        if self.unresponsive:
            raise BrokerTimeoutError("no response", broker=f"{host}:{port}")
        near, far = socket.socketpair()
        connection = Connection(settings, near, host, port)
        self.connections.append(connection)
        self.broker_sockets[id(connection)] = far
        return connection

    def close_from_broker(self, connection: Connection) -> None:
        self.broker_sockets[id(connection)].close()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    brokers = Brokers()
    monkeypatch.setattr(Connection, "open", brokers.open)
    yield brokers
    for far in brokers.broker_sockets.values():
        far.close()


@pytest.fixture
def pool(brokers: Brokers) -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    pool.close()


def acquire(
    pool: ConnectionPool, settings: ConnectionSettings = SETTINGS, host: str = "broker", port: int = 9092
) -> Connection:
    return pool.acquire(settings, host, port, Deadline.after(120))


def test_connection_is_reused(pool: ConnectionPool, brokers: Brokers) -> None:
    first = acquire(pool)
    pool.release(first)
    assert acquire(pool) is first
    assert len(brokers.opened) == 1
    pool.release(first)


def test_idle_connections_hold_no_fetch_buffers(pool: ConnectionPool, brokers: Brokers) -> None:
    connections = [acquire(pool, host=f"broker-{number}") for number in range(20)]
    responses = [fetch(brokers, connection, 8 << 20) for connection in connections]
    assert all(held_bytes(connection) >= 8 << 20 for connection in connections)
    buffer = responses[0].obj
    assert fetch(brokers, connections[0], 8 << 20).obj is buffer, "reused between the fetches of a range"
    for connection in connections:
        pool.release(connection)
    assert sum(map(held_bytes, connections)) <= 20 * (65 << 10)
    assert bytes(responses[0]) == bytes(8 << 20), "a response is still valid"
    assert acquire(pool, host="broker-0") is connections[0]
    assert bytes(fetch(brokers, connections[0], 8 << 20)) == bytes(8 << 20)
    pool.release(connections[0])


def fetch(brokers: Brokers, connection: Connection, size: int) -> memoryview:
    """Send a request, and return a response of this size."""
    connection.reserve_buffer(size)
    connection.send(1, 12, "Fetch", b"", flexible=True, deadline=Deadline.after(120))
    broker_socket = brokers.broker_sockets[id(connection)]
    request = broker_socket.recv(1 << 16)
    response = struct.pack(">i", size + 4) + request[8:12] + bytes(size)
    sender = threading.Thread(target=broker_socket.sendall, args=(response,))
    sender.start()
    try:
        return connection.receive(Deadline.after(120))
    finally:
        sender.join()


def held_bytes(connection: Connection) -> int:
    return sum(len(value) for value in vars(connection).values() if isinstance(value, bytes | bytearray))


def test_most_recently_used_connection_is_acquired_first(pool: ConnectionPool) -> None:
    one, two = acquire(pool), acquire(pool)
    pool.release(one)
    pool.release(two)
    assert acquire(pool) is two
    assert acquire(pool) is one
    pool.release(one)
    pool.release(two)


def test_acquired_connections_are_exclusive(pool: ConnectionPool) -> None:
    with pooled_connection(pool, SETTINGS, "broker", 9092, Deadline.after(120)) as one:
        other = acquire(pool)
        assert other is not one
        pool.release(other)


def test_other_settings_or_brokers_get_other_connections(pool: ConnectionPool) -> None:
    mine = acquire(pool)
    pool.release(mine)
    others = [
        acquire(pool, replace(SETTINGS, client_id="other")),
        acquire(pool, host="elsewhere"),
        acquire(pool, port=9093),
    ]
    assert mine not in others
    assert acquire(pool, replace(SETTINGS)) is mine  # equal settings, not the same object
    for connection in (*others, mine):
        pool.release(connection)


def test_connection_closed_by_broker_is_not_acquired(pool: ConnectionPool, brokers: Brokers) -> None:
    dead = acquire(pool)
    pool.release(dead)
    brokers.close_from_broker(dead)
    fresh = acquire(pool)
    assert fresh is not dead
    assert dead.closed
    pool.release(fresh)


def test_connection_with_unexpected_bytes_is_not_acquired(pool: ConnectionPool, brokers: Brokers) -> None:
    odd = acquire(pool)
    pool.release(odd)
    brokers.broker_sockets[id(odd)].sendall(b"?")
    fresh = acquire(pool)
    assert fresh is not odd
    pool.release(fresh)


def test_connection_with_outstanding_response_is_closed_on_release(pool: ConnectionPool) -> None:
    busy = acquire(pool)
    busy.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(120))
    pool.release(busy)
    assert busy.closed
    pool.release(busy)  # harmless
    fresh = acquire(pool)
    assert fresh is not busy
    pool.release(fresh)


def test_error_while_acquired_closes_the_connection(pool: ConnectionPool) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        pooled_connection(pool, SETTINGS, "broker", 9092, Deadline.after(120)) as connection,
    ):
        raise ZeroDivisionError
    assert connection.closed


def test_idle_connections_are_limited(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> None:
    monkeypatch.setattr(pool_module, "_MAX_IDLE", 6)
    same = [acquire(pool) for _ in range(6)]
    for connection in same:
        pool.release(connection)
    assert [connection.closed for connection in same] == [True, True, False, False, False, False]
    others = [acquire(pool, host=f"broker-{number}") for number in range(4)]
    for connection in others:
        pool.release(connection)
    assert not any(connection.closed for connection in others)
    assert sum(not connection.closed for connection in same) == 2


def test_connections_unused_for_too_long_are_closed(brokers: Brokers) -> None:
    system = FakeTimeSystem()
    pool = ConnectionPool(system)
    short = replace(SETTINGS, connections_max_idle_ms=1)
    forever = replace(SETTINGS, connections_max_idle_ms=-1)
    old, kept = acquire(pool, short), acquire(pool, forever)
    pool.release(old)
    pool.release(kept)
    system.now += 1000
    pool.release(acquire(pool))  # any use of the pool closes expired connections
    assert old.closed
    assert not kept.closed
    pool.close()


def test_reconnects_to_failed_broker_back_off(brokers: Brokers) -> None:
    system = NoSleepSystem()
    pool, slept = ConnectionPool(system), system.slept
    settings = replace(
        SETTINGS,
        reconnect_backoff_ms=2000,  # longer than a busy machine takes between two tries
        reconnect_backoff_max_ms=8000,
        connect_timeout_ms=4000,
        connect_timeout_max_ms=12_000,
    )
    brokers.down = True
    for _ in range(5):
        with pytest.raises(BrokerUnreachableError):
            acquire(pool, settings)
    brokers.down = False
    pool.release(acquire(pool, settings))
    assert len(slept) == 5
    for pause, maximum in zip(slept, [2, 4, 8, 8, 8], strict=True):
        assert 0 < pause <= 1.2 * maximum
    # The connection timeout grows with the failures (KIP-601).
    assert [round(seconds / 4) for seconds in brokers.timeouts] == [1, 2, 3, 3, 3, 3]
    slept.clear()
    acquire(pool, settings, host="other").close()
    acquire(pool, settings).close()
    acquire(pool, settings).close()
    assert slept == []  # success resets the failures
    pool.close()


def test_backoff_leaves_time_to_connect(brokers: Brokers) -> None:
    """Otherwise a short deadline ends in the backoff, and the next one too, though the broker is up again."""
    system = FakeTimeSystem()
    pool = ConnectionPool(system)
    settings = replace(SETTINGS, reconnect_backoff_ms=10_000, reconnect_backoff_max_ms=10_000)
    brokers.down = True
    with pytest.raises(BrokerUnreachableError):
        acquire(pool, settings)
    brokers.down = False
    pool.release(pool.acquire(settings, "broker", 9092, Deadline.after(2, system=system)))
    assert brokers.timeouts[-1] == 1.0
    pool.close()


def test_connect_timeout_closes_idle_connections_of_broker(pool: ConnectionPool, brokers: Brokers) -> None:
    """They look open, but each would time out in turn."""
    mine, elsewhere = acquire(pool), acquire(pool, host="elsewhere")
    pool.release(mine)
    pool.release(elsewhere)
    brokers.down = True
    with pytest.raises(BrokerUnreachableError):
        acquire(pool, replace(SETTINGS, client_id="other"))
    assert not mine.closed  # one failed connection says little about the others
    brokers.down, brokers.unresponsive = False, True
    with pytest.raises(BrokerTimeoutError):
        acquire(pool, replace(SETTINGS, client_id="other"))
    assert mine.closed
    assert not elsewhere.closed
    assert pool.last_failure_time(("broker", 9092)) > 0.0 == pool.last_failure_time(("elsewhere", 9092))


def test_request_timeout_closes_idle_connections_of_broker(pool: ConnectionPool, brokers: Brokers) -> None:
    slow, mine = acquire(pool), acquire(pool)
    pool.release(mine)
    slow.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(120))
    with pytest.raises(BrokerTimeoutError):
        slow.receive(Deadline.after(0.01))
    pool.release(slow)
    assert mine.closed
    assert pool.last_failure_time(("broker", 9092)) > 0.0
    fresh = acquire(pool)  # without backoff: no connection attempt has failed
    assert pool.last_failure_time(("broker", 9092)) == 0.0
    pool.release(fresh)


def test_only_a_response_after_a_failure_clears_it(pool: ConnectionPool) -> None:
    unused, slow = acquire(pool), acquire(pool)
    slow.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(120))
    with pytest.raises(BrokerTimeoutError):
        slow.receive(Deadline.after(0.01))
    pool.release(slow)
    failed_at = pool.last_failure_time(("broker", 9092))
    for _ in range(2):  # the second time, it was released after the failure, but still without a response
        pool.release(unused)
        assert acquire(pool) is unused
    assert pool.last_failure_time(("broker", 9092)) == failed_at > 0.0
    pool.release(unused)


def test_the_failures_of_replaced_brokers_are_limited(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Kubernetes, a restarted broker may have another address each time."""
    monkeypatch.setattr(pool_module, "_MAX_FAILED_BROKERS", 3)
    system = FakeTimeSystem()
    pool = ConnectionPool(system)
    brokers.down = True

    def fail(host: str) -> None:
        system.now += 1
        with pytest.raises(BrokerUnreachableError):
            pool.acquire(SETTINGS, host, 9092, Deadline.after(60, system=system))

    for host in ("a", "b", "c", "a", "d"):
        fail(host)
    assert [host for host in "abcd" if pool.last_failure_time((host, 9092))] == ["a", "c", "d"]
    fail("e")
    assert [host for host in "abcde" if pool.last_failure_time((host, 9092))] == ["a", "d", "e"]


def test_many_threads_share_the_pool(pool: ConnectionPool) -> None:
    acquired: set[int] = set()
    acquired_twice: deque[int] = deque()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            connection = acquire(pool)
            with lock:
                if id(connection) in acquired:
                    acquired_twice.append(id(connection))
                acquired.add(id(connection))
            with lock:
                acquired.discard(id(connection))
            pool.release(connection)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not acquired_twice


def run_forking_process(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that may fork: brokers are fake, and ``mine`` is an acquired connection."""
    start = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_connection_pool import *
from pyspark_kafka_direct.client.connection_pool import POOL
brokers = Brokers()
Connection.open = brokers.open
mine = acquire(POOL)
"""
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=300)


def test_a_forked_child_starts_with_an_empty_pool() -> None:
    done = run_forking_process("""
POOL.release(mine)
POOL._lock.acquire()  # as if another thread of the parent held it during the fork
child = os.fork()
if child == 0:
    fresh = acquire(POOL)
    os._exit(0 if fresh is not mine and mine.closed and len(brokers.opened) == 2 else 1)
status = os.waitpid(child, 0)[1]
POOL._lock.release()
brokers.broker_sockets[id(mine)].settimeout(0.2)
try:
    alive = brokers.broker_sockets[id(mine)].recv(1) != b""
except TimeoutError:
    alive = True
print(os.waitstatus_to_exitcode(status), acquire(POOL) is mine, alive)
""")
    assert done.stdout.strip() == "0 True True", done.stderr


def test_a_forked_child_shares_no_connection_of_any_pool() -> None:
    done = run_forking_process("""
other = ConnectionPool()
idle = acquire(other)
other.release(idle)
child = os.fork()
if child == 0:
    os._exit(0 if acquire(other) is not idle and idle.closed else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), acquire(other) is idle)
""")
    assert done.stdout.strip() == "0 True", done.stderr


def test_forked_child_does_not_reuse_connection_acquired_by_parent() -> None:
    """A child that closes what it inherited releases connections of its parent."""
    done = run_forking_process("""
child = os.fork()
if child == 0:
    POOL.release(mine)
    os._exit(0 if acquire(POOL) is not mine and mine.closed else 1)
status = os.waitpid(child, 0)[1]
POOL.release(mine)
print(os.waitstatus_to_exitcode(status), acquire(POOL) is mine)
""")
    assert done.stdout.strip() == "0 True", done.stderr


def test_clear_closes_idle_connections(pool: ConnectionPool) -> None:
    idle, acquired = acquire(pool), acquire(pool)
    pool.release(idle)
    pool.clear()
    assert idle.closed
    assert not acquired.closed
    pool.release(acquired)
    assert acquire(pool) is acquired
    pool.release(acquired)


def test_closed_pool_retains_no_connection(pool: ConnectionPool) -> None:
    """An abandoned thread may release a connection, or even acquire a new one, later; the pool closes both."""
    idle, acquired = acquire(pool), acquire(pool)
    pool.release(idle)
    pool.close()
    assert idle.closed
    assert not acquired.closed
    late = acquire(pool)
    for connection in (acquired, late):
        pool.release(connection)
        assert connection.closed


def test_the_idle_time_is_in_milliseconds(brokers: Brokers) -> None:
    system = FakeTimeSystem()
    pool = ConnectionPool(system)
    settings = replace(SETTINGS, connections_max_idle_ms=500_000)
    connection = acquire(pool, settings)
    pool.release(connection)
    system.now += 499.9
    pool.release(acquire(pool))
    assert not connection.closed
    system.now += 0.2
    pool.release(acquire(pool))
    assert connection.closed
    pool.close()
