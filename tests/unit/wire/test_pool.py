"""The pool: who gets which connection, when one is closed, and what a fork does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.lending import lend
from tests.unit.wire.systems import Sleepless

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire import pool as pool_module
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = ConnectionSettings((("broker", 9092),))


class Brokers:
    """Opens connections to nowhere: socket pairs whose other ends are kept."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []
        self.patience: list[float] = []
        self.made: list[Connection] = []  # kept, so that no two connections share an id
        self.far_ends: dict[int, socket.socket] = {}
        self.down = False
        self.silent = False

    def open(self, settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> Connection:
        self.opened.append((host, port))
        self.patience.append(deadline.remaining())
        if self.down:
            raise BrokerUnreachableError("down", broker=f"{host}:{port}")
        if self.silent:
            raise BrokerTimeoutError("silent", broker=f"{host}:{port}")
        near, far = socket.socketpair()
        connection = Connection(settings, near, host, port)
        self.made.append(connection)
        self.far_ends[id(connection)] = far
        return connection

    def hang_up(self, connection: Connection) -> None:
        self.far_ends[id(connection)].close()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    brokers = Brokers()
    monkeypatch.setattr(Connection, "open", brokers.open)
    yield brokers
    for far in brokers.far_ends.values():
        far.close()


@pytest.fixture
def pool(brokers: Brokers) -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    pool.close()


def borrow(
    pool: ConnectionPool, settings: ConnectionSettings = SETTINGS, host: str = "broker", port: int = 9092
) -> Connection:
    return pool.borrow(settings, host, port, Deadline.after(20))


def test_a_connection_is_used_again(pool: ConnectionPool, brokers: Brokers) -> None:
    first = borrow(pool)
    pool.give_back(first)
    assert borrow(pool) is first
    assert len(brokers.opened) == 1
    pool.give_back(first)


def test_the_newest_goes_first(pool: ConnectionPool) -> None:
    one, two = borrow(pool), borrow(pool)
    pool.give_back(one)
    pool.give_back(two)
    assert borrow(pool) is two
    assert borrow(pool) is one
    pool.give_back(one)
    pool.give_back(two)


def test_lent_connections_are_nobody_elses(pool: ConnectionPool) -> None:
    with lend(pool, SETTINGS, "broker", 9092, Deadline.after(20)) as one:
        other = borrow(pool)
        assert other is not one
        pool.give_back(other)


def test_other_settings_or_another_broker_get_their_own(pool: ConnectionPool) -> None:
    mine = borrow(pool)
    pool.give_back(mine)
    others = [
        borrow(pool, replace(SETTINGS, client_id="other")),
        borrow(pool, host="elsewhere"),
        borrow(pool, port=9093),
    ]
    assert mine not in others
    assert borrow(pool, replace(SETTINGS)) is mine  # equal settings, not the same object
    for connection in (*others, mine):
        pool.give_back(connection)


def test_a_connection_the_broker_closed_is_not_handed_out(pool: ConnectionPool, brokers: Brokers) -> None:
    dead = borrow(pool)
    pool.give_back(dead)
    brokers.hang_up(dead)
    fresh = borrow(pool)
    assert fresh is not dead
    assert dead.closed
    pool.give_back(fresh)


def test_bytes_nobody_asked_for_disqualify_a_connection(pool: ConnectionPool, brokers: Brokers) -> None:
    odd = borrow(pool)
    pool.give_back(odd)
    brokers.far_ends[id(odd)].sendall(b"?")
    fresh = borrow(pool)
    assert fresh is not odd
    pool.give_back(fresh)


def test_a_connection_that_awaits_an_answer_is_not_kept(pool: ConnectionPool) -> None:
    busy = borrow(pool)
    busy.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(20))
    pool.give_back(busy)
    assert busy.closed
    pool.give_back(busy)  # harmless
    fresh = borrow(pool)
    assert fresh is not busy
    pool.give_back(fresh)


def test_an_error_while_lent_closes_the_connection(pool: ConnectionPool) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        lend(pool, SETTINGS, "broker", 9092, Deadline.after(20)) as connection,
    ):
        raise ZeroDivisionError
    assert connection.closed


