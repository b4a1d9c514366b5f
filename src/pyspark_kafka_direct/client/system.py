"""Time, randomness, name resolution, sockets, threads and locks: what a simulation replaces, in one object.

The packages that contact brokers, read, write or plan use nothing else to read a clock, sleep or connect. Long-lived
objects (pool, connection, cluster client) get their system from their creator, a single wait from its ``Deadline``.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import select
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import urllib.request
    from collections.abc import Callable, Collection
    from concurrent.futures import Future
    from types import TracebackType

_T = TypeVar("_T")

_BACKLOG = 1024  # all tasks of a job may connect at once


class Address(NamedTuple):
    """An address to connect to, as returned by ``socket.getaddrinfo``."""

    family: int
    kind: int
    protocol: int
    address: Any


class WakeupSignal(Protocol):
    """Wakes a thread that waits in ``wait_readable``; any thread may set it."""

    def fileno(self) -> int:
        """Return the descriptor that is readable while the signal is set."""

    def set(self) -> None:
        """Set the signal; has no effect if it is set already."""

    def clear(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock; to acquire it with a timeout, call ``System.acquire``."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None:
        """Release the lock; unless it is re-entrant, any thread may."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Condition(Protocol):
    """A condition with a re-entrant lock; to wait for it, call ``System.wait``."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait on the machine's clock; only ``RealSystem`` calls it."""

    def notify(self, n: int = 1) -> None: ...

    def notify_all(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Finalizer(Protocol):
    """A call that is made when an object was collected."""

    def detach(self) -> object:
        """Prevent the call."""


class System(Protocol):
    """Clocks, sleep, randomness, sockets, threads and locks of a process. Several threads may share it."""

    def __hash__(self) -> int:
        """Identify the system: cached tokens belong to one system."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes backwards."""

    def wall_time(self) -> float:
        """Return seconds since 1970."""

    def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """Return a random number in [0, 1)."""

    def nonce(self) -> str:
        """Return a random string for security purposes."""

    def resolve_host(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        """Resolve a host name; raises ``OSError`` if it has no address."""

    def connect_tcp(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        """Connect over TCP; a buffer size of 0 or less means the machine's default."""

    def listen(self, host: str, port: int) -> socket.socket:
        """Return a non-blocking socket that listens for TCP connections; port 0 means any free port."""

    def bind_udp(self, host: str) -> socket.socket:
        """Return a blocking socket that receives datagrams on any free port of a host name or address."""

    def connect_udp(self, host: str, port: int) -> socket.socket:
        """Return a blocking socket that sends datagrams to an address, and receives only those from there."""

    def readable(self, descriptor: int) -> bool:
        """Return whether a socket has bytes, or its end, to read now."""

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        """Wait until a socket has bytes, or its end, to read, or until the time is up."""

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        """Wait until a socket is readable or writable; return the sockets that are ready or broken."""

    def wakeup_signal(self) -> WakeupSignal: ...

    def open_url(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
        """Send an HTTP request and return the response; raises ``OSError`` for connection and HTTP errors."""

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        """Run a function in a new daemon thread."""

    def finalize(self, owner: object, call: Callable[..., object], *args: object) -> Finalizer:
        """Call a function once the owner was collected, or when the process exits; ``detach()`` prevents both."""

    def run_with_timeout(self, run: Callable[[], None], name: str, seconds: float) -> None:
        """Run a function in a new daemon thread; the thread is abandoned if it exceeds the timeout."""

    def thread_id(self) -> int:
        """Return a number that identifies the calling thread among those that run."""

    def lock(self) -> Lock: ...

    def reentrant_lock(self) -> Lock: ...

    def condition(self, lock: Lock | None = None) -> Condition:
        """Return a condition; ``lock`` is its re-entrant lock, which is cheaper to acquire than the condition."""

    def acquire(self, lock: Lock, seconds: float) -> bool:
        """Acquire a lock; return whether it was free in time."""

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        """Wait until a condition that the caller holds is notified; return whether it was in time."""

    def wait_for_future(self, future: Future[Any], seconds: float | None) -> None:
        """Wait until a future is done, or until the time is up."""


class RealSystem:
    """The machine itself, without state."""

    __slots__ = ()

    # These are called often: without a method of their own, each call is cheaper.
    monotonic = staticmethod(time.monotonic)
    wall_time = staticmethod(time.time)
    random = staticmethod(random.random)  # noqa: S311 - varies waiting times
    thread_id = staticmethod(threading.get_ident)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def nonce(self) -> str:
        return os.urandom(16).hex()  # as `secrets`, without its imports

    def resolve_host(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        try:
            addresses = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags)
        except UnicodeError:  # a label that is empty or too long
            raise socket.gaierror(socket.EAI_NONAME, "not a legal host name") from None
        return [Address(family, kind, protocol, address) for family, kind, protocol, _, address in addresses]

    def connect_tcp(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        sock = socket.socket(*address[:3])
        try:
            # A receive buffer only takes full effect (window scaling) when it is set before the connection is made.
            if receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if send_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.settimeout(seconds)
            sock.connect(address.address)
            if sock.getsockname() == sock.getpeername():
                # If nothing listens, a local ephemeral port can connect to itself (TCP simultaneous open).
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self, host: str, port: int) -> socket.socket:
        family = self.resolve_host(host, port, socket.AF_UNSPEC, 0)[0].family
        sock = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        sock.setblocking(False)
        return sock

    def bind_udp(self, host: str) -> socket.socket:
        return _open_udp(host, 0, socket.socket.bind)

    def connect_udp(self, host: str, port: int) -> socket.socket:
        return _open_udp(host, port, socket.socket.connect)

    def readable(self, descriptor: int) -> bool:
        return _wait_readable([descriptor], 0)

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        if descriptors:
            _wait_readable(descriptors, seconds)
        else:
            time.sleep(seconds)

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        return _wait_ready(to_read, to_write, seconds)

    def wakeup_signal(self) -> WakeupSignal:
        return _SocketWakeupSignal()

    def open_url(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
        return opener.open(request, timeout=seconds)

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def finalize(self, owner: object, call: Callable[..., object], *args: object) -> Finalizer:
        return weakref.finalize(owner, call, *args)

    def run_with_timeout(self, run: Callable[[], None], name: str, seconds: float) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down (Python 3.12), or the machine has no more threads
            run()  # without a timeout
            return
        thread.join(seconds)

    def lock(self) -> Lock:
        return threading.Lock()

    def reentrant_lock(self) -> Lock:
        return threading.RLock()

    def condition(self, lock: Lock | None = None) -> Condition:
        return threading.Condition(lock)  # type: ignore[arg-type]

    def acquire(self, lock: Lock, seconds: float) -> bool:
        return lock.acquire(timeout=seconds)

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        return condition.wait(seconds)

    def wait_for_future(self, future: Future[Any], seconds: float | None) -> None:
        if not future.done():
            from concurrent.futures import wait

            wait([future], seconds)


class _SocketWakeupSignal:
    """A socket pair, because Windows can wait for sockets only."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def set(self) -> None:
        with contextlib.suppress(OSError):  # full: the signal is set; closed: no thread waits for it
            self._sender.send(b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


def _wait_readable(descriptors: Collection[int], seconds: float) -> bool:
    if not hasattr(select, "poll"):  # Windows, whose select has no limit on descriptor numbers
        return bool(select.select(descriptors, [], [], seconds)[0])
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(math.ceil(seconds * 1000)))


def _wait_ready(to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
    if not hasattr(select, "poll"):  # Windows reports failed connections separately
        readable, writable, failed = select.select(to_read, to_write, to_write, seconds)
        return {*readable, *writable, *failed}
    poll = select.poll()
    events = dict.fromkeys(to_read, select.POLLIN)
    for descriptor in to_write:
        events[descriptor] = events.get(descriptor, 0) | select.POLLOUT
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


SYSTEM: Final[System] = RealSystem()


def start_call(system: System, call: Callable[[], _T], name: str) -> Future[_T]:
    """Call a function in a new daemon thread; ``System.wait_for_future`` waits until it has returned."""
    from concurrent.futures import Future  # most workers need none

    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    system.start_thread(run, name)
    return future


def wait_until(system: System, condition: Condition, predicate: Callable[[], bool], seconds: float | None) -> bool:
    """Wait, with the condition acquired, until ``predicate()`` is true at once or after a notification; return it."""
    deadline = None if seconds is None else system.monotonic() + seconds
    while not predicate():
        remaining = None if deadline is None else deadline - system.monotonic()
        if remaining is not None and remaining <= 0:
            return False
        system.wait(condition, remaining)
    return True


def after_fork(reset: Callable[[], object]) -> None:
    """Call a function in each forked child: threads of the parent, which may hold locks, do not run there."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=reset)


def with_jitter(seconds: float, system: System) -> float:
    """Return a pause up to 20% shorter or longer, so that clients that wait together do not retry together."""
    return seconds * (0.8 + 0.4 * system.random())


def _open_udp(host: str, port: int, attach: Callable[[socket.socket, Any], None]) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        attach(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
