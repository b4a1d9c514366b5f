"""The world outside: time, pauses, chance, names, sockets and threads, all from one object.

Nothing else in the rooms that talk to brokers, read, write or plan looks at a clock, sleeps or dials. So a made-up
world can stand in its place: one where time is a number, and brokers answer from a script.

Who lives for long (the pool, a connection, a cluster) has its system from who made it. Who works within one wait has it
from the wait's ``Deadline``.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import urllib.request
    from collections.abc import Callable, Collection

_BACKLOG = 1024  # all tasks of a job may connect at once


class Address(NamedTuple):
    """Where to dial, as ``socket.getaddrinfo`` says it.

    Attributes:
        family: Address family.
        kind: Kind of socket.
        protocol: Protocol.
        address: What ``socket.connect`` takes.
    """

    family: int
    kind: int
    protocol: int
    address: Any


class Signal(Protocol):
    """Something to wait for beside sockets: one thread gives it, another finds it in ``wait_readable``."""

    def fileno(self) -> int:
        """Return the descriptor that is readable once it was given."""

    def give(self) -> None:
        """Give it; from any thread, and as often as you like."""

    def take(self) -> None:
        """Make it as if it had not been given."""

    def close(self) -> None:
        """Be done with it."""


class System(Protocol):
    """What a process uses of its machine: clocks, pauses, chance, sockets and threads. Several threads may share it."""

    def __hash__(self) -> int:
        """Tell systems apart: tokens are kept for each."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""

    def wall_time(self) -> float:
        """Return seconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Wait so long."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""

    def nonce(self) -> str:
        """Return a text that nobody can guess."""

    def look_up(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        """Ask the resolver for the addresses of a name.

        Raises:
            OSError: The name has no address.
        """

    def dial(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        """Connect over TCP.

        Args:
            address: Where to.
            seconds: How long it may take.
            receive_buffer: Bytes of the receive buffer; 0 or less for the default of the machine.
            send_buffer: Bytes of the send buffer, likewise.

        Raises:
            OSError: Nobody answers, or nobody is there.
        """

    def listen(self, host: str, port: int) -> socket.socket:
        """Return a socket that listens for TCP connections, and does not block.

        Args:
            host: Name or address of this machine.
            port: Port; 0 for any that is free.

        Raises:
            OSError: It is no address of this machine, or the port is taken.
        """

    def readable(self, descriptor: int) -> bool:
        """Tell whether a socket has bytes, or its end, to read now."""

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        """Wait until one of several sockets has bytes, or its end, to read; so long at most."""

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        """Wait likewise, also for room to write; return those sockets that are ready or broken."""

    def signal(self) -> Signal:
        """Return a new signal."""

    def open_url(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
        """Send an HTTP request and return the response.

        Raises:
            OSError: Nobody answers, or the answer is an error.
        """

    def start(self, run: Callable[[], None], name: str) -> None:
        """Run a function in a thread of its own, which does not keep the process alive."""

    def run(self, run: Callable[[], None], name: str, seconds: float) -> None:
        """Run a function as ``start`` does, and wait so long for its end; if it takes longer it is left behind.

        Where no thread is to be had it runs in this one, however long it takes.
        """

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        """Wait for a condition, which the caller holds, to be notified; return whether it was in time."""

    def acquire(self, lock: threading.Lock, seconds: float) -> bool:
        """Take a lock; return whether it was free in time."""


class RealSystem:
    """The machine itself, without state."""

    __slots__ = ()

    # Clocks are looked at often, so no function of ours is called for it.
    monotonic = staticmethod(time.monotonic)
    wall_time = staticmethod(time.time)
    random = staticmethod(random.random)

    def sleep(self, seconds: float) -> None:
        """See ``System``."""
        time.sleep(seconds)

    def nonce(self) -> str:
        """See ``System``."""
        from secrets import token_urlsafe

        return token_urlsafe(24)

    def look_up(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        """See ``System``."""
        try:
            answer = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags)
        except UnicodeError:  # a label that is empty or too long
            raise socket.gaierror(socket.EAI_NONAME, "not a legal host name") from None
        return [Address(family, kind, protocol, address) for family, kind, protocol, _, address in answer]

    def dial(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        """See ``System``."""
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
                # Where nothing listens, a port of the local ephemeral range can connect to itself (TCP simultaneous
                # open).
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self, host: str, port: int) -> socket.socket:
        """See ``System``."""
        family = self.look_up(host, port, socket.AF_UNSPEC, 0)[0].family
        sock = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        sock.setblocking(False)
        return sock

    def readable(self, descriptor: int) -> bool:
        """See ``System``."""
        return _wait_readable([descriptor], 0)

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        """See ``System``."""
        if descriptors:
            _wait_readable(descriptors, seconds)
        else:
            time.sleep(seconds)

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        """See ``System``."""
        return _wait_ready(to_read, to_write, seconds)

    def signal(self) -> Signal:
        """See ``System``."""
        return _SocketSignal()

    def open_url(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
        """See ``System``."""
        return opener.open(request, timeout=seconds)

    def start(self, run: Callable[[], None], name: str) -> None:
        """See ``System``."""
        threading.Thread(target=run, name=name, daemon=True).start()

    def run(self, run: Callable[[], None], name: str, seconds: float) -> None:
        """See ``System``."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending (Python 3.12), or the machine has no more
            run()
            return
        thread.join(seconds)

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        """See ``System``."""
        return condition.wait(seconds)

    def acquire(self, lock: threading.Lock, seconds: float) -> bool:
        """See ``System``."""
        return lock.acquire(timeout=seconds)


class _SocketSignal:
    """A pair of sockets, as Windows waits for nothing else."""

    def __init__(self) -> None:
        self._taker, self._giver = socket.socketpair()
        self._taker.setblocking(False)
        self._giver.setblocking(False)

    def fileno(self) -> int:
        return self._taker.fileno()

    def give(self) -> None:
        with contextlib.suppress(OSError):  # full: it was given often enough; closed: nobody waits any more
            self._giver.send(b"\0")

    def take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._taker.recv(4096):
                pass

    def close(self) -> None:
        self._taker.close()
        self._giver.close()


def _wait_readable(descriptors: Collection[int], seconds: float) -> bool:
    if not hasattr(select, "poll"):  # Windows, whose select has no limit on descriptor numbers
        return bool(select.select(descriptors, [], [], seconds)[0])
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(math.ceil(seconds * 1000)))


def _wait_ready(to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
    if not hasattr(select, "poll"):  # Windows, where a connection that failed is told apart
        readable, writable, failed = select.select(to_read, to_write, to_write, seconds)
        return {*readable, *writable, *failed}
    poll = select.poll()
    wanted = dict.fromkeys(to_read, select.POLLIN)
    for descriptor in to_write:
        wanted[descriptor] = wanted.get(descriptor, 0) | select.POLLOUT
    for descriptor, events in wanted.items():
        poll.register(descriptor, events)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


SYSTEM: Final[System] = RealSystem()
"""The machine itself."""


def jittered(seconds: float, system: System) -> float:
    """Return a pause up to a fifth shorter or longer, so that those who wait together do not go on together."""
    return seconds * (0.8 + 0.4 * system.random())