def test_idle_connections_are_bounded(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> None:
    monkeypatch.setattr(pool_module, "_IDLE", 6)
    same = [borrow(pool) for _ in range(6)]
    for connection in same:
        pool.give_back(connection)
    assert [connection.closed for connection in same] == [True, True, False, False, False, False]
    others = [borrow(pool, host=f"broker-{number}") for number in range(4)]
    for connection in others:
        pool.give_back(connection)
    assert not any(connection.closed for connection in others)
    assert sum(not connection.closed for connection in same) == 2


def test_connections_unused_for_too_long_are_closed(pool: ConnectionPool) -> None:
    short = replace(SETTINGS, connections_max_idle_ms=1)
    forever = replace(SETTINGS, connections_max_idle_ms=-1)
    old, kept = borrow(pool, short), borrow(pool, forever)
    pool.give_back(old)
    pool.give_back(kept)
    old.last_used = kept.last_used = time.monotonic() - 1000
    pool.give_back(borrow(pool))  # whatever touches the pool sweeps it
    assert old.closed
    assert not kept.closed


def test_a_broker_that_failed_is_approached_slowly(brokers: Brokers) -> None:
    system = Sleepless()
    pool, slept = ConnectionPool(system), system.slept
    settings = replace(
        SETTINGS,
        reconnect_backoff_ms=2000,  # nobody sleeps so long, and no busy machine takes so long between two tries
        reconnect_backoff_max_ms=8000,
        connect_timeout_ms=4000,
        connect_timeout_max_ms=12_000,
    )
    brokers.down = True
    for _ in range(5):
        with pytest.raises(BrokerUnreachableError):
            borrow(pool, settings)
    brokers.down = False
    pool.give_back(borrow(pool, settings))
    assert len(slept) == 5
    for pause, longest in zip(slept, [2, 4, 8, 8, 8], strict=True):
        assert 0 < pause <= 1.2 * longest
    # The time allowed for the connection grows with the failures (KIP-601).
    assert [round(seconds / 4) for seconds in brokers.patience] == [1, 2, 3, 3, 3, 3]
    slept.clear()
    borrow(pool, settings, host="other").close()
    borrow(pool, settings).close()
    borrow(pool, settings).close()
    assert slept == []  # success forgets the failures
    pool.close()


def test_a_silent_broker_loses_its_idle_connections(pool: ConnectionPool, brokers: Brokers) -> None:
    """They look alive; whoever took one would wait as long again."""
    mine, elsewhere = borrow(pool), borrow(pool, host="elsewhere")
    pool.give_back(mine)
    pool.give_back(elsewhere)
    brokers.down = True
    with pytest.raises(BrokerUnreachableError):
        borrow(pool, replace(SETTINGS, client_id="other"))
    assert not mine.closed  # one refused connection says little about the others
    brokers.down, brokers.silent = False, True
    with pytest.raises(BrokerTimeoutError):
        borrow(pool, replace(SETTINGS, client_id="other"))
    assert mine.closed
    assert not elsewhere.closed
    assert pool.failed_at(("broker", 9092)) > 0.0 == pool.failed_at(("elsewhere", 9092))


def test_a_request_without_an_answer_counts_as_well(pool: ConnectionPool, brokers: Brokers) -> None:
    slow, mine = borrow(pool), borrow(pool)
    pool.give_back(mine)
    slow.send(1, 4, "Fetch", b"", flexible=False, deadline=Deadline.after(20))
    with pytest.raises(BrokerTimeoutError):
        slow.receive(Deadline.after(0.01))
    pool.give_back(slow)
    assert mine.closed
    assert pool.failed_at(("broker", 9092)) > 0.0
    fresh = borrow(pool)  # at once: no connection has failed
    assert pool.failed_at(("broker", 9092)) == 0.0
    pool.give_back(fresh)


def test_many_threads_share_the_pool(pool: ConnectionPool) -> None:
    lent: set[int] = set()
    twice: deque[int] = deque()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            connection = borrow(pool)
            with lock:
                if id(connection) in lent:
                    twice.append(id(connection))
                lent.add(id(connection))
            with lock:
                lent.discard(id(connection))
            pool.give_back(connection)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not twice


def fork_of_its_own(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that may fork: brokers are made up, and ``mine`` is a connection borrowed from the pool."""
    start = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_pool import *
from pyspark_kafka_direct.wire.pool import POOL
brokers = Brokers()
Connection.open = brokers.open
mine = borrow(POOL)
"""
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=60)


def test_a_forked_child_starts_with_an_empty_pool() -> None:
    done = fork_of_its_own("""
POOL.give_back(mine)
POOL._lock.acquire()  # as if another thread of the parent held it at the moment of the fork
child = os.fork()
if child == 0:
    fresh = borrow(POOL)
    os._exit(0 if fresh is not mine and mine.closed and len(brokers.opened) == 2 else 1)
status = os.waitpid(child, 0)[1]
POOL._lock.release()
brokers.far_ends[id(mine)].settimeout(0.2)
try:
    alive = brokers.far_ends[id(mine)].recv(1) != b""
except TimeoutError:
    alive = True
print(os.waitstatus_to_exitcode(status), borrow(POOL) is mine, alive)
""")
    assert done.stdout.strip() == "0 True True", done.stderr


def test_a_forked_child_does_not_lend_what_its_parent_has_borrowed() -> None:
    """A child that ends what it has of its parent gives connections back that are the parent's."""
    done = fork_of_its_own("""
child = os.fork()
if child == 0:
    POOL.give_back(mine)
    os._exit(0 if borrow(POOL) is not mine and mine.closed else 1)
status = os.waitpid(child, 0)[1]
POOL.give_back(mine)
print(os.waitstatus_to_exitcode(status), borrow(POOL) is mine)
""")
    assert done.stdout.strip() == "0 True", done.stderr


def test_clearing_the_pool_closes_what_is_idle(pool: ConnectionPool) -> None:
    idle, lent = borrow(pool), borrow(pool)
    pool.give_back(idle)
    pool.clear()
    assert idle.closed
    assert not lent.closed
    pool.give_back(lent)
    assert borrow(pool) is lent
    pool.give_back(lent)


def test_a_closed_pool_keeps_nothing(pool: ConnectionPool) -> None:
    """A thread that was left behind may give back what it had, or even connect anew; nobody else would close that."""
    idle, lent = borrow(pool), borrow(pool)
    pool.give_back(idle)
    pool.close()
    assert idle.closed
    assert not lent.closed
    late = borrow(pool)
    for connection in (lent, late):
        pool.give_back(connection)
        assert connection.closed
