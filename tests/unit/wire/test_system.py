"""What is asked of the machine comes from the object that was handed down."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import replace
from queue import Queue
from typing import TYPE_CHECKING, Any
from urllib.request import Request, build_opener

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC, Broker
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import ConnectionPool
from pyspark_kafka_direct.wire.system import SYSTEM, Address, jittered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = ConnectionSettings((("broker.nowhere", 9092),))


class Elsewhere(Frozen):
    """A world in which time stands still, and every name is one broker of this machine.

    Attributes:
        port: Its port.
        refusals: How many calls it refuses first.
        dialled: Names that were looked up for calls.
    """

    def __init__(self, port: int, refusals: int = 0) -> None:
        super().__init__()
        self.port = port
        self.refusals = refusals
        self.dialled: list[str] = []

    def look_up(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        self.dialled.append(host)
        return super().look_up("127.0.0.1", self.port, family, flags)

    def dial(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionRefusedError("not yet")
        return super().dial(address, seconds, receive_buffer, send_buffer)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def world(broker: Broker) -> Elsewhere:
    return Elsewhere(broker.port)


@pytest.fixture
def pool(world: Elsewhere) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(world)
    yield pool
    pool.close()


def test_a_connection_is_dialled_in_the_world_of_its_deadline(world: Elsewhere) -> None:
    connection = Connection.open(SETTINGS, "broker.nowhere", 9092, Deadline.after(60, system=world))
    assert world.dialled == ["broker.nowhere"]
    assert (connection.system, connection.last_used) == (world, world.now)
    connection.close()


def test_a_cluster_lives_in_the_world_of_its_pool(world: Elsewhere, pool: ConnectionPool, broker: Broker) -> None:
    """Calls are refused for a minute, which takes no time."""
    world.refusals = 40
    settings = replace(SETTINGS, connect_timeout_ms=120_000, default_api_timeout_ms=240_000)
    began = time.monotonic()
    cluster = Cluster(settings, pool=pool)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 42}
    assert Group(cluster, "g").committed([PARTITION]) == {PARTITION: 7}
    assert world.now == 1000 + sum(world.slept)
    assert 30 < sum(world.slept) < 120
    assert time.monotonic() - began < 30


def test_a_group_of_a_cluster_that_was_never_reached_is_given_up_soon(world: Elsewhere, pool: ConnectionPool) -> None:
    """A wrong address does not get better by waiting for a minute."""
    world.refusals = 10_000
    with pytest.raises(BrokerUnreachableError):
        Group(Cluster(SETTINGS, pool=pool), "g").commit({PARTITION: 1})
    assert sum(world.slept) < 12


def test_metadata_ages_by_the_clock_of_the_pool(world: Elsewhere, pool: ConnectionPool, broker: Broker) -> None:
    cluster = Cluster(replace(SETTINGS, metadata_max_age_ms=60_000), pool=pool)
    for seconds, asked in [(0, 1), (59, 1), (2, 2)]:
        world.now += seconds
        assert cluster.partition(PARTITION).leader == 1
        assert broker.asked["Metadata"] == asked


def test_idle_connections_age_by_the_clock_of_the_pool(world: Elsewhere, pool: ConnectionPool, broker: Broker) -> None:
    cluster = Cluster(replace(SETTINGS, connections_max_idle_ms=1000), pool=pool)
    # The second is one to the address that the broker gives.
    for seconds, connections in [(0, 1), (0, 2), (0.9, 2), (1.1, 3)]:
        world.now += seconds
        cluster.topics([TOPIC])
        assert broker.connections == connections


def test_who_is_asked_first_is_chance(world: Elsewhere) -> None:
    world.chance = 0.25
    assert ConnectionPool(world).rotation == 0.25


def test_a_deadline_is_on_the_clock_of_its_system_and_so_is_what_is_narrowed_from_it(world: Elsewhere) -> None:
    deadline = Deadline.after(10, system=world)
    narrowed = deadline.sooner(4)
    assert (deadline.remaining(), narrowed.remaining(), narrowed.system) == (10, 4, world)
    world.now += 4
    assert (deadline.remaining(), narrowed.remaining(), narrowed.expired) == (6, 0, True)
    assert deadline == Deadline(deadline.at), "the system is no part of the moment"


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 8.0), (0.5, 10.0), (0.999, 11.996)])
def test_a_pause_is_up_to_a_fifth_shorter_or_longer(world: Elsewhere, chance: float, pause: float) -> None:
    world.chance = chance
    assert jittered(10, world) == pytest.approx(pause)


def test_a_name_that_takes_too_long_is_left_behind(world: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[str, float]] = []

    def run(function: Callable[[], None], name: str, seconds: float) -> None:
        waited.append((name, seconds))

    def unknown(*_: object) -> list[Address]:
        raise socket.gaierror

    monkeypatch.setattr(world, "run", run, raising=False)
    monkeypatch.setattr(world, "look_up", unknown)
    with pytest.raises(BrokerTimeoutError, match="not resolved in time"):
        Connection.open(SETTINGS, "broker.nowhere", 9092, Deadline.after(60, system=world))
    assert waited == [("pyspark-kafka-direct-resolver", 60)]


class TestTheMachine:
    """``SYSTEM`` does what it says."""

    def test_clocks(self) -> None:
        assert SYSTEM.monotonic() <= time.monotonic() <= SYSTEM.monotonic()
        assert abs(SYSTEM.wall_time() - time.time()) < 60
        began = time.monotonic()
        SYSTEM.sleep(0.01)
        assert time.monotonic() - began >= 0.01

    def test_chance(self) -> None:
        numbers = {SYSTEM.random() for _ in range(20)}
        assert len(numbers) == 20
        assert all(0 <= number < 1 for number in numbers)

    def test_a_function_that_ends_is_waited_for_and_another_is_not(self) -> None:
        release, done = threading.Event(), threading.Event()
        SYSTEM.run(lambda: (time.sleep(0.05), done.set())[1], "quick", 60)  # type: ignore[func-returns-value]
        assert done.is_set()
        ended = threading.Event()
        SYSTEM.run(lambda: (release.wait(60), ended.set())[1], "slow", 0.01)  # type: ignore[func-returns-value]
        assert not ended.is_set()
        release.set()

    def test_no_thread_keeps_the_process_alive(self) -> None:
        threads: Queue[tuple[str, bool]] = Queue()

        def note() -> None:
            threads.put((threading.current_thread().name, threading.current_thread().daemon))

        SYSTEM.start(note, "one")
        assert threads.get(timeout=60) == ("one", True)
        SYSTEM.run(note, "another", 60)
        assert threads.get(timeout=60) == ("another", True)

    def test_a_nonce_is_long_and_never_the_same(self) -> None:
        nonces = {SYSTEM.nonce() for _ in range(20)}
        assert {len(nonce) for nonce in nonces} == {32}
        assert len(nonces) == 20

    def test_a_url_is_opened_within_a_time(self) -> None:
        opener = build_opener()
        opener.open = lambda request, timeout: (request.full_url, timeout)  # type: ignore[assignment, method-assign, misc]
        assert SYSTEM.open_url(opener, Request("https://sso.nowhere/token"), 7.5) == ("https://sso.nowhere/token", 7.5)

    def test_names(self) -> None:
        found = SYSTEM.look_up("127.0.0.1", 9092, socket.AF_UNSPEC, socket.AI_NUMERICHOST)
        assert [(each.family, each.kind, each.address) for each in found] == [
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 9092))
        ]
        with pytest.raises(socket.gaierror, match="not a legal host name"):
            SYSTEM.look_up("a..b", 9092, socket.AF_UNSPEC, 0)

    def test_dialling(self) -> None:
        receive, send = (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, socket.SO_SNDBUF)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sized:
            sized.setsockopt(*receive, 70_000)
            sized.setsockopt(*send, 60_000)
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            with SYSTEM.dial(address, 7.5, 70_000, 60_000) as sock:
                assert sock.getpeername() == server.getsockname()
                assert sock.gettimeout() == 7.5
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert [sock.getsockopt(*each) for each in (receive, send)] == [
                    sized.getsockopt(*each) for each in (receive, send)
                ]

    @pytest.mark.parametrize("size", [0, -1])
    def test_the_machine_may_choose_the_buffers(self, size: int) -> None:
        receive, send = (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, socket.SO_SNDBUF)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            with SYSTEM.dial(address, 60, size, size) as sock, socket.create_connection(server.getsockname()) as usual:
                assert [sock.getsockopt(*each) for each in (receive, send)] == [
                    usual.getsockopt(*each) for each in (receive, send)
                ]

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_listening(self, host: str) -> None:
        with SYSTEM.listen(host, 0) as listener:
            with pytest.raises(BlockingIOError):
                listener.accept()
            port = listener.getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                SYSTEM.listen(host, port)
            with socket.create_connection((host, port), 20):
                assert SYSTEM.wait_ready([listener.fileno()], [], 20) == {listener.fileno()}
                listener.accept()[0].close()
        SYSTEM.listen(host, port).close()

    @pytest.mark.parametrize("poll", [True, False], ids=["poll", "select, as on Windows"])
    def test_waiting_for_several_sockets(self, monkeypatch: pytest.MonkeyPatch, poll: bool) -> None:
        if not poll:
            monkeypatch.delattr(select, "poll")
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            assert SYSTEM.wait_ready([one.fileno()], [], 0) == set()
            assert SYSTEM.wait_ready([one.fileno()], [one.fileno()], 20) == {one.fileno()}
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.send(b"x" * 65536)
            assert SYSTEM.wait_ready([], [one.fileno()], 0) == set()
            began = time.monotonic()
            assert SYSTEM.wait_ready([one.fileno()], [one.fileno()], 0.05) == set()
            assert time.monotonic() - began >= 0.04
            assert SYSTEM.wait_ready([one.fileno(), other.fileno()], [one.fileno()], 20) == {other.fileno()}
            other.close()
            assert SYSTEM.wait_ready([], [one.fileno()], 20) == {one.fileno()}

    def test_a_connection_to_itself_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Mirror(socket.socket):
            def getsockname(self) -> Any:
                return self.getpeername()

        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            monkeypatch.setattr(socket, "socket", Mirror)
            with pytest.raises(ConnectionRefusedError):
                SYSTEM.dial(address, 60, -1, -1)

    def test_waiting(self) -> None:
        condition, lock = threading.Condition(), threading.Lock()
        with condition:
            assert not SYSTEM.wait(condition, 0.01)
            SYSTEM.start(lambda: _notify(condition), "notifies")
            assert SYSTEM.wait(condition, 60)
        assert SYSTEM.acquire(lock, 0.01)
        assert not SYSTEM.acquire(lock, 0.01)

    @pytest.mark.parametrize("poll", [True, False], ids=["poll", "select, as on Windows"])
    def test_a_socket_is_readable_when_there_is_something_to_read_or_its_end(
        self, monkeypatch: pytest.MonkeyPatch, poll: bool
    ) -> None:
        if not poll:
            monkeypatch.delattr(select, "poll")
        near, far = socket.socketpair()
        with near:
            assert not SYSTEM.readable(near.fileno())
            far.close()
            assert SYSTEM.readable(near.fileno())

    def test_signals(self) -> None:
        signal = SYSTEM.signal()
        assert not SYSTEM.readable(signal.fileno())
        signal.take()  # which was not given
        threading.Timer(0.05, signal.give).start()
        SYSTEM.wait_readable([signal.fileno()], 20)
        assert SYSTEM.readable(signal.fileno())
        for _ in range(100_000):  # more than a socket holds
            signal.give()
        signal.take()
        assert not SYSTEM.readable(signal.fileno())
        signal.close()
        signal.give()

    def test_nobody_there(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(BrokerUnreachableError, match="nothing listens there"):
            Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(20))


def _notify(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()


def test_what_gets_no_thread_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ran: list[int] = []
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        SYSTEM.run(lambda: ran.append(threading.get_ident()), "a thread", 20)
    assert ran == [threading.get_ident()]
    SYSTEM.run(lambda: ran.append(threading.get_ident()), "a thread", 20)
    assert ran[1] != ran[0]
