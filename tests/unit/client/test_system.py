"""The real machine, and what waits on it."""

from __future__ import annotations

import contextlib
import gc
import select
import socket
import threading
import time
from concurrent.futures import Future
from queue import Queue
from typing import TYPE_CHECKING, Any
from urllib.request import Request, build_opener

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM, Address, start_call, wait_until, with_jitter
from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import Condition

SETTINGS = ConnectionSettings((("broker.nowhere", 9092),))


def test_first_broker_is_random() -> None:
    assert ConnectionPool(FakeTimeSystem(random_value=0.25)).rotation == 0.25


def test_deadlines_use_clock_of_their_system() -> None:
    system = FakeTimeSystem()
    deadline = Deadline.after(10, system=system)
    limited = deadline.limited_to(4)
    assert (deadline.remaining(), limited.remaining(), limited.system) == (10, 4, system)
    system.now += 4
    assert (deadline.remaining(), limited.remaining(), limited.expired) == (6, 0, True)
    assert deadline == Deadline(deadline.at), "equality ignores the system"


@pytest.mark.parametrize(("random_value", "pause"), [(0.0, 8.0), (0.5, 10.0), (0.999, 11.996)])
def test_jitter_is_up_to_20_percent(random_value: float, pause: float) -> None:
    assert with_jitter(10, FakeTimeSystem(random_value=random_value)) == pytest.approx(pause)


class TestRealSystem:
    """``SYSTEM`` is the real machine."""

    def test_clocks(self) -> None:
        assert SYSTEM.monotonic() <= time.monotonic() <= SYSTEM.monotonic()
        assert abs(SYSTEM.wall_time() - time.time()) < 60
        started = time.monotonic()
        SYSTEM.sleep(0.01)
        assert time.monotonic() - started >= 0.01

    def test_random(self) -> None:
        numbers = {SYSTEM.random() for _ in range(20)}
        assert len(numbers) == 20
        assert all(0 <= number < 1 for number in numbers)

    def test_run_with_timeout_waits_at_most_the_timeout(self) -> None:
        release, done = threading.Event(), threading.Event()
        SYSTEM.run_with_timeout(lambda: (time.sleep(0.05), done.set())[1], "quick", 60)  # type: ignore[func-returns-value]
        assert done.is_set()
        ended = threading.Event()
        SYSTEM.run_with_timeout(lambda: (release.wait(120), ended.set())[1], "slow", 0.01)  # type: ignore[func-returns-value]
        assert not ended.is_set()
        release.set()

    def test_threads_are_daemons(self) -> None:
        threads: Queue[tuple[str, bool]] = Queue()

        def record_thread() -> None:
            threads.put((threading.current_thread().name, threading.current_thread().daemon))

        SYSTEM.start_thread(record_thread, "one")
        assert threads.get(timeout=120) == ("one", True)
        SYSTEM.run_with_timeout(record_thread, "another", 120)
        assert threads.get(timeout=120) == ("another", True)

    def test_locks(self) -> None:
        lock, reentrant_lock = SYSTEM.lock(), SYSTEM.reentrant_lock()
        with lock:
            assert not SYSTEM.acquire(lock, 0.01)
        with reentrant_lock, reentrant_lock:
            assert SYSTEM.acquire(reentrant_lock, 0.01)
        lock.acquire()
        thread_ids: list[int] = []
        SYSTEM.run_with_timeout(lambda: (thread_ids.append(SYSTEM.thread_id()), lock.release())[1], "release", 60)  # type: ignore[func-returns-value]
        assert SYSTEM.acquire(lock, 120)
        assert thread_ids != [SYSTEM.thread_id()]

    def test_futures(self) -> None:
        future: Future[int] = Future()
        SYSTEM.wait_for_future(future, 0.01)
        assert not future.done()
        threading.Timer(0.05, future.set_result, [3]).start()
        SYSTEM.wait_for_future(future, 120)
        assert future.result(0) == 3
        SYSTEM.wait_for_future(future, None)

    def test_nonces_are_long_and_unique(self) -> None:
        nonces = {SYSTEM.nonce() for _ in range(20)}
        assert {len(nonce) for nonce in nonces} == {32}
        assert len(nonces) == 20

    def test_open_url_has_a_timeout(self) -> None:
        opener = build_opener()
        opener.open = lambda request, timeout: (request.full_url, timeout)  # type: ignore[assignment, method-assign, misc]
        assert SYSTEM.open_url(opener, Request("https://sso.nowhere/token"), 7.5) == ("https://sso.nowhere/token", 7.5)

    def test_names(self) -> None:
        addresses = SYSTEM.resolve_host("127.0.0.1", 9092, socket.AF_UNSPEC, socket.AI_NUMERICHOST)
        assert [(each.family, each.kind, each.address) for each in addresses] == [
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 9092))
        ]
        with pytest.raises(socket.gaierror, match="not a legal host name"):
            SYSTEM.resolve_host("a..b", 9092, socket.AF_UNSPEC, 0)

    def test_connect_tcp(self) -> None:
        receive, send = (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, socket.SO_SNDBUF)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as reference:
            reference.setsockopt(*receive, 70_000)
            reference.setsockopt(*send, 60_000)
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            with SYSTEM.connect_tcp(address, 7.5, 70_000, 60_000) as sock:
                assert sock.getpeername() == server.getsockname()
                assert sock.gettimeout() == 7.5
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert [sock.getsockopt(*each) for each in (receive, send)] == [
                    reference.getsockopt(*each) for each in (receive, send)
                ]

    @pytest.mark.parametrize("size", [0, -1])
    def test_default_buffer_sizes(self, size: int) -> None:
        receive, send = (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, socket.SO_SNDBUF)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            with (
                SYSTEM.connect_tcp(address, 60, size, size) as sock,
                socket.create_connection(server.getsockname()) as default,
            ):
                assert [sock.getsockopt(*each) for each in (receive, send)] == [
                    default.getsockopt(*each) for each in (receive, send)
                ]

    def test_a_socket_for_datagrams_is_closed_if_it_cannot_be_bound(self) -> None:
        with pytest.raises(OSError, match="assign"):
            SYSTEM.bind_udp("203.0.113.1")  # of no machine (RFC 5737)
        gc.collect()  # an unclosed socket is reported now, and fails the test

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_listening(self, host: str) -> None:
        with SYSTEM.listen(host, 0) as listener:
            with pytest.raises(BlockingIOError):
                listener.accept()
            port = listener.getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                SYSTEM.listen(host, port)
            with socket.create_connection((host, port), 120):
                assert SYSTEM.wait_ready([listener.fileno()], [], 120) == {listener.fileno()}
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
            started = time.monotonic()
            assert SYSTEM.wait_ready([one.fileno()], [], 0.0005) == set()
            assert time.monotonic() - started >= 0.0004, "a short wait is no busy loop"
            assert SYSTEM.wait_ready([one.fileno()], [one.fileno()], 20) == {one.fileno()}
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.send(b"x" * 65536)
            other.send(b"x")
            assert SYSTEM.wait_ready([], [one.fileno()], 0) == set(), "it has bytes to read, but cannot be written"
            assert SYSTEM.wait_ready([one.fileno()], [one.fileno()], 0) == {one.fileno()}
            one.recv(1)
            started = time.monotonic()
            assert SYSTEM.wait_ready([one.fileno()], [one.fileno()], 0.05) == set()
            assert time.monotonic() - started >= 0.04
            assert SYSTEM.wait_ready([one.fileno(), other.fileno()], [one.fileno()], 20) == {other.fileno()}
            third, fourth = socket.socketpair()
            with third, fourth:
                writable = {other.fileno(), third.fileno()}
                assert SYSTEM.wait_ready([], [one.fileno(), *writable], 20) == writable
                third.send(b"x")
                assert SYSTEM.wait_ready([one.fileno(), other.fileno(), fourth.fileno()], [], 20) == {
                    other.fileno(),
                    fourth.fileno(),
                }
            other.close()
            assert SYSTEM.wait_ready([], [one.fileno()], 20) == {one.fileno()}

    def test_connection_to_itself_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Mirror(socket.socket):
            def getsockname(self) -> Any:
                return self.getpeername()

        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(socket.AF_INET, socket.SOCK_STREAM, 0, server.getsockname())
            monkeypatch.setattr(socket, "socket", Mirror)
            with pytest.raises(ConnectionRefusedError):
                SYSTEM.connect_tcp(address, 60, -1, -1)

    def test_waiting(self) -> None:
        condition, lock = SYSTEM.condition(), SYSTEM.lock()
        with condition, condition:  # re-entrant
            assert not SYSTEM.wait(condition, 0.01)
            SYSTEM.start_thread(lambda: _notify_all(condition), "notifies")
            assert SYSTEM.wait(condition, 120)
        assert SYSTEM.acquire(lock, 0.01)
        assert not SYSTEM.acquire(lock, 0.01)

    @pytest.mark.parametrize("poll", [True, False], ids=["poll", "select, as on Windows"])
    def test_socket_is_readable_with_bytes_or_at_its_end(self, monkeypatch: pytest.MonkeyPatch, poll: bool) -> None:
        if not poll:
            monkeypatch.delattr(select, "poll")
        near, far = socket.socketpair()
        with near:
            assert not SYSTEM.readable(near.fileno())
            far.close()
            assert SYSTEM.readable(near.fileno())

    def test_waiting_until_any_socket_is_readable(self) -> None:
        sockets = [each for _ in range(3) for each in socket.socketpair()]
        with contextlib.ExitStack() as stack:
            for each in sockets:
                stack.enter_context(each)
            near, far = sockets[::2], sockets[1::2]
            for each in far:
                each.send(b"x")
                started = time.monotonic()
                SYSTEM.wait_readable([sock.fileno() for sock in near], 20)
                assert time.monotonic() - started < 10
                near[far.index(each)].recv(1)

    def test_signals(self) -> None:
        signal = SYSTEM.wakeup_signal()
        assert not SYSTEM.readable(signal.fileno())
        signal.clear()  # which is not set
        threading.Timer(0.05, signal.set).start()
        SYSTEM.wait_readable([signal.fileno()], 120)
        assert SYSTEM.readable(signal.fileno())
        for _ in range(100_000):  # more than the socket's buffer holds
            signal.set()
        signal.clear()
        assert not SYSTEM.readable(signal.fileno())
        signal.close()
        signal.set()

    def test_connection_refused_by_the_machine(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(BrokerUnreachableError, match="nothing listens there"):
            Connection.open(SETTINGS, "127.0.0.1", port, Deadline.after(120))


def _notify_all(condition: Condition) -> None:
    with condition:
        condition.notify_all()


def test_function_runs_in_calling_thread_if_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ran: list[int] = []
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        SYSTEM.run_with_timeout(lambda: ran.append(threading.get_ident()), "a thread", 120)
    assert ran == [threading.get_ident()]
    SYSTEM.run_with_timeout(lambda: ran.append(threading.get_ident()), "a thread", 120)
    assert ran[1] != ran[0]


def test_wait_until_the_condition_holds_or_the_time_is_over() -> None:
    condition, found = SYSTEM.condition(), list[int]()
    with condition:
        assert wait_until(SYSTEM, condition, lambda: True, 0.0)
        assert not wait_until(SYSTEM, condition, lambda: bool(found), 0.0)
        assert not wait_until(SYSTEM, condition, lambda: bool(found), 0.05)

    def notify() -> None:
        for number in range(3):
            with condition:
                found.append(number)
                condition.notify_all()

    for seconds in (None, 120.0):
        found.clear()
        notifier = threading.Thread(target=notify)
        with condition:
            notifier.start()
            assert wait_until(SYSTEM, condition, lambda: len(found) == 3, seconds)
        notifier.join(120)


def test_a_wait_lasts_for_the_remaining_time_only() -> None:
    class Stepping(FakeTimeSystem):
        waits: tuple[float, ...] = ()

        def wait(self, condition: Condition, seconds: float | None) -> bool:
            assert seconds is not None
            self.waits += (seconds,)
            self.now += 2.0  # a notification that is of no use
            return True

    system = Stepping()
    condition = system.condition()
    with condition:
        assert not wait_until(system, condition, lambda: False, 5.0)
    assert system.waits == (5.0, 3.0, 1.0)


def test_a_condition_that_holds_at_the_end_of_the_wait_is_met() -> None:
    class Late(FakeTimeSystem):
        def wait(self, condition: Condition, seconds: float | None) -> bool:
            found.append(1)  # another thread waits for the lock in order to notify
            self.now += seconds or 0.0
            return False

    system, found = Late(), list[int]()
    condition = system.condition()
    with condition:
        assert wait_until(system, condition, lambda: bool(found), 5.0)


@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt])
def test_a_call_in_a_thread_returns_or_raises(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("why")

    returned, failed = start_call(SYSTEM, lambda: 5, "returns"), start_call(SYSTEM, fail, "fails")
    for future in (returned, failed):
        SYSTEM.wait_for_future(future, 20)
    assert returned.result(0) == 5
    with pytest.raises(error, match="why"):
        failed.result(0)


def test_datagrams_are_sent_and_received() -> None:
    with SYSTEM.bind_udp("127.0.0.1") as receiver:
        receiver.settimeout(120)
        with SYSTEM.connect_udp(*receiver.getsockname()[:2]) as sender:
            sender.send(b"content")
            content, address = receiver.recvfrom(100)
            assert receiver.getsockname()[1] > 1023
            assert (content, address) == (b"content", sender.getsockname())
